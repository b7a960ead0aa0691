"""Passes over a ref: compaction, distillation, consolidation, their undo, the index."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, model_validator

from ..engine.callbacks import Audit, noop
from ..engine.engine import Engine, Transaction
from ..errors import BadFields, Refusal
from ..http.bodies import WRITTEN
from ..http.faults import fault_of
from ..http.paging import instant as parsed
from ..http.protocol import Operation
from ..memory.idempotency import IdempotentRequest, idempotent, is_due
from ..memory.model.access import Caller, Role
from ..memory.model.space import MemoryRef
from ..memory.model.stores import Written
from ..memory.redactor import Redaction
from ..recall.text.instants import whole_milliseconds
from ..telemetry import Cut, annotate
from .api import BASE, LONGEST_IN_SPAN, Param, Query, op
from .archives import (
    MOST_TOKENS,
    REPLACEABLE,
    Rest,
    archive_again,
    archive_of,
    compaction_inputs,
    distillation_inputs,
    ids_of_archive,
    is_undo_due,
    put_archive,
    undo_pass,
)
from .consolidation import (
    STEP,
    Begun,
    begin_pass,
    consolidation_inputs,
    finish_pass,
    finished_again,
    give_up,
    merged_entries,
    planned,
    screened_merge,
    some_entries,
    take_step,
    with_secrets,
)
from .entries import RefEntry
from .fields import CAMEL, ContentText, MemoryRefText, Zoned
from .pass_records import (
    ArchiveDraft,
    DistilledObject,
    Inputs,
    MemoryIndex,
    MergeBody,
    PassKind,
    PassObject,
    PassTable,
    Trigger,
    UndonePass,
)
from .refs import (
    IsCurrent,
    MemoryChanged,
    Screen,
    ScreenOutdated,
    Turns,
    currency,
    readable,
    require_ref,
    screen_of,
    written,
)
from .runs import RunId

TRIES = 3  # of a pass whose sources change meanwhile
MOST_MERGES = 100
MOST_INDEXED = 200  # archives of an index
MOST_CHANGED = 200  # refs of one look for those that have changed

DONE, UNCHANGED, REFUSED = "done", "unchanged", "refused"

Made = Callable[[Screen], Awaitable[ArchiveDraft]]


class CompactBody(BaseModel):
    """A ref whose oldest entries an archive takes the place of."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    content: ContentText | None = None
    keep_sources: bool = False


class DistillBody(BaseModel):
    """A ref whose entries an archive tells of, within a budget of tokens."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    token_budget: Annotated[int, Field(ge=1)] | None = None
    content: ContentText | None = None
    recursive: bool = False
    expires_at: Zoned | None = None


class ConsolidateBody(BaseModel):
    """A ref whose entries are to stand for what they say, too."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    merges: Annotated[list[MergeBody], Field(max_length=MOST_MERGES)] = []

    @model_validator(mode="after")
    def _together(self) -> "ConsolidateBody":
        ids = [it for merge in self.merges for it in merge.ids]
        if len(set(ids)) < len(ids):
            raise fault_of("merges", "must name each entry once")
        return self


def operations(passes: "Passes") -> Sequence[Operation]:
    """Those that make passes, undo one, and show what is archived."""
    return (
        op("POST", f"{BASE}/compact", "compact",
           "Put an archive in the place of the oldest entries of a ref.",
           passes.compact, role=Role.WRITER, body=CompactBody, answer=PassObject,
           headers=WRITTEN, refusals=(409,)),
        op("POST", f"{BASE}/distill", "distill",
           "Put an archive of the entries of a ref within a budget; these stay.",
           passes.distill, role=Role.WRITER, body=DistillBody, answer=DistilledObject,
           headers=WRITTEN, refusals=(409, 422)),
        op("POST", f"{BASE}/consolidate", "consolidate",
           "Let entries of a ref stand for what they say, too; no word is lost.",
           passes.consolidate, role=Role.WRITER, body=ConsolidateBody, answer=PassObject,
           headers=WRITTEN, refusals=(409, 422)),
        op("POST", f"{BASE}/passes/{{runId}}/undo", "undo",
           "Take back what a pass has done, wholly or not at all.",
           passes.undo, role=Role.WRITER, answer=UndonePass, refusals=(404, 409)),
        op("GET", f"{BASE}/index", "index",
           "The live archives of a ref, newest first, without their content.",
           passes.index, role=Role.READER, answer=MemoryIndex,
           query=(Param(name="memoryRef", help="The ref.", required=True, read=_ref),)),
    )  # fmt: skip


def _ref(query: Query, name: str) -> MemoryRef:
    ref = query.ref(name)
    if not ref:
        query.fault(name, "is required")
    return MemoryRef(ref or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """The passes over the refs of one service; each is told of in a run of its own.

    A pass reads one snapshot, thinks outside any transaction, and writes if its sources are
    still there: else it begins again, and after three times refuses with MemoryChanged. One
    pass of a ref runs at a time. Denied for another tenant's ref.
    """

    engine: Engine
    redaction: Redaction
    audit: Audit
    keep_archives: timedelta = timedelta()  # 0: for ever
    ended: Callable[[PassKind, str], None] = noop  # told what became of a pass
    on_erased: Callable[[Caller], None] = noop
    on_due: Callable[[Caller], None] = noop  # called where commitments may be due
    _turns: Turns = field(default_factory=Turns)

    async def compact(
        self, caller: Caller, body: CompactBody, *, idempotency: IdempotentRequest | None = None
    ) -> Written[PassObject]:
        """Put an archive in the place of the oldest entries; NothingToCompact.

        Its text is the host's `content`, or chosen from what they say (`extract-1`).
        """
        ref, supersedes = MemoryRef(body.memory_ref), not body.keep_sources

        async def made(screen: Screen) -> ArchiveDraft:
            sources = await self.engine.read(caller, compaction_inputs, ref)
            build = partial(archive_of, ref, sources, screen, body.content, supersedes=supersedes)
            return await asyncio.to_thread(build)

        async with self._turn(caller, ref, PassKind.COMPACTION):
            done = await self._archived(caller, made, REPLACEABLE, idempotency)
        made_one = PassObject(run_id=done.value.run_id, event=done.value.event)
        return _counted(Written(value=made_one, redacted=done.redacted))

    async def distill(
        self, caller: Caller, body: DistillBody, *, idempotency: IdempotentRequest | None = None
    ) -> Written[DistilledObject]:
        """Put an archive of all entries, within a budget of tokens for both; these stay.

        The same sources and budget are the same archive. With `recursive` archives are read,
        too. NothingToDistill, BudgetExceeded.
        """
        ref, which = MemoryRef(body.memory_ref), Inputs(archives=body.recursive)
        most = min(body.token_budget or MOST_TOKENS, MOST_TOKENS)
        expires_at = None if body.expires_at is None else parsed(body.expires_at)

        async def made(screen: Screen) -> ArchiveDraft:
            sources = await self.engine.read(caller, distillation_inputs, ref, which, most)
            ends = await self._end(caller, expires_at)
            build = partial(archive_of, ref, sources, screen, body.content, budget=most, ends=ends)
            return await asyncio.to_thread(build)

        async with self._turn(caller, ref, PassKind.DISTILLATION):
            return _counted(await self._archived(caller, made, which, idempotency))

    async def index(self, caller: Caller, memory_ref: MemoryRef) -> MemoryIndex:
        """The live archives of the ref."""
        caller.require(Role.READER)
        caller.require_refs()
        ref = readable(self.redaction, caller, memory_ref)
        found = await self.engine.read(caller, read_index, ref)
        annotate({"memory.result_count": len(found.archives)})
        return found

    async def consolidate(
        self, caller: Caller, body: ConsolidateBody, *, idempotency: IdempotentRequest | None = None
    ) -> Written[PassObject]:
        """Let entries stand for what they say, too: merges of a host, newer facts, larger texts.

        No word is lost but those of a stale key. It is done in steps, each of which holds;
        MemoryTooLarge for a ref that is more than one pass can look at.
        """
        ref, on_demand = MemoryRef(body.memory_ref), Trigger.ON_DEMAND
        return _counted(await self._consolidated(caller, ref, body.merges, on_demand, idempotency))

    async def consolidate_changed(self, caller: Caller) -> None:
        """Consolidate each ref to which something was put since; what is refused waits."""
        after = MemoryRef("")
        while refs := await self.engine.read(caller, changed_refs, after):
            for after in refs:
                with suppress(Refusal):
                    await self._consolidated(caller, after, (), Trigger.HOST_MANAGED, None)

    async def _consolidated(
        self,
        caller: Caller,
        ref: MemoryRef,
        merges: Sequence[MergeBody],
        trigger: Trigger,
        idempotency: IdempotentRequest | None,
    ) -> Written[PassObject]:
        finish = idempotent(
            finish_pass, idempotency, again=finished_again, ids=lambda it: {"run": it.run_id}
        )
        async with self._turn(caller, ref, PassKind.CONSOLIDATION):
            if not await self.engine.read(caller, is_due, idempotency):
                return Written(value=await self.engine.write(caller, finish, None, trigger))
            await self.engine.read(caller, consolidation_inputs, ref)  # or MemoryTooLarge
            begun = await self._begun(caller, ref, merges)
            redacted = begun.redacted
            for left in reversed(range(TRIES)):
                try:
                    async for step in self._steps(caller, begun):
                        begun, redacted = step, redacted + step.redacted
                    break
                except (ScreenOutdated, MemoryChanged):
                    if not left:
                        await self.engine.write(caller, give_up, begun)
                        raise MemoryChanged from None
                except Refusal:  # full, or too large by now
                    await self.engine.write(caller, give_up, begun)
                    raise
            done = await self.engine.write(caller, finish, begun, trigger)
            self._count(PassKind.CONSOLIDATION, is_new=bool(begun.replaced))
            return Written(value=done, redacted=redacted)

    async def undo(
        self, caller: Caller, run_id: str, *, idempotency: IdempotentRequest | None = None
    ) -> UndonePass:
        """Take back what a pass has done, wholly: PassNotUndoable if that cannot be."""
        caller.require(Role.WRITER)
        caller.require_refs()
        run = RunId(run_id)
        work = idempotent(
            undo_pass, idempotency,
            again=lambda tx, ids, run: UndonePass.model_validate({"run_id": run, **ids}),
            ids=lambda it: {"restored": it.restored, "removed": it.removed},
        )  # fmt: skip
        async with self._turns.of(caller, run):  # what is audited is what is done
            if await self.engine.read(caller, is_undo_due, run, idempotency):
                said = {"tenant": caller.tenant, "run": run}
                await asyncio.to_thread(self.audit, caller, "pass.undone", **said)
            return await self.engine.write(caller, work, run)

    async def _begun(self, caller: Caller, ref: MemoryRef, merges: Sequence[MergeBody]) -> Begun:
        async def write(screen: Screen, is_current: IsCurrent) -> Begun:
            clean = [screened_merge(screen, it) for it in merges]
            entries = await self.engine.read(caller, merged_entries, ref, merges)
            gone = await asyncio.to_thread(with_secrets, entries, screen)
            return await self.engine.write(caller, begin_pass, ref, clean, gone, screen, is_current)

        done = await written(self.redaction, caller, write)
        if done.redacted:
            self.on_erased(caller)
        if merges:
            self.on_due(caller)
        return replace(done.value, redacted=done.redacted)

    async def _steps(self, caller: Caller, begun: Begun) -> AsyncIterator[Begun]:
        """What is planned for the ref as it is now, done in steps."""
        screen = screen_of(self.redaction, caller)
        is_current = currency(self.redaction, caller, screen)
        corpus = await self.engine.read(caller, consolidation_inputs, begun.ref)
        entries: list[RefEntry] = []
        for start in range(0, len(corpus.memories), STEP):
            some = corpus.memories[start : start + STEP]
            entries += await self.engine.read(caller, some_entries, some)
        plan = await asyncio.to_thread(planned, entries, screen, Rest())
        yield (begun := begun.looked_at(corpus))
        for step in plan:
            since = time.perf_counter()
            yield (begun := await self.engine.write(caller, take_step, begun, step, is_current))
            await asyncio.sleep(time.perf_counter() - since)  # puts go on meanwhile
            if step.renewed or step.erased:
                self.on_erased(caller)

    async def _archived(
        self, caller: Caller, made: Made, which: Inputs, idempotency: IdempotentRequest | None
    ) -> Written[DistilledObject]:
        """Put an archive, made anew while what it is made of changes."""
        work = idempotent(put_archive, idempotency, again=archive_again, ids=ids_of_archive)
        tries = 0
        while True:
            screen = screen_of(self.redaction, caller)
            is_current = currency(self.redaction, caller, screen)
            try:
                is_new = await self.engine.read(caller, is_due, idempotency)
                draft = await made(screen) if is_new else None
                done = await self.engine.write(caller, work, draft, which, is_current)
            except (ScreenOutdated, MemoryChanged):
                tries += 1
                if tries == TRIES:
                    raise MemoryChanged from None
                continue
            if draft is not None:
                self._count(draft.kind, is_new=done.created)
            return Written(value=done, redacted=screen.redactor.count)

    @asynccontextmanager
    async def _turn(self, caller: Caller, ref: MemoryRef, kind: PassKind) -> AsyncIterator[None]:
        """Inside, no other pass of the ref runs in this process; a refusal is counted."""
        caller.require(Role.WRITER)
        caller.require_refs()
        require_ref(ref, caller.tenant, screen_of(self.redaction, caller))
        try:
            async with self._turns.of(caller, ref):
                yield
        except Refusal:
            self.ended(kind, REFUSED)
            raise

    def _count(self, kind: PassKind, *, is_new: bool) -> None:
        self.ended(kind, DONE if is_new else UNCHANGED)

    async def _end(self, caller: Caller, expires_at: datetime | None) -> datetime | None:
        """When a distilled archive ends; BadFields for an end in the past."""
        now = await self.engine.read(caller, instant_of)
        if expires_at is not None and whole_milliseconds(expires_at) <= now:
            raise BadFields([("expiresAt", "must lie in the future")])
        if expires_at is None and not self.keep_archives:
            return None
        return whole_milliseconds(expires_at or now + self.keep_archives)


def instant_of(tx: Transaction) -> datetime:
    return tx.now


def changed_refs(tx: Transaction, after: MemoryRef) -> Sequence[MemoryRef]:
    return tx[PassTable].changed(after, MOST_CHANGED)


def read_index(tx: Transaction, ref: MemoryRef) -> MemoryIndex:
    return tx[PassTable].index(ref, MOST_INDEXED)


P = TypeVar("P", bound=PassObject)


def _counted(done: Written[P]) -> Written[P]:
    """The outcome, of which the span has told how much it was about."""
    told = done.value.event.payload
    distillation = told.get("distillation")
    tokens = distillation["tokensUsed"] if isinstance(distillation, dict) else None
    annotate({
        "openwop.run_id": Cut(done.value.run_id, LONGEST_IN_SPAN),
        "memory.pass.input_count": told.get("inputCount", told.get("sourceCount")),
        "memory.pass.output_count": told.get("outputCount"),
        "memory.pass.output_bytes": told.get("byteSize"),
        "memory.pass.tokens_used": tokens,
    })  # fmt: skip
    return done
