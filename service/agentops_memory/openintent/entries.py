"""Entries of agents' memory: fields, rows, sealed values, filters, visibility, and events.

Their changes are in `changes`.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, Field, PlainSerializer, SkipValidation, WithJsonSchema

from ..engine.engine import Sealed, Sealer, Transaction
from ..errors import NotFound, Unavailable, Unreadable
from ..http import query
from ..http.bodies import FLAGS, Param, choice, parsing
from ..light import dataclass, replace
from ..memory import agent_memory
from ..memory.access import LONGEST_AGENT, AgentId, TenantId
from ..memory.agent_memory import EXISTING, SEALED, Binding, Labels, Priority, Tier, Viewer
from ..memory.memory import (
    ENDED,
    EXPIRES_AT,
    Lifecycle,
    MemoryId,
    expired as is_expired,
    live,
    undeleted,
)
from ..memory.redactor import MAX_KEY, MAX_TAG, Redactor, as_json
from ..memory.rows import Column, RowMapper, count, micros
from ..memory.table import Attributes, Sql, Table, step
from ..recall.text import object_of
from .api import INSTANT, MAX_NAME, NO_ENTRY, PREFIX, FullRecord, Time

MEMORY = f"{PREFIX}/memory"
MAX_TAGS = 100  # tags in a condition
TASK_LIFETIME = "task_lifetime"  # a ttl
ANY = "*"  # at the end of a namespace: any suffix
_VALUE = b'"value":null'


class KeyLost(Unavailable):
    """The value is sealed, and no key in the seal file opens it (§9.2)."""

    sentence = (
        "This value cannot be opened: its key is not in the seal file, or it is damaged. Put "
        "the file back; until then you can give the entry a new value, or delete it."
    )


class EntryKey(NamedTuple):
    """The unique key of a live entry (§1.2); a semantic entry has no owner."""

    tier: Tier
    owner: AgentId | None
    namespace: str
    key: str

    @property
    def named(self) -> dict[str, Any]:
        """The columns that identify its space."""
        return {"tier": self.tier.value, "agent": self.owner or "", "namespace": self.namespace}


def _unreadable(schema: dict[str, Any]) -> None:
    member = {"const": True, "description": "Present if its key is lost."}
    schema["properties"]["unreadable"] = member


def names_of(labels: Labels) -> dict[str, str]:
    """Return the task and the intent of labels, under the names in the API."""
    names = {"task_id": labels.task, "intent_id": labels.intent}
    return {name: label for name, label in names.items() if label is not None}


class AgentEntry(FullRecord):
    """An entry; its JSON always has every member."""

    model_config = ConfigDict(json_schema_extra=_unreadable)
    is_tagged: ClassVar = True

    id: Annotated[
        agent_memory.AgentEntryId, Column("m.uid"),
        PlainSerializer(lambda it: query.public_id(query.ENTRY, it), return_type=str),
    ]  # fmt: skip
    # Its owner; the creator of a semantic entry.
    agent_id: Annotated[AgentId, Column("coalesce(nullif(p.agent, ''), a.created_by)")]
    namespace: Annotated[str, Column("p.namespace")]
    key: Annotated[str, Column("coalesce(m.key, l.held_key)")]
    value: Annotated[  # compact JSON, or `[sensitivity]` until it is unsealed
        SkipValidation[str], Column("m.content"), PlainSerializer(lambda _: None),
        WithJsonSchema({"type": "object"}),
    ]  # fmt: skip
    memory_type: Annotated[Tier, Column("p.tier")]
    scope: Annotated[Labels, PlainSerializer(names_of, return_type=dict[str, str])]
    tags: Annotated[tuple[str, ...], Column("m.tags")] = ()
    ttl: str | None = None
    pinned: Annotated[bool, Column("a.is_pinned")] = False
    priority: Annotated[
        Priority,
        PlainSerializer(lambda it: it.name.lower(), return_type=Literal["low", "normal", "high"]),
    ] = Priority.NORMAL
    sensitivity: agent_memory.Sensitivity | None = None
    curated_by: str | None = None
    created_by: AgentId
    version: Annotated[int, Column("m.revision")]
    created_at: Annotated[Time, Column("m.created_at")]
    updated_at: Annotated[Time, Column("m.updated_at")]
    # The expiry that was set, or the one that follows from the ttl.
    expires_at: Annotated[Time | None, EXPIRES_AT] = None
    memory: Annotated[MemoryId, Column("m.id"), Field(exclude=True)]
    is_own_expiry: bool = Field(default=False, exclude=True)  # set itself, not by the ttl
    # Whether the attempt at its task has ended: readers then see it in an archive only.
    has_ended: Annotated[bool, Column(agent_memory.HAS_ENDED), Field(exclude=True)] = False

    @property
    def owner(self) -> AgentId | None:
        return None if self.memory_type is Tier.SEMANTIC else self.agent_id

    @property
    def entry_key(self) -> EntryKey:
        return EntryKey(self.memory_type, self.owner, self.namespace, self.key)

    @property
    def is_sealed(self) -> bool:
        """Whether the value is stored encrypted."""
        return self.sensitivity in SEALED

    @property
    def is_lost(self) -> bool:
        """Whether its sealed value cannot be opened: its key is missing."""
        return self.is_sealed and not self.value.startswith("{")

    @property
    def size(self) -> int:
        """The size of its value in bytes."""
        return len(self.value) if self.value.isascii() else len(self.value.encode())

    def is_live(self, now: datetime) -> bool:
        """Return whether the entry has neither ended nor expired."""
        ends = Lifecycle(expires_at=self.expires_at)
        return not self.has_ended and not ends.is_expired(now)

    def json_bytes(self) -> bytes:
        """Return the JSON that is sent; a lost value is `{}`, so that lists can still be read."""
        # No member before the value can contain `_VALUE`.
        record = self.__pydantic_serializer__.to_json(self, by_alias=True)
        if self.is_lost:
            return record.replace(_VALUE, b'"value":{}', 1)[:-1] + b',"unreadable":true}'
        return record.replace(_VALUE, b'"value":' + self.value.encode(), 1)

    @property
    def attributes(self) -> Attributes:
        return {
            "memory.tier": self.memory_type.value, "memory.namespace": self.namespace,
            "memory.entry.id": query.public_id(query.ENTRY, self.id),
            "memory.entry.version": self.version, "memory.entry.size": self.size,
        }  # fmt: skip


# Filters of lists.


def _tags(text: str) -> tuple[str, ...] | None:
    tags = tuple(dict.fromkeys(filter(None, text.split(","))))
    return tags if len(tags) <= MAX_TAGS else None


_TAGS = parsing(_tags, f"must have at most {MAX_TAGS} tags", ())
CONDITIONS = (
    Param(name="namespace", help="The name of the namespace, or a prefix ending with `*`."),
    Param(name="key", help="The key."),
    choice("memory_type", Tier, "The tier.", into="tier"),
    Param(name="pinned", into="is_pinned", kind="boolean",
          read=parsing(FLAGS.get, "must be true or false"),
          help="Only pinned entries (`true`), or only others (`false`)."),
    Param(name="tags", into="every_tag", read=_TAGS,
          help="Comma-separated tags; entries must have all of them."),
    Param(name="tags_any", into="any_tag", read=_TAGS,
          help="Comma-separated tags; entries must have at least one."),
    Param(name="scope.task_id", into="task", help="Only entries that name this task."),
    Param(name="scope.intent_id", into="intent", help="Only entries that name this intent."),
    Param(name="updated_after", kind="instant", read=INSTANT,
          help="Only entries changed after this time."),
    Param(name="updated_before", kind="instant", read=INSTANT,
          help="Only entries changed before this time."),
)  # fmt: skip
FILTER = (
    Param(name="agent_id", into="agent",
          help="Only entries of this agent; semantic ones that it created."),
    *CONDITIONS,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFilter:
    """The conditions on listed entries (§4.1); None or an empty value is no condition."""

    agent: AgentId | None = None
    namespace: str | None = None
    is_prefix: bool = False  # whether the namespace is a prefix
    key: str | None = None
    tier: Tier | None = None
    every_tag: tuple[str, ...] = ()
    any_tag: tuple[str, ...] = ()
    is_pinned: bool | None = None
    task: str | None = None
    intent: str | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None

    @classmethod
    def of(
        cls, *, namespace: str | None = None, is_prefix: bool = True, **conditions: Any
    ) -> "AgentFilter":
        """Return the filter of these arguments; `namespace*` is a prefix, if that is allowed."""
        if namespace is None or not (is_prefix and namespace.endswith(ANY)):
            return cls(namespace=namespace, **conditions)
        return cls(namespace=namespace.removesuffix(ANY), is_prefix=True, **conditions)

    def names(self, column: str) -> str:
        """Return the SQL condition that the namespace in a column matches."""
        if self.namespace is None:
            return "TRUE"
        named = f"substr({column}, 1, length(:namespace))" if self.is_prefix else column
        return f"{named} = :namespace"

    def clean(self, redactor: Redactor) -> "AgentFilter":
        """Return the filter without secrets, as stored entries have none."""

        def text(value: str | None, most: int) -> str | None:
            return None if value is None else redactor.text(value, most)

        return replace(
            self, namespace=text(self.namespace, MAX_NAME), key=text(self.key, MAX_KEY),
            every_tag=clean_tags(redactor, self.every_tag),
            any_tag=clean_tags(redactor, self.any_tag),
            task=text(self.task, LONGEST_AGENT), intent=text(self.intent, LONGEST_AGENT),
        )  # fmt: skip

    def condition(
        self, tx: Transaction, visible: agent_memory.Visibility
    ) -> tuple[str, dict[str, object]]:
        """Return the SQL condition for visible entries that match, and its parameters."""
        after, before = self.updated_after, self.updated_before
        conditions: dict[str, tuple[str, object]] = {
            "agent": ("(p.agent = :agent OR (p.agent = '' AND a.created_by = :agent))", self.agent),
            "namespace": (self.names("p.namespace"), self.namespace),
            "key": ("coalesce(m.key, l.held_key) = :key", self.key),
            "tier": ("p.tier = :tier", self.tier and self.tier.value),
            "is_pinned": ("a.is_pinned = :is_pinned", self.is_pinned),
            "task": ("a.task = :task", self.task),
            "intent": ("a.intent = :intent", self.intent),
            "updated_after": ("m.updated_at > :updated_after", after and micros(after)),
            "updated_before": ("m.updated_at < :updated_before", before and micros(before)),
        }
        parts = [EXISTING, visible.condition]
        values: dict[str, object] = {**visible.values}
        for name, (condition, value) in conditions.items():
            if value is not None:
                parts.append(condition)
                values[name] = value
        for which, tags in (("any", self.any_tag), ("every", self.every_tag)):
            # In the stored JSON array, a tag between quotes matches whole items only.
            quoted = (json.dumps(tag, ensure_ascii=False) for tag in tags)
            texts = {f"{which}_{at}": text for at, text in enumerate(quoted)}
            has = [tx[Sql].dialect.contains("m.tags", f":{name}") for name in texts]
            parts += [f"({' OR '.join(has)})"] if has and which == "any" else has
            values |= texts
        return " AND ".join(parts), values


EVERY_ENTRY = AgentFilter()


def clean_tags(redactor: Redactor, tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(redactor.text(tag, MAX_TAG) for tag in tags))


# Rows: an entry is a memory with a row in agent_memories, and one in seals if it is sealed.

_JOINS = """JOIN memories m ON m.id = a.memory_id
             JOIN agent_spaces p ON p.space_id = m.space_id
             LEFT JOIN lifecycles l ON l.memory_id = m.id"""
ENTRIES = f"agent_memories a {_JOINS}"


def _require_sound(entry: AgentEntry) -> None:
    if entry.scope.binding is Binding.TASK and entry.scope.attempt is None:
        raise Unreadable
    if not entry.is_sealed:
        object_of(entry.value)
    elif not entry.is_lost:  # a stored value of this sensitivity is only a mark
        raise Unreadable


ENTRY = RowMapper(
    AgentEntry, "agent_memories", "m.id", alias="a.", joins=_JOINS, check=_require_sound,
    also={Column("a.tier"): Tier},
)  # fmt: skip


@dataclass(eq=False)
class SealTable(Table):
    """The sealed values in a transaction, each bound to its tenant and its entry's key."""

    _sealer: Sealer | None
    _tenant: TenantId

    def put(self, memory: MemoryId, key: EntryKey, value: str) -> None:
        """Seal the value of an entry; raise Unavailable without a seal file."""
        if self._sealer is None:
            raise Unavailable("There is no seal file, so nothing confidential can be stored.")
        seal = self._sealer.seal(value, self._bound_to(key))
        self.remove(memory)
        self._insert("seals", memory_id=memory, key=seal.key, nonce=seal.nonce, sealed=seal.text)

    def remove(self, memory: MemoryId) -> None:
        self._execute("DELETE FROM seals WHERE memory_id = :id", id=memory)

    def page(self, after: MemoryId, limit: int) -> list[AgentEntry]:
        """Return the next sealed entries of all agents after a memory, opened if possible."""
        which = f"""a.sensitivity IN {tuple(sorted(map(str, SEALED)))} AND a.memory_id > :after
                    ORDER BY a.memory_id
                    LIMIT :limit"""
        return self.opened(self._fetch_all(ENTRY, which, after=after, limit=limit))

    def opened(self, entries: Iterable[AgentEntry]) -> list[AgentEntry]:
        """Return the entries with sealed values opened, where the seal file has their keys."""
        every = list(entries)
        ids = [entry.memory for entry in every if entry.is_lost]
        if not ids:
            return every
        rows = self._execute(
            f"""SELECT memory_id, key, nonce, sealed
                  FROM seals
                 WHERE memory_id IN (SELECT value FROM {self._sql.ids("listed")})""",
            ids=json.dumps(ids),
        )
        sealed = {id_: Sealed(key=k, nonce=n, text=text) for id_, k, n, text in rows}
        return [self._opened(it, sealed.get(it.memory)) if it.is_lost else it for it in every]

    def _opened(self, entry: AgentEntry, sealed: Sealed | None) -> AgentEntry:
        if self._sealer is None or sealed is None:
            return entry
        value = self._sealer.opened(sealed, self._bound_to(entry.entry_key))
        return entry if value is None else entry.model_copy(update={"value": value})

    def _bound_to(self, key: EntryKey) -> bytes:
        return json.dumps([self._tenant, *key]).encode()


def entries_of(tx: Transaction, rows: Iterable[Any]) -> list[AgentEntry]:
    """Return the entries in rows of ENTRY; damaged rows are noted and skipped."""
    return tx[SealTable].opened(tx[Sql].intact(rows, ENTRY))


def one(tx: Transaction, condition: str, /, **values: object) -> AgentEntry | None:
    """Return the first entry that matches a condition, regardless of visibility."""
    entry = tx[Sql].fetch(ENTRY, f"{condition} ORDER BY m.id LIMIT 1", **values)
    return tx[SealTable].opened([entry])[0] if entry and entry.is_lost else entry


def entry_with(tx: Transaction, memory: MemoryId) -> AgentEntry | None:
    """Return the entry of a memory, or None, regardless of visibility."""
    return one(tx, f"m.id = :id AND {undeleted('m')}", id=memory)


def entry_at(tx: Transaction, key: EntryKey) -> AgentEntry | None:
    """Return the entry at a key, even if it has expired, regardless of visibility."""
    return one(
        tx,
        f"""p.tier = :tier AND p.agent = :agent AND p.namespace = :namespace
            AND m.key = :key AND {undeleted("m")}""",
        key=key.key, **key.named,
    )  # fmt: skip


def known(tx: Transaction, entry: agent_memory.AgentEntryId, viewer: Viewer) -> AgentEntry:
    """Return the entry; raise NotFound if it is unknown, or the viewer may not see it."""
    here, of_viewer = f"m.uid = :uid AND {EXISTING} AND ", {"viewer": viewer.agent, "uid": entry}
    match = one(tx, here + agent_memory.OWN_OR_READABLE, is_admin=viewer.is_admin, **of_viewer)
    if match is None:  # most entries are the agent's own
        shared = agent_memory.readable(tx, viewer)
        match = one(tx, here + shared.condition, uid=entry, **shared.values)
    if match is None:
        raise NotFound(NO_ENTRY)
    return match


def _of_spaces(tx: Transaction) -> str:
    """Return the FROM clause of entries, read by spaces: those of other agents are skipped."""
    dialect = tx[Sql].dialect
    return f"""agent_spaces p
               {dialect.leads} memories m {dialect.hint("memories_in_space")}
                 ON m.space_id = p.space_id
               JOIN agent_memories a ON a.memory_id = m.id
               LEFT JOIN lifecycles l ON l.memory_id = m.id"""


def ids_of(
    tx: Transaction, filter_: AgentFilter, visible: agent_memory.Visibility, limit: int, offset: int
) -> list[tuple[MemoryId, int]]:
    """Return the ids of visible entries, newest first, with the sizes of their values."""
    condition, values = filter_.condition(tx, visible)
    order = f"ORDER BY m.id DESC LIMIT {limit:d} OFFSET {offset:d}"
    statement = f"SELECT m.id, a.size FROM {_of_spaces(tx)} WHERE {condition} {order}"
    return [(MemoryId(id_), count(size)) for id_, size in tx[Sql].run(statement, **values)]


def total(tx: Transaction, filter_: AgentFilter, visible: agent_memory.Visibility) -> int:
    """Count the visible entries that match."""
    condition, values = filter_.condition(tx, visible)
    return tx[Sql].number(f"SELECT count(*) FROM {_of_spaces(tx)} WHERE {condition}", **values)


def some(
    tx: Transaction, viewer: Viewer, memories: Sequence[MemoryId],
    filter_: AgentFilter = EVERY_ENTRY,
) -> list[AgentEntry]:  # fmt: skip
    """Return those of the memories that are visible and match the filter, in their order."""
    condition, values = filter_.condition(tx, agent_memory.readable(tx, viewer))
    dialect = tx[Sql].dialect
    return entries_of(tx, tx[Sql].run(
        f"""SELECT {ENTRY}
              FROM {dialect.ids("listed")}
             {dialect.leads} agent_memories a ON a.memory_id = listed.value
             {_JOINS}
             WHERE {condition}
          ORDER BY listed.key""",
        ids=json.dumps(memories), **values,
    ))  # fmt: skip


# Limits count working memory bound to a task with the task, and only unexpired entries.
BOUND = f"(a.tier = '{Tier.WORKING}' AND a.binding = {Binding.TASK:d})"
UNEXPIRED = f"(NOT {is_expired('a.memory_id')})"


def number_of(tx: Transaction, tier: Tier, agent: AgentId) -> int:
    """Count an agent's unexpired entries in a tier, except those bound to tasks."""
    return tx[Sql].number(  # by indexes: most entries are neither bound nor expired
        f"""SELECT (SELECT count(*) FROM agent_memories WHERE tier = :tier AND agent = :agent)
                 - (SELECT count(*)
                      FROM agent_memories a
                     WHERE a.tier = :tier AND a.agent = :agent AND {BOUND})
                 - (SELECT count(*)
                      FROM lifecycles l
                     {tx[Sql].dialect.leads} agent_memories a ON a.memory_id = l.memory_id
                     WHERE l.{ENDED} AND a.tier = :tier AND a.agent = :agent AND NOT {BOUND})""",
        tier=tier.value, agent=agent,
    )  # fmt: skip


def measured(tx: Transaction, what: str, condition: str, **values: object) -> int:
    """Return an aggregate over unexpired entries of any tier."""
    statement = f"SELECT {what} FROM agent_memories a WHERE {condition} AND {UNEXPIRED}"
    return count(tx[Sql].number(statement, **values))


def expired(
    tx: Transaction, limit: int, *, agent: AgentId | None = None, until: datetime | None = None
) -> list[AgentEntry]:
    """Return entries that have expired by `until` or now, earliest first; of one agent or any."""
    of_agent = "" if agent is None else " AND a.agent = :agent"
    return entries_of(tx, tx[Sql].run(
        f"""SELECT {ENTRY}
              FROM lifecycles l
             {tx[Sql].dialect.leads} agent_memories a ON a.memory_id = l.memory_id{of_agent}
              JOIN memories m ON m.id = a.memory_id
              JOIN agent_spaces p ON p.space_id = m.space_id
             WHERE l.{ENDED} AND NOT {agent_memory.HAS_ENDED}
          ORDER BY l.expires_at, m.id
             LIMIT :limit""",
        limit=limit, agent=agent, now=micros(until or tx.now),
    ))  # fmt: skip


@step("store.evict", lambda victim, *_: {"memory.evicted_count": int(victim is not None)})
def victim(
    tx: Transaction,
    agent: AgentId,
    but: Collection[MemoryId],
    intent: agent_memory.IntentId | None = None,
) -> AgentEntry | None:
    """Return the episodic entry to evict next (RFC-0015 §2.2), or None if all are pinned.

    The lowest priority goes first, then the least recently accessed, then the least recently
    updated; with an `intent`, only entries bound to it go.
    """
    of_intent = f" AND a.intent = :intent AND a.binding > {Binding.NONE:d}"
    dialect = tx[Sql].dialect
    ids = tx[Sql].column(  # by the index of victims, whose first entries rarely fail the conditions
        f"""SELECT m.id
              FROM agent_memories a
             {dialect.leads} memories m ON m.id = a.memory_id
             WHERE a.tier = '{Tier.EPISODIC}' AND a.agent = :agent AND a.is_pinned = FALSE
                   AND {live("m")}{of_intent if intent else ""}
                   AND m.id NOT IN (SELECT value FROM {dialect.ids("listed")})
          ORDER BY a.priority, a.accessed_at, m.updated_at, m.id
             LIMIT 1""",
        agent=agent, intent=intent, ids=json.dumps(list(but)),
    )  # fmt: skip
    return entry_with(tx, ids[0]) if ids else None


# Events.


def note(
    tx: Transaction, type_: agent_memory.EventType, entry: AgentEntry, actor: Viewer | None, *,
    before: AgentEntry | None = None, reason: str | None = None,
) -> None:  # fmt: skip
    """Add the event of a change; it contains no values (§5.2)."""
    payload: dict[str, object] = {
        "entry_id": entry.id, "namespace": entry.namespace, "key": entry.key,
        "memory_type": entry.memory_type.value, "version": entry.version, "tags": entry.tags,
    }  # fmt: skip
    if before is not None:
        payload["previous_version"] = before.version
    if reason is not None:
        payload["reason"] = reason
    who = None if actor is None else actor.agent
    owner = entry.owner or who or entry.created_by
    add_event(tx, type_, payload, entry.scope, agent=owner, actor=who)


def add_event(
    tx: Transaction, type_: str, payload: Mapping[str, object], labels: Labels, *,
    agent: AgentId | None, actor: AgentId | None,
) -> int:  # fmt: skip
    """Add an event to an agent's stream, in the transaction of the change; return its sequence.

    It is also in the log of the intent that the labels name.
    """
    sql = tx[Sql]
    event = sql.inserted(
        "events", uid=tx.new_uid(tx.now), type=type_, payload=as_json(payload),
        at=micros(tx.now),
    )  # fmt: skip
    sql.insert(
        "agent_events", event_id=event, agent=agent or "", actor=actor, task=labels.task,
        intent=labels.intent, binding=labels.binding,
    )  # fmt: skip
    return event
