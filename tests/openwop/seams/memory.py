"""Memory as a suite asks for it: seeded, and listed by a path of its own."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from agentops_memory.http.bodies import answered, written
from agentops_memory.http.endpoint import current_caller
from agentops_memory.http.paging import instant
from agentops_memory.http.requests import fitting
from agentops_memory.memory.model.space import MemoryRef
from agentops_memory.openwop.memory import wire
from agentops_memory.openwop.memory.bodies import BODIES
from agentops_memory.openwop.memory.handlers import asked_once, noted
from agentops_memory.openwop.memory.queries import Asked, text_in_path
from agentops_memory.openwop.model.entries import RefDraft, RefEntryId
from agentops_memory.openwop.rules.entries import RefEntries
from agentops_memory.telemetry import annotate

from . import bodies as b
from .seeding import Seed, Seeding


@dataclass(frozen=True, slots=True, kw_only=True)
class SeamMemory:
    """The handlers of entries that no other route has."""

    entries: RefEntries
    seeding: Seeding

    async def seed(self, request: Request) -> Response:
        given = await BODIES.read(request, b.SeedsBody)
        ref = MemoryRef(given.memory_ref)
        noted(ref)
        caller, idempotency = await asked_once(request, "seam_seed")
        seeds = [_seed(ref, each) for each in given.entries]
        done = await self.seeding.seed(caller, seeds, idempotency=idempotency)
        return answered({"seeded": done.value}, 201, redacted=done.redacted)

    async def list_entries(self, request: Request) -> Response:
        asked, ref = Asked(request), MemoryRef(text_in_path(request, "memoryRef"))
        query = asked.listing()
        asked.done()
        noted(ref)
        page = await self.entries.list(current_caller(request), ref, query)
        entries = [wire.entry(each) for each in page.entries]
        shown = entries[: len(fitting(map(written, entries)))]
        annotate({"memory.result_count": len(shown)})
        if shown and (page.has_more or len(shown) < len(entries)):
            return answered({"entries": shown, "next": page.entries[len(shown) - 1].cursor})
        return answered({"entries": shown})


def _seed(ref: MemoryRef, given: b.SeedBody) -> Seed:
    draft = RefDraft(
        ref=ref, id=RefEntryId(given.id), content=given.content, tags=tuple(given.tags)
    )
    return Seed(draft=draft, ends=None if given.expires_at is None else instant(given.expires_at))
