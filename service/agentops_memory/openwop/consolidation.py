"""Consolidation: finds redundant entries of a ref and supersedes them."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, NamedTuple, TypeVar

from pydantic import Field, model_validator

from ..engine.engine import Transaction
from ..errors import BadFields, Refusal
from ..http.bodies import WRITTEN, fault_of, must
from ..http.protocol import Operation
from ..http.query import ENTRY, uid_of
from ..memory.access import Caller
from ..memory.erasure import ErasureId
from ..memory.idempotency import is_due, once
from ..memory.memories import MemoryTable
from ..memory.memory import UNSAVED, MemoryId
from ..memory.redactor import require_room
from ..memory.saves import Written
from ..memory.space import ErasureKind, MemoryRef
from ..memory.table import Sql
from . import api, passes
from .api import BASE, MemoryChanged, RefEntryId, Screen, Serving, op, present
from .archives import MOST_NAMED, first_expiry, units
from .commitments import arm, conditions_of, note_awaited_tags
from .entries import Method, Origin, RefEntry, RefTable, add_entry, erase_some, subjects
from .passes import Link, PassObject, Trigger
from .runs import Run, RunEventType, RunId, RunKind, RunStatus, RunTable

STEP = 200  # most links of one transaction, for which puts wait
MOST_CONSOLIDATED = 10_000  # most entries of one consolidation
MOST_CONSOLIDATED_BYTES = 16 * 1024 * 1024  # of their contents, held in memory with their words
MOST_MERGES = 100  # most merges of one request
MOST_CHANGED = 200  # changed refs that one query returns
KEY = "key:"  # prefix of the tag that names the fact an entry states
INCIDENTAL = ("source:", "run-id:", "node:", "workflow:")
"""Prefixes of provenance tags, which say nothing about the content."""

Tags = frozenset[str]


class MemoryTooLarge(Refusal):
    code = "memory_too_large"  # a partial pass would be wrong


class MergeBody(api.CamelBody):
    """Entries to be replaced by one entry, and its content."""

    ids: Annotated[
        list[api.EntryName], Field(min_length=2, max_length=100),
        must(lambda ids: len(set(ids)) == len(ids), "must name each entry once"),
    ]  # fmt: skip
    content: api.ContentText
    tags: api.Tags = Field(default=[])


class ConsolidateBody(api.CamelBody):
    """A ref to consolidate, and the merges that the host requests."""

    memory_ref: api.MemoryRefText
    merges: list[MergeBody] = Field(default=[], max_length=MOST_MERGES)

    @model_validator(mode="after")
    def _check_merges(self) -> "ConsolidateBody":
        ids = [it for merge in self.merges for it in merge.ids]
        if len(set(ids)) < len(ids):
            raise fault_of("merges", "must name each entry once")
        return self


Screened = TypeVar("Screened", RefEntry, MergeBody)


class Step(NamedTuple):
    """Links made in one transaction, and the entries among them that hold secrets.

    `renewed`: surviving entries, rewritten without secrets. `erased`: superseded entries.
    """

    links: Sequence[Link]
    ids: Sequence[RefEntryId]  # of the superseded entries
    renewed: Sequence[RefEntry]
    erased: Sequence[MemoryId]


class Progress(NamedTuple):
    """What a running consolidation has done so far."""

    run: RunId
    ref: MemoryRef
    inputs: int = 0  # entries that it has read
    newest: MemoryId = UNSAVED  # the newest memory at its last read
    written: tuple[MemoryId, ...] = ()
    replaced: tuple[RefEntryId, ...] = ()
    merges: int = 0  # entries that the host wrote to replace others
    renewed: int = 0  # entries replaced by a copy without secrets


def operations(serving: Serving) -> Sequence[Operation]:
    return (
        op(serving, "POST", f"{BASE}/consolidate", "consolidate",
           "Consolidate near-duplicate entries of a ref; no word is lost.", consolidate,
           body=ConsolidateBody, answer=PassObject, headers=WRITTEN, refusals=(409, 422)),
    )  # fmt: skip


async def consolidate_changed(serving: Serving, caller: Caller) -> None:
    """Consolidate each ref that has new entries; a refused ref waits for the next call."""
    after = MemoryRef("")
    while changed := await serving.engine.read(caller, changed_refs, after):
        for after in changed:
            body = ConsolidateBody.model_construct(memory_ref=after)
            with suppress(Refusal):
                await consolidate(serving, caller, body, Trigger.HOST_MANAGED)


async def consolidate(
    serving: Serving, caller: Caller, body: ConsolidateBody, trigger: Trigger = Trigger.ON_DEMAND
) -> Written[PassObject]:
    """Supersede entries: by merges of a host, newer facts of a key, and texts that contain them.

    No word is lost, except those of stale facts. Each finished step remains. Raises MemoryTooLarge
    for a ref that one pass cannot process.
    """
    finish = once(finish_pass)
    async with passes.locked(serving, caller, body.memory_ref, "consolidation"):
        progress, redacted = None, 0
        if await serving.engine.read(caller, is_due):
            progress, redacted = await _consolidated(serving, caller, body)
        done = await serving.engine.write(caller, finish, progress, trigger)
        if progress is not None:
            serving.pass_ended("consolidation", "done" if progress.replaced else "unchanged")
        passes.annotate_pass(done)
        return Written(value=done, redacted=redacted)


async def _consolidated(
    serving: Serving, caller: Caller, body: ConsolidateBody
) -> tuple[Progress, int]:
    """Run a consolidation; return its progress, and how many secrets it has redacted."""
    ref, merges = body.memory_ref, body.merges
    await serving.engine.read(caller, corpus, ref)  # raises MemoryTooLarge

    async def clean(screen: api.Screen) -> Sequence[object]:
        entries = await serving.engine.read(caller, to_merge, ref, merges)
        gone = await asyncio.to_thread(
            lambda: {it.memory for it in entries if screened(it, screen) != it}
        )
        return ref, [screened(it, screen) for it in merges], gone, screen

    begun = await serving.written(caller, begin_pass, clean)
    if begun.redacted:
        serving.on_erased(caller)
    if merges:
        serving.on_due(caller)
    try:
        done = await _steps(serving, caller, begun.value)
    except Refusal:  # changed too often, out of room, or too large now
        await serving.engine.write(caller, give_up, begun.value)
        raise
    return done, begun.redacted + done.renewed


async def _steps(serving: Serving, caller: Caller, progress: Progress) -> Progress:
    """Plan the ref and take each step; if entries changed meanwhile, plan again."""
    for _ in range(passes.TRIES):
        screen = serving.screen(caller)
        listed, newest = await serving.engine.read(caller, corpus, progress.ref)
        entries = await serving.engine.read(caller, lambda tx, it: tx[RefTable].some(it), listed)
        plan = await asyncio.to_thread(plan_steps, entries, screen)
        replaced = len(progress.replaced) - progress.merges  # by earlier steps
        progress = progress._replace(inputs=len(listed) + replaced, newest=newest)
        with suppress(api.ScreenOutdated, api.MemoryChanged):
            for step in plan:
                since = time.perf_counter()
                progress = await serving.write(caller, screen, take_step, progress, step)
                await asyncio.sleep(time.perf_counter() - since)  # puts continue meanwhile
                if step.renewed or step.erased:
                    serving.on_erased(caller)
            return progress
    raise api.MemoryChanged


def changed_refs(tx: Transaction, after: MemoryRef) -> Sequence[MemoryRef]:
    """Return refs that have new entries since they were last consolidated."""
    return tx[Sql].column(
        """SELECT ref FROM refs WHERE ref > :after AND newest > consolidated AND entries > 1
         ORDER BY ref LIMIT :limit""",
        after=after, limit=MOST_CHANGED,
    )  # fmt: skip


# Redundant entries of a ref: older facts, and texts that another contains. Pure functions.


def plan(entries: Sequence[RefEntry]) -> list[Link]:
    """Return the links of a consolidation, in the order of `entries`, which are oldest first.

    An entry is superseded at most once, by an entry that is not itself superseded. So after a
    partial run, a new plan has exactly the remaining links.
    """
    survivors = dict(_stale(entries))
    alike = defaultdict[Tags, list[RefEntry]](list)
    for entry in passes.paced(entries):
        if entry.memory not in survivors:
            tags = frozenset(tag for tag in entry.tags if not tag.startswith(INCIDENTAL))
            alike[tags].append(entry)
    groups = ((tags, similar) for tags, similar in alike.items() if len(similar) > 1)
    survivors.update(_covered([(tags, it) for tags, similar in groups for it in similar]))
    return [Link(survivors[it.memory], it.memory) for it in entries if it.memory in survivors]


def _stale(entries: Sequence[RefEntry]) -> Iterator[tuple[MemoryId, MemoryId]]:
    """Yield (stale, newest): entries all of whose keys have a newer holder with equal subjects.

    The superseding entry is the newest holder of a key, so it is not stale itself. A tag `key:`
    without a name is ignored.
    """
    facts = list[list[tuple[Tags, str]]]()
    for entry in passes.paced(entries):
        about = frozenset(subjects(entry.tags))
        facts.append([(about, tag) for tag in entry.tags if tag.startswith(KEY) and tag != KEY])
    newest = {fact: at for at, of_entry in enumerate(facts) for fact in of_entry}
    for at, of_entry in passes.paced(enumerate(facts)):
        holders = [newest[fact] for fact in of_entry]
        if holders and at not in holders:
            yield entries[at].memory, entries[max(holders)].memory


def _covered(entries: Sequence[tuple[Tags, RefEntry]]) -> Iterator[tuple[MemoryId, MemoryId]]:
    """Yield (covered, survivor): entries whose units a larger text has, or a newer equal text.

    Texts with different tags have no units in common. The survivor is the largest such text and its
    newest entry. Texts are visited largest first, and only survivors become holders of their units.
    A larger survivor holds all units of a text, so it is found among the holders of the rarest one.
    """
    numbers = dict[tuple[Tags, tuple[str, ...]], int]()  # by unit
    places = dict[frozenset[int], list[int]]()  # of each text's entries, the newest last
    for at, (tags, entry) in passes.paced(enumerate(entries)):
        contents = {unit.words for unit in units(entry.content)}
        text = frozenset([numbers.setdefault((tags, words), len(numbers)) for words in contents])
        if text:  # an entry without units cannot be shown to be covered
            places.setdefault(text, []).append(at)
    holders = defaultdict[int, list[frozenset[int]]](list)
    by_size = sorted(places, key=lambda it: (len(it), places[it][-1]), reverse=True)
    for text in passes.paced(by_size):
        rarest = min((holders.get(unit, []) for unit in text), key=len)
        survivor = next((other for other in rarest if text < other), text)
        if survivor is text:
            for unit in text:
                holders[unit].append(text)
        newest = entries[places[survivor][-1]][1].memory
        for memory in (entries[at][1].memory for at in places[text]):
            if memory != newest:
                yield memory, newest


def corpus(tx: Transaction, ref: MemoryRef) -> tuple[Sequence[MemoryId], MemoryId]:
    """Return replaceable entries, oldest first, and the newest memory, or raise MemoryTooLarge."""
    listed, size = list[MemoryId](), 0
    for each in passes.inputs(tx, ref, passes.REPLACEABLE):
        listed.append(each.memory)
        size += each.size
        if len(listed) > MOST_CONSOLIDATED or size > MOST_CONSOLIDATED_BYTES:
            raise MemoryTooLarge("The ref has more than a consolidation can process.")
    return listed, tx[RunTable].high()


def plan_steps(known: Sequence[RefEntry], screen: Screen) -> Sequence[Step]:
    """Return the steps of a pass; its entries are screened, and planned again until stable."""
    by_id = {it.memory: it for it in known}
    changed, checked = dict[MemoryId, RefEntry](), set[MemoryId]()
    while True:
        entries = [changed.get(id_, it) for id_, it in by_id.items()]
        links = sorted(plan(entries))  # grouped by surviving entry
        unchecked, before = {id_ for it in links for id_ in it} - checked, len(changed)
        checked |= unchecked
        for id_ in passes.paced(unchecked):
            if (clean := screened(by_id[id_], screen)) != by_id[id_]:
                changed[id_] = clean
        if len(changed) == before:
            break
    last = {it.newer: at for at, it in enumerate(links)}  # an entry is renewed with its last link
    steps = []
    for at in range(0, len(links), STEP):
        some = links[at : at + STEP]
        newer = dict.fromkeys(it.newer for it in some)
        steps.append(Step(
            links=some, ids=[by_id[it.older].id for it in some],
            erased=[it.older for it in some if it.older in changed],
            renewed=[changed[it] for it in newer if it in changed and last[it] < at + STEP],
        ))  # fmt: skip
    return steps


def screened(it: Screened, screen: Screen) -> Screened:
    """Return an entry, or a merge, without secrets by the current rules."""
    content, tags = screen.content(it.content), screen.tags(it.tags)
    return it.model_copy(update={"content": content, "tags": tags})


def to_merge(tx: Transaction, ref: MemoryRef, merges: Sequence[MergeBody]) -> list[RefEntry]:
    """Return those entries of the merges that exist."""
    ids = (id_ for merge in merges for id_ in merge.ids)
    return [entry for id_ in ids if (entry := tx[RefTable].get(ref, id_))]


def begin_pass(
    tx: Transaction, ref: MemoryRef, merges: Sequence[MergeBody],
    with_secrets: Collection[MemoryId], screen: Screen,
) -> Progress:  # fmt: skip
    """Begin a pass, and make the host's merges; merged entries that hold secrets are erased.

    Raises BadFields, MemoryChanged or MemoryTooLarge, without changes.
    """
    require_room(tx)
    for interrupted in tx[Sql].column(
        """SELECT r.name
             FROM refs f
             JOIN passes p ON p.space_id = f.space_id
             JOIN runs r ON r.id = p.run
            WHERE f.ref = :ref AND r.ended_at IS NULL AND r.kind = :kind
         ORDER BY r.id""",
        ref=ref, kind=RunKind.PASS.value,
    ):  # fmt: skip
        tx[RunTable].end(tx[RunTable].known(interrupted), RunStatus.FAILED)
    sources = [_sources(tx, ref, at, merge) for at, merge in enumerate(merges)]
    run = tx[RunTable].open(refs=(ref,), kind=RunKind.PASS)
    pairs = zip(merges, sources, strict=True)
    written = tuple(_merged(tx, run, merge, merged, screen) for merge, merged in pairs)
    replaced = [it for merged in sources for it in merged]
    _erase(tx, [it.memory for it in replaced if it.memory in with_secrets])
    passes.put_pass(tx, run, ref, written, len(replaced))
    if merges:
        corpus(tx, ref)  # raises MemoryTooLarge, without changes
    ids = tuple(it.id for it in replaced)
    return Progress(run=run.id, ref=ref, written=written, replaced=ids, merges=len(merges))


def take_step(tx: Transaction, progress: Progress, step: Step) -> Progress:
    """Make the links of a step; raises MemoryChanged if an entry is no longer replaceable."""
    run = _open(tx, progress)
    if not passes.are_all(tx, {id_ for each in step.links for id_ in each}, passes.REPLACEABLE):
        raise MemoryChanged
    require_room(tx)
    passes.link(tx, run, step.links, counts=True)
    new = [_renewed(tx, progress.ref, entry) for entry in step.renewed]
    _erase(tx, [*step.erased, *(it.memory for it in step.renewed)])
    written, replaced = (*progress.written, *new), (*progress.replaced, *step.ids)
    renewed = progress.renewed + len(new)
    passes.put_pass(tx, run, progress.ref, written, len(replaced) + renewed)
    return progress._replace(written=written, replaced=replaced, renewed=renewed)


def finish_pass(tx: Transaction, progress: Progress | None, trigger: Trigger) -> PassObject:
    """End a pass with its event (RFC 0068)."""
    if progress is None:
        raise MemoryChanged  # the stored answer of the idempotency key has expired
    run = _open(tx, progress)
    payload: dict[str, object] = {
        "memoryRef": run.refs[0],  # the current name: the former may have been forgotten
        "inputCount": progress.inputs,
        "outputCount": progress.inputs - len(progress.replaced) + progress.merges,
    }
    if len(progress.replaced) <= MOST_NAMED:
        payload["mergedIds"] = list(progress.replaced)
    payload["trigger"] = trigger.value
    event = passes.finish(tx, run, RunEventType.CONSOLIDATED, payload)
    tx[Sql].update("refs", "ref", {"ref": progress.ref, "consolidated": progress.newest})
    return PassObject(run_id=run.id, event=event)


def give_up(tx: Transaction, progress: Progress) -> None:
    """End a pass that failed; its finished steps remain, and can be undone."""
    with suppress(MemoryChanged):
        tx[RunTable].end(_open(tx, progress), RunStatus.FAILED)


def _open(tx: Transaction, progress: Progress) -> Run:
    """Return the run of the pass; raises MemoryChanged if another process has ended it."""
    run = tx[RunTable].get(progress.run)
    if run is None or not run.is_open:
        raise MemoryChanged
    return run


def _sources(tx: Transaction, ref: MemoryRef, at: int, merge: MergeBody) -> Sequence[RefEntry]:
    """Return the entries of a merge; raises MemoryChanged or, if not mergeable, BadFields."""
    sources = to_merge(tx, ref, [merge])
    memories = [it.memory for it in sources]
    if len(sources) < len(merge.ids) or not passes.are_all(tx, memories, passes.VISIBLE):
        raise MemoryChanged
    field_ = f"merges[{at}].ids"
    if not passes.are_all(tx, memories, passes.REPLACEABLE):
        raise BadFields([(field_, "must not name an archive, or an entry that is pinned or armed")])
    if len({frozenset(subjects(it.tags)) for it in sources}) > 1:
        raise BadFields([(field_, "must name entries of the same subjects")])
    return sources


def _merged(
    tx: Transaction, run: Run, merge: MergeBody, sources: Sequence[RefEntry], screen: Screen
) -> MemoryId:
    """Put the entry that supersedes its sources; it keeps their subjects."""
    tags = tuple(dict.fromkeys((*merge.tags, *screen.tags(subjects(sources[0].tags)))))
    origin, ref = Origin(run=run.id, method=Method.HOST), MemoryRef(run.refs[0])
    conditions = conditions_of(tags, tx.now)
    entry = add_entry(tx, ref, merge.content, tags, origin=origin, expires_at=first_expiry(sources))
    passes.link(tx, run, [Link(entry.memory, it.memory) for it in sources], counts=True)
    note_awaited_tags(tx, ref, entry)
    arm(tx, entry.memory, conditions)
    return entry.memory


def _renewed(tx: Transaction, ref: MemoryRef, entry: RefEntry) -> MemoryId:
    """Replace an entry by a copy without its secrets; return the copy."""
    (stored,) = tx[MemoryTable].loaded([entry.memory])
    name = None if uid_of(ENTRY, entry.id) else entry.id
    origin = tx[RefTable].provenance(ref, entry.id).origin
    new = add_entry(
        tx, ref, entry.content, entry.tags, name=name, origin=origin, expires_at=entry.expires_at,
        like=stored,
    )  # fmt: skip
    for statement in _REDIRECTS:
        tx[Sql].run(statement, old=entry.memory, new=new.memory)
    return new.memory


# Redirect the links of the old entry to the new one, which snapshots show instead.
_REDIRECTS = (
    "UPDATE ref_supersessions SET newer_id = :new WHERE newer_id = :old",
    "UPDATE ref_supersessions SET older_id = :new WHERE older_id = :old",
    "UPDATE derivations SET memory_id = :new WHERE memory_id = :old",
    "UPDATE derivations SET source_id = :new WHERE source_id = :old",
    """UPDATE ref_entries
          SET renews = (SELECT coalesce(renews, memory_id) FROM ref_entries WHERE memory_id = :old)
        WHERE memory_id = :new""",
)


def _erase(tx: Transaction, memories: Sequence[MemoryId]) -> None:
    """Erase entries that hold secrets, with a receipt; their successors inherit their links."""
    if not memories:
        return
    sql, ids = tx[Sql], json.dumps(memories)
    heirs = f"""{sql.dialect.ids("listed")}
               {sql.dialect.leads} ref_supersessions h
                     ON h.older_id = listed.value AND h.ended_after IS NULL
               JOIN ref_entries n
                     ON n.memory_id = h.newer_id AND {present(None, "n")}"""
    sql.run(
        f"""INSERT INTO ref_supersessions (newer_id, older_id, made_after)
            SELECT h.newer_id, x.older_id, (SELECT coalesce(max(id), 0) FROM run_events)
              FROM {heirs}
              JOIN ref_supersessions x ON x.newer_id = listed.value AND x.ended_after IS NULL
             WHERE x.older_id <> h.newer_id
                ON CONFLICT DO NOTHING""",
        ids=ids,
    )
    sql.run(
        f"""INSERT INTO derivations (memory_id, source_id)
            SELECT h.newer_id, d.source_id
              FROM {heirs}
              JOIN derivations d ON d.memory_id = listed.value
             WHERE d.source_id <> h.newer_id
                ON CONFLICT DO NOTHING""",
        ids=ids,
    )
    erase_some(tx, memories, ErasureId(tx.new_uid(tx.now)), ErasureKind.REF)
