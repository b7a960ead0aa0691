"""The gate: who a request comes from, and how often; how one that is let in is served."""

import re
import socket
import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from ipaddress import IPv4Address, ip_address

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..errors import Invalid, SettingRefused, TooMany, Unauthenticated
from ..light import dataclass, field, replace
from ..memory.access import Caller, IdempotentRequest, KeyId, Role
from ..memory.keys import KeyRing, KeyStore, parsed
from ..secrets.redaction import Rules
from ..settings.parsing import NANOSECONDS, Rate
from ..telemetry import CALLER, Telemetry, annotate, count, hide_by
from ..telemetry.metrics import REDACTIONS
from .large_answers import MANY, PIECE, SAFE, LargeAnswers, Slot, row_counts
from .protocol import REDACTED, Handler, Operation, Protocol

KEYS, NONE = "keys", "none"  # of MEMORY_AUTH; unset, the address decides

NOT_A_KEY = "This service needs a valid key: Authorization: Bearer amk_..."
TWO_KEYS = "The headers Authorization and X-API-Key contain different keys."
CREATE = "create one with `agentops-memory keys create --name NAME --role admin`"
ANYBODY = Caller()


@dataclass(frozen=True, slots=True)
class Identity:
    """Tells the callers of requests; a change of the keys holds from the next one on."""

    keys: KeyStore
    is_open_allowed: bool
    clock: Callable[[], datetime]
    used: dict[KeyId, datetime] = field(default_factory=dict)  # when each last opened the service

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """The owner of the key in the headers, whose names are in lower case.

        While the service is open, anybody, and a key that is sent is not looked at.
        Unauthenticated is the same for every text that is no working key; Invalid if there
        are two keys.
        """
        ring = self.keys.ring()
        if self.is_open_allowed and not ring.was_ever_used:
            return ANYBODY
        now = self.clock()
        key = ring.opened_by(_token(headers), now)
        if key is None:
            raise Unauthenticated(NOT_A_KEY)
        self.used[key.id] = now
        return Caller(
            tenant=key.tenant, role=key.role, projects=key.projects, agents=key.agents,
            coordinates=key.coordinates, key=key.id, key_name=key.name,
        )  # fmt: skip


def is_open_allowed(auth: str, host: str) -> bool:
    """Whether a service without keys may serve anyone: by its settings, or on loopback only."""
    return auth == NONE or (auth != KEYS and is_loopback(host))


def is_loopback(host: str) -> bool:
    """Whether the host is this machine and nothing else: localhost, 127.0.0.0/8 or ::1.

    No host is every interface, and any other name may lead anywhere.
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        try:  # as the resolver would take it: `127.1` is 127.0.0.1
            return IPv4Address(socket.inet_aton(host)).is_loopback
        except (OSError, ValueError):  # the latter for signs that no name has
            return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def must_have_keys(ring: KeyRing, auth: str, host: str) -> None:
    """The rule of the start: SettingRefused for a service that would serve nobody.

    It says how to make a key, or how to do without.
    """
    if ring.was_ever_used or is_open_allowed(auth, host):
        return
    if auth == KEYS:
        raise SettingRefused(f"MEMORY_AUTH: 'keys' requires a key, but none exists: {CREATE}.")
    raise SettingRefused(
        f"MEMORY_LISTEN: {host or 'every interface'} can be reached from other machines, which "
        f"requires a key, but none exists: {CREATE}, listen on 127.0.0.1, or admit everyone with "
        "MEMORY_AUTH=none."
    )


def _token(headers: Mapping[str, str]) -> str:
    authorized = _authorization(headers.get("authorization", ""))
    named = headers.get("x-api-key", "").strip()
    if not (authorized and named) or authorized == named:
        return authorized or named
    if parsed(authorized) and parsed(named):
        raise Invalid(TWO_KEYS)
    return authorized if parsed(authorized) else named


def _authorization(value: str) -> str:
    scheme, _, credentials = value.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return credentials.strip()
        case "basic":
            with suppress(ValueError):
                return b64decode(credentials.strip(), validate=True).partition(b":")[2].decode()
    return ""


MOST_KEYS = 10_000  # whose buckets are kept


@dataclass(slots=True, eq=False)
class RateLimiter:
    """Counts the requests of each key, and those without one together.

    It counts in this process alone, and exactly. A key without a request for a
    unit is evicted; beyond MOST_KEYS the least recently used are.
    """

    limit: Rate | None
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    _full_at: OrderedDict[str | None, int] = field(default_factory=OrderedDict)  # in ticks

    def __len__(self) -> int:
        return len(self._full_at)

    def require(self, key: str | None) -> None:
        limit = self.limit
        if limit is None:
            return
        # A tick is a count-th of a nanosecond: in ticks a request costs just a unit, so
        # nothing is ever rounded. A bucket is known by when it is full again.
        now, cost = self.monotonic_ns() * limit.count, limit.nanoseconds
        full_at = max(self._full_at.get(key, now), now) + cost
        over = full_at - now - limit.count * cost
        if over > 0:
            seconds = -(-over // (limit.count * NANOSECONDS))
            subject = "This service is" if key is None else "This key is"
            refusal = f"{subject} used more often than {limit}; try again in {seconds} s."
            raise TooMany(refusal, seconds)
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        while next(iter(self._full_at.values())) <= now or len(self._full_at) > MOST_KEYS:
            self._full_at.popitem(last=False)


REPLAYED = "Idempotent-Replayed"
REPLAY = {"memory.idempotent_replay": True}
ADMISSION = f"{__package__}.admission"  # in the scope of a request
BEGUN = f"{__package__}.begun"  # that its answer has begun
CHARGED = f"{__package__}.charged"  # that the rate limit has counted it
FAILED = f"{__package__}.failed"  # the error of one that was let in and refused already


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

    def slot(self, admitted: Admission | None) -> Slot:
        """The slots of an answer, none yet; those to callers without a key share some."""
        return Slot(self.large_answers, _key(admitted))


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
    """An operation as an application; its span lasts until the answer is sent."""

    protocol: Protocol
    operation: Operation
    gate: Gate
    telemetry: Telemetry
    row_counts: re.Pattern[bytes] | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, operation, protocol = Request(scope, receive), self.operation, self.protocol
        with self.telemetry.operation(operation.span or operation.name, request.headers):
            admitted = None
            if operation.role is not None:
                caller = self.gate.admit(
                    request, operation.role, is_limited=operation.is_limited,
                    is_authorization_only=protocol.is_authorization_only, scope=operation.scope,
                )  # fmt: skip
                protocol.require(request, caller)
                admitted = admission(request)
                admitted.status = operation.status
            # Whether the answer may be large, by what is known before anything is read.
            is_large = operation.is_large or (
                self.row_counts is not None
                and any(int(it) > MANY for it in self.row_counts.findall(scope["query_string"]))
            )
            if not is_large:
                answer = await self._answer(request, admitted)
                body = getattr(answer, "body", None)
                if body is not None and len(body) <= PIECE:
                    await answer(scope, receive, send)
                    return
            with self.gate.slot(admitted) as slot:
                if is_large:
                    await slot.wait()
                    if admitted is not None:
                        admitted.has_waited = True
                    answer = await self._answer(request, admitted)
                await slot.send(answer, scope, receive, send)

    async def _answer(self, request: Request, admitted: Admission | None) -> Response:
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
        return answer


def _key(admitted: Admission | None) -> KeyId | None:
    return admitted.admitted.key if admitted else None


@dataclass(frozen=True, slots=True)
class PlainEndpoint:
    """An operation of no protocol as an application. Whom it lets in is its handler's to say."""

    handler: Handler
    gate: Gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self.handler(Request(scope, receive))
        with self.gate.slot(scope.get(ADMISSION)) as slot:
            await slot.send(answer, scope, receive, send)


def routes(
    protocol: Protocol, operations: Sequence[Operation], gate: Gate, telemetry: Telemetry
) -> Iterator[Route]:
    """The operations as Starlette's routes, each in its span."""
    for each in operations:
        endpoint = Endpoint(
            protocol=protocol, operation=each, gate=gate, telemetry=telemetry,
            row_counts=row_counts(each),
        )  # fmt: skip
        route = Route(each.path, endpoint, methods=[each.method])
        if "{" in each.path:
            # A session id may hold a line break, which a dot alone does not match.
            route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
        yield route
