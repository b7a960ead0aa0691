"""Changes of entries: the bodies that request them (RFC-0015 §1), and a transaction for each."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import islice
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator

from ..engine.engine import Transaction
from ..errors import AtItem, BadFields, Denied, Invalid, Refusal, required
from ..http import query
from ..http.bodies import Body, fault_of, present
from ..light import replace
from ..memory import agent_memory
from ..memory.access import LONGEST_AGENT, NOT_YOUR_AGENT, AgentId
from ..memory.agent_memory import (
    AgentEntryId,
    EventType,
    Labels,
    Priority,
    Sensitivity,
    Tier,
    Viewer,
)
from ..memory.erasure import ReceiptTable
from ..memory.idempotency import once
from ..memory.memories import MemoryTable, SpaceTable
from ..memory.memory import NO_LIFECYCLE, UNSAVED, Lifecycle, Memory, Text
from ..memory.redactor import MAX_KEY, Redactor, is_plain, require_room
from ..memory.rows import changed_at, micros
from ..memory.saves import Written, created
from ..memory.space import Space, SpaceKind
from ..memory.table import Sql
from . import agents, api, entries, events
from .agents import MAX_EVICTED, Room
from .api import MAX_NAME, NO_ENTRY, Agent, Curator, Expiry, Key, Label, Stale, Tags
from .entries import ENTRY, TASK_LIFETIME, AgentEntry, AgentFilter, EntryKey, KeyLost, SealTable
from .events import expire, remove

P = ParamSpec("P")
B = TypeVar("B", bound="EntryFields")

MAX_BATCH = 100  # entries of a batch
DURATION = "duration:"
MAX_TTL = timedelta(days=36_500)
AT_LEAST = 100  # minimum number of entries that a deletion reads at once
_DAY = 86_400  # seconds

_DATE, _TIME = ("".join(rf"(?:\d{{1,9}}{it})?" for it in units) for units in ("YMWD", "HM"))
_SHAPE = re.compile(rf"P(?=.){_DATE}(?:T(?=\d){_TIME}(?:\d{{1,9}}(?:[.,]\d{{1,6}})?S)?)?", re.ASCII)
_LASTS = TypeAdapter(timedelta)


def lifetime(ttl: str) -> timedelta:
    """Return the length of a ttl that is a duration; raise Invalid if it is malformed.

    A year has 365 days, a month 30. The length must be above 0, and at most 36,500 days.
    """
    text = ttl.removeprefix(DURATION)
    if text == ttl or not _SHAPE.fullmatch(text):
        raise Invalid(f"ttl must be {TASK_LIFETIME}, or {DURATION} and a duration such as P30D.")
    try:
        lasts = _LASTS.validate_python(text)
    except ValidationError:  # beyond what a timedelta holds
        lasts = timedelta.max
    if not timedelta() < lasts <= MAX_TTL:
        raise Invalid("ttl must be longer than 0, and at most 100 years.")
    return lasts


def expiry_of(ttl: str | None, expires_at: datetime | None, now: datetime) -> datetime | None:
    """Return the expiry that was set, else the ttl's; raise BadFields if it has passed."""
    api.require_future(expires_at, now)
    if expires_at is not None or ttl is None or ttl == TASK_LIFETIME:
        return expires_at
    return now + lifetime(ttl)


def _ttl(text: str) -> str:
    if text != TASK_LIFETIME:
        api.faulty(lifetime, "ttl")(text)
    return text


Ttl = Annotated[
    str, AfterValidator(_ttl),
    Field(json_schema_extra={"pattern": f"^({TASK_LIFETIME}$|{DURATION}P)"}),
]  # fmt: skip
Value = Annotated[  # parsed to the compact JSON that is stored
    Any, AfterValidator(api.value_of),
    Field(json_schema_extra={
        "type": "object", "description": "At most 65,536 bytes of compact JSON.",
        "examples": [{"total": 47}],
    }),
]  # fmt: skip
PriorityName = Annotated[
    Literal["low", "normal", "high"], AfterValidator(lambda name: Priority[name.upper()])
]
NULLABLE = {"sensitivity", "curated_by", "ttl"}  # fields that `null` removes
EXAMPLE = {
    "agent_id": "example-agent", "namespace": "example", "key": "another", "value": {},
    "memory_type": "episodic",
}  # fmt: skip


class EntryFields(Body):
    """The optional fields of an entry, which are parsed to their types in it."""

    tags: Tags | None = None
    ttl: Ttl | None = None
    pinned: bool | None = None
    priority: PriorityName | None = None
    sensitivity: Annotated[Sensitivity, api.ByName] | None = None
    expires_at: Expiry | None = None
    curated_by: Curator | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Those of these fields that were sent, except the expiry."""
        named = self.model_fields_set & EntryFields.model_fields.keys() - {"expires_at"}
        return {name: getattr(self, name) for name in named}


class ScopeBody(Body):
    """The task and the intent that an entry is bound to, or labeled with."""

    task_id: Label | None = None
    intent_id: Label | None = None

    def __deepcopy__(self, _: object = None) -> "ScopeBody":
        return self  # the shared default, which is never changed

    def clean(self, redactor: Redactor) -> "ScopeBody":
        """Return the scope without secrets."""
        named = {name: it for name, it in self if it is not None}
        texts = {name: redactor.text(it, LONGEST_AGENT) for name, it in named.items()}
        return self.model_copy(update=texts) if texts else self


class _AtKey(Body):
    agent_id: Agent | None = None
    namespace: api.NamespaceName
    key: Key
    value: Value
    memory_type: Annotated[Tier, api.ByName]
    scope: ScopeBody = ScopeBody()


class AgentEntryBody(EntryFields, _AtKey):
    """POST /api/v1/memory."""

    @model_validator(mode="after")
    def _belongs(self) -> "AgentEntryBody":
        if self.agent_id is None and self.memory_type is not Tier.SEMANTIC:
            raise fault_of("agent_id", "is required")
        is_made = getattr(self, "version", None) is None
        if is_made and self.ttl == TASK_LIFETIME and self.scope.task_id is None:
            raise fault_of("ttl", f"{TASK_LIFETIME} needs scope.task_id")
        return self

    def entry_key(self, viewer: Viewer) -> EntryKey:
        """Return the key of the entry; raise Denied for another agent's memory."""
        if self.agent_id is not None and self.agent_id != viewer.agent:
            raise Denied(NOT_YOUR_AGENT)
        owner = None if self.memory_type is Tier.SEMANTIC else viewer.agent
        return EntryKey(self.memory_type, owner, self.namespace, self.key)


class AgentChangeBody(EntryFields, extra="allow"):
    """PATCH /api/v1/memory/{id}: absent fields stay as they are.

    `null` removes ttl, expires_at, sensitivity and curated_by. Other members of an entry are
    accepted if they are unchanged.
    """

    value: Value | None = None

    def require_version(self, version: int) -> None:
        claimed = version if self.model_extra is None else self.model_extra.get("version")
        if claimed is not None and (type(claimed) is not int or claimed != version):
            raise BadFields([("version", "must equal the header If-Match")])

    def require_same(self, entry: AgentEntry) -> None:
        """Raise BadFields for unchangeable members that differ from the entry's."""
        claims = present(self.model_extra or {})
        if not claims:
            return
        same = {
            "id": query.public_id(query.ENTRY, entry.id), "agent_id": entry.agent_id,
            "key": entry.key, "namespace": entry.namespace, "memory_type": entry.memory_type.value,
            "scope": entries.names_of(entry.scope),
            "created_by": entry.created_by, "created_at": api.rendered(entry.created_at),
        }  # fmt: skip
        wrong = [name for name, it in same.items() if name in claims and claims[name] != it]
        if wrong:
            raise BadFields([(name, "cannot be changed") for name in wrong])

    def amended(self, before: AgentEntry, now: datetime) -> dict[str, Any]:
        """Return the fields of the entry that the change sets.

        A ttl counts from the change that sets it. An expiry that stays the same is no change; a
        new one that has passed raises BadFields.
        """
        named = self.model_fields_set
        after = {name: it for name, it in self.fields.items() if it is not None or name in NULLABLE}
        if self.value is not None:
            after["value"] = self.value
        ttl = after.get("ttl", before.ttl)
        if "expires_at" in named:
            end = api.instant_if_any(self.expires_at)
            if end != before.expires_at or ttl != before.ttl:
                after |= {"expires_at": expiry_of(ttl, end, now), "is_own_expiry": end is not None}
        elif "ttl" in named and not before.is_own_expiry:
            after["expires_at"] = expiry_of(ttl, None, now)
        return after


class AgentBatchItem(api.Nested, AgentEntryBody):
    """An entry of a batch: with a version it is changed, without one it is created."""

    version: int | None = None

    @property
    def change(self) -> AgentChangeBody:
        """The change of the entry at its key."""
        named = [name for name in AgentChangeBody.model_fields if name in self.model_fields_set]
        values = {name: it for name in named if (it := getattr(self, name)) is not None}
        claims: dict[str, Any] = {}
        if "scope" in self.model_fields_set:
            claims["scope"] = present(self.scope.model_dump())
        return AgentChangeBody.model_construct(set(values), **values, **claims)


class AgentBatchBody(Body):
    """POST /api/v1/memory/batch."""

    entries: Annotated[
        list[AgentBatchItem], Field(min_length=1, max_length=MAX_BATCH, examples=[[EXAMPLE]])
    ]


class AgentPutBody(Body):
    """PUT /api/v1/agents/{agent}/memory/{namespace}/{key}: a value of any type, and its ttl."""

    value: Annotated[
        Any, AfterValidator(lambda it: api.value_of(it if isinstance(it, dict) else {"value": it})),
        Field(json_schema_extra={
            "description": "A value that is not an object is stored as the `value` of one."
        }),
    ]  # fmt: skip
    ttl_seconds: Annotated[int, Field(ge=1, le=int(MAX_TTL.total_seconds()))] | None = None

    def at(self, agent: AgentId, namespace: str, key: str) -> AgentEntryBody:
        """Return the body that creates the episodic entry."""
        ttl = None
        if self.ttl_seconds is not None:
            days, seconds = divmod(self.ttl_seconds, _DAY)
            ttl = f"{DURATION}P{days}DT{seconds}S" if days else f"{DURATION}PT{seconds}S"
        return AgentEntryBody.model_construct(
            agent_id=agent, namespace=namespace, key=key, value=self.value, ttl=ttl,
            memory_type=Tier.EPISODIC,
        )  # fmt: skip


# How secrets are removed from each part of a body, in this order.
CLEANERS: Mapping[str, Callable[[Redactor, Any], object]] = {
    "namespace": lambda redactor, it: redactor.text(it, MAX_NAME),
    "key": lambda redactor, it: redactor.text(it, MAX_KEY),
    "value": api.screened,
    "tags": lambda redactor, it: entries.clean_tags(redactor, dict.fromkeys(it)),
    "scope": lambda redactor, it: it.clean(redactor),
    "curated_by": lambda redactor, it: redactor.text(it, MAX_NAME),
}  # fmt: skip


NAMES = ("namespace", "key", "curated_by")


def cleaned(redactor: Redactor, body: B) -> B:
    """Return a body without secrets; absent fields stay absent."""
    own = body.model_fields_set & type(body).model_fields.keys()  # extra members are not stored
    values = {name: getattr(body, name) for name in CLEANERS if name in own}
    if isinstance(value := values.get("value"), api.Json):
        scope = [] if (it := values.get("scope")) is None else [it.task_id, it.intent_id]
        names = [*map(values.get, NAMES), *(values.get("tags") or ()), *scope]

        def are_clean(its: Sequence[str]) -> bool:
            return redactor.are_clean([*names, *its])

        if is_plain(value, value.parsed, are_clean):
            return body
    changes = {name: CLEANERS[name](redactor, it) for name, it in values.items() if it is not None}
    return body.model_copy(update=changes)


# Transactions.


Outcome = Written[tuple[AgentEntry, ...]]
"""The entries after a write; for a single entry, also whether it was created."""


def create(tx: Transaction, viewer: Viewer, body: AgentEntryBody, room: Room) -> Outcome:
    """Create an entry at a free key; a full episodic memory evicts others."""
    key, end = body.entry_key(viewer), api.instant_if_any(body.expires_at)
    ends_at = expiry_of(body.ttl, end, tx.now)
    require_write(tx, key, viewer)
    named = Labels(task=body.scope.task_id, intent=body.scope.intent_id)
    scope = agents.bound(tx, viewer, key, named)
    require_allowed(tx, key, scope)
    _make_key_free(tx, key)
    agents.require_unfinished(tx, key.tier, scope, body.ttl)
    evicted = agents.make_room(tx, key, scope, len(body.value.encode()), room)
    entry = AgentEntry.whole(
        id=AgentEntryId(tx.new_uid(tx.now)), memory=UNSAVED, agent_id=viewer.agent,
        namespace=key.namespace, key=key.key, value=body.value, memory_type=key.tier,
        scope=scope, created_by=viewer.agent, version=1, created_at=tx.now, updated_at=tx.now,
        expires_at=ends_at, is_own_expiry=end is not None, has_ended=False,
        **body.fields,
    )  # fmt: skip
    # All spaces in a tier of one agent share an area of the index.
    grouped_by = ("tier", "agent") if key.owner is not None else ()
    kind = SpaceKind[key.tier.name]
    space = tx[SpaceTable].named(kind, "agent_spaces", key.named, grouped_by)
    stored = created(tx, _memory(entry, space))
    entry = entry.model_copy(update={"memory": stored.id})
    tx[Sql].insert(
        "agent_memories", memory_id=entry.memory, tier=key.tier.value, agent=key.owner or "",
        accessed_at=micros(tx.now), size=entry.size, **ENTRY.values(entry, "a."),
    )  # fmt: skip
    if entry.is_sealed:
        tx[SealTable].put(entry.memory, key, entry.value)
    entries.note(tx, EventType.CREATED, entry, viewer)
    return Outcome(value=(entry,), evicted=evicted, is_new=True)


def amend(
    tx: Transaction, viewer: Viewer, entry: AgentEntryId, change: AgentChangeBody, version: int,
    room: Room,
) -> Outcome:  # fmt: skip
    before = entries.known(tx, entry, viewer)
    return Outcome(value=(_amend(tx, before, viewer, change, version, room),))


def put(tx: Transaction, viewer: Viewer, body: AgentEntryBody, room: Room) -> Outcome:
    """Set the value and the ttl of the entry at a key, whatever its version, or create it."""
    existing = live_entry_at(tx, body.entry_key(viewer))
    if existing is None:
        return create(tx, viewer, body, room)
    values = {"value": body.value, "ttl": body.ttl}
    change = AgentChangeBody.model_construct(set(values), **values)
    after = _amend(tx, existing, viewer, change, existing.version, room)
    return Outcome(value=(after,))


def live_entry_at(tx: Transaction, key: EntryKey) -> AgentEntry | None:
    """Return the entry at a key, unless it has ended or expired."""
    entry = entries.entry_at(tx, key)
    return entry if entry is not None and entry.is_live(tx.now) else None


def redact_entry(tx: Transaction, entry: AgentEntry, redactor: Redactor) -> None:
    """Remove secrets from an entry's fields, except from its namespace and its key."""
    values: dict[str, Any] = {"tags": entry.tags, "curated_by": entry.curated_by}
    if not entry.is_lost:
        values["value"] = entry.value
    change = cleaned(redactor, AgentChangeBody.model_construct(set(values), **values))
    owner = Viewer(agent=entry.agent_id, is_admin=True)
    _amend(tx, entry, owner, change, entry.version, None)


def delete(tx: Transaction, viewer: Viewer, entry: AgentEntryId, version: int | None) -> None:
    before = entries.known(tx, entry, viewer)
    require_write(tx, before.entry_key, viewer)
    require_allowed(tx, before.entry_key, before.scope)
    if version not in (None, before.version):
        raise Stale(f"The entry is at version {before.version}.", before)
    remove(tx, before, EventType.DELETED, actor=viewer)


def write_batch(
    tx: Transaction, viewer: Viewer, items: Sequence[AgentBatchItem], room: Room
) -> Outcome:
    """Write all items in order; raise AtItem for the first that is refused."""
    written: list[AgentEntry] = []
    evicted = 0
    for number, item in enumerate(items):
        but = [it.memory for it in written]
        left = replace(room, but=but, most_evicted=MAX_EVICTED - evicted)
        try:
            done = _write(tx, viewer, item, left)
        except Refusal as refusal:
            raise AtItem(number, refusal) from refusal
        written.extend(done.value)
        evicted += done.evicted
    latest = {it.id: it for it in written}  # an item may change the entry of an earlier one
    return Outcome(value=tuple(latest[it.id] for it in written), evicted=evicted)


def _write(tx: Transaction, viewer: Viewer, item: AgentBatchItem, room: Room) -> Outcome:
    if item.version is None:
        return create(tx, viewer, item, room)
    key = item.entry_key(viewer)
    require_write(tx, key, viewer)
    existing = required(live_entry_at(tx, key), NO_ENTRY)
    return Outcome(value=(_amend(tx, existing, viewer, item.change, item.version, room),))


def delete_batch(
    tx: Transaction, viewer: Viewer, filter_: AgentFilter, most: int
) -> tuple[int, bool]:
    """Delete matching entries that the agent may write, newest first.

    Returns how many were deleted, and whether there are more.
    """
    matches = list(islice(_deletable(tx, viewer, filter_, max(most + 1, AT_LEAST)), most + 1))
    for entry in matches[:most]:
        remove(tx, entry, EventType.DELETED, actor=viewer)
    return len(matches[:most]), len(matches) > most


def _deletable(
    tx: Transaction, viewer: Viewer, filter_: AgentFilter, at_once: int
) -> Iterator[AgentEntry]:
    """Yield matching entries that may be changed, except those that guardrails protect."""
    offset, may_change = 0, cache(partial(is_allowed, tx))  # many entries share a scope
    while sized := entries.ids_of(tx, filter_, agent_memory.writable(viewer), at_once, offset):
        for entry in entries.some(tx, viewer, [id_ for id_, _ in sized]):
            if may_change(entry.memory_type, entry.namespace, entry.scope):
                yield entry
        offset += len(sized)


def _without_sealed(outcome: Outcome) -> Outcome:
    """Return an outcome without sealed values, to be stored for replays."""
    plain = (it.model_copy(update={"value": ""}) if it.is_sealed else it for it in outcome.value)
    return replace(outcome, value=tuple(plain))


def _replayed(tx: Transaction, first: Outcome, viewer: Viewer, *_: object) -> Outcome:
    """Return a stored outcome with current sealed values, or raise NotFound if unreadable now."""
    pairs = [(it, entries.known(tx, it.id, viewer)) for it in first.value]
    return replace(first, value=tuple(now if now.is_sealed else then for then, now in pairs))


def _once(work: Callable[Concatenate[Transaction, P], Outcome]) -> Callable[..., Outcome]:
    """Make work idempotent: a replay returns entries that the agent may still see."""
    return once(
        work, on_repeat=_replayed, kept=_without_sealed,
        about=lambda it: [entry.memory for entry in it.value],
        status=None if work is not put else lambda it: 201 if it.is_new else 200,
    )  # fmt: skip


# The idempotent forms of these functions.
CREATE, PUT, AMEND, WRITE_BATCH = _once(create), _once(put), _once(amend), _once(write_batch)
DELETE, DELETE_BATCH = once(delete), once(delete_batch)


def require_write(tx: Transaction, key: EntryKey, viewer: Viewer) -> None:
    """Raise Denied if the viewer may not write at a key."""
    if key.owner is not None:
        if key.owner != viewer.agent:
            raise Denied("An agent may write only its own memory.")
    elif agent_memory.permissions(tx, key.namespace).of(viewer) < agent_memory.Access.WRITE:
        raise Denied("The agent may not write in this namespace.")


def _make_key_free(tx: Transaction, key: EntryKey) -> None:
    """Raise Stale if a live entry has the key; remove the row of an ended one."""
    existing = entries.entry_at(tx, key)
    if existing is None:
        return
    if existing.is_live(tx.now):
        raise Stale("There is already an entry at this key.", existing)
    if pending := events.pending_archive_of(tx, existing) if existing.has_ended else None:
        events.settle(tx, pending)
    else:
        expire(tx, existing)


def _amend(
    tx: Transaction, before: AgentEntry, viewer: Viewer, change: AgentChangeBody, version: int,
    room: Room | None,
) -> AgentEntry:  # fmt: skip
    """Change an entry and return it; without `room`, to remove secrets, limits do not apply."""
    after = _planned(tx, before, viewer, change, version, room)
    tx[MemoryTable].replace(_memory(before), _memory(after))  # no revisions are kept
    # Only changed columns: setting a column rewrites its indexes even if the value stays.
    row = ENTRY.values(after, "a.", before)
    if not after.is_lost and (before.is_lost or after.size != before.size):
        row["size"] = after.size
    if after.memory_type is Tier.EPISODIC:
        row["accessed_at"] = micros(tx.now)
    if row:
        tx[Sql].update("agent_memories", "memory_id", {"memory_id": after.memory, **row})
    if after.is_sealed and not after.is_lost:  # a lost value stays sealed as it is
        tx[SealTable].put(after.memory, after.entry_key, after.value)
    elif before.is_sealed and not after.is_sealed:
        tx[SealTable].remove(after.memory)
    if after.is_sealed and not before.is_sealed:  # the plain bytes are erased as after a deletion
        tx[MemoryTable].must_scrub(before.memory)
        tx[ReceiptTable].add_of_agents()
    entries.note(tx, EventType.UPDATED, after, viewer, before=before)
    return after


def _planned(
    tx: Transaction, before: AgentEntry, viewer: Viewer, change: AgentChangeBody, version: int,
    room: Room | None,
) -> AgentEntry:  # fmt: skip
    """Return the entry after a change, or raise the refusal."""
    change.require_same(before)
    key, scope = before.entry_key, before.scope
    require_write(tx, key, viewer)
    if room is not None:
        require_allowed(tx, key, scope)
    if version != before.version:
        raise Stale(f"The entry is at version {before.version}.", before)
    require_room(tx)
    fields = change.amended(before, tx.now)
    fields |= {"version": before.version + 1, "updated_at": changed_at(before.updated_at, tx.now)}
    after = before.model_copy(update=fields)
    if before.is_lost and change.value is None and not after.is_sealed:
        raise KeyLost  # it cannot be stored plain without its value
    if after.ttl == TASK_LIFETIME and scope.task is None:
        raise BadFields([("ttl", f"{TASK_LIFETIME} needs scope.task_id")])
    lost_expiry = before.expires_at is not None and after.expires_at is None
    if lost_expiry or after.ttl != before.ttl:
        agents.require_unfinished(tx, key.tier, scope, after.ttl)
    growth = after.size - before.size
    if growth > 0 and room is not None and key.owner is not None and key.tier is Tier.WORKING:
        agents.require_working_room(tx, key.owner, scope, room.capacities, growth, is_new=False)
    return after


# For changes of an entry, which need no more of its space.
_SPACES = {it: Space(scope="", kind=SpaceKind[it.name]) for it in Tier}


def _memory(entry: AgentEntry, space: Space | None = None) -> Memory:
    """Return the memory of an entry, without reading it; changes need no `space`."""
    content = f"[{entry.sensitivity}]" if entry.is_sealed else str(entry.value)
    end = entry.expires_at
    return Memory(
        id=entry.memory, uid=entry.id, session=None, key=entry.key,
        space=space or _SPACES[entry.memory_type],
        text=Text(
            type=entry.memory_type.value, title=f"{entry.namespace}/{entry.key}", content=content,
            tags=entry.tags,
        ),
        revision=entry.version, last_seen_at=entry.created_at, created_at=entry.created_at,
        updated_at=entry.updated_at,
        lifecycle=NO_LIFECYCLE if end is None else Lifecycle(expires_at=end),
    )  # fmt: skip


def is_allowed(tx: Transaction, tier: Tier, namespace: str, labels: Labels) -> bool:
    """Return whether guardrails allow a change; they restrict semantic entries only."""
    if tier is not Tier.SEMANTIC:
        return True
    return all(it.allows(namespace) for it in agents.guardrails(tx, labels))


def require_allowed(tx: Transaction, key: EntryKey, labels: Labels) -> None:
    """Raise Denied if guardrails forbid a change of an entry."""
    if not is_allowed(tx, key.tier, key.namespace, labels):
        raise Denied("A coordinator of the intent does not allow this namespace.")
