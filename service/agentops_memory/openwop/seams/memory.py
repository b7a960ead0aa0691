"""Memory as a suite asks for it: seeded, and listed by a path of its own."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ...http.bodies import answered, written
from ...http.endpoint import current_caller
from ...http.paging import instant
from ...http.requests import fitting
from ...memory.model.space import MemoryRef
from ...telemetry import annotate
from ..memory.bodies import BODIES
from ..memory.handlers import asked_once, noted
from ..memory.queries import Asked, ref_in_path
from ..model.entries import RefDraft, RefEntryId
from ..rules.entries import RefEntries
from ..rules.seeding import Seed, Seeding
from . import bodies as b
from .stage import entry


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
        asked, ref = Asked(request), ref_in_path(request)
        which = asked.listing()
        asked.done()
        noted(ref)
        listed, has_more = await self.entries.list(current_caller(request), ref, **which)
        entries = [entry(each) for each in listed]
        shown = entries[: len(fitting(map(written, entries)))]
        annotate({"memory.result_count": len(shown)})
        if shown and (has_more or len(shown) < len(entries)):
            return answered({"entries": shown, "next": listed[len(shown) - 1].cursor})
        return answered({"entries": shown})


def _seed(ref: MemoryRef, given: b.SeedBody) -> Seed:
    draft = RefDraft(
        ref=ref, id=RefEntryId(given.id), content=given.content, tags=tuple(given.tags)
    )
    return Seed(draft=draft, ends=None if given.expires_at is None else instant(given.expires_at))
