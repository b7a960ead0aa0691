"""Consolidation: which entries others make superfluous, and how these take their place."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, NamedTuple, TypeVar

from pydantic import BaseModel, Field, model_validator

from ..engine.engine import Transaction, noop
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
from ..memory.rows import micros
from ..memory.saves import Written
from ..memory.space import ErasureKind, MemoryRef
from ..memory.table import Sql
from . import api, passes
from .api import BASE, MemoryChanged, RefEntryId, Screen, Serving, op, present
from .archives import MOST_NAMED, first_end, units
from .commitments import arm, conditions_of, meet
from .entries import Method, Origin, RefEntry, RefTable, added, erase_some, subjects
from .passes import Link, PassObject, Pausing, Trigger
from .runs import Run, RunEventType, RunId, RunKind, RunStatus, RunTable

STEP = 200  # links of one transaction; puts wait for it
MOST_CONSOLIDATED = 10_000  # entries of a consolidation
MOST_CONSOLIDATED_BYTES = 16 * 1024 * 1024  # held in memory with their words
MOST_MERGES = 100  # of one request
MOST_CHANGED = 200  # refs of one look for those that have changed
KEY = "key:"  # and which fact an entry states
INCIDENTAL = ("source:", "run-id:", "node:", "workflow:")
"""How tags begin that tell where an entry comes from, not what it says."""

Tags = frozenset[str]


class MemoryTooLarge(Refusal):
    code = "memory_too_large"  # the ref holds more than one pass can look at; a part would not do


class MergeBody(BaseModel):
    """Entries that become one, and what it says."""

    model_config = api.CAMEL
    ids: Annotated[
        list[api.EntryName], Field(min_length=2, max_length=100),
        must(lambda ids: len(set(ids)) == len(ids), "must name each entry once"),
    ]  # fmt: skip
    content: api.ContentText
    tags: api.Tags = []


class ConsolidateBody(BaseModel):
    """A ref whose entries are to stand for what they say, too."""

    model_config = api.CAMEL
    memory_ref: api.MemoryRefText
    merges: Annotated[list[MergeBody], Field(max_length=MOST_MERGES)] = []

    @model_validator(mode="after")
    def _together(self) -> "ConsolidateBody":
        ids = [it for merge in self.merges for it in merge.ids]
        if len(set(ids)) < len(ids):
            raise fault_of("merges", "must name each entry once")
        return self


Screened = TypeVar("Screened", RefEntry, MergeBody)


class Step(NamedTuple):
    """Links that are made at once, and entries whose secrets go with them.

    `renewed` stay, as they are without their secrets; `erased` are replaced and go.
    """

    links: Sequence[Link]
    ids: Sequence[RefEntryId]  # of those that are replaced
    renewed: Sequence[RefEntry]
    erased: Sequence[MemoryId]


class Begun(NamedTuple):
    """A consolidation that continues: what it has done so far."""

    run: RunId
    ref: MemoryRef
    inputs: int = 0  # entries that it has looked at
    newest: MemoryId = UNSAVED  # at its last look
    written: tuple[MemoryId, ...] = ()
    replaced: tuple[RefEntryId, ...] = ()
    merges: int = 0  # entries that hosts have written in place of others
    renewed: int = 0  # entries that are gone for good, but for their secrets


def operations(serving: Serving) -> Sequence[Operation]:
    return (
        op(serving, "POST", f"{BASE}/consolidate", "consolidate",
           "Consolidate near-duplicate entries of a ref; no word is lost.", consolidate,
           body=ConsolidateBody, answer=PassObject, headers=WRITTEN, refusals=(409, 422)),
    )  # fmt: skip


async def consolidate_changed(serving: Serving, caller: Caller) -> None:
    """Consolidate each ref to which something was put since; what is refused waits."""
    after = MemoryRef("")
    while changed := await serving.engine.read(caller, changed_refs, after):
        for after in changed:
            body = ConsolidateBody.model_construct(memory_ref=after)
            with suppress(Refusal):
                await consolidate(serving, caller, body, Trigger.HOST_MANAGED)


async def consolidate(
    serving: Serving, caller: Caller, body: ConsolidateBody, trigger: Trigger = Trigger.ON_DEMAND
) -> Written[PassObject]:
    """Let entries stand for what they say, too: merges of a host, newer facts, larger texts.

    No word is lost but those of a stale key. It is done in steps, each of which holds;
    MemoryTooLarge for a ref that is more than one pass can look at.
    """
    finish = once(finish_pass)
    async with passes.locked(serving, caller, body.memory_ref, "consolidation"):
        begun, redacted = None, 0
        if await serving.engine.read(caller, is_due):
            begun, redacted = await _consolidated(serving, caller, body)
        done = await serving.engine.write(caller, finish, begun, trigger)
        if begun is not None:
            serving.pass_ended("consolidation", "done" if begun.replaced else "unchanged")
        passes.measure(done)
        return Written(value=done, redacted=redacted)


async def _consolidated(
    serving: Serving, caller: Caller, body: ConsolidateBody
) -> tuple[Begun, int]:
    """All that a consolidation does, and how many secrets it has kept out."""
    ref, merges = body.memory_ref, body.merges
    await serving.engine.read(caller, corpus, ref)  # or MemoryTooLarge

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
    except Refusal:  # changed too often; full, or too large by now
        await serving.engine.write(caller, give_up, begun.value)
        raise
    return done, begun.redacted + done.renewed


async def _steps(serving: Serving, caller: Caller, begun: Begun) -> Begun:
    """Do what is planned for the ref, in steps; what has changed meanwhile is planned anew."""
    for _ in range(passes.TRIES):
        screen = serving.screen(caller)
        listed, newest = await serving.engine.read(caller, corpus, begun.ref)
        entries: list[RefEntry] = []
        for start in range(0, len(listed), STEP):
            some = listed[start : start + STEP]  # of which none ever changes
            known = await serving.engine.read(caller, lambda tx, it: tx[RefTable].some(it), some)
            entries += known
        plan = await asyncio.to_thread(planned, entries, screen, passes.Throttle())
        replaced = len(begun.replaced) - begun.merges  # before
        begun = begun._replace(inputs=len(listed) + replaced, newest=newest)
        with suppress(api.ScreenOutdated, api.MemoryChanged):
            for step in plan:
                since = time.perf_counter()
                begun = await serving.write(caller, screen, take_step, begun, step)
                await asyncio.sleep(time.perf_counter() - since)  # puts continue meanwhile
                if step.renewed or step.erased:
                    serving.on_erased(caller)
            return begun
    raise api.MemoryChanged


def changed_refs(tx: Transaction, after: MemoryRef) -> Sequence[MemoryRef]:
    """Refs to which something was put since a pass has looked at all of each."""
    return tx[Sql].column(
        """SELECT ref FROM refs WHERE ref > :after AND newest > consolidated AND entries > 1
         ORDER BY ref LIMIT :limit""",
        after=after, limit=MOST_CHANGED,
    )  # fmt: skip


# Which entries of a ref others make superfluous: older facts, and what another says too. Pure.


def plan(entries: Sequence[RefEntry], pause: Pausing = noop) -> list[Link]:
    """What a consolidation supersedes, in the order of the entries, which come oldest first.

    An entry is superseded at most once, and by one that is not. So whatever part of the plan is
    done, a plan for the rest has the other links, and none is left at the end.
    """
    survivors = dict(_stale(entries, pause))
    alike = defaultdict[Tags, list[RefEntry]](list)
    for entry in entries:
        pause()
        if entry.memory not in survivors:
            tags = frozenset(tag for tag in entry.tags if not tag.startswith(INCIDENTAL))
            alike[tags].append(entry)
    for those in alike.values():
        if len(those) > 1:
            survivors.update(_covered(those, pause))
    return [Link(survivors[it.memory], it.memory) for it in entries if it.memory in survivors]


def _stale(entries: Sequence[RefEntry], pause: Pausing) -> Iterator[tuple[MemoryId, MemoryId]]:
    """The entries of whose keys each has a newer holder of the same subjects, and the newest.

    What supersedes them is the newest holder of one of its keys, so it is not stale. A key
    without a name is none.
    """
    facts = list[list[tuple[Tags, str]]]()
    for entry in entries:
        pause()
        about = frozenset(subjects(entry.tags))
        facts.append([(about, tag) for tag in entry.tags if tag.startswith(KEY) and tag != KEY])
    newest = {fact: at for at, those in enumerate(facts) for fact in those}
    for at, those in enumerate(facts):
        pause()
        holders = [newest[fact] for fact in those]
        if holders and at not in holders:
            yield entries[at].memory, entries[max(holders)].memory


def _covered(entries: Sequence[RefEntry], pause: Pausing) -> Iterator[tuple[MemoryId, MemoryId]]:
    """The entries whose units a larger text has, or a newer entry of the same text.

    Of the larger ones it is the largest, of equal ones the newest. It is one that stays, and
    among the holders of the rarest unit: texts come largest first, and of those that stay alone
    it is noted which units they have.
    """
    numbers = dict[tuple[str, ...], int]()  # of units
    places = dict[frozenset[int], list[int]]()  # of the entries of each text; the last is newest
    for at, entry in enumerate(entries):
        pause()
        contents = {unit.words for unit in units(entry.content)}
        text = frozenset([numbers.setdefault(words, len(numbers)) for words in contents])
        if text:  # nothing tells that what has no unit is said elsewhere
            places.setdefault(text, []).append(at)
    holders = defaultdict[int, list[frozenset[int]]](list)
    for text in sorted(places, key=lambda it: (len(it), places[it][-1]), reverse=True):
        pause()
        rarest = min((holders.get(unit, []) for unit in text), key=len)
        survivor = next((other for other in rarest if text < other), text)
        if survivor is text:
            for unit in text:
                holders[unit].append(text)
        stays = entries[places[survivor][-1]].memory
        for memory in (entries[at].memory for at in places[text]):
            if memory != stays:
                yield memory, stays


def corpus(tx: Transaction, ref: MemoryRef) -> tuple[Sequence[MemoryId], MemoryId]:
    """All entries that may be replaced, oldest first, and the newest memory; MemoryTooLarge."""
    listed, size = list[MemoryId](), 0
    for each in passes.inputs(tx, ref, passes.REPLACEABLE):
        listed.append(each.memory)
        size += each.size
        if len(listed) > MOST_CONSOLIDATED or size > MOST_CONSOLIDATED_BYTES:
            raise MemoryTooLarge("The ref has more than a consolidation can process.")
    return listed, tx[RunTable].high()


def planned(known: Sequence[RefEntry], screen: Screen, pause: Pausing) -> Sequence[Step]:
    """The steps of a pass. What takes part is screened again, and judged as it is then."""
    by_id = {it.memory: it for it in known}
    changed, checked = dict[MemoryId, RefEntry](), set[MemoryId]()
    while True:
        entries = [changed.get(id_, it) for id_, it in by_id.items()]
        links = sorted(plan(entries, pause))  # those of an entry side by side
        due, before = {id_ for it in links for id_ in it} - checked, len(changed)
        checked |= due
        for id_ in due:
            if (clean := screened(by_id[id_], screen)) != by_id[id_]:
                changed[id_] = clean
            pause()
        if len(changed) == before:
            break
    last = {it.newer: at for at, it in enumerate(links)}  # an entry is renewed with that
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
    """An entry, or what becomes one, as it would be put now."""
    content, tags = screen.content(it.content), screen.tags(it.tags)
    return it.model_copy(update={"content": content, "tags": tags})


def to_merge(tx: Transaction, ref: MemoryRef, merges: Sequence[MergeBody]) -> list[RefEntry]:
    """What a host wants merged, as far as it is there."""
    ids = (id_ for merge in merges for id_ in merge.ids)
    return [entry for id_ in ids if (entry := tx[RefTable].get(ref, id_))]


def begin_pass(
    tx: Transaction, ref: MemoryRef, merges: Sequence[MergeBody],
    with_secrets: Collection[MemoryId], screen: Screen,
) -> Begun:  # fmt: skip
    """Begin a pass, with what a host wants merged; what of it holds a secret is erased.

    BadFields, or MemoryChanged, and nothing is done.
    """
    require_room(tx)
    for broken_off in tx[Sql].column(
        """SELECT r.name
             FROM refs f
             JOIN passes p ON p.space_id = f.space_id
             JOIN runs r ON r.id = p.run
            WHERE f.ref = :ref AND r.ended_at IS NULL AND r.kind = :kind
         ORDER BY r.id""",
        ref=ref, kind=RunKind.PASS.value,
    ):  # fmt: skip
        tx[RunTable].end(tx[RunTable].known(broken_off), RunStatus.FAILED)
    sources = [_sources(tx, ref, at, merge) for at, merge in enumerate(merges)]
    run = tx[RunTable].open(refs=(ref,), kind=RunKind.PASS)
    pairs = zip(merges, sources, strict=True)
    written = tuple(_merged(tx, run, merge, those, screen) for merge, those in pairs)
    replaced = [it for those in sources for it in those]
    _erase(tx, [it.memory for it in replaced if it.memory in with_secrets])
    passes.put_pass(tx, run, ref, written, len(replaced))
    if merges:
        corpus(tx, ref)  # or MemoryTooLarge, and nothing is done
    ids = tuple(it.id for it in replaced)
    return Begun(run=run.id, ref=ref, written=written, replaced=ids, merges=len(merges))


def take_step(tx: Transaction, begun: Begun, step: Step) -> Begun:
    """Make links, if all that they name is still what the pass has read; MemoryChanged."""
    run = _open(tx, begun)
    if not passes.are_all(tx, {id_ for each in step.links for id_ in each}, passes.REPLACEABLE):
        raise MemoryChanged
    require_room(tx)
    passes.link(tx, run, step.links, counts=True)
    anew = [_renewed(tx, begun.ref, entry) for entry in step.renewed]
    _erase(tx, [*step.erased, *(it.memory for it in step.renewed)])
    written, replaced = (*begun.written, *anew), (*begun.replaced, *step.ids)
    renewed = begun.renewed + len(anew)
    passes.put_pass(tx, run, begun.ref, written, len(replaced) + renewed)
    return begun._replace(written=written, replaced=replaced, renewed=renewed)


def finish_pass(tx: Transaction, begun: Begun | None, trigger: Trigger) -> PassObject:
    """End a pass with the event that tells of it (RFC 0068)."""
    if begun is None:
        raise MemoryChanged  # the answer under the idempotency key is over its time
    run = _open(tx, begun)
    payload: dict[str, object] = {
        "memoryRef": run.refs[0],  # as it is called now: the name may be forgotten
        "inputCount": begun.inputs,
        "outputCount": begun.inputs - len(begun.replaced) + begun.merges,
    }
    if len(begun.replaced) <= MOST_NAMED:
        payload["mergedIds"] = list(begun.replaced)
    payload["trigger"] = trigger.value
    event = passes.finished(tx, run, RunEventType.CONSOLIDATED, payload)
    tx[Sql].update("refs", "ref", {"ref": begun.ref, "consolidated": begun.newest})
    return PassObject(run_id=run.id, event=event)


def give_up(tx: Transaction, begun: Begun) -> None:
    """End a pass whose sources do not stay; what it has done holds, and can be undone."""
    with suppress(MemoryChanged):
        tx[RunTable].end(_open(tx, begun), RunStatus.FAILED)


def _open(tx: Transaction, begun: Begun) -> Run:
    """The run of the pass; MemoryChanged if another process has ended it."""
    run = tx[RunTable].get(begun.run)
    if run is None or not run.is_open:
        raise MemoryChanged
    return run


def _sources(tx: Transaction, ref: MemoryRef, at: int, merge: MergeBody) -> Sequence[RefEntry]:
    """What a host wants merged; MemoryChanged for what is not there, BadFields for what may not."""
    sources = to_merge(tx, ref, [merge])
    memories = [it.memory for it in sources]
    if len(sources) < len(merge.ids) or not passes.are_all(tx, memories, passes.VISIBLE):
        raise MemoryChanged
    field_ = f"merges[{at}].ids"
    if not passes.are_all(tx, memories, passes.REPLACEABLE):
        raise BadFields([(field_, "name an archive, or an entry that is pinned or awaited")])
    if len({frozenset(subjects(it.tags)) for it in sources}) > 1:
        raise BadFields([(field_, "name entries of different subjects")])
    return sources


def _merged(
    tx: Transaction, run: Run, merge: MergeBody, sources: Sequence[RefEntry], screen: Screen
) -> MemoryId:
    """Put the entry that stands for its sources from now on; it is about whom they are about."""
    tags = tuple(dict.fromkeys((*merge.tags, *screen.tags(subjects(sources[0].tags)))))
    origin, ref = Origin(run=run.id, method=Method.HOST), MemoryRef(run.refs[0])
    conditions = conditions_of(tags, tx.now)
    entry = added(tx, ref, merge.content, tags, origin=origin, ends=first_end(sources))
    passes.link(tx, run, [Link(entry.memory, it.memory) for it in sources], counts=True)
    meet(tx, ref, entry)
    arm(tx, entry.memory, conditions)
    return entry.memory


def _renewed(tx: Transaction, ref: MemoryRef, entry: RefEntry) -> MemoryId:
    """Put an entry anew, in its place, without the secrets that it held."""
    (stored,) = tx[MemoryTable].loaded([entry.memory])
    name = None if uid_of(ENTRY, entry.id) else entry.id
    origin = tx[RefTable].provenance(ref, entry.id).origin
    new = added(
        tx, ref, entry.content, entry.tags, name=name, origin=origin, ends=entry.expires_at,
        like=stored,
    )  # fmt: skip
    for statement in _TAKEN_OVER:
        tx[Sql].run(statement, old=entry.memory, new=new.memory)
    return new.memory


# What stood for an old entry, and what it stood for, is the new one's; snapshots have that one.
_TAKEN_OVER = (
    "UPDATE ref_supersessions SET newer_id = :new WHERE newer_id = :old",
    "UPDATE ref_supersessions SET older_id = :new WHERE older_id = :old",
    "UPDATE derivations SET memory_id = :new WHERE memory_id = :old",
    "UPDATE derivations SET source_id = :new WHERE source_id = :old",
    """UPDATE ref_entries
          SET renews = (SELECT coalesce(renews, memory_id) FROM ref_entries WHERE memory_id = :old)
        WHERE memory_id = :new""",
)


def _erase(tx: Transaction, memories: Sequence[MemoryId]) -> None:
    """Erase entries that hold secrets, with a receipt; what replaces them inherits their links."""
    if not memories:
        return
    sql = tx[Sql]
    values: dict[str, object] = {"ids": json.dumps(memories), "now": micros(tx.now)}
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
        **values,
    )
    sql.run(
        f"""INSERT INTO derivations (memory_id, source_id)
            SELECT h.newer_id, d.source_id
              FROM {heirs}
              JOIN derivations d ON d.memory_id = listed.value
             WHERE d.source_id <> h.newer_id
                ON CONFLICT DO NOTHING""",
        **values,
    )
    erase_some(tx, memories, ErasureId(tx.new_uid(tx.now)), ErasureKind.REF)
