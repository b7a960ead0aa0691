"""Entries of agents' memory: what they are, how they are stored and sealed, and who sees which.

Their changes are in `changes`.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, Field, PlainSerializer, SkipValidation, WithJsonSchema
from starlette.requests import Request

from ..engine.engine import Sealed, Sealer, Transaction
from ..errors import BadFields, NotFound, Unavailable, Unreadable
from ..http.bodies import query_of
from ..http.protocol import Parameter
from ..http.query import ENTRY as ENTRY_ID
from ..http.query import Query, parameter, public_id
from ..light import dataclass, replace
from ..memory import sight
from ..memory.access import LONGEST_AGENT, AgentId, TenantId
from ..memory.memory import ENDED, EXPIRES_AT, Lifecycle, MemoryId, live, undeleted
from ..memory.memory import expired as is_expired
from ..memory.redactor import MAX_KEY, MAX_TAG, Redactor
from ..memory.rows import Column, RowMapper, count, micros
from ..memory.sight import HERE, SEALED, Binding, Labels, Priority, Tier, Viewer, Visibility
from ..memory.table import Attributes, Sql, Table, step
from ..recall.text import object_of
from .api import MAX_NAME, NO_ENTRY, PREFIX, FullRecord, Json, Time, instant_in

MEMORY = f"{PREFIX}/memory"
MAX_TAGS = 100  # of a condition
ANY = "*"  # at the end of a namespace: whatever follows
_VALUE = b'"value":null'


class KeyLost(Unavailable):
    """The value is sealed, and nothing opens it now (§9.2)."""

    def __init__(self) -> None:
        super().__init__(
            "This value cannot be opened: its key is not in the seal file, or it is damaged. Put "
            "the file back; until then you can give the entry a new value, or delete it."
        )


class EntryKey(NamedTuple):
    """The one place of a live entry (§1.2); a semantic one has no owner."""

    tier: Tier
    owner: AgentId | None
    namespace: str
    key: str

    @property
    def named(self) -> dict[str, Any]:
        """Its space, as its row names it."""
        return {"tier": self.tier.value, "agent": self.owner or "", "namespace": self.namespace}


def _unreadable(schema: dict[str, Any]) -> None:
    member = {"const": True, "description": "There if its key is lost."}
    schema["properties"]["unreadable"] = member


def names_of(labels: Labels) -> dict[str, str]:
    """The task and the intent of labels, as clients name them."""
    names = {"task_id": labels.task, "intent_id": labels.intent}
    return {name: label for name, label in names.items() if label is not None}


class AgentEntry(FullRecord):
    """An entry; every member is always there."""

    model_config = ConfigDict(json_schema_extra=_unreadable)
    is_tagged: ClassVar = True

    id: Annotated[
        sight.AgentEntryId, Column("m.uid"),
        PlainSerializer(lambda it: public_id(ENTRY_ID, it), return_type=str),
    ]  # fmt: skip
    # Its owner; of a semantic one who has made it.
    agent_id: Annotated[AgentId, Column("coalesce(nullif(p.agent, ''), a.created_by)")]
    namespace: Annotated[str, Column("p.namespace")]
    key: Annotated[str, Column("coalesce(m.key, l.held_key)")]
    value: Annotated[  # compact JSON; of one that nothing opens any more, how secret it is
        SkipValidation[str], Column("m.content"), PlainSerializer(lambda _: None),
        WithJsonSchema({"type": "object"}),
    ]  # fmt: skip
    memory_type: Annotated[Tier, Column("p.tier", beside=("agent_spaces", "p.space_id"))]
    scope: Annotated[Labels, PlainSerializer(names_of, return_type=dict[str, str])]
    tags: Annotated[tuple[str, ...], Column("m.tags")] = ()
    ttl: str | None = None
    pinned: Annotated[bool, Column("a.is_pinned")] = False
    priority: Annotated[
        Priority,
        PlainSerializer(lambda it: it.name.lower(), return_type=Literal["low", "normal", "high"]),
    ] = Priority.NORMAL
    sensitivity: sight.Sensitivity | None = None
    curated_by: str | None = None
    created_by: AgentId
    version: Annotated[int, Column("m.revision")]
    created_at: Annotated[Time, Column("m.created_at")]
    updated_at: Annotated[Time, Column("m.updated_at")]
    # What was set, or what the ttl comes to.
    expires_at: Annotated[Time | None, EXPIRES_AT] = None
    memory: Annotated[MemoryId, Column("m.id"), Field(exclude=True)]
    is_own_expiry: bool = Field(default=False, exclude=True)  # whether it was set
    # With its task: the archive has it.
    has_ended: Annotated[bool, Column(sight.HAS_ENDED), Field(exclude=True)] = False

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
        """Whether its value cannot be read any more: it is sealed by a key that is gone."""
        return self.is_sealed and not self.value.startswith("{")

    @property
    def size(self) -> int:
        """The bytes of its value."""
        return len(self.value) if self.value.isascii() else len(self.value.encode())

    def is_live(self, now: datetime) -> bool:
        """Whether there is still such an entry at the instant."""
        ends = Lifecycle(expires_at=self.expires_at)
        return not self.has_ended and not ends.is_expired(now)

    def json_bytes(self) -> bytes:
        """As it is sent; if its key is lost, without its value, so that others can be read."""
        # Of the members before the value none can look like it.
        record = self.__pydantic_serializer__.to_json(self, by_alias=True)
        if isinstance(self.value, Json):
            return record.replace(_VALUE, b'"value":' + self.value.encode(), 1)
        if self.is_lost:
            return record.replace(_VALUE, b'"value":{}', 1)[:-1] + b',"unreadable":true}'
        text, value = self.value, object_of(self.value)
        if "\\u" in text:  # of a row only escapes can hide what is written otherwise
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return record.replace(_VALUE, b'"value":' + text.encode(), 1)

    @property
    def attributes(self) -> Attributes:
        return {
            "memory.tier": self.memory_type.value, "memory.namespace": self.namespace,
            "memory.entry.id": public_id(ENTRY_ID, self.id), "memory.entry.version": self.version,
            "memory.entry.size": self.size,
        }  # fmt: skip


# The filter of a list.

CONDITIONS = (
    Parameter(name="namespace", help="The name of the namespace, or a prefix of it with `*`."),
    Parameter(name="key", help="The key."),
    Parameter(name="memory_type", help="The tier.", choices=("working", "episodic", "semantic")),
    Parameter(
        name="pinned",
        kind="boolean",
        help="Only pinned entries (`true`), or only others (`false`).",
    ),
    Parameter(name="tags", help="Comma-separated tags; entries must have all of them."),
    Parameter(name="tags_any", help="Comma-separated tags; entries must have at least one."),
    Parameter(name="scope.task_id", help="Only entries that name this task."),
    Parameter(name="scope.intent_id", help="Only entries that name this intent."),
    Parameter(name="updated_after", kind="instant", help="Only entries changed after this time."),
    Parameter(name="updated_before", kind="instant", help="Only entries changed before this time."),
)
FILTER = (
    Parameter(name="agent_id", help="Only entries of this agent; semantic ones that it created."),
    *CONDITIONS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFilter:
    """Which entries a list has (§4.1); None and an empty value are no condition."""

    agent: AgentId | None = None
    namespace: str | None = None
    is_prefix: bool = False  # whether the namespace is how it begins
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
    def of(cls, request: Request, agent: AgentId | None = None) -> "AgentFilter":
        """Those of a query; of an agent that the path names, if it names one."""
        query, faults = query_of(request), list[tuple[str, str]]()
        namespace = parameter(query, "namespace")
        tier, pinned, named = (parameter(query, it) for it in ("memory_type", "pinned", "agent_id"))
        if tier is not None and tier not in [*Tier]:
            faults.append(("memory_type", f"must be one of {', '.join(Tier)}"))
        if pinned not in (None, "true", "false"):
            faults.append(("pinned", "must be true or false"))
        ends = "updated_after", "updated_before"
        after, before = (instant_in(query, name, faults) for name in ends)
        every_tag, any_tag = (_tags_in(query, name, faults) for name in ("tags", "tags_any"))
        if faults:
            raise BadFields(faults)
        is_prefix = bool(namespace and namespace.endswith(ANY))
        return cls(
            agent=agent or (None if named is None else AgentId(named)),
            namespace=namespace.removesuffix(ANY) if namespace and is_prefix else namespace,
            is_prefix=is_prefix, key=parameter(query, "key"),
            tier=None if tier is None else Tier(tier), every_tag=every_tag, any_tag=any_tag,
            is_pinned=None if pinned is None else pinned == "true",
            task=parameter(query, "scope.task_id"), intent=parameter(query, "scope.intent_id"),
            updated_after=after, updated_before=before,
        )  # fmt: skip

    def names(self, column: str) -> str:
        """The condition that the filter admits the namespace in a column."""
        if self.namespace is None:
            return "TRUE"
        named = f"substr({column}, 1, length(:namespace))" if self.is_prefix else column
        return f"{named} = :namespace"

    def clean(self, redactor: Redactor) -> "AgentFilter":
        """The same without secrets, as what is stored is."""

        def text(value: str | None, most: int) -> str | None:
            return None if value is None else redactor.text(value, most)

        return replace(
            self, namespace=text(self.namespace, MAX_NAME), key=text(self.key, MAX_KEY),
            every_tag=clean_tags(redactor, self.every_tag),
            any_tag=clean_tags(redactor, self.any_tag),
            task=text(self.task, LONGEST_AGENT), intent=text(self.intent, LONGEST_AGENT),
        )  # fmt: skip

    def condition(self, tx: Transaction, visible: Visibility) -> tuple[str, dict[str, object]]:
        """The condition that an entry fits and may be seen, and what it names."""
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
        parts = [HERE, visible.condition]
        values: dict[str, object] = {**visible.values}
        for name, (condition, value) in conditions.items():
            if value is not None:
                parts.append(condition)
                values[name] = value
        for which, tags in (("any", self.any_tag), ("every", self.every_tag)):
            # In the array as it is stored, a text between quotes is one of its items alone.
            quoted = (json.dumps(tag, ensure_ascii=False) for tag in tags)
            texts = {f"{which}_{at}": text for at, text in enumerate(quoted)}
            has = [tx[Sql].dialect.contains("m.tags", f":{name}") for name in texts]
            parts += [f"({' OR '.join(has)})"] if has and which == "any" else has
            values |= texts
        return " AND ".join(parts), values


EVERY_ENTRY = AgentFilter()


def _tags_in(query: Query, name: str, faults: list[tuple[str, str]]) -> tuple[str, ...]:
    tags = tuple(dict.fromkeys(filter(None, (parameter(query, name) or "").split(","))))
    if len(tags) > MAX_TAGS:
        faults.append((name, f"has at most {MAX_TAGS} tags"))
    return tags


def clean_tags(redactor: Redactor, tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(redactor.text(tag, MAX_TAG) for tag in tags))


# Rows: each entry is a memory with a row beside it, and sealed ones have another one.

ENTRIES = """agent_memories a
             JOIN memories m ON m.id = a.memory_id
             JOIN agent_spaces p ON p.space_id = m.space_id
             LEFT JOIN lifecycles l ON l.memory_id = m.id"""


def _require_sound(entry: AgentEntry) -> None:
    if entry.scope.binding is Binding.TASK and entry.scope.attempt is None:
        raise Unreadable
    sight.require_value(entry.value, entry.sensitivity)


ENTRY = RowMapper(
    AgentEntry, "agent_memories", "m.id", alias="a.", check=_require_sound, also={"a.tier": Tier}
)


@dataclass(eq=False)
class SealTable(Table):
    """The sealed values of one transaction, each bound to its tenant and its place."""

    _sealer: Sealer | None
    _tenant: TenantId

    def put(self, memory: MemoryId, key: EntryKey, value: str) -> None:
        """Seal the value of an entry; Unavailable where there are no keys."""
        if self._sealer is None:
            raise Unavailable("There is no seal file, so nothing confidential can be stored.")
        seal = self._sealer.seal(value, self._bound_to(key))
        self.remove(memory)
        self._insert("seals", memory_id=memory, key=seal.key, nonce=seal.nonce, sealed=seal.text)

    def remove(self, memory: MemoryId) -> None:
        self._execute("DELETE FROM seals WHERE memory_id = :id", id=memory)

    def page(self, after: MemoryId, limit: int) -> list[AgentEntry]:
        """Sealed entries of all agents behind one, opened where that can be done."""
        rows = self._execute(
            f"""SELECT {ENTRY}
                  FROM {ENTRIES}
                 WHERE a.sensitivity IN {tuple(sorted(map(str, SEALED)))} AND a.memory_id > :after
              ORDER BY a.memory_id
                 LIMIT :limit""",
            after=after, limit=limit,
        )  # fmt: skip
        return self.opened(self._intact(rows, ENTRY))

    def opened(self, entries: Iterable[AgentEntry]) -> list[AgentEntry]:
        """The entries with their values; whose stored one is no object is sealed."""
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
    """The entries in rows of ENTRY; what is damaged is noted, and left out."""
    return tx[SealTable].opened(tx[Sql].intact(rows, ENTRY))


def one(tx: Transaction, condition: str, /, **values: object) -> AgentEntry | None:
    """The first entry that fits a condition, regardless of visibility."""
    entry = tx[Sql].first(
        ENTRY, f"SELECT {ENTRY} FROM {ENTRIES} WHERE {condition} ORDER BY m.id LIMIT 1",
        **values,
    )  # fmt: skip
    return tx[SealTable].opened([entry])[0] if entry and entry.is_lost else entry


def entry_with(tx: Transaction, memory: MemoryId) -> AgentEntry | None:
    """The entry that a memory is, regardless of visibility; None if it is none."""
    return one(tx, f"m.id = :id AND {undeleted('m')}", id=memory)


def entry_at(tx: Transaction, key: EntryKey) -> AgentEntry | None:
    """The entry at a place, regardless of visibility, also one that has expired."""
    return one(
        tx,
        f"""p.tier = :tier AND p.agent = :agent AND p.namespace = :namespace
            AND m.key = :key AND {undeleted("m")}""",
        key=key.key, **key.named,
    )  # fmt: skip


def known(tx: Transaction, entry: sight.AgentEntryId, viewer: Viewer) -> AgentEntry:
    """The entry; NotFound for one that there is not, or that the viewer may not see."""

    def readable_by(by: Visibility) -> AgentEntry | None:
        return one(tx, f"m.uid = :uid AND {HERE} AND {by.condition}", uid=entry, **by.values)

    match = readable_by(sight.own(viewer)) or readable_by(sight.readable(tx, viewer))
    if match is None:
        raise NotFound(NO_ENTRY)
    return match


def _of_spaces(tx: Transaction) -> str:
    """Entries, led by the spaces that an agent may look into: others' are passed over."""
    dialect = tx[Sql].dialect
    return f"""agent_spaces p
               {dialect.leads} memories m {dialect.hint("memories_in_space")}
                 ON m.space_id = p.space_id
               JOIN agent_memories a ON a.memory_id = m.id
               LEFT JOIN lifecycles l ON l.memory_id = m.id"""


def ids_of(
    tx: Transaction, filter_: AgentFilter, visible: Visibility, limit: int, offset: int
) -> list[tuple[MemoryId, int]]:
    """Those that may be seen, newest first, with the bytes of their values."""
    condition, values = filter_.condition(tx, visible)
    order = f"ORDER BY m.id DESC LIMIT {limit:d} OFFSET {offset:d}"
    statement = f"SELECT m.id, a.size FROM {_of_spaces(tx)} WHERE {condition} {order}"
    return [(MemoryId(id_), count(size)) for id_, size in tx[Sql].run(statement, **values)]


def total(tx: Transaction, filter_: AgentFilter, visible: Visibility) -> int:
    """How many may be seen."""
    condition, values = filter_.condition(tx, visible)
    return tx[Sql].number(f"SELECT count(*) FROM {_of_spaces(tx)} WHERE {condition}", **values)


def some(
    tx: Transaction, viewer: Viewer, memories: Sequence[MemoryId],
    filter_: AgentFilter = EVERY_ENTRY,
) -> list[AgentEntry]:  # fmt: skip
    """Those of these that the viewer may see still, and a filter admits, in their order."""
    condition, values = filter_.condition(tx, sight.readable(tx, viewer))
    dialect = tx[Sql].dialect
    return entries_of(tx, tx[Sql].run(
        f"""SELECT {ENTRY}
              FROM {dialect.ids("listed")}
             {dialect.leads} agent_memories a ON a.memory_id = listed.value
              JOIN memories m ON m.id = a.memory_id
              JOIN agent_spaces p ON p.space_id = m.space_id
              LEFT JOIN lifecycles l ON l.memory_id = m.id
             WHERE {condition}
          ORDER BY listed.key""",
        ids=json.dumps(memories), **values,
    ))  # fmt: skip


# Working memory of a task, which counts with that; and what has not expired, which alone counts.
BOUND = f"(a.tier = '{Tier.WORKING}' AND a.binding = {Binding.TASK:d})"
UNEXPIRED = f"(NOT {is_expired('a.memory_id')})"


def number_of(tx: Transaction, tier: Tier, agent: AgentId) -> int:
    """How many entries of a tier an agent has, beside those of tasks."""
    return tx[Sql].number(  # along indexes: there are many more than are bound, or expired
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
    """A number or a sum of entries that have not expired, whatever tier they are of."""
    statement = f"SELECT {what} FROM agent_memories a WHERE {condition} AND {UNEXPIRED}"
    return count(tx[Sql].number(statement, **values))


def expired(
    tx: Transaction, limit: int, *, agent: AgentId | None = None, until: datetime | None = None
) -> list[AgentEntry]:
    """Entries that have expired, by then or by now, of any agent or of one; the first first."""
    whose = "" if agent is None else " AND a.agent = :agent"
    return entries_of(tx, tx[Sql].run(
        f"""SELECT {ENTRY}
              FROM lifecycles l
             {tx[Sql].dialect.leads} agent_memories a ON a.memory_id = l.memory_id{whose}
              JOIN memories m ON m.id = a.memory_id
              JOIN agent_spaces p ON p.space_id = m.space_id
             WHERE l.{ENDED} AND NOT {sight.HAS_ENDED}
          ORDER BY l.expires_at, m.id
             LIMIT :limit""",
        limit=limit, agent=agent, now=micros(until or tx.now),
    ))  # fmt: skip


@step("store.evict", lambda victim, *_: {"memory.evicted_count": int(victim is not None)})
def victim(
    tx: Transaction, agent: AgentId, but: Collection[MemoryId], intent: sight.IntentId | None = None
) -> AgentEntry | None:
    """The episodic entry that is evicted next (RFC-0015 §2.2): none if all are pinned.

    The lowest priority, then the longest not accessed, then the earliest updated; of those that
    are bound to an intent, if there is one.
    """
    of_intent = f" AND a.intent = :intent AND a.binding > {Binding.NONE:d}"
    dialect = tx[Sql].dialect
    ids = tx[Sql].column(  # along the index of victims: the first is one of few
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
