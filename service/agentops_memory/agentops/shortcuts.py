"""Fast paths: plain reads and saves, answered in front of everything else.

Requests that these do not know, and all refusals, are left to the slow path, which gives the same
bytes in response to the others.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, unquote_to_bytes

from pydantic_core import to_json
from starlette.types import Scope

from ..errors import Refusal
from ..http.app import ALWAYS, Body, Headers
from ..http.bodies import JSON
from ..http.gate import CHARGED, FAILED, PIECE, Gate
from ..http.protocol import REDACTED
from ..http.query import parsed
from ..light import dataclass, field
from ..memory.access import Caller, Role, TenantId
from ..memory.memory import Draft, Shown, Text
from ..memory.redactor import Redactor
from ..memory.rows import micros
from ..memory.saves import save
from ..memory.search import SHOWN, Hit, Method, SearchResult
from ..memory.space import Project, project_name
from ..memory.table import PastStep
from ..recall.cached_reads import CachedRead, CachedReads, PlainRead, Render
from ..recall.query import Query
from ..recall.text import clean
from ..secrets.redaction import hide_by
from ..telemetry import BEGAN, OwnText, Telemetry, noted, sendable, write
from ..telemetry.metrics import DEDUP, REDACTIONS, SUPERSEDED
from . import models as m
from .operations import METHODS, AgentOps, context_span, injected, search_span
from .wire import WARNING, SummaryLine, hit, line

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from ..telemetry.otlp import PastSpans

CONTEXT, SEARCH, HEALTH = b"/context", b"/search", b"/health"
DEFAULT_LIMITS = {CONTEXT: 5, SEARCH: 10}
TRACE_HEADERS = frozenset({b"traceparent", b"tracestate"})  # different in each request
MOST_HEADERS = 1_000  # request heads that are cached
LONGEST_HEAD, LONGEST_NAME = 4_096, 512  # most bytes of a head, and of a project as sent
EVENT = b"\0"  # separates a rendered memory from its span event; never in JSON
MARKED, MARK = 7.25, b'"rank":7.25'  # a placeholder for the rank
RANK, METHOD = "memory.injected.rank", "memory.injected.method"  # they differ in each request

_SHOWN = Shown(key=None, text=Text(type="", title="", content=""))  # a placeholder

Params = tuple[Project, str, int]  # the project, the text, and the limit (0 if unset)

# The last headers of every response, after its length.
_TAIL = ((b"content-type", JSON.encode()), *ALWAYS)
_HEAD = b"HTTP/1.1 200 OK\r\n"
_TAIL_LINES = b"".join(b"%b: %b\r\n" % it for it in _TAIL) + b"\r\n"
_SLOW_HEADERS = frozenset(
    {b"origin", b"content-length", b"transfer-encoding", b"expect", b"idempotency-key",
     b"x-idempotency-key", b"upgrade"}
)  # fmt: skip


@dataclass(slots=True)
class PlainHeads:
    """Caches, by request head, whether a fast path may answer a request."""

    is_own_name: Callable[[str], bool]  # whether it may be this service's Host
    ignored: frozenset[bytes] = TRACE_HEADERS  # headers that differ in each request
    _known: dict[tuple[tuple[bytes, bytes], ...], Mapping[str, str] | None] = field(
        default_factory=dict
    )

    def read(self, headers: Headers) -> Mapping[str, str] | None:
        """Return the headers by name, or None if the request is for the slow path."""
        key = tuple([it for it in headers if it[0] not in self.ignored])
        if key in self._known:
            return self._known[key]
        if sum(len(name) + len(value) for name, value in headers) > LONGEST_HEAD:
            return None
        hosts = [value.decode("latin-1") for name, value in key if name == b"host"]
        is_plain = _SLOW_HEADERS.isdisjoint(name for name, _ in key) and (
            list(map(self.is_own_name, hosts)) == [True]
        )
        known = {n.decode("latin-1"): v.decode("latin-1") for n, v in key}
        if len(self._known) >= MOST_HEADERS:
            self._known.clear()
        self._known[key] = known if is_plain and len(known) == len(key) else None
        return self._known[key]


@dataclass(slots=True)
class FastReads:
    """Answers reads from memory, by the rules of the slow path."""

    cached_reads_of: Callable[[TenantId], CachedReads | None]
    gate: Gate
    heads: PlainHeads
    health: bytes  # the body of /health
    clock: Callable[[], datetime]
    telemetry: Telemetry

    def answer(self, url: bytes, headers: Headers, date: bytes, client: str) -> bytes | None:
        """Return the whole response to a GET, or None if it is for the slow path."""
        path, _, query = url.partition(b"?")
        if url == HEALTH and self.heads.read(headers) is not None:
            write(noted("/health", 0.0, self.telemetry.metrics))
            return self._whole(self.health, date)
        if path not in DEFAULT_LIMITS:
            return None
        began, began_at = time.perf_counter(), time.time_ns()
        params = _parameters(query, b"query" if path == CONTEXT else b"q")
        if params is None:
            return None
        # The caller's redaction applies in the context, which only spans need.
        run: Callable[..., Any] = copy_context().run if self.telemetry.past else _called
        try:
            answer = run(self._answer, path, params, headers)
        except Refusal:
            return None
        if answer is None:
            return None
        read, body, caller = answer
        ended, ended_at = time.perf_counter() - began, time.time_ns()

        def noting() -> str:
            span = run(self._record_spans, path, params, headers, read, (began_at, ended_at))
            metrics = self.telemetry.metrics
            if path == CONTEXT:
                metrics.count_context([it[2].value for it in read.hits], span)
            by = client, caller.tenant, caller.key_name
            return noted(path.decode(), ended, metrics, span, by)

        self.telemetry.after_answers(noting)
        return self._whole(body, date)

    def _answer(
        self, path: bytes, params: Params, head: Headers
    ) -> tuple[CachedRead, bytes, Caller] | None:
        project, text, limit = params
        headers = self.heads.read(head)
        if headers is None:
            return None
        caller = self.gate.identify(headers)
        caller.require(Role.READER)
        reads = self.cached_reads_of(caller.tenant)
        if reads is None:
            return None
        now = micros(self.clock())
        rules, render = None, _line if path == CONTEXT else _hit
        if self.telemetry.past:
            rules = self.gate.rules(caller)
            hide_by(lambda: rules)
            render = partial(_with_event, self.telemetry.past.event, render)
        plain = PlainRead(caller.projects, project, text, limit or DEFAULT_LIMITS[path], now, rules)
        read = reads.context(plain, render) if path == CONTEXT else reads.search(plain, render)
        if read is None:
            return None
        lines = read.lines
        if self.telemetry.past:
            lines = [it.partition(EVENT)[0] for it in lines]
        if path == CONTEXT:
            summaries = m.json_bytes(list(map(SummaryLine, read.summaries)))
            body = b'{"recent_sessions":%b,"recent_observations":[%b]}' % (
                summaries, b",".join(lines),
            )  # fmt: skip
        else:
            ranks = to_json([rank for _, rank, _ in read.hits])[1:-1].split(b",") if lines else ()
            body = (b"[%b]" % b",".join(lines)) % tuple(ranks)
        if len(body) > PIECE:
            return None
        self.gate.require_rate(caller.key)
        return read, body, caller

    def _record_spans(
        self,
        path: bytes,
        params: Params,
        headers: Headers,
        read: CachedRead,
        times: tuple[int, int],
    ) -> "Span | None":
        """Record the spans that the slow path would record, if spans are sent."""
        past: PastSpans | None = self.telemetry.past
        if past is None:
            return None
        project, text, _ = params
        name, event, attributes = (
            ("fetch_context", "context.injected", context_span) if path == CONTEXT
            else ("search", "search.result", search_span)
        )  # fmt: skip
        hits = tuple([Hit(memory=_SHOWN, rank=rank, method=it) for _, rank, it in read.hits])
        result = SearchResult(hits=hits, query=Query(corrections=read.corrections))
        own = {"memory.operation": OwnText(name), **attributes(text, project, result)}
        events = [
            (line.partition(EVENT)[2] + _method(past.event, it.method), {RANK: it.rank})
            for line, it in zip(read.lines, hits, strict=True)
        ]
        return past.operation(
            f"memory.{name}",
            {n.decode(): v.decode("latin-1") for n, v in headers[::-1] if n in TRACE_HEADERS},
            [PastStep(f"store.{name}", *times, {}), *read.steps],
            sendable(own), (event, events),
        )  # fmt: skip

    def _whole(self, body: bytes, date: bytes) -> bytes:
        return b"%b%bcontent-length: %d\r\n%b%b" % (_HEAD, date, len(body), _TAIL_LINES, body)


def _called(function: Callable[..., Any], *args: object) -> Any:
    return function(*args)


def _with_event(encoded: Callable[..., bytes], render: Render, memory: Shown) -> bytes:
    """Render a memory, and append its span event without rank and method."""
    event = sendable(injected(Hit(memory=memory, rank=0.0, method=Method.RECENCY)))
    del event[RANK], event[METHOD]
    return render(memory) + EVENT + encoded(event)


@lru_cache
def _method(encoded: Callable[..., bytes], by: Method) -> bytes:
    return encoded({METHOD: METHODS[by]})


def _parameters(query: bytes, text_name: bytes) -> Params | None:
    """Return the project, the text and the limit (0 if unset), or None for other queries."""
    pairs = [pair.partition(b"=") for pair in query.split(b"&")]
    params = {name: value for name, _, value in pairs}
    if len(params) < len(pairs):
        return None
    text, project = params.pop(text_name, None), params.pop(b"project", None)
    limit = params.pop(b"limit", b"0")
    if params or not text or not project or len(project) > LONGEST_NAME:
        return None
    if not (limit.isdigit() and len(limit) <= 2):
        return None
    named = _named(project)
    cleaned = clean(_decoded(text))
    return (named, cleaned, int(limit)) if named and cleaned else None


def _decoded(value: bytes) -> str:
    if value.isascii():
        spaced = value.replace(b"+", b" ")
        if b"%" in spaced:  # spaces all at once: the library decodes escapes one by one
            spaced = unquote_to_bytes(spaced.replace(b"%20", b" "))
        return spaced.decode(errors="replace")
    return unquote_plus(value.decode("latin-1"))


@lru_cache(4096)
def _named(project: bytes) -> Project:
    return project_name(clean(_decoded(project)))


def _line(memory: Shown) -> bytes:
    return m.json_bytes([line(memory.text, SHOWN)])[1:-1]


def _hit(memory: Shown) -> bytes:
    """Render a hit as a template for its rank."""
    line = m.json_bytes([hit(memory, MARKED)])[1:-1]
    return line.replace(b"%", b"%%").replace(MARK, b'"rank":%b', 1)


PATH = "/observations"
CREATED = 201

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FastSaves:
    """Saves plain observations, by the rules of the slow path; used if no spans are sent."""

    agentops: AgentOps
    gate: Gate
    heads: PlainHeads
    telemetry: Telemetry

    async def answer(self, scope: Scope, body: Body) -> tuple[int, Headers, bytes] | None:
        """Return the status, headers and body of the response, or None for the slow path."""
        headers = self.heads.read(scope["headers"])
        if headers is None:
            return None
        scope[BEGAN], metrics = time.perf_counter(), self.telemetry.metrics
        metrics.in_flight += 1
        try:
            caller = self._identified(headers, scope)
            if (received := await body()) is None:
                return None
            text, has_waited = received
            if has_waited:  # the keys may have changed
                caller = self._identified(headers, scope)
            hide_by(lambda: self.gate.rules(caller))
            draft = m.body(m.ObservationBody, parsed(text)).draft
            redactor = Redactor(self.gate.rules(caller))
            clean = redactor.draft(draft)
        except Exception as error:  # nothing is stored yet
            if not isinstance(error, Refusal):
                log.exception("request takes the slow path")
            return None
        else:
            return await self._saved(scope, caller, clean, redactor.count)
        finally:
            metrics.in_flight -= 1

    def _identified(self, headers: Mapping[str, str], scope: Scope) -> Caller:
        """Return the caller, as the gate admits it, before any of the body is awaited or read."""
        caller = self.gate.identify(headers)
        if CHARGED not in scope:
            self.gate.require_rate(caller.key)
            scope[CHARGED] = True
        caller.require(Role.WRITER)
        return caller

    async def _saved(
        self, scope: Scope, caller: Caller, draft: Draft, redacted: int
    ) -> tuple[int, Headers, bytes] | None:
        try:
            window = self.agentops.dedupe_window
            saved = await self.agentops.engine.write(caller, save, draft, window)
        except Exception as error:  # noqa: BLE001 - the slow path raises it
            scope[FAILED] = error
            return None
        except BaseException:  # the service stops before the response
            self._note(scope, caller, 500)
            raise
        metrics = self.telemetry.metrics
        metrics.count(DEDUP, saved.action.value)
        for measure, count in ((SUPERSEDED, saved.superseded), (REDACTIONS, redacted)):
            if count:
                metrics.count(measure, by=count)
        self._note(scope, caller, CREATED)
        body = m.saved(saved, None, redacted)
        answer = m.json_bytes(body)
        headers = [(b"content-length", b"%d" % len(answer)), *_TAIL]
        if body.warning:
            headers.insert(0, (WARNING.encode(), body.warning.encode("latin-1")))
        if redacted:
            headers.insert(0, (REDACTED.encode(), b"%d" % redacted))
        return CREATED, headers, answer

    def _note(self, scope: Scope, caller: Caller, status: int) -> None:
        client, seconds = scope.get("client"), time.perf_counter() - scope[BEGAN]
        by = client[0] if client else "", caller.tenant, caller.key_name
        metrics = self.telemetry.metrics
        noting = partial(noted, PATH, seconds, metrics, None, by, method="POST", status=status)
        self.telemetry.after_answers(noting)
