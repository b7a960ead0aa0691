"""Commitments in a transaction: armed, fired, cancelled (OpenWOP RFC 0068)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from ...engine.engine import Transaction
from ...errors import BadFields, Conflict, NotFound
from ...memory.model.memory import MemoryId
from ...memory.model.space import MemoryRef
from ...recall.text.instants import exact, whole_milliseconds
from ..model.commitments import (
    Commitment,
    CommitmentId,
    CommitmentState,
    Condition,
    ConditionKind,
    commitment_uid,
)
from ..model.entries import Recorded, RefEntry
from ..model.runs import JsonObject, RunEventType
from ..sql.commitments import CommitmentTable
from ..sql.runs import RunTable
from .screen import Screen

DUE, WHEN = "due:", "when:"  # tags that arm a time, and a tag that is waited for
# What one transaction fires or cancels. The writers of a tenant wait for it: 10 ms on SQLite, and
# 40 ms on PostgreSQL.
STEP = 200
# What a ref may have armed, so that what one put can meet, and a count of it, stays small.
MOST_OF_TAG, MOST_ARMED = 1_000, 10_000
NO_COMMITMENT = "commitment not found"


class TooManyArmed(Conflict):
    """A ref has as many armed commitments as it may, of a tag or in all."""

    code = "too_many_commitments"

    def __init__(self) -> None:
        super().__init__(
            f"A ref holds at most {MOST_OF_TAG:,} armed commitments of a tag, and {MOST_ARMED:,} "
            "in all; nothing was stored. Cancel some, or wait until some have fired."
        )


def conditions_of(tags: Iterable[str], now: datetime) -> Sequence[Condition]:
    """What the tags of a new entry arm, each once; BadFields for one that never comes true."""
    return tuple(dict.fromkeys(_conditions(tags, now)))


def time_to_come(at: datetime | None, now: datetime, field: str, said: str) -> Condition:
    """The condition that an instant has come; BadFields for none, or one that is past."""
    due = None if at is None else whole_milliseconds(at)
    if due is None or due <= now:
        raise BadFields([(field, said)])
    return Condition(due_at=due)


def arm(tx: Transaction, source: MemoryId, conditions: Sequence[Condition]) -> Sequence[Commitment]:
    """Make commitments of an entry that has none of these armed; TooManyArmed."""
    if not conditions:
        return ()
    if not tx[CommitmentTable].has_room(source, conditions, of_tag=MOST_OF_TAG, in_all=MOST_ARMED):
        raise TooManyArmed
    return tx[CommitmentTable].arm(source, conditions)


def known(tx: Transaction, id_: CommitmentId) -> Commitment:
    """The commitment, or NotFound."""
    uid = commitment_uid(id_)
    found = None if uid is None else tx[CommitmentTable].get(uid)
    if found is None:
        raise NotFound(NO_COMMITMENT)
    return found


def meet(tx: Transaction, ref: MemoryRef, entry: RefEntry) -> int | None:
    """Note that an entry was put whose tags are waited for, and by what; the first note.

    What waits fires in steps from then on, whatever becomes of the entry.
    """
    return tx[CommitmentTable].meet(ref, entry.memory, entry.tags) if entry.tags else None


def fire_met(tx: Transaction, ref: MemoryRef, entry: RefEntry) -> int:
    """The same, and fire at most a step of it in this transaction; how many."""
    first = meet(tx, ref, entry)
    return 0 if first is None else _settled(tx, tx[CommitmentTable].met(STEP, first)).total()


def fire_due(tx: Transaction, most: int) -> tuple[Counter[ConditionKind], bool]:
    """Fire what is due, at most so many; how many of each kind, and whether there is more."""
    due = tx[CommitmentTable].met(most)
    if len(due) < most:
        due += tx[CommitmentTable].due(most - len(due))
    return _settled(tx, due), has_due(tx)


def has_due(tx: Transaction) -> bool:
    return tx[CommitmentTable].has_due()


def cancel_of(tx: Transaction, sources: Sequence[MemoryId]) -> int:
    """Cancel the armed commitments of entries that are deleted or superseded; how many."""
    return tx[CommitmentTable].cancel_of(sources) if sources else 0


def cancel_orphans(tx: Transaction) -> bool:
    """Cancel those whose sources are gone, at most a step of them; whether more may be."""
    orphans = tx[CommitmentTable].orphans(STEP)
    cancel_of(tx, orphans)
    return len(orphans) == STEP


def has_orphans(tx: Transaction) -> bool:
    return tx[CommitmentTable].has_orphans()


def screen_tags(tx: Transaction, source: MemoryId, screen: Screen) -> None:
    """Take secrets out of the tags that commitments of an entry wait for."""
    for tag in tx[CommitmentTable].tags_of(source):
        (clean,) = screen.tags([tag])
        if clean != tag:
            tx[CommitmentTable].retag(source, tag, clean)


def _settled(tx: Transaction, commitments: Sequence[Commitment]) -> Counter[ConditionKind]:
    """Fire them, each with its event, but those whose sources are gone; how many were fired."""
    armed = [it for it in commitments if it.state is CommitmentState.ARMED]
    tx[CommitmentTable].cancel([it for it in commitments if it.state is not CommitmentState.ARMED])
    if armed:
        tx[CommitmentTable].fire(armed)
        tx[RunTable].record(RunEventType.FIRED, [Recorded(_payload(it), (it.ref,)) for it in armed])
    return Counter(it.condition.kind for it in armed)


def _payload(of: Commitment) -> JsonObject:
    return {
        "commitmentId": of.id,
        "memoryRef": of.ref,
        "memoryId": of.entry,
        "condition": of.condition.kind.value,
    }


def _conditions(tags: Iterable[str], now: datetime) -> Iterator[Condition]:
    for tag in tags:
        if tag.startswith(DUE):
            at = exact(tag.removeprefix(DUE), needs_offset=True)
            yield time_to_come(at, now, "tags", "has a due time that is no time, or is past")
        elif tag.startswith(WHEN):
            if tag == WHEN:
                raise BadFields([("tags", "waits for a tag without a name")])
            yield Condition(tag=tag.removeprefix(WHEN))
