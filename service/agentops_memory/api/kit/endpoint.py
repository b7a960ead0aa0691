"""A protocol as the application serves it: its operations, and the shape of its refusals."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ...domain.errors import Refusal
from ...telemetry import Telemetry, annotate
from .gate import Door
from .idempotency import REPLAYED, replayed_status
from .openapi import Operation

REPLAY = {"memory.idempotent_replay": True}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A protocol. Its prefix and whatever lies below it are its own, also what is unknown."""

    title: str
    summary: str  # what it is for, in a sentence
    prefix: str
    operations: Sequence[Operation]
    refused: Callable[[Refusal], Response]
    problem: type[BaseModel]  # the shape of a refusal
    is_authorization_only: bool = False  # whether a key counts in the header Authorization alone
    too_large: int = 413  # the status for a body over its limit
    headers: Mapping[str, str] = field(default_factory=dict)  # of every answer: what each says
    is_described: bool = True  # whether OpenAPI can tell of it

    def enter(self, door: Door, request: Request, operation: Operation) -> None:
        """Let a request in that is for one of the operations."""
        assert operation.role is not None
        door.enter(
            request,
            operation.role,
            is_limited=operation.is_limited,
            is_authorization_only=self.is_authorization_only,
        )


def lies_below(prefix: str, path: str) -> bool:
    """Whether a path is the prefix or lies below it, as everything does below none."""
    return prefix in ("", path) or path.startswith(f"{prefix}/")


def routes(api: Api, door: Door, telemetry: Telemetry, first: Iterable[str] = ()) -> list[Route]:
    """The operations as Starlette's routes, each in its span; the named ones are tried first."""
    hot = frozenset(first)
    asked = sorted(api.operations, key=lambda operation: operation.name not in hot)
    return [_route(api, operation, door, telemetry) for operation in asked]


def _route(api: Api, operation: Operation, door: Door, telemetry: Telemetry) -> Route:
    endpoint = Endpoint(api=api, operation=operation, door=door, telemetry=telemetry)
    route = Route(operation.path, endpoint, methods=[operation.method])
    # A session id may hold a line break, which a dot alone does not match.
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An operation as an application; its span lasts until the answer is sent.

    What is refused in the middle of an answer leaves it incomplete, upon which the
    server closes the connection: nobody may take a part for the whole.
    """

    api: Api
    operation: Operation
    door: Door
    telemetry: Telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, is_begun = Request(scope, receive), False

        async def sent(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            with self.telemetry.operation(self.operation.name, request.headers):
                self.api.enter(self.door, request, self.operation)
                request.state.status = self.operation.status
                answer = await self.operation.handler(request)
                if status := replayed_status(request):
                    annotate(REPLAY)
                    answer.status_code = status
                    answer.headers[REPLAYED] = "true"
                await answer(scope, receive, sent)
        except Refusal as refusal:
            if is_begun:
                told = {"operation": self.operation.name, "reason": str(refusal)}
                log.warning("an answer is left incomplete", extra=told)
            else:
                await self.api.refused(refusal)(scope, receive, send)
