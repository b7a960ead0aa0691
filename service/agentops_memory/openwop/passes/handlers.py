"""Passes and forgetting: each request in three moves."""

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...http.bodies import answered
from ...http.endpoint import current_caller
from ...http.paging import instant
from ...memory.model.erasure import ErasureId
from ...memory.model.space import MemoryRef
from ...memory.redactor import Redaction
from ...telemetry import Cut, annotate
from ..api import BODIES
from ..memory.handlers import SHOWN_NAME, asked_once, noted, run_of
from ..memory.queries import Asked, text_in_path
from ..memory.wire import JsonObject
from ..model.passes import PassDone
from ..rules.forgetting import Forgetting
from ..rules.passes.passes import Passes
from . import bodies as b
from . import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class PassHandlers:
    """The handlers over the domain."""

    passes: Passes
    forgetting: Forgetting
    redaction: Redaction

    async def compact(self, request: Request) -> Response:
        given = await BODIES.read(request, b.CompactBody)
        noted(given.memory_ref)
        caller, idempotency = await asked_once(request, "compact")
        done = await self.passes.compact(
            caller,
            MemoryRef(given.memory_ref),
            content=given.content,
            keep_sources=given.keep_sources,
            idempotency=idempotency,
        )
        return _answered(done, wire.done(done))

    async def distill(self, request: Request) -> Response:
        given = await BODIES.read(request, b.DistillBody)
        noted(given.memory_ref)
        caller, idempotency = await asked_once(request, "distill")
        done = await self.passes.distill(
            caller,
            MemoryRef(given.memory_ref),
            budget=given.token_budget,
            content=given.content,
            recursive=given.recursive,
            expires_at=None if given.expires_at is None else instant(given.expires_at),
            idempotency=idempotency,
        )
        return _answered(done, wire.distilled(done))

    async def consolidate(self, request: Request) -> Response:
        given = await BODIES.read(request, b.ConsolidateBody)
        noted(given.memory_ref)
        caller, idempotency = await asked_once(request, "consolidate")
        merges = list(map(wire.merge, given.merges))
        ref = MemoryRef(given.memory_ref)
        done = await self.passes.consolidate(caller, ref, merges, idempotency=idempotency)
        return _answered(done, wire.done(done))

    async def undo(self, request: Request) -> Response:
        caller, idempotency = await asked_once(request, "undo")
        undone = await self.passes.undo(caller, run_of(request), idempotency=idempotency)
        return answered(wire.undone(undone))

    async def index(self, request: Request) -> Response:
        asked = Asked(request)
        ref = asked.required_ref()
        asked.done()
        noted(ref)
        found = await self.passes.index(current_caller(request), ref)
        annotate({"memory.result_count": len(found.archives)})
        return answered(wire.index(found, ref))

    async def forget(self, request: Request) -> Response:
        given = await BODIES.read(request, b.ForgetBody)
        caller, idempotency = await asked_once(request, "forget")
        done = await self.forgetting.forget(
            caller, given.subject, dry_run=given.dry_run, idempotency=idempotency
        )
        subject = self.redaction.echo(caller, given.subject)
        return answered(wire.forgotten(done, subject, dry_run=given.dry_run))

    async def get_erasure(self, request: Request) -> Response:
        id_ = ErasureId(text_in_path(request, "erasureId"))
        return answered(wire.erasure(await self.forgetting.receipt(current_caller(request), id_)))


def _answered(done: PassDone, shown: JsonObject) -> Response:
    told = done.payload
    counts: dict[str, Any] = {
        "openwop.run_id": Cut(done.run, SHOWN_NAME),
        "memory.pass.input_count": told.get("inputCount", told.get("sourceCount")),
        "memory.pass.output_count": told.get("outputCount"),
        "memory.pass.output_bytes": told.get("byteSize"),
    }
    distillation = told.get("distillation")
    if isinstance(distillation, dict):
        counts["memory.pass.tokens_used"] = distillation["tokensUsed"]
    annotate({name: value for name, value in counts.items() if value is not None})
    return answered(shown, redacted=done.redacted)
