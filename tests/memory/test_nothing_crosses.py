"""Nothing of another tenant or project comes back, on any route.

Callers of two tenants write by every route and read what they have written. All that a caller
writes has a word in it that no answer to another, no log line and no trace of another may have.
What one has is to another as what nobody has: the same request about either is answered alike.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from agentops_memory.telemetry import JsonFormatter, Telemetry

from ..support.answers import REST, Known, Writer, every_write, memory, write_memories
from ..support.callers import calling, made_key
from ..support.files import assert_index_is_whole
from ..support.openwop_walk import route_of, routes_of
from ..support.otlp import Collector, collector
from ..support.planted import quoted_in_lines
from ..support.questions import Request, changes, questions
from ..support.requirements import requirement
from ..support.service import Service, observation, serving
from ..support.store_dialects import DIALECTS, UNKNOWN, every_request

__all__ = ["collector"]

CALLERS = (  # the tenant of each, and the prefix of the projects that its key is for
    ("default", "a-"), ("default", "b-"), ("default", ""), ("acme", ""), ("default", ""),
)  # fmt: skip
OF_PROJECTS = r"/(?!api|v1|anthropic|\.well-known|health|metrics|openapi|docs)"
OF_WORK = "/api/v1/(intents|tasks|coordinators)"
# All but what is not of rows, and pages of lists in which any text is a position.
OF_TENANTS = r"/(?!mcp|health|metrics|docs|.*openapi|.*/(refs|commitments)\?after=)"
# Who asks for what is another's, and on which routes; a tenant shares its others.
REACHES = ((0, 1, OF_PROJECTS), (4, 2, OF_WORK), (2, 3, OF_TENANTS))
NIL = "00000000-0000-7000-8000-00000000000"
NOBODYS = Known(
    mark="canary9word", memories=[987_654_321, 987_654_322, 987_654_323], erasure=f"{NIL}0",
    **dict(zip(("store", "entry", "version"), UNKNOWN, strict=True)), note="mem_" + "9" * 32,
    intent_id="canary9word.intent", task_id="canary9word.task", coordinator_id="coord_" + "0" * 32,
    grant_id="grant_" + "0" * 32, put="canary9word/put", older="mem_" + "1" * 32,
    deleted="mem_" + "2" * 32, armed="cmt_" + "1" * 32, fired="cmt_" + "2" * 32,
    merge="run_" + "0" * 32, forgotten=f"{NIL}1",
    proposals=("prop_" + "1" * 32, "prop_" + "2" * 32, "prop_" + "3" * 32),
    installed=f"installed:agent-pack:prop_{'3' * 32}:0123456789abcdef",
)  # fmt: skip
TOOLS: dict[str, dict[str, object]] = {
    "mem_stats": {}, "mem_context": {}, "mem_review": {}, "mem_search": {"query": "content"},
    "mem_session_start": {"session_id": "nobody's"}, "mem_session_end": {"session_id": "nobody's"},
    "mem_save": {"title": "mine", "content": "mine"},
}  # fmt: skip
TOOLS_BY_ID: dict[str, dict[str, object]] = {
    "mem_get": {}, "mem_update": {"title": "mine"}, "mem_history": {}, "mem_timeline": {},
    "mem_confirm": {}, "mem_delete": {},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A caller, a client with its key, and every answer that it got."""

    number: int
    http: httpx.Client
    answers: list[httpx.Response]

    @property
    def word(self) -> str:
        """What this caller alone writes."""
        return f"canary{self.number}word"

    @property
    def mark(self) -> str:
        return CALLERS[self.number][1] + self.word

    @property
    def trace(self) -> str:
        return f"{self.number + 1:032x}"

    def may_see(self, other: "Party") -> bool:
        (tenant, prefix), (of_other, _) = CALLERS[self.number], CALLERS[other.number]
        return other is self or (tenant == of_other and not prefix)

    def send(self, request: Request) -> httpx.Response:
        method, path, body, key = request
        headers = {"If-Match": "1"} | ({"Idempotency-Key": key} if key else {})
        return self.http.request(method, path, json=body, headers=headers)

    def write(self) -> Known:
        write = Writer(self.http, self.mark)
        if self.mark == self.word:
            return every_write(write)
        return replace(NOBODYS, mark=self.mark, **write_memories(write))

    def reads(self, known: Known, where: str) -> list[Request]:
        return [("GET", it, None, None) for it in questions(known) if re.match(where, it)]

    def requests(self, known: Known, where: str) -> Iterator[Request]:
        """All that can be asked about what is known."""
        kept, mark = known.memories[0], known.mark
        yield from self.reads(known, where)
        for explained in ("search?q", "context?query"):
            yield "GET", f"/{explained}=content&why_not={kept}", None, None
        for project, tools in ((mark, TOOLS), (self.mark, TOOLS_BY_ID), (mark, TOOLS_BY_ID)):
            for name, more in tools.items():
                arguments = more | ({"id": kept} if tools is TOOLS_BY_ID else {})
                params = {"name": name, "arguments": arguments}
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                yield "POST", f"/mcp/{project}", message, None
        yield "POST", f"{REST}/{kept}/confirm", None, None
        yield "POST", REST, memory(self.mark, "newer", None, supersedes=[kept]), None
        yield "POST", "/import", {"observations": [memory(mark, "imported", None)]}, None
        for method, path, body, key in changes(known):
            yield method, path, body, key and f"{mark}-{key}"
        for dialect in DIALECTS:
            for it in every_request(known.store, known.entry, known.version, dialect):
                yield it.method, it.path, it.body, None


@contextmanager
def parties_of(service: Service) -> Iterator[list[Party]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_party(service, number)) for number in range(len(CALLERS))]


@contextmanager
def _party(service: Service, number: int) -> Iterator[Party]:
    tenant, prefix = CALLERS[number]
    role = "writer" if number == 4 else "admin"
    agents = (f"canary{number}word",)
    rights = {} if prefix else {"agents": agents, "coordinates": True}
    token = made_key(service.path, role, tenant, (f"{prefix}*",), **rights)
    with calling(service, token) as http:
        party = Party(number=number, http=http, answers=[])

        def note(answer: httpx.Response) -> None:
            answer.read()
            party.answers.append(answer)

        http.event_hooks["response"] = [note]
        http.headers["traceparent"] = f"00-{party.trace}-00f067aa0ba902b7-01"
        http.headers["X-Agent-ID"] = party.word
        http.headers["X-Request-Id"] = "any"  # else answers would differ by it
        yield party


@requirement("OW-32", "OW-34", "OW-59", "OI-92")
@pytest.mark.slow
def test_nothing_crosses(
    tmp_path: Path, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    with (
        serving(tmp_path / "memory.db", telemetry=telemetry, MEMORY_TOOLS="all") as service,
        parties_of(service) as (*parties, _),
        caplog.at_level(logging.DEBUG, logger="agentops_memory"),
    ):
        stocks = [party.write() for party in parties]
        for party, stock in zip(parties, stocks, strict=True):
            is_of_projects = party.mark != party.word
            asked = party.requests(stock, OF_PROJECTS) if is_of_projects else party.reads(stock, "")
            for request in asked:
                assert party.send(request).status_code < 500, request
        routes = routes_of(parties[0].http.get("/openapi.json").json())
        gone = {route_of(it.request, routes) for party in parties for it in party.answers}
        assert routes.keys() - gone == set()
    telemetry.stop()

    for party in parties:
        texts = "".join(f"{it.headers} {it.text}" for it in party.answers)
        assert party.word in texts  # else the words would prove nothing
        hidden = [other for other in parties if not party.may_see(other)]
        assert [other.word for other in hidden if other.word in texts] == []
    lines = [JsonFormatter().format(it) for it in caplog.records if "agentops" in it.name]
    assert lines
    assert quoted_in_lines(lines, "canary") == []
    assert collector.all("memory.search")
    for span in collector.spans:
        for party in parties:
            assert span.trace == party.trace or party.word not in repr(span), span
    labels = repr(collector.labels)
    assert labels
    assert [party.word for party in parties if party.word in labels] == []
    for file in service.path.parent.rglob("*.db"):
        assert_index_is_whole(file)


@requirement("OW-32", "OW-33", "OW-34", "OI-92")
@pytest.mark.slow
def test_what_is_anothers_is_as_nobodys(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "memory.db", MEMORY_TOOLS="all") as service,
        parties_of(service) as parties,
    ):
        # No id of the other tenant's memories is to be one of the caller's own.
        earlier = [observation(f"earlier {number}") for number in range(99)]
        assert parties[3].http.post("/import", json={"observations": earlier}).is_success
        stocks = {other: parties[other].write() for _, other, _ in REACHES}
        for me, other, where in REACHES:
            party, theirs = parties[me], stocks[other]
            nobodys = replace(NOBODYS, mark="c-canary9word") if me < 2 else NOBODYS
            names = _names(theirs, nobodys)
            before = _own(parties[other], theirs, where)
            assert theirs.mark in "".join(before.values())
            both = (party.requests(it, where) for it in (theirs, nobodys))
            for request, like in zip(*both, strict=True):
                if request[:3] != like[:3] and re.match(where, request[1]):
                    _assert_alike(names, party.send(request), party.send(like))
            assert _own(parties[other], theirs, where) == before


def _names(*known: Known) -> re.Pattern[str]:
    """What names the things of one or of the other in an answer."""
    values = [value for it in known for value in asdict(it).values()]
    names = {str(name) for it in values for name in (it if isinstance(it, list | tuple) else [it])}
    names |= {quote(name, safe="") for name in names}
    own = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"{own}|\breq_\w+|mcp-[0-9a-f]{{24}}")


def _assert_alike(names: re.Pattern[str], one: httpx.Response, like: httpx.Response) -> None:
    assert one.status_code == like.status_code, (one.request.method, one.url, one.text, like.text)
    is_read = one.request.method == "GET" or one.url.path.startswith("/mcp/")
    if is_read or not one.is_success:  # else each has its own ids
        assert names.sub("NAME", one.text) == names.sub("NAME", like.text), one.url
        changing = {"date", "content-length", "etag", "request-id", "x-request-id"}
        headers = [{k: v for k, v in it.headers.items() if k not in changing} for it in (one, like)]
        assert headers[0] == headers[1]


def _own(party: Party, known: Known, where: str) -> dict[str, str]:
    """What a caller reads of its own."""
    answers = {path: party.http.get(path) for _, path, *_ in party.reads(known, where)}
    return {path: it.text for path, it in answers.items() if it.is_success}


def test_what_is_measured_names_nobody_and_nothing_of_theirs(
    service: Service, collector: Collector
) -> None:
    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    with serving(
        service.path.with_name("other.db"), telemetry=telemetry, MEMORY_SWEEP_EVERY="1ms"
    ) as other:
        other.save("apple", project="billing")
    telemetry.stop()

    assert collector.gauges
    labels = {
        "action", "limit", "method", "outcome", "route", "status", "table", "tier", "version",
    }  # fmt: skip
    assert {name for of in collector.labels for name in of} <= labels
    assert "billing" not in json.dumps(collector.labels)
