"""Consolidation: what a pass plans, and the steps in which it is done."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from ....engine.engine import Ids, Transaction
from ....memory.limits import require_room
from ....memory.model.memory import UNSAVED, MemoryId
from ....memory.model.space import MemoryRef
from ...entries import RefEntry, RefTable
from ...model.passes import Link, Merge, Pass, PassDone, Trigger
from ...refs import IsCurrent, MemoryChanged, RefEntryId, Screen, ScreenOutdated
from ...runs import Run, RunEventType, RunId, RunKind, RunStatus, RunTable
from ...sql.passes import PassTable
from ...sql.subjects import SubjectTable
from .archives import REPLACEABLE, done_again
from .merges import merge_entries, merge_sources, screened_entry
from .merging import plan
from .renewal import erase, renewed
from .rest import Resting
from .rules import MOST_CONSOLIDATED, MOST_CONSOLIDATED_BYTES, MOST_NAMED, MemoryTooLarge

STEP = 200  # links of one transaction; puts wait for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The entries that a consolidation looks at, and the newest memory then."""

    memories: Sequence[MemoryId]
    newest: MemoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Links that are made at once, and entries whose secrets go with them.

    `renewed` stay, as they are without their secrets; `erased` are replaced and go.
    """

    links: Sequence[Link]
    ids: Sequence[RefEntryId]  # of those that are replaced
    renewed: Sequence[RefEntry] = ()
    erased: Sequence[MemoryId] = ()

    @property
    def redacted(self) -> int:
        return len(self.renewed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A consolidation that goes on: what it has done so far."""

    run: RunId
    ref: MemoryRef
    inputs: int = 0  # entries that it has looked at
    newest: MemoryId = UNSAVED  # at its last look
    written: tuple[MemoryId, ...] = ()
    replaced: tuple[RefEntryId, ...] = ()
    merges: int = 0  # entries that hosts have written in place of others
    renewed: int = 0  # entries that are gone for good, but for their secrets
    redacted: int = 0  # secrets

    def looked_at(self, corpus: Corpus) -> Self:
        """The pass after a look, which does not find what was replaced before."""
        seen = len(corpus.memories) + len(self.replaced) - self.merges
        return replace(self, inputs=seen, newest=corpus.newest, redacted=0)


def consolidation_inputs(tx: Transaction, ref: MemoryRef) -> Corpus:
    """All entries that may be replaced, oldest first; MemoryTooLarge."""
    listed = []
    size = 0
    for each in tx[PassTable].inputs(ref, REPLACEABLE):
        listed.append(each.memory)
        size += each.size
        if len(listed) > MOST_CONSOLIDATED or size > MOST_CONSOLIDATED_BYTES:
            raise MemoryTooLarge
    return Corpus(memories=listed, newest=tx[SubjectTable].newest())


def some_entries(tx: Transaction, memories: Sequence[MemoryId]) -> Sequence[RefEntry]:
    """What these say, as far as they are there: an entry never changes."""
    return tx[RefTable].some(memories)


def planned(inputs: Sequence[RefEntry], screen: Screen, rest: Resting) -> Sequence[Step]:
    """The steps of a pass. What takes part is screened again, and judged as it is then."""
    held = {it.memory: it for it in inputs}
    entries, seen = dict(held), set[MemoryId]()
    while True:
        links = sorted(plan(list(entries.values()), rest))  # those of an entry side by side
        due = {id_ for link in links for id_ in link} - seen
        seen |= due
        is_clean = True
        for id_ in due:
            clean = screened_entry(entries[id_], screen)
            if clean != entries[id_]:
                is_clean, entries[id_] = False, clean
            rest()
        if is_clean:
            break
    changed = {id_: it for id_, it in entries.items() if it != held[id_]}
    return [_step(links, at, held, changed) for at in range(0, len(links), STEP)]


def begin_pass(
    tx: Transaction,
    ref: MemoryRef,
    merges: Sequence[Merge],
    with_secrets: Collection[MemoryId],
    screen: Screen,
    is_current: IsCurrent,
) -> Begun:
    """Begin a pass, with what a host wants merged; BadFields, or MemoryChanged, for nothing.

    What is merged and holds a secret is erased.
    """
    tx.caller.require_refs()
    if not is_current():
        raise ScreenOutdated
    require_room(tx)
    for broken_off in tx[PassTable].unfinished(ref):
        tx[RunTable].end(broken_off, RunStatus.FAILED)
    sources = [merge_sources(tx, ref, place, merge) for place, merge in enumerate(merges)]
    run = tx[RunTable].open(refs=(ref,), kind=RunKind.PASS)
    begun = Begun(run=run.id, ref=ref)
    for merge, merged in zip(merges, sources, strict=True):
        entry = merge_entries(tx, run, ref, merge, merged, screen)
        begun = replace(
            begun,
            written=(*begun.written, entry.memory),
            replaced=(*begun.replaced, *(it.id for it in merged)),
            merges=begun.merges + 1,
        )
    if gone := [it.memory for merged in sources for it in merged if it.memory in with_secrets]:
        tx[PassTable].inherit(gone)
        erase(tx, gone)
    tx[PassTable].put(_pass(run, begun))
    if merges:
        consolidation_inputs(tx, ref)  # or MemoryTooLarge, and nothing is done
    return begun


def take_step(tx: Transaction, begun: Begun, step: Step, is_current: IsCurrent) -> Begun:
    """Make links, if all that they name is still what the pass has read; MemoryChanged."""
    if not is_current():
        raise ScreenOutdated
    run = _open(tx, begun)
    named = {id_ for link in step.links for id_ in (link.newer, link.older)}
    if not tx[PassTable].are_inputs(named, REPLACEABLE):
        raise MemoryChanged
    require_room(tx)
    tx[PassTable].link(run, step.links, counts=True)
    tx[PassTable].inherit(step.erased)
    anew = [renewed(tx, begun.ref, entry) for entry in step.renewed]
    if gone := [*step.erased, *(it.memory for it in step.renewed)]:
        erase(tx, gone)
    begun = replace(
        begun,
        replaced=(*begun.replaced, *step.ids),
        written=(*begun.written, *anew),
        renewed=begun.renewed + len(anew),
        redacted=step.redacted,
    )
    tx[PassTable].put(_pass(run, begun))
    return begun


def finish_pass(tx: Transaction, begun: Begun | None, trigger: Trigger) -> PassDone:
    """End a pass with the event that tells of it (RFC 0068)."""
    if begun is None:
        raise MemoryChanged  # the answer under the idempotency key is over its time
    run = _open(tx, begun)
    told: dict[str, object] = {
        "memoryRef": run.refs[0],  # as it is called now: the name may be forgotten
        "inputCount": begun.inputs,
        "outputCount": begun.inputs - len(begun.replaced) + begun.merges,
    }
    if len(begun.replaced) <= MOST_NAMED:
        told["mergedIds"] = list(begun.replaced)
    told["trigger"] = trigger.value
    tx[RunTable].tell(run, RunEventType.CONSOLIDATED, told)
    tx[RunTable].end(run, RunStatus.COMPLETED)
    tx[PassTable].looked_at(begun.ref, begun.newest)
    return PassDone(run=run.id, type=RunEventType.CONSOLIDATED, payload=told)


def finished_again(tx: Transaction, ids: Ids, _: Begun | None, __: Trigger) -> PassDone:
    return done_again(tx, RunId(str(ids["run"])))


def give_up(tx: Transaction, begun: Begun) -> None:
    """End a pass whose sources do not stay; what it has done holds, and can be undone."""
    run = tx[RunTable].get(begun.run)
    if run is not None and run.is_open:
        tx[RunTable].end(run, RunStatus.FAILED)


def _step(
    links: Sequence[Link],
    at: int,
    held: Mapping[MemoryId, RefEntry],
    changed: Mapping[MemoryId, RefEntry],
) -> Step:
    """The step from there on. An entry is renewed with the last of its links."""
    some, later = links[at : at + STEP], links[at + STEP : at + STEP + 1]
    newer = dict.fromkeys(link.newer for link in some)
    goes_on = {link.newer for link in later}
    return Step(
        links=some,
        ids=[held[link.older].id for link in some],
        renewed=[changed[it] for it in newer if it in changed and it not in goes_on],
        erased=[link.older for link in some if link.older in changed],
    )


def _open(tx: Transaction, begun: Begun) -> Run:
    """The run of the pass; MemoryChanged if another process has ended it."""
    run = tx[RunTable].get(begun.run)
    if run is None or not run.is_open:
        raise MemoryChanged
    return run


def _pass(run: Run, begun: Begun) -> Pass:
    replaced = len(begun.replaced) + begun.renewed
    return Pass(run=run, ref=begun.ref, written=begun.written, replaced=replaced)
