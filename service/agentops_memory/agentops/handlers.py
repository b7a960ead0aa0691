"""The operations over HTTP: a request is the question, and its answer a response."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..errors import Invalid
from ..http.endpoint import admission, current_caller
from ..http.json_reader import entries
from ..http.protocol import Handler
from ..http.requests import (
    Query,
    asks_for,
    idempotency_of,
    is_empty,
    json_object,
    query_of,
    spooled,
)
from ..memory.idempotency import IdempotentRequest
from ..memory.model.access import Caller
from ..recall.text.summary import Message
from ..telemetry import annotate
from . import answers as a
from . import bodies
from .operations import AgentOps
from .recall import Question, project_of
from .transfer import Document
from .wire import JSON, response

ERASURE_ID = "X-Erasure-Id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The handlers of the protocol. A long body lies in the folder while it is read."""

    agentops: AgentOps
    max_upload: int
    folder: Path

    def of(self, operation: Callable[[Question], Awaitable[object]]) -> Handler:
        """The handler of an operation of which the answer is all there is to say."""

        async def handle(request: Request) -> Response:
            return response(await operation(self._question(request)), admission(request).status)

        return handle

    async def delete_observation(self, request: Request) -> Response:
        erasure = await self.agentops.delete_observation(self._question(request))
        known, headers = admission(request), {ERASURE_ID: erasure} if erasure else {}
        # A repeated request is answered as the first time, whatever is set by now.
        status = known.replayed_status or known.status
        deleted = a.Deleted(id=int(request.path_params["id"])) if status == 200 else None
        return response(deleted, status, headers=headers)

    async def delete_project(self, request: Request) -> Response:
        answer = await self.agentops.delete_project(self._question(request))
        headers = {ERASURE_ID: answer.id} if isinstance(answer, a.ErasureReceipt) else {}
        return response(answer, headers=headers)

    async def export(self, request: Request) -> Response:
        project = project_of(self._question(request))
        annotate({"memory.project": project})
        pieces = self.agentops.export(current_caller(request), project)
        # Read before the answer begins, so that a database that cannot be read is a refusal.
        first = await anext(pieces)
        return StreamingResponse(_continued(request, first, pieces), media_type=JSON)

    async def import_all(self, request: Request) -> Response:
        is_dry = asks_for(query_of(request), "dry_run")
        async with spooled(request, self.max_upload, self.folder) as file:
            if is_empty(file):
                raise Invalid("invalid JSON: the body is empty.")
            document = Document(file, self.agentops.clock())
            await asyncio.to_thread(document.check)
            work = self.agentops.plan_import if is_dry else self.agentops.import_all
            return response(await work(current_caller(request), document))

    def _question(self, request: Request) -> "_Question":
        return _Question(request, self, request.path_params, query_of(request))


@dataclass(frozen=True, slots=True)
class _Question:
    """What a request asks."""

    request: Request
    handlers: Handlers
    path_params: Mapping[str, str]
    query: Query

    def caller(self) -> Caller:
        if self.request.method == "GET":  # which has waited for nothing since it was let in
            return admission(self.request).admitted
        return current_caller(self.request)

    async def body(self) -> Mapping[str, object]:
        return await json_object(self.request)

    @asynccontextmanager
    async def transcript(self) -> AsyncIterator[Iterator[Message]]:
        limit, folder = self.handlers.max_upload, self.handlers.folder
        async with spooled(self.request, limit, folder) as file:
            yield _messages(file)

    async def idempotency(self) -> IdempotentRequest | None:
        return await idempotency_of(self.request)


def _messages(file: BinaryIO) -> Iterator[Message]:
    """The messages in a file; none if it is empty. It is read where they are asked for."""
    if is_empty(file):
        return
    for _, place, given in entries(file, ("messages",)):
        yield bodies.message(given, place)


async def _continued(
    request: Request, first: bytes, pieces: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        current_caller(request)  # refuses by now, perhaps: then nothing more is told
        yield piece
