"""Changes of entries, each in one transaction with its event: create, amend, delete, in batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import islice

from ...engine.engine import Transaction
from ...errors import NotFound, Refusal
from ...memory.limits import require_room
from ...memory.model.agent_events import EventType
from ...memory.model.agent_memory import (
    AgentChange,
    AgentDraft,
    AgentEntry,
    AgentEntryId,
    AgentFilter,
    AgentSpace,
    BatchItem,
    Deleted,
    Eyes,
    Handling,
    Place,
    Tier,
)
from ...memory.model.memory import Lifecycle, Memory, MemoryId, Text
from ...memory.model.retention import Capacities
from ...memory.redactor import Redactor
from ...memory.sql.memories import MemoryTable
from ...memory.writes import changed_at, created, revised
from ..sql.archives import ArchiveTable
from ..sql.entries import AgentTable
from . import archive, binding, rules
from .binding import TASK_LIFETIME, BadField, amended, begun
from .rules import AtItem
from .values import clean_change

AT_ONCE = 100  # entries that a deletion reads at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a write leaves, and how many entries were evicted for it."""

    entries: tuple[AgentEntry, ...]
    evicted: int = 0
    is_new: bool = True  # whether a single one was made


def create(
    tx: Transaction,
    eyes: Eyes,
    draft: AgentDraft,
    capacities: Capacities,
    but: Sequence[MemoryId] = (),
    most_evicted: int = rules.MOST_EVICTED,
) -> Outcome:
    """Make an entry at a free place; those in `but` are not evicted for it."""
    place, handling = draft.place, begun(draft.handling, tx.now)
    rules.require_write(tx, place, eyes)
    draft = binding.bound(tx, eyes, draft)
    binding.require_allowed(tx, place, draft.labels)
    _make_place_free(tx, place)
    binding.require_unfinished(tx, place.space.tier, draft.labels, handling.ttl)
    evicted = rules.make_room(tx, draft, capacities, but, most_evicted)
    memory = Memory(
        uid=tx.new_uid(tx.now),
        session=None,
        space=tx[AgentTable].space(place.space),
        key=place.key,
        text=_text(place, draft.value, handling),
        last_seen_at=tx.now,
        created_at=tx.now,
        updated_at=tx.now,
        lifecycle=Lifecycle(expires_at=handling.expires_at),
    )
    stored = created(tx, memory)
    entry = AgentEntry(
        id=AgentEntryId(stored.uid),
        memory=stored.id,
        place=place,
        value=draft.value,
        handling=handling,
        labels=draft.labels,
        created_by=eyes.agent,
        version=stored.revision,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
    )
    tx[AgentTable].add(entry)
    rules.note(tx, EventType.CREATED, entry, eyes)
    return Outcome(entries=(entry,), evicted=evicted)


def amend(
    tx: Transaction,
    entry: AgentEntryId,
    eyes: Eyes,
    change: AgentChange,
    version: int,
    capacities: Capacities,
) -> Outcome:
    before = rules.known(tx, entry, eyes)
    return Outcome(entries=(_amend(tx, before, eyes, change, version, capacities),))


def put(tx: Transaction, eyes: Eyes, draft: AgentDraft, capacities: Capacities) -> Outcome:
    """Let an entry at the place have this value and this ttl, whoever wrote it last."""
    held = tx[AgentTable].at(draft.place)
    if held is None or not held.is_there(tx.now):
        return create(tx, eyes, draft, capacities)
    change = AgentChange(value=draft.value, ttl=draft.handling.ttl)
    return Outcome(
        entries=(_amend(tx, held, eyes, change, held.version, capacities),), is_new=False
    )


def redact_entry(tx: Transaction, entry: AgentEntry, redactor: Redactor) -> None:
    """Take secrets out of what an entry says; its namespace and its key stay as they are."""
    handling = entry.handling
    change = AgentChange(
        value=None if entry.is_lost else entry.value,
        tags=handling.tags,
        curated_by=handling.curated_by,
    )
    owner = Eyes(agent=entry.place.space.agent or entry.created_by, is_admin=True)
    _amend(tx, entry, owner, clean_change(redactor, change), entry.version, None)


def delete(tx: Transaction, entry: AgentEntryId, eyes: Eyes, version: int | None) -> None:
    before = rules.known(tx, entry, eyes)
    rules.require_write(tx, before.place, eyes)
    binding.require_allowed(tx, before.place, before.labels)
    rules.require_version(before, version)
    rules.remove(tx, before, EventType.DELETED, actor=eyes)


def write_batch(
    tx: Transaction, eyes: Eyes, items: Sequence[BatchItem], capacities: Capacities
) -> Outcome:
    """All of them in order; AtItem for the first that is refused."""
    written: list[AgentEntry] = []
    evicted = 0
    for number, item in enumerate(items):
        try:
            room = _Room(capacities, [it.memory for it in written], rules.MOST_EVICTED - evicted)
            done = _write(tx, eyes, item, room)
        except Refusal as refusal:
            raise AtItem(number, refusal) from refusal
        written.extend(done.entries)
        evicted += done.evicted
    now = {it.id: it for it in written}  # one may have been changed after it was made
    return Outcome(entries=tuple(now[it.id] for it in written), evicted=evicted)


def delete_batch(tx: Transaction, eyes: Eyes, filter_: AgentFilter, most: int) -> Deleted:
    """Delete what the agent may write of what a filter matches, newest first."""
    found = list(islice(_deletable(tx, eyes, filter_, max(most + 1, AT_ONCE)), most + 1))
    for entry in found[:most]:
        rules.remove(tx, entry, EventType.DELETED, actor=eyes)
    return Deleted(count=len(found[:most]), has_more=len(found) > most)


def status_of(outcome: Outcome) -> int:
    return HTTPStatus.CREATED if outcome.is_new else HTTPStatus.OK


def kept(outcome: Outcome) -> Outcome:
    """An outcome without the values that are sealed."""
    plain = (replace(it, value="") if it.handling.is_sealed else it for it in outcome.entries)
    return replace(outcome, entries=tuple(plain))


def told(tx: Transaction, eyes: Eyes, first: Outcome) -> Outcome:
    """What a repetition is told; NotFound for an entry that has gone, or may not be read now.

    One with a sealed value is told as it is now.
    """
    now = [rules.known(tx, it.id, eyes) for it in first.entries]
    pairs = zip(first.entries, now, strict=True)
    return replace(
        first, entries=tuple(it if it.handling.is_sealed else then for then, it in pairs)
    )


@dataclass(frozen=True, slots=True)
class _Room:
    """What may be removed for an item of a batch."""

    capacities: Capacities
    but: Sequence[MemoryId]
    most_evicted: int


def _write(tx: Transaction, eyes: Eyes, item: BatchItem, room: _Room) -> Outcome:
    if item.version is None or item.change is None:
        return create(tx, eyes, item.draft, room.capacities, room.but, room.most_evicted)
    place = item.draft.place
    rules.require_write(tx, place, eyes)
    held = tx[AgentTable].at(place)
    if held is None or not held.is_there(tx.now):
        raise NotFound(rules.NO_ENTRY)
    return Outcome(entries=(_amend(tx, held, eyes, item.change, item.version, room.capacities),))


def _deletable(
    tx: Transaction, eyes: Eyes, filter_: AgentFilter, at_once: int
) -> Iterator[AgentEntry]:
    """What a filter matches that may be changed; what guardrails keep is passed over.

    Guardrails are asked once for an intent: of what they keep there may be any number.
    """
    offset, known = 0, dict[tuple[str | None, AgentSpace], bool]()
    while found := tx[AgentTable].writable(filter_, eyes, at_once, offset):
        for entry in found:
            asked = (entry.labels.intent if entry.labels.binding else None, entry.place.space)
            if asked not in known:
                known[asked] = binding.is_allowed(tx, entry.place, entry.labels)
            if known[asked]:
                yield entry
        offset += len(found)


def _make_place_free(tx: Transaction, place: Place) -> None:
    """Raise Taken while a live entry is there; of one that has ended the row goes."""
    held = tx[AgentTable].at(place)
    if held is None:
        return
    if held.is_there(tx.now):
        raise rules.Taken(held)
    if pending := tx[ArchiveTable].holding(held) if held.has_ended else None:
        archive.settle(tx, pending)
    else:
        rules.expire(tx, held)


def _amend(
    tx: Transaction,
    before: AgentEntry,
    eyes: Eyes,
    change: AgentChange,
    version: int,
    capacities: Capacities | None,  # None, where secrets are taken out, is without limits
) -> AgentEntry:
    value, handling = _planned(tx, before, eyes, change, version, capacities)
    held = tx[MemoryTable].by_uid(before.id)
    if held is None:  # its space is damaged
        raise NotFound(rules.NO_ENTRY)
    changed = replace(
        held,
        text=_text(before.place, value, handling),
        updated_at=changed_at(tx, held),
        lifecycle=replace(held.lifecycle, expires_at=handling.expires_at),
    )
    revised(tx, held, changed, has_new_text=False)
    after = replace(
        before,
        value=value,
        handling=handling,
        version=before.version + 1,
        updated_at=changed.updated_at,
    )
    tx[AgentTable].replace(after)
    if handling.is_sealed and not before.handling.is_sealed:  # the plain bytes go as of a deletion
        tx[MemoryTable].must_scrub(before.memory)
        rules.add_receipt(tx)
    rules.note(tx, EventType.UPDATED, after, eyes, before=before)
    return after


def _planned(
    tx: Transaction,
    before: AgentEntry,
    eyes: Eyes,
    change: AgentChange,
    version: int,
    capacities: Capacities | None,
) -> tuple[str, Handling]:
    """What a change leaves of an entry, or its refusal."""
    if change.claims is not None:
        change.claims(before)
    rules.require_write(tx, before.place, eyes)
    if capacities is not None:
        binding.require_allowed(tx, before.place, before.labels)
    rules.require_version(before, version)
    require_room(tx)
    value = before.value if change.value is None else change.value
    handling = amended(before.handling, change, tx.now)
    if before.is_lost and change.value is None and not handling.is_sealed:
        raise rules.KeyLost  # it would have to be opened
    if handling.ttl == TASK_LIFETIME and before.labels.task is None:
        raise BadField("ttl", f"{TASK_LIFETIME} needs scope.task_id")
    lost_its_end = before.handling.expires_at is not None and handling.expires_at is None
    if lost_its_end or handling.ttl != before.handling.ttl:
        binding.require_unfinished(tx, before.place.space.tier, before.labels, handling.ttl)
    owner = before.place.space.agent
    if capacities is not None and owner is not None and before.place.space.tier is Tier.WORKING:
        growth = len(value.encode()) - before.size
        binding.require_working_room(tx, owner, before.labels, capacities, growth, is_new=False)
    return value, handling


def _text(place: Place, value: str, handling: Handling) -> Text:
    title = f"{place.space.namespace}/{place.key}"
    content = f"[{handling.sensitivity}]" if handling.is_sealed else value
    return Text(type=place.space.tier.value, title=title, content=content, tags=handling.tags)
