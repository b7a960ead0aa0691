"""How a request is served: who may ask is let in, the handler answers, refusals are rendered."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ..errors import Refusal
from ..memory.model.access import Caller, IdempotentRequest, KeyId, Role
from ..secrets.redaction import Rules
from ..telemetry import CALLER, Telemetry, annotate, count, hide_by
from ..telemetry.measures import REDACTIONS
from .large_answers import MANY, PIECE, SAFE, LargeAnswers, Slot, row_counts
from .protocol import REDACTED, Operation, Protocol

REPLAYED = "Idempotent-Replayed"
REPLAY = {"memory.idempotent_replay": True}
ADMISSION = f"{__package__}.admission"  # in the scope of a request
BEGUN = f"{__package__}.begun"  # that its answer has begun
CHARGED = f"{__package__}.charged"  # that the rate limit has counted it
FAILED = f"{__package__}.failed"  # the error of one that was let in and refused already

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Admission:
    admitted: Caller  # by what the keys said then
    caller: Callable[[], Caller]  # by what the keys say now
    has_waited: bool = False  # since it was let in, for its body or for work
    status: int = 200  # of the answer to what is not refused
    body_digest: bytes | None = None  # of a request with an idempotency key, once it was read
    idempotency: IdempotentRequest | None = None

    @property
    def replayed_status(self) -> int | None:
        """The status of the first answer, if the request was done before."""
        request = self.idempotency
        return request.status if request is not None and request.is_replay else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Lets requests in, before anything of them is read but their headers.

    Refuses with Unauthenticated, Denied or TooMany.
    """

    identify: Callable[[Mapping[str, str]], Caller]
    require_rate: Callable[[KeyId | None], None]
    rules: Callable[[Caller], Rules]  # redaction of logs and spans
    large_answers: LargeAnswers = field(default_factory=LargeAnswers)

    def admit(
        self,
        request: Request,
        role: Role,
        *,
        is_limited: bool = True,
        is_authorization_only: bool = False,
        scope: str | None = None,
    ) -> Caller:
        headers: Mapping[str, str] = request.headers
        if is_authorization_only:
            headers = {"authorization": request.headers.get("authorization", "")}
        identify = partial(self.identify, headers)
        request.scope[CALLER] = caller = identify()
        if is_limited and CHARGED not in request.scope:
            self.require_rate(caller.key)
        caller.require(role, scope)
        hide_by(partial(self.rules, caller))
        request.scope[ADMISSION] = Admission(admitted=caller, caller=identify)
        return caller


def admission(request: Request) -> Admission:
    known: Admission = request.scope[ADMISSION]
    return known


def current_caller(request: Request) -> Caller:
    """Whose request it is, by what the keys say now.

    A body may take long to come, and an answer to be taken: a right that was
    taken away meanwhile holds no more. Refuses with Unauthenticated then.
    """
    known = admission(request)
    caller = known.caller() if known.has_waited else known.admitted
    known.has_waited = True  # by the next time
    return caller if known.idempotency is None else replace(caller, request=known.idempotency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An operation as an application; its span lasts until the answer is sent.

    What is refused in the middle of an answer leaves it incomplete, upon which the
    server closes the connection: nobody may take a part for the whole.
    """

    protocol: Protocol
    operation: Operation
    gate: Gate
    telemetry: Telemetry
    row_counts: re.Pattern[bytes] | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)

        def sent(message: Message) -> Awaitable[None]:
            scope[BEGUN] = True
            return send(message)

        try:
            span = self.operation.span or self.operation.name
            with self.telemetry.operation(span, request.headers):
                admitted = self._admitted(request)
                if not self._asks_for_many(scope):
                    await self._answer(request, admitted, sent)
                else:
                    with self._slot(admitted) as slot:
                        await slot.wait()
                        if admitted is not None:
                            admitted.has_waited = True
                        await self._answer(request, admitted, sent, slot)
        except Refusal as refusal:
            if BEGUN in scope:
                fields = {"operation": self.operation.name, "reason": str(refusal)}
                log.warning("response incomplete", extra=fields)
            else:
                await self.protocol.refused(refusal)(scope, receive, send)

    async def _answer(
        self, request: Request, admitted: Admission | None, send: Send, slot: Slot | None = None
    ) -> None:
        if (error := request.scope.get(FAILED)) is not None:
            raise error
        make = partial(self.operation.handler, request)
        is_list = self.row_counts is not None
        answer = await (self.gate.large_answers.made(_key(admitted), make) if is_list else make())
        if admitted and (status := admitted.replayed_status):
            annotate(REPLAY)
            answer.status_code = status
            for name in filter(None, (REPLAYED, self.protocol.replayed)):
                answer.headers[name] = "true"
        elif request.method not in SAFE:  # what is repeated was counted when it was done
            count(REDACTIONS, by=int(answer.headers.get(REDACTED, 0)))
        scope, receive = request.scope, request.receive
        body = getattr(answer, "body", None)
        if slot is not None:
            await slot.send(answer, scope, receive, send)
        elif body is not None and len(body) <= PIECE:
            await answer(scope, receive, send)
        else:
            with self._slot(admitted) as own:
                await own.send(answer, scope, receive, send)

    def _asks_for_many(self, scope: Scope) -> bool:
        """Whether the answer may be large, by what is known before anything is read."""
        if self.operation.is_large or self.row_counts is None:
            return self.operation.is_large
        return any(int(it) > MANY for it in self.row_counts.findall(scope["query_string"]))

    def _slot(self, admitted: Admission | None) -> Slot:
        return self.gate.large_answers.of(_key(admitted))

    def _admitted(self, request: Request) -> Admission | None:
        operation, protocol = self.operation, self.protocol
        if operation.role is None:
            return None
        caller = self.gate.admit(
            request, operation.role, is_limited=operation.is_limited,
            is_authorization_only=protocol.is_authorization_only, scope=operation.scope,
        )  # fmt: skip
        protocol.require(request, caller)
        admitted = admission(request)
        admitted.status = operation.status
        return admitted


def _key(admitted: Admission | None) -> KeyId | None:
    return admitted.admitted.key if admitted else None


def routes(
    protocol: Protocol, operations: Sequence[Operation], gate: Gate, telemetry: Telemetry
) -> list[Route]:
    """The operations as Starlette's routes, each in its span; the most frequent first."""
    found = []
    for each in sorted(operations, key=lambda operation: operation.name not in protocol.first):
        endpoint = Endpoint(
            protocol=protocol, operation=each, gate=gate, telemetry=telemetry,
            row_counts=row_counts(each),
        )  # fmt: skip
        route = Route(each.path, endpoint, methods=[each.method])
        if "{" in each.path:
            # A session id may hold a line break, which a dot alone does not match.
            route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
        found.append(route)
    return found
