"""Plain `GET /context` and `GET /search`, answered from memory in front of everything else.

What it does not know it declines; the long way answers it with the same bytes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from urllib.parse import unquote_plus, unquote_to_bytes

from pydantic_core import to_json

from agentops_memory_client.contract import models as c

from ..errors import Refusal
from ..http.endpoint import Gate
from ..http.large_answers import PIECE
from ..memory.model.access import Role, TenantId
from ..memory.model.memory import Shown
from ..memory.model.search import SHOWN, Method
from ..memory.model.space import Project, project_name
from ..memory.sql.rows import micros
from ..recall.held_reads import HeldReads, Plain
from ..recall.text.normalization import clean, cut
from ..telemetry import Metrics, log_answered
from ..telemetry.measures import CONTEXT_ANSWERS, CONTEXT_METHOD
from .wire import JSON, SummaryLine, json_bytes

CONTEXT, SEARCH, HEALTH = b"/context", b"/search", b"/health"
DEFAULT_LIMITS = {CONTEXT: 5, SEARCH: 10}
MOST_HEADERS = 1_000  # heads of requests that are remembered
LONGEST_HEAD, LONGEST_NAME = 4_096, 512  # bytes of a head, and of a project, as they are sent
MARK, RANK = b'"rank":7.25', 7.25  # what a rendered hit has in the place of its rank

Headers = Sequence[tuple[bytes, bytes]]

_HEAD = b"HTTP/1.1 200 OK\r\n"
_LONG_WAY = frozenset(
    {b"origin", b"content-length", b"transfer-encoding", b"expect", b"idempotency-key",
     b"x-idempotency-key", b"upgrade"}
)  # fmt: skip


@dataclass(slots=True)
class FastReads:
    """Answers what memory can tell, by the rules of the long way."""

    held: Callable[[TenantId], HeldReads | None]
    gate: Gate
    is_own_name: Callable[[str], bool]  # whether the service may be called so
    always: Headers  # of every answer
    health: bytes  # the answer to /health
    clock: Callable[[], datetime]
    metrics: Metrics
    _tail: bytes = field(init=False)
    _known: dict[tuple[tuple[bytes, bytes], ...], Mapping[str, str] | None] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        headers = ((b"content-type", JSON.encode()), *self.always)
        self._tail = b"".join(b"%b: %b\r\n" % it for it in headers) + b"\r\n"

    def answer(self, url: bytes, headers: Headers, date: bytes) -> bytes | None:
        """The whole answer to a GET; None if it is for the long way."""
        path, _, query = url.partition(b"?")
        if url == HEALTH and self._headers(headers) is not None:
            log_answered("/health", 0.0, self.metrics)
            return self._whole(self.health, date)
        if path not in DEFAULT_LIMITS:
            return None
        began = time.perf_counter()
        asked = _parameters(query, b"query" if path == CONTEXT else b"q")
        admitted = self._headers(headers) if asked is not None else None
        if asked is None or admitted is None:
            return None
        try:
            body = self._body(path, asked, admitted)
        except Refusal:
            return None
        if body is None:
            return None
        log_answered(path.decode(), time.perf_counter() - began, self.metrics)
        return self._whole(body, date)

    def _body(
        self, path: bytes, asked: tuple[Project, str, int], headers: Mapping[str, str]
    ) -> bytes | None:
        project, text, limit = asked
        caller = self.gate.identify(headers)
        caller.require(Role.READER)
        held = self.held(caller.tenant)
        if held is None:
            return None
        now = micros(self.clock())
        plain = Plain(caller.projects, project, text, limit or DEFAULT_LIMITS[path], now)
        body = (self._context if path == CONTEXT else self._search)(held, plain)
        if body is None or len(body) > PIECE:
            return None
        self.gate.require_rate(caller.key)
        return body

    def _whole(self, body: bytes, date: bytes) -> bytes:
        return b"%b%bcontent-length: %d\r\n%b%b" % (_HEAD, date, len(body), self._tail, body)

    def _context(self, held: HeldReads, asked: Plain) -> bytes | None:
        found = held.context(asked, _line)
        if found is None:
            return None
        methods = found.methods
        for method in set(methods):
            self.metrics.tally(CONTEXT_METHOD, method.value, by=methods.count(method))
        newest = methods.count(Method.RECENCY)
        outcome = "found" if newest < len(methods) else "recency" if methods else "empty"
        self.metrics.tally(CONTEXT_ANSWERS, outcome)
        summaries = json_bytes(list(map(SummaryLine, found.summaries)))
        return b'{"recent_sessions":%b,"recent_observations":[%b]}' % (
            summaries, b",".join(found.lines),
        )  # fmt: skip

    def _search(self, held: HeldReads, asked: Plain) -> bytes | None:
        found = held.search(asked, _hit)
        if found is None:
            return None
        hits = [line.replace(MARK, b'"rank":' + to_json(rank), 1) for rank, line in found]
        return b"[%b]" % b",".join(hits)

    def _headers(self, headers: Headers) -> Mapping[str, str] | None:
        """The headers by name; None where they make the request another than a plain one."""
        key = tuple(headers)
        if key in self._known:
            return self._known[key]
        if sum(len(name) + len(value) for name, value in headers) > LONGEST_HEAD:
            return None
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        is_plain = _LONG_WAY.isdisjoint(name for name, _ in headers) and (
            all(map(self.is_own_name, hosts))
        )
        known = {n.decode("latin-1"): v.decode("latin-1") for n, v in headers}
        if len(self._known) >= MOST_HEADERS:
            self._known.clear()
        self._known[key] = known if is_plain and len(known) == len(headers) else None
        return self._known[key]


def _parameters(query: bytes, text_name: bytes) -> tuple[Project, str, int] | None:
    """The project, the text and the limit (0 if unset); None for anything else."""
    found: dict[bytes, bytes] = {}
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if name in found:
            return None
        found[name] = value
    text, project = found.pop(text_name, None), found.pop(b"project", None)
    limit = found.pop(b"limit", b"0")
    if found or not text or not project or len(project) > LONGEST_NAME:
        return None
    if not (limit.isdigit() and len(limit) <= 2):
        return None
    named = _named(project)
    cleaned = clean(_decoded(text))
    return (named, cleaned, int(limit)) if named and cleaned else None


def _decoded(value: bytes) -> str:
    """The value as the long way decodes it."""
    if value.isascii():
        return unquote_to_bytes(value.replace(b"+", b" ")).decode(errors="replace")
    return unquote_plus(value.decode("latin-1"))


@lru_cache(4096)
def _named(project: bytes) -> Project:
    return project_name(clean(_decoded(project)))


def _line(shown: Shown) -> bytes:
    text = shown.text
    return json_bytes([c.Line(type=text.type, title=text.title, content=cut(text.content, SHOWN))])[
        1:-1
    ]


def _hit(shown: Shown) -> bytes:
    text = shown.text
    hit = c.Hit(
        id=shown.id, type=text.type, title=text.title, content=text.content, rank=RANK,
        topic_key=shown.key,
    )  # fmt: skip
    return json_bytes([hit])[1:-1]
