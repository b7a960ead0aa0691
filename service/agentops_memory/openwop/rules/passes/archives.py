"""Compaction and distillation in one transaction: what they read, and the archive that they put."""

from collections.abc import Sequence

from ....engine.engine import Ids, Transaction
from ....errors import AnswerLost
from ....memory.limits import require_room
from ....memory.model.memory import MemoryId
from ....memory.model.space import MemoryRef
from ....recall.text.normalization import sha256_of
from ...adapter import removed
from ...entries import Origin, RefDraft, RefEntry, RefTable, added
from ...model.passes import ArchiveDraft, Distilled, Inputs, Link, Pass, PassDone, PassKind, Trigger
from ...refs import (
    ARCHIVE,
    COMPACTED,
    DISTILLED,
    IsCurrent,
    JsonObject,
    MemoryChanged,
    ScreenOutdated,
)
from ...runs import Run, RunEventType, RunId, RunKind, RunStatus, RunTable
from ...sql.passes import PassTable
from .rules import MOST_COMPACTED, MOST_COMPACTED_BYTES, MOST_NAMED, distillation_cap, tokens

REPLACEABLE = Inputs(replaceable=True)


def compaction_inputs(tx: Transaction, ref: MemoryRef) -> Sequence[RefEntry]:
    """The oldest entries that an archive may take the place of."""
    chosen: list[MemoryId] = []
    room = MOST_COMPACTED_BYTES
    for each in tx[PassTable].inputs(ref, REPLACEABLE):
        room -= each.size
        if len(chosen) == MOST_COMPACTED or room < 0:
            break
        chosen.append(each.memory)
    return tx[RefTable].some(chosen)


def distillation_inputs(
    tx: Transaction, ref: MemoryRef, which: Inputs, budget: int
) -> Sequence[RefEntry]:
    """All entries, if they fit into the budget; BudgetExceeded."""
    listed = list(tx[PassTable].inputs(ref, which))
    if listed:
        distillation_cap(budget, sum(tokens(each.size) for each in listed))
    return tx[RefTable].some([each.memory for each in listed])


def put_archive(
    tx: Transaction, draft: ArchiveDraft | None, which: Inputs, is_current: IsCurrent
) -> Distilled:
    """Put an archive, if its sources are still what the pass has read; MemoryChanged."""
    tx.caller.require_refs()
    if draft is None or not is_current():
        raise ScreenOutdated  # or the answer under the idempotency key is over its time
    sources = [it.memory for it in draft.sources]
    if not tx[PassTable].are_inputs(sources, which):
        raise MemoryChanged
    held = tx[RefTable].get(draft.ref, draft.id)
    if held is not None and not tx[PassTable].is_archive_of(held.memory, sources):
        removed(tx, held.memory)  # of others that had the ids of these: it may say too much
        held = None
    require_room(tx)
    run = tx[RunTable].open(refs=(draft.ref,), kind=RunKind.PASS)
    entry = held or _archive(tx, draft, run)
    if draft.supersedes:
        tx[PassTable].link(run, [Link(entry.memory, it) for it in sources], counts=False)
    tx[PassTable].put(
        Pass(
            run=run,
            ref=draft.ref,
            written=() if held else (entry.memory,),
            replaced=len(sources) if draft.supersedes else 0,
        )
    )
    payload = _told(draft)
    tx[RunTable].tell(run, RunEventType.COMPACTED, payload)
    tx[RunTable].end(run, RunStatus.COMPLETED)
    return Distilled(
        run=run.id,
        type=RunEventType.COMPACTED,
        payload=payload,
        checksum=sha256_of(entry.content),
        is_new=held is None,
    )


def ids_of_archive(done: Distilled) -> Ids:
    return {"run": done.run, "checksum": done.checksum, "is_new": int(done.is_new)}


def archive_again(
    tx: Transaction, ids: Ids, _: ArchiveDraft | None, __: Inputs, ___: IsCurrent
) -> Distilled:
    """What was answered, as the log has it."""
    done = done_again(tx, RunId(str(ids["run"])))
    return Distilled(
        run=done.run,
        type=done.type,
        payload=done.payload,
        checksum=str(ids["checksum"]),
        is_new=bool(ids["is_new"]),
    )


def done_again(tx: Transaction, run: RunId) -> PassDone:
    """What the log has of a pass; AnswerLost if that is gone."""
    tx.caller.require_refs()
    known = tx[RunTable].get(run)
    event = None if known is None else tx[RunTable].event(known, 1)
    if event is None:
        raise AnswerLost
    return PassDone(run=run, type=event.type, payload=event.payload)


def _archive(tx: Transaction, draft: ArchiveDraft, run: Run) -> RefEntry:
    distilled = (DISTILLED,) if draft.kind is PassKind.DISTILLATION else ()
    tags = (ARCHIVE, COMPACTED + run.id, *distilled, *draft.subjects)
    origin = Origin(run=run.id, method=draft.method)
    entry = added(
        tx,
        RefDraft(ref=draft.ref, content=draft.content, tags=tags, id=draft.id, origin=origin),
        ends=draft.ends,
    )
    tx[PassTable].add_archive(entry.memory, draft.ref, draft.sources)
    return entry


def _told(draft: ArchiveDraft) -> JsonObject:
    """What the event of an archive tells (RFC 0012, RFC 0062)."""
    ids = [it.id for it in draft.sources]
    told: dict[str, object] = {"memoryRef": draft.ref, "outputId": draft.id}
    if len(ids) <= MOST_NAMED:
        told["sourceIds"] = ids
    told |= {
        "sourceCount": len(ids),
        "trigger": Trigger.HOST_MANAGED.value,
        "byteSize": draft.size,
    }
    if draft.budget is not None:
        taken = sum(tokens(len(it.content.encode())) for it in draft.sources)
        told["distillation"] = {
            "tokenBudget": draft.budget,
            "tokensUsed": taken + tokens(draft.size),
            "indexUpdated": False,
        }
    return told
