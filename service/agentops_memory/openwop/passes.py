"""Passes over a ref: compaction, distillation, consolidation, their undo, the index."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from ..engine.callbacks import Audit, noop
from ..engine.engine import Engine, Transaction
from ..errors import Refusal
from ..http.bodies import WRITTEN
from ..http.faults import fault_of
from ..http.paging import instant as parsed
from ..http.protocol import Operation
from ..memory.idempotency import IdempotentRequest, idempotent, is_due
from ..memory.model.access import Caller, Role
from ..memory.model.space import MemoryRef
from ..memory.model.stores import Written
from ..memory.redactor import Redaction
from ..memory.sql.table import Sql
from ..recall.text.instants import whole_milliseconds
from ..telemetry import Cut, annotate
from . import archives, consolidation
from .api import BASE, LONGEST_IN_SPAN, Param, Query, op
from .conditions import time_to_come
from .consolidation import STEP, Begun, screened
from .entries import RefEntry, RefTable
from .fields import CAMEL, ContentText, MemoryRefText, Zoned
from .pass_records import (
    NO_ARCHIVES,
    REPLACEABLE,
    VISIBLE,
    ArchiveDraft,
    DistilledObject,
    Inputs,
    MemoryIndex,
    MergeBody,
    PassKind,
    PassObject,
    Trigger,
    UndonePass,
    memory_index,
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
MOST_CHANGED = 200  # refs of one look for those that have changed

DONE, UNCHANGED, REFUSED = "done", "unchanged", "refused"

Build = Callable[[Screen], ArchiveDraft]
"""Makes an archive of what was read; outside of any transaction."""


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
        ref, content, supersedes = body.memory_ref, body.content, not body.keep_sources

        def read(tx: Transaction) -> Build:
            sources = archives.compaction_inputs(tx, ref)
            return partial(
                archives.archive_of, ref, sources, content=content, supersedes=supersedes
            )

        async with self._turn(caller, ref, PassKind.COMPACTION):
            done = await self._archived(caller, read, REPLACEABLE, idempotency)
        made = PassObject(run_id=done.value.run_id, event=done.value.event)
        return Written(value=made, redacted=done.redacted)

    async def distill(
        self, caller: Caller, body: DistillBody, *, idempotency: IdempotentRequest | None = None
    ) -> Written[DistilledObject]:
        """Put an archive of all entries, within a budget of tokens for both; these stay.

        The same sources and budget are the same archive. With `recursive` archives are read,
        too. NothingToDistill, BudgetExceeded.
        """
        ref, content, which = body.memory_ref, body.content, NO_ARCHIVES
        if body.recursive:
            which = VISIBLE
        most = min(body.token_budget or archives.MOST_TOKENS, archives.MOST_TOKENS)

        def read(tx: Transaction) -> Build:
            sources = archives.distillation_inputs(tx, ref, which, most)
            ends = None
            if body.expires_at is not None:
                at, problem = parsed(body.expires_at), "must lie in the future"
                ends = time_to_come(at, tx.now, "expiresAt", problem).due_at
            elif self.keep_archives:
                ends = whole_milliseconds(tx.now + self.keep_archives)
            return partial(
                archives.archive_of, ref, sources, content=content, budget=most, ends=ends
            )

        async with self._turn(caller, ref, PassKind.DISTILLATION):
            return await self._archived(caller, read, which, idempotency)

    async def index(self, caller: Caller, memory_ref: MemoryRef) -> MemoryIndex:
        """The live archives of the ref."""
        caller.require(Role.READER)
        caller.require_refs()
        ref = readable(self.redaction, caller, memory_ref)
        found = await self.engine.read(caller, memory_index, ref)
        annotate({"memory.result_count": len(found.archives)})
        return found

    async def consolidate(
        self, caller: Caller, body: ConsolidateBody, *, idempotency: IdempotentRequest | None = None
    ) -> Written[PassObject]:
        """Let entries stand for what they say, too: merges of a host, newer facts, larger texts.

        No word is lost but those of a stale key. It is done in steps, each of which holds;
        MemoryTooLarge for a ref that is more than one pass can look at.
        """
        ref, on_demand = body.memory_ref, Trigger.ON_DEMAND
        return await self._consolidated(caller, ref, body.merges, on_demand, idempotency)

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
            consolidation.finish_pass, idempotency,
            again=lambda tx, ids, *_: archives.done_again(tx, ids),
            ids=lambda it: {"run": it.run_id},
        )  # fmt: skip
        async with self._turn(caller, ref, PassKind.CONSOLIDATION):
            if not await self.engine.read(caller, is_due, idempotency):
                done = await self.engine.write(caller, finish, None, trigger)
                _measure(done)
                return Written(value=done)
            await self.engine.read(caller, consolidation.corpus, ref)  # or MemoryTooLarge
            started = await self._begun(caller, ref, merges)
            begun = started.value
            try:
                for left in reversed(range(TRIES)):
                    try:
                        async for step in self._steps(caller, begun):
                            begun = step
                        break
                    except (ScreenOutdated, MemoryChanged):
                        if not left:
                            raise MemoryChanged from None
            except Refusal:  # changed too often; full, or too large by now
                await self.engine.write(caller, consolidation.give_up, begun)
                raise
            done = await self.engine.write(caller, finish, begun, trigger)
            self.ended(PassKind.CONSOLIDATION, DONE if begun.replaced else UNCHANGED)
            _measure(done)
            return Written(value=done, redacted=started.redacted + begun.renewed)

    async def undo(
        self, caller: Caller, run_id: str, *, idempotency: IdempotentRequest | None = None
    ) -> UndonePass:
        """Take back what a pass has done, wholly: PassNotUndoable if that cannot be."""
        caller.require(Role.WRITER)
        caller.require_refs()
        run = RunId(run_id)
        work = idempotent(
            archives.undo_pass, idempotency,
            again=lambda tx, ids, run: UndonePass.model_validate({"run_id": run, **ids}),
            ids=lambda it: {"restored": it.restored, "removed": it.removed},
        )  # fmt: skip
        async with self._turns.of(caller, run):  # what is audited is what is done
            if await self.engine.read(caller, archives.is_undo_due, run, idempotency):
                said = {"tenant": caller.tenant, "run": run}
                await asyncio.to_thread(self.audit, caller, "pass.undone", **said)
            return await self.engine.write(caller, work, run)

    async def _begun(
        self, caller: Caller, ref: MemoryRef, merges: Sequence[MergeBody]
    ) -> Written[Begun]:
        async def write(screen: Screen, is_current: IsCurrent) -> Begun:
            clean = [screened(it, screen) for it in merges]
            entries = await self.engine.read(caller, consolidation.merged_entries, ref, merges)
            gone = await asyncio.to_thread(
                lambda: {it.memory for it in entries if screened(it, screen) != it}
            )
            begin = consolidation.begin_pass
            return await self.engine.write(caller, begin, ref, clean, gone, screen, is_current)

        done = await written(self.redaction, caller, write)
        if done.redacted:
            self.on_erased(caller)
        if merges:
            self.on_due(caller)
        return done

    async def _steps(self, caller: Caller, begun: Begun) -> AsyncIterator[Begun]:
        """What is planned for the ref as it is now, done in steps."""
        screen = screen_of(self.redaction, caller)
        is_current = currency(self.redaction, caller, screen)
        listed, newest = await self.engine.read(caller, consolidation.corpus, begun.ref)
        entries: list[RefEntry] = []
        for start in range(0, len(listed), STEP):
            some = listed[start : start + STEP]  # of which none ever changes
            entries += await self.engine.read(caller, lambda tx, ids: tx[RefTable].some(ids), some)
        plan = await asyncio.to_thread(consolidation.planned, entries, screen, archives.Rest())
        # What was replaced before is not among them.
        seen = len(listed) + len(begun.replaced) - begun.merges
        yield (begun := replace(begun, inputs=seen, newest=newest))
        for step in plan:
            since = time.perf_counter()
            take = consolidation.take_step
            yield (begun := await self.engine.write(caller, take, begun, step, is_current))
            await asyncio.sleep(time.perf_counter() - since)  # puts go on meanwhile
            if step.renewed or step.erased:
                self.on_erased(caller)

    async def _archived(
        self,
        caller: Caller,
        read: Callable[[Transaction], Build],
        which: Inputs,
        idempotency: IdempotentRequest | None,
    ) -> Written[DistilledObject]:
        """Put an archive, made anew while what it is made of changes."""
        work = idempotent(
            archives.put_archive, idempotency,
            again=archives.archive_again, ids=archives.ids_of_archive,
        )  # fmt: skip
        tries = 0
        while True:
            screen = screen_of(self.redaction, caller)
            is_current = currency(self.redaction, caller, screen)
            try:
                draft = None
                if await self.engine.read(caller, is_due, idempotency):
                    draft = await asyncio.to_thread(await self.engine.read(caller, read), screen)
                done = await self.engine.write(caller, work, draft, which, is_current)
            except (ScreenOutdated, MemoryChanged):
                tries += 1
                if tries == TRIES:
                    raise MemoryChanged from None
                continue
            if draft is not None:
                self.ended(draft.kind, DONE if done.created else UNCHANGED)
            _measure(done)
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


def changed_refs(tx: Transaction, after: MemoryRef) -> Sequence[MemoryRef]:
    """Refs to which something was put since a pass has looked at all of each."""
    return tx[Sql].column(
        """SELECT ref
             FROM refs
            WHERE ref > :after AND newest > consolidated AND entries > 1
         ORDER BY ref
            LIMIT :limit""",
        after=after, limit=MOST_CHANGED,
    )  # fmt: skip


def _measure(done: PassObject) -> None:
    """Give the span what the event tells of the size of a pass."""
    told = done.event.payload
    distillation = told.get("distillation")
    tokens = distillation.get("tokensUsed") if isinstance(distillation, dict) else None
    annotate({
        "openwop.run_id": Cut(done.run_id, LONGEST_IN_SPAN),
        "memory.pass.input_count": told.get("inputCount", told.get("sourceCount")),
        "memory.pass.output_count": told.get("outputCount"),
        "memory.pass.output_bytes": told.get("byteSize"),
        "memory.pass.tokens_used": tokens,
    })  # fmt: skip
