"""Answers of OpenIntent, in one piece or in several."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

from starlette.responses import Response, StreamingResponse

from ..http.bodies import JSON, NONE, written
from ..http.large_answers import paced
from ..memory.model.agent_events import AgentEvent
from ..memory.model.agent_memory import AgentEntry
from ..memory.model.intents import Task
from ..telemetry import annotate
from . import intent_wire, wire
from .rules.listing import Listing

T = TypeVar("T")


def tag(version: int) -> dict[str, str]:
    return {"ETag": f'"{version}"'}


async def listed_entries(
    found: Listing[AgentEntry], before: bytes, after: bytes, headers: Mapping[str, str] = NONE
) -> Response:
    return await _listed(found, wire.entry, before, after, headers)


async def listed_events(found: Listing[AgentEvent]) -> Response:
    return await _listed(found, wire.event, b"[", b"]")


async def listed_tasks(found: Listing[Task]) -> Response:
    return await _listed(found, intent_wire.task, b"[", b"]")


async def _listed(
    found: Listing[T],
    shown: Callable[[T], wire.JsonObject],
    before: bytes,
    after: bytes,
    headers: Mapping[str, str] = NONE,
) -> Response:
    """A list in one piece, or in several if its values are large."""
    annotate({"memory.result_count": found.count})

    async def pieces() -> AsyncIterator[bytes]:
        yield before
        separator = b""
        async for portion in found.portions:
            async for each in paced((written(shown(it)) for it in portion), len):
                yield separator + each
                separator = b","
        yield after

    if found.is_whole:
        content = b"".join([piece async for piece in pieces()])
        return Response(content, headers=headers, media_type=JSON)
    return StreamingResponse(pieces(), headers=headers, media_type=JSON)
