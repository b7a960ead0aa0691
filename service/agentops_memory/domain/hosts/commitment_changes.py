"""Commitments in a transaction: armed, fired, cancelled (OpenWOP RFC 0068)."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from ..errors import BadFields, NotFound
from ..model.hosts.commitments import (
    Commitment,
    CommitmentId,
    CommitmentState,
    Condition,
    commitment_uid,
)
from ..model.hosts.entries import RefEntry
from ..model.hosts.runs import RunEventType
from ..model.memory import MemoryId
from ..model.space import MemoryRef
from ..model.stores import Written
from ..ports.engine import Transaction
from ..text.instants import exact, whole_milliseconds
from .recorded import recorded
from .screen import Screen

DUE, WHEN = "due:", "when:"  # tags that arm a time, and a tag that is waited for
STEP = 200  # of what one transaction fires or cancels
NO_COMMITMENT = "commitment not found"


def conditions_of(tags: Iterable[str], now: datetime) -> Sequence[Condition]:
    """What the tags of a new entry arm, each once; BadFields for one that never comes true."""
    return tuple(dict.fromkeys(_conditions(tags, now)))


def time_to_come(at: datetime | None, now: datetime, field: str, said: str) -> Condition:
    """The condition that an instant has come; BadFields for none, or one that is past."""
    due = None if at is None else whole_milliseconds(at)
    if due is None or due <= now:
        raise BadFields([(field, said)])
    return Condition(due_at=due)


def arm(tx: Transaction, source: MemoryId, condition: Condition) -> Written[Commitment]:
    """Make a commitment of an entry, unless it has just this one, and armed."""
    held = tx.commitments.armed(source, condition)
    if held is not None:
        return Written(value=held, is_new=False)
    return Written(value=tx.commitments.arm(source, condition), is_new=True)


def known(tx: Transaction, id_: CommitmentId) -> Commitment:
    """The commitment, or NotFound."""
    uid = commitment_uid(id_)
    found = None if uid is None else tx.commitments.get(uid)
    if found is None:
        raise NotFound(NO_COMMITMENT)
    return found


def fire_met(tx: Transaction, ref: MemoryRef, entry: RefEntry) -> int:
    """Fire what has waited for a tag of an entry that was just put; how many."""
    return _settled(tx, tx.commitments.met(ref, entry.memory, entry.tags)) if entry.tags else 0


def fire_due(tx: Transaction) -> tuple[int, bool]:
    """Fire what is due, at most a step of it; how many, and whether more may be."""
    due = tx.commitments.due(STEP)
    return _settled(tx, due), len(due) == STEP


def has_due(tx: Transaction) -> bool:
    return tx.commitments.has_due()


def cancel_of(tx: Transaction, sources: Sequence[MemoryId]) -> int:
    """Cancel the armed commitments of entries that are deleted or superseded; how many."""
    return tx.commitments.cancel_of(sources) if sources else 0


def cancel_orphans(tx: Transaction) -> bool:
    """Cancel those whose sources are gone, at most a step of them; whether more may be."""
    orphans = tx.commitments.orphans(STEP)
    cancel_of(tx, orphans)
    return len(orphans) == STEP


def has_orphans(tx: Transaction) -> bool:
    return tx.commitments.has_orphans()


def screen_tags(tx: Transaction, source: MemoryId, screen: Screen) -> None:
    """Take secrets out of the tags that commitments of an entry wait for."""
    for tag in tx.commitments.tags_of(source):
        (clean,) = screen.tags([tag])
        if clean != tag:
            tx.commitments.retag(source, tag, clean)


def _settled(tx: Transaction, commitments: Sequence[Commitment]) -> int:
    """Fire them, each with its event, but those whose sources are gone; how many were fired."""
    fired = 0
    for each in commitments:
        if each.state is not CommitmentState.ARMED:
            tx.commitments.cancel(each)
            continue
        tx.commitments.fire(each)
        payload = {
            "commitmentId": each.id,
            "memoryRef": each.ref,
            "memoryId": each.entry,
            "condition": each.condition.kind.value,
        }
        recorded(tx, (RunEventType.FIRED, payload), refs=(each.ref,))
        fired += 1
    return fired


def _conditions(tags: Iterable[str], now: datetime) -> Iterator[Condition]:
    for tag in tags:
        if tag.startswith(DUE):
            at = exact(tag.removeprefix(DUE), needs_offset=True)
            yield time_to_come(at, now, "tags", "has a due time that is no time, or is past")
        elif tag.startswith(WHEN):
            if tag == WHEN:
                raise BadFields([("tags", "waits for a tag without a name")])
            yield Condition(tag=tag.removeprefix(WHEN))
