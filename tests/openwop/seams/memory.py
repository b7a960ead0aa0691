"""Memory as a suite asks for it: seeded, and listed by a path of its own."""

from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agentops_memory.http.bodies import answered
from agentops_memory.http.query import instant
from agentops_memory.memory.access import Caller
from agentops_memory.memory.space import MemoryRef
from agentops_memory.openwop import routes
from agentops_memory.openwop.api import BODIES, Page, RefEntryId, Serving

from . import bodies as b
from .requests import asked_once
from .seeding import RefDraft, Seed, Seeding


@dataclass(frozen=True, slots=True, kw_only=True)
class SeamMemory:
    """The handlers of entries that no other route has."""

    seeding: Seeding

    async def seed(self, request: Request) -> Response:
        given = await BODIES.read(request, b.SeedsBody)
        ref = MemoryRef(given.memory_ref)
        caller = await asked_once(request, "seam_seed")
        seeds = [_seed(ref, each) for each in given.entries]
        done = await self.seeding.seed(caller, seeds)
        return answered({"seeded": done.value}, 201, redacted=done.redacted)


async def list_entries(
    serving: Serving, caller: Caller, memory_ref: MemoryRef, **which: Any
) -> Page:
    page = await routes.list_entries(serving, caller, memory_ref=memory_ref, **which)
    return replace(page, more=lambda _: {})


def _seed(ref: MemoryRef, given: b.SeedBody) -> Seed:
    draft = RefDraft(
        ref=ref, id=RefEntryId(given.id), content=given.content, tags=tuple(given.tags)
    )
    return Seed(draft=draft, ends=None if given.expires_at is None else instant(given.expires_at))
