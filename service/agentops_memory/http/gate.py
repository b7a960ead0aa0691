"""The gate: authenticates requests, limits their rate, and serves admitted requests.

A client that does not read can keep its response in memory indefinitely. So a response of more than
`LARGE` bytes needs a slot. A request for many rows waits for a slot before anything is read; any
other takes its slots once the size of the response is known. Slots are released when the response
was sent or its client has disconnected.
"""

import asyncio
import gc
import re
import sys
import time
from base64 import b64decode
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from ipaddress import ip_address
from typing import TypeVar
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ..errors import Invalid, Refusal, SettingRefused, TooMany, Unauthenticated, Unavailable
from ..light import dataclass, field, replace
from ..memory.access import Caller, IdempotentRequest, KeyId, KeyRing, KeyStore, Role, parsed
from ..secrets.redaction import Rules, hide_by
from ..settings import NANOSECONDS, Rate
from ..telemetry import CALLER, Telemetry, annotate, count
from ..telemetry.metrics import REDACTIONS
from .protocol import REDACTED, Handler, Operation, Protocol, TooSlow

LARGE = 256 * 1024  # bytes of a response
PIECE = 64 * 1024  # bytes of one send, as many as a transport buffers before it blocks senders
MANY = 100  # rows of a default page; only requests for more rows wait for a slot

LISTS_OF_A_KEY = 3  # lists that are made at a time
LISTS_TIMEOUT = 5.0  # seconds
SLOT = 2 * 1024 * 1024  # bytes of a response per slot; few responses need several
SLOTS_OF_A_KEY = 6  # a browser opens as many connections to a host
SLOTS = 12  # each keeps up to 4 MiB: with the service's 80 MiB, less than the 128 of a pod
SLOT_TIMEOUT = 2.0  # seconds; a client that reads takes its response long before
PIECE_TIMEOUT = 120.0  # seconds for a piece; a slower client could keep its slot permanently

# A save switches threads five times. Next to a thread that reads an import or a large list, each
# switch waits as long as Python lets that thread keep the interpreter lock: 5 ms by default.
SWITCH_INTERVAL = timedelta(microseconds=300)

CROWD = "This key has too many large requests in progress; wait for some of the responses."
UNREAD_OF_KEY = "This key has too many unread large responses; read them first."
UNREAD = "Too many large responses are still unread; try again."
TOO_SLOW = "The client reads its response too slowly."

SAFE = ("GET", "HEAD")

T = TypeVar("T")
KEYS, NONE = "keys", "none"  # values of MEMORY_AUTH; if unset, the address decides
NOT_A_KEY = "This service needs a valid key: Authorization: Bearer amk_..."
TWO_KEYS = "The headers Authorization and X-API-Key contain different keys."
CREATE = "create one with `agentops-memory keys create --name NAME --role admin`"
ANYBODY = Caller()
MOST_KEYS = 10_000  # most keys whose buckets are kept
REPLAYED = "Idempotent-Replayed"
REPLAY = {"memory.idempotent_replay": True}
ADMISSION = f"{__package__}.admission"  # key in a request's scope: its Admission
BEGUN = f"{__package__}.begun"  # key: set once the response has begun
HAS_BODY = f"{__package__}.has_body"  # key: set if the whole body came with the head
CHARGED = f"{__package__}.charged"  # key: set once the rate limit has counted the request
FAILED = f"{__package__}.failed"  # key: the error of an admitted request that was refused already


# The thousands of rows of an import or a list leave no cyclic garbage, but each collection visits
# all of them: up to 60 ms in which nobody is served. So collections are rarer meanwhile.
ALLOCATIONS = 50_000


class _Readers:
    count = 0
    before = 0.0
    threshold = 0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Shorten Python's thread switch interval to `SWITCH_INTERVAL`, and collect garbage less often.

    Only for the loop's thread; many requests may enter it at once. If it were always on, searches
    would take a tenth more CPU time.
    """
    if not _Readers.count:
        _Readers.before, (_Readers.threshold, *_) = sys.getswitchinterval(), gc.get_threshold()
        sys.setswitchinterval(SWITCH_INTERVAL.total_seconds())
        if _Readers.threshold:  # else collection is off
            gc.set_threshold(max(ALLOCATIONS, _Readers.threshold))
    _Readers.count += 1
    try:
        yield
    finally:
        _Readers.count -= 1
        if not _Readers.count:
            sys.setswitchinterval(_Readers.before)
            gc.set_threshold(_Readers.threshold)


class LargeAnswers:
    def __init__(self) -> None:
        self._lists: WeakValueDictionary[KeyId | None, _Lists] = WeakValueDictionary()
        self._large = asyncio.Lock()
        self._taken: Counter[KeyId | None] = Counter()
        self._freed = asyncio.Event()

    async def made(self, key: KeyId | None, make: Callable[[], Awaitable[Response]]) -> Response:
        """Read and render a list: LISTS_OF_A_KEY per key at a time, and one large list in total.

        Raises TooMany if the key's other lists do not finish within LISTS_TIMEOUT.
        """
        lists = self._lists.get(key) or self._lists.setdefault(key, _Lists())
        try:
            async with asyncio.timeout(LISTS_TIMEOUT if lists.slots.locked() else None):
                await lists.slots.acquire()
        except TimeoutError:
            raise TooMany(CROWD) from None
        try:
            # The next list of a key is probably as large as the previous one.
            async with self._alone() if lists.are_large else nullcontext():
                answer = await make()
            lists.are_large = len(getattr(answer, "body", b"")) > LARGE
            return answer
        finally:
            lists.slots.release()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Make one large list at a time; the next waits half as long, to leave others the loop."""
        await self._large.acquire()
        began = time.monotonic()
        try:
            with short_switch_interval():
                yield
        finally:
            pause = (time.monotonic() - began) / 2
            asyncio.get_running_loop().call_later(pause, self._large.release)

    async def send(
        self, make: Callable[[], Awaitable[Response]], scope: Scope, receive: Receive, send: Send,
        *, waits: bool = False,
    ) -> None:  # fmt: skip
        """Make a response and send it in pieces, with the slots that its size needs.

        If it `waits`, it takes a slot before it is made. Without enough slots, a read is refused
        with TooMany or Unavailable. A write is answered, since its client would repeat it, but is
        cut off unless the client reads without delay.
        """
        taken, timeout = 0, PIECE_TIMEOUT
        try:
            if waits:
                await self._wait(_key(scope))
                taken = 1
            answer = await make()
            body, key = getattr(answer, "body", None), _key(scope)
            size = SLOT if body is None else len(body)  # a streamed response has no body
            count = -(-size // SLOT) if size > LARGE else 0
            refusal = self._refusal(key, count, taken) if count > taken else None
            if refusal is None:
                self._add(key, count - taken)
                taken = count
            elif scope["method"] in SAFE:
                raise refusal
            else:
                timeout = 0.0
            pieces = _in_pieces(send, timeout) if body is None or size > PIECE else send
            await answer(scope, receive, pieces)
        finally:
            self._add(_key(scope), -taken)

    async def _wait(self, key: KeyId | None) -> None:
        """Take a slot for a response of unknown size. Raises TooMany or Unavailable."""
        refusal = None
        try:
            async with asyncio.timeout(SLOT_TIMEOUT):
                while refusal := self._refusal(key, 1):
                    await self._freed.wait()
        except TimeoutError:
            assert refusal is not None
            raise refusal from None
        self._add(key, 1)

    def _refusal(self, key: KeyId | None, count: int, own: int = 0) -> Refusal | None:
        """Return why `count` slots are refused, or None; a lone large response gets any number."""
        others_of_key, others = self._taken[key] - own, self._taken.total() - own
        if others_of_key and others_of_key + count > SLOTS_OF_A_KEY:
            return TooMany(UNREAD if key is None else UNREAD_OF_KEY)
        if others and others + count > SLOTS:
            return Unavailable(UNREAD)
        return None

    def _add(self, key: KeyId | None, more: int) -> None:
        """Count slots as taken, or as released with a negative number."""
        if more:
            self._taken[key] += more
            if not self._taken[key]:
                del self._taken[key]
        if more < 0:
            self._freed.set()  # wakes all waiting requests, each of which checks again
            self._freed.clear()


class _Lists:
    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(LISTS_OF_A_KEY)
        self.are_large = False


async def paced(parts: Iterable[T], size: Callable[[T], int]) -> AsyncIterator[T]:
    """Yield the parts, and let all other tasks of the loop run after each PIECE bytes.

    Rendering a large response blocks the loop for milliseconds, and a save needs it several times.
    """
    room = PIECE
    for part in parts:
        yield part
        room -= size(part)
        if room < 0:
            room = PIECE
            await asyncio.sleep(0)


def _in_pieces(send: Send, timeout: float) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        for start in range(0, max(len(body), 1), PIECE):
            end = start + PIECE
            is_last = not more and end >= len(body)
            if start:
                await asyncio.sleep(0)  # sends to a fast client would never yield to other tasks
            try:
                async with asyncio.timeout(timeout):
                    # A copy, so that a piece in the transport does not keep the whole body alive.
                    await send(
                        {**message, "body": bytes(body[start:end]), "more_body": not is_last}
                    )
            except TimeoutError:
                raise TooSlow(TOO_SLOW) from None

    return sent


def is_open_allowed(auth: str, host: str) -> bool:
    """Whether a service without keys may serve anyone: by its settings, or because of loopback."""
    return auth == NONE or (auth != KEYS and is_loopback(host))


def is_loopback(host: str) -> bool:
    """Whether the host is only this machine: localhost, 127.0.0.0/8 or ::1.

    An empty host means every interface, and any other name may resolve to any address.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def must_have_keys(ring: KeyRing, auth: str, host: str) -> None:
    """Raise SettingRefused at startup for a service that needs keys but has none.

    The message says how to create a key, or how to do without keys.
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
    authorization = ""
    scheme, _, credentials = headers.get("authorization", "").strip().partition(" ")
    match scheme.lower():
        case "bearer":
            authorization = credentials.strip()
        case "basic":
            with suppress(ValueError):
                pair = b64decode(credentials.strip(), validate=True)
                authorization = pair.partition(b":")[2].decode()
    api_key = headers.get("x-api-key", "").strip()
    if not (authorization and api_key) or authorization == api_key:
        return authorization or api_key
    if parsed(authorization) and parsed(api_key):
        raise Invalid(TWO_KEYS)
    return authorization if parsed(authorization) else api_key


@dataclass(slots=True, eq=False)
class RateLimiter:
    """Counts the requests of each key, and all requests without a key together.

    It counts exactly, within this process. A key is evicted once its bucket is full again; beyond
    MOST_KEYS, the least recently used keys are evicted.
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
        # A tick is 1/count of a nanosecond: in ticks, a request costs the nanoseconds of the unit,
        # so nothing is ever rounded. A bucket is stored as the time at which it is full again.
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


@dataclass(slots=True, kw_only=True)
class Admission:
    admitted: Caller  # by the keys at that time
    caller: Callable[[], Caller]  # by the current keys
    status: int = 200  # of the response, unless the request is refused
    body_digest: bytes | None = None  # of a request with an idempotency key, once its body was read
    idempotency: IdempotentRequest | None = None

    @property
    def replayed_status(self) -> int | None:
        """The status of the first response, if the request was done before."""
        request = self.idempotency
        return request.status if request is not None and request.is_replay else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Admits requests by their headers, before anything else is read.

    Raises Unauthenticated, Denied or TooMany. A change of the keys applies to the next request.
    """

    keys: KeyStore
    is_open_allowed: bool
    clock: Callable[[], datetime]
    require_rate: Callable[[KeyId | None], None]
    rules: Callable[[Caller], Rules]  # redaction of logs and spans
    used: dict[KeyId, datetime] = field(default_factory=dict)  # when each key was last used
    large_answers: LargeAnswers = field(default_factory=LargeAnswers)

    def identify(self, headers: Mapping[str, str]) -> Caller:
        """Return the owner of the key in the headers, whose names are in lower case.

        While the service is open, return ANYBODY and ignore keys. Unauthenticated has the same
        message for every text that is not a valid key; Invalid if there are two keys.
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
    """Return the caller of the request by the current keys.

    A body may arrive slowly, and a response may be read slowly. A right that was revoked meanwhile
    is no longer valid: raises Unauthenticated.
    """
    known = admission(request)
    caller = known.caller()
    return caller if known.idempotency is None else replace(caller, request=known.idempotency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An operation as an ASGI application; its span lasts until the response is sent."""

    protocol: Protocol
    operation: Operation
    gate: Gate
    telemetry: Telemetry
    row_counts: re.Pattern[bytes] | None  # matches numbers of rows in the query of a read

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
            # Whether the response may be large, as far as the request shows.
            is_large = operation.is_large or (
                self.row_counts is not None
                and any(int(it) > MANY for it in self.row_counts.findall(scope["query_string"]))
            )
            make = partial(self._answer, request, admitted)
            await self.gate.large_answers.send(make, scope, receive, send, waits=is_large)

    async def _answer(self, request: Request, admitted: Admission | None) -> Response:
        if (error := request.scope.get(FAILED)) is not None:
            raise error
        make = partial(self.operation.handler, request)
        if self.row_counts is None:
            answer = await make()
        else:
            answer = await self.gate.large_answers.made(_key(request.scope), make)
        if admitted and (status := admitted.replayed_status):
            annotate(REPLAY)
            answer.status_code = status
            for name in filter(None, (REPLAYED, self.protocol.replayed)):
                answer.headers[name] = "true"
        elif request.method not in SAFE:  # a replay was counted at the first request
            count(REDACTIONS, by=int(answer.headers.get(REDACTED, 0)))
        return answer


def _key(scope: Scope) -> KeyId | None:
    admitted: Admission | None = scope.get(ADMISSION)
    return admitted.admitted.key if admitted else None


@dataclass(frozen=True, slots=True)
class PlainEndpoint:
    """An operation outside the protocols as an ASGI application; its handler admits callers."""

    handler: Handler
    gate: Gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        make = partial(self.handler, Request(scope, receive))
        await self.gate.large_answers.send(make, scope, receive, send)


def routes(
    protocol: Protocol, operations: Iterable[Operation], gate: Gate, telemetry: Telemetry
) -> Iterator[Route]:
    """Yield the operations as Starlette routes, each with its span."""
    for each in operations:
        names, row_counts = "|".join(it.name for it in each.query if it.is_row_count), None
        if names and each.method == "GET":
            row_counts = re.compile(rf"(?:^|&)(?:{names})=(\d{{1,18}})".encode())
        endpoint = Endpoint(
            protocol=protocol, operation=each, gate=gate, telemetry=telemetry,
            row_counts=row_counts,
        )  # fmt: skip
        route = Route(each.path, endpoint, methods=[each.method])
        if "{" in each.path:
            # A session id may contain a line break, which `.` does not match by default.
            route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
        yield route
