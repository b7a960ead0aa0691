"""Which web pages may ask, which may read the answers, and which names a local service has."""

import signal
from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentops_memory.http.gate import is_loopback
from agentops_memory.http.middleware import FOREIGN, RENAMED, host_of, is_welcome
from agentops_memory.settings.parsing import allowed_origins

from ..support.anthropic_sdk import STORES, client, store
from ..support.process import served, until
from ..support.raw import request, wire
from ..support.samples import for_each
from ..support.service import Service, observation, serving
from ..support.service import lasting as strict

__all__ = ["strict"]

CONSOLE = "https://console.example"
LOCAL = "http://localhost:3000"
READABLE = "access-control-allow-origin"
EVERYWHERE = "0.0.0.0:0"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(
        tmp_path_factory.mktemp("local") / "memory.db", MEMORY_ALLOWED_ORIGINS=f"{CONSOLE}, {LOCAL}"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that others reach too."""
    path = tmp_path_factory.mktemp("public") / "memory.db"
    with serving(path, MEMORY_LISTEN=EVERYWHERE, MEMORY_AUTH="none") as running:
        yield running


def refusal(answer: httpx.Response) -> str | None:
    """The sentence of a refused page; None when the answer is another."""
    if answer.status_code != 403:
        return None
    sentence: str = answer.json()["error"]
    return sentence


def test_a_request_without_a_host_or_of_no_page_comes_from_no_browser(strict: Service) -> None:
    assert strict.http.get("/stats").status_code == 200

    with wire(strict.url) as client:
        client.send(b"GET /stats HTTP/1.0\r\nOrigin: http://localhost\r\n\r\n")

        assert client.answer().json == {"error": FOREIGN}

    with wire(strict.url) as client:
        client.send(b"GET /health HTTP/1.0\r\n\r\n")

        assert client.answer().status == 200

    with wire(strict.url) as client:
        client.send(request("GET", "http://localhost/health", host="evil.example"))
        client.send(request("GET", "http://evil.example/health", host="localhost"))

        assert [client.answer().status for _ in range(2)] == [403, 200]


@for_each("path", ["/health", "/stats", "/nowhere", "/openapi.json", "/docs"])
@for_each("method", ["GET", "POST", "OPTIONS", "DELETE"])
def test_a_page_from_elsewhere_is_refused_everywhere(
    strict: Service, method: str, path: str
) -> None:
    answer = strict.http.request(method, path, headers={"Origin": "https://evil.example"})

    assert refusal(answer) == FOREIGN
    assert READABLE not in answer.headers


def test_a_page_from_elsewhere_stores_nothing(strict: Service) -> None:
    # What a form may send without asking first.
    answer = strict.http.post(
        "/observations",
        json=observation("planted"),
        headers={"Origin": "https://evil.example", "Content-Type": "text/plain"},
    )

    assert refusal(answer) == FOREIGN
    assert strict.http.get("/stats").json()["total_observations"] == 0


@for_each(
    "origin",
    ["null", "", "*", "http://", "https://evil.example", "http://localhost", "http://localhost:1",
     "https://localhost.evil.example", "http://localhost:{port}@evil.example",
     "http://localhost:{port}/", "http://localhost:{port}.evil.example", "ftp://localhost:{port}",
     "file://", "chrome-extension://abcdef", "http://localhost:{port}, https://evil.example",
     "http://127.0.0.1:{port}", "http://localhost.:{port}", "http://localhost:{port}0",
     "http://loc\xe4lhost:{port}", "localhost:{port}"],
)  # fmt: skip
def test_an_origin_that_is_not_the_services_own_is_refused(strict: Service, origin: str) -> None:
    port = strict.http.base_url.port
    headers = f"Host: localhost:{port}\r\nOrigin: {origin.format(port=port)}\r\n"

    with wire(strict.url) as client:
        client.send(f"GET /stats HTTP/1.1\r\n{headers}\r\n".encode("latin-1"))

        answer = client.answer()

    assert (answer.status, answer.json) == (403, {"error": FOREIGN})


@for_each("origin", ["http://{}", "https://{}", "HTTP://{}"])
@for_each("host", ["localhost:{}", "LOCALHOST:{}", "127.0.0.1:{}", "[::1]:{}"])
def test_a_page_of_the_services_own_origin_is_answered(
    strict: Service, host: str, origin: str
) -> None:
    name = host.format(strict.http.base_url.port)
    answer = strict.http.get(
        "/stats", headers={"Host": name.upper(), "Origin": origin.format(name)}
    )

    assert answer.status_code == 200


@for_each(
    "origin, host",
    [
        ("https://memory.example", "memory.example"),
        ("https://memory.example", "memory.example:443"),
        ("https://memory.example:443", "Memory.Example"),
        ("http://memory.example", "memory.example:80"),
        ("http://memory.example:8080", "memory.example:8080"),
    ],
)
def test_behind_a_proxy_the_own_origin_is_what_the_host_header_says(
    public: Service, origin: str, host: str
) -> None:
    answer = public.http.get("/stats", headers={"Host": host, "Origin": origin})

    assert answer.status_code == 200


@for_each(
    "origin, host",
    [
        ("https://memory.example", "memory.example:80"),
        ("http://memory.example", "memory.example:443"),
        ("http://memory.example", "memory.example:8080"),
        ("http://memory.example:8080", "memory.example"),
        ("http://example", "memory.example"),
        ("http://memory.example", "memory.example/"),
    ],
)
def test_another_port_is_another_origin(public: Service, origin: str, host: str) -> None:
    answer = public.http.get("/stats", headers={"Host": host, "Origin": origin})

    assert refusal(answer) == FOREIGN


def test_of_several_origins_all_must_be_welcome(service: Service) -> None:
    def status(*origins: str) -> int:
        answer = service.http.get("/stats", headers=[("Origin", origin) for origin in origins])
        return answer.status_code

    assert status(CONSOLE, LOCAL) == 200
    assert status(CONSOLE, "https://evil.example") == 403
    assert status("null", CONSOLE) == 403


@for_each(
    "host",
    ["evil.example", "evil.example:7437", "localhost.", "localhost.evil.example", "10.0.0.1",
     "[::]", "[::2]:80", "", ":7437", "localhost@evil.example", "127.0.0.1.evil.example",
     "localhost:evil.example", "localhost:80:80", "[localhost", "::1", "localhost/", "127.9.9.9",
     "127.1", "[0:0:0:0:0:0:0:1]", "[localhost]", "[127.0.0.1]"],
)  # fmt: skip
@for_each("version", ["1.0", "1.1"])
def test_a_local_service_refuses_any_other_name(strict: Service, host: str, version: str) -> None:
    with wire(strict.url) as client:
        client.send(request("GET", "/health", host=host, version=version))

        answer = client.answer()

    assert (answer.status, answer.json) == (403, {"error": RENAMED})


@for_each(
    "host",
    ["localhost", "localhost:7437", "LocalHost:80", "127.0.0.1", "127.0.0.1:1", "[::1]",
     "[::1]:7437", "localhost:"],
)  # fmt: skip
def test_a_local_service_has_the_names_of_this_machine(strict: Service, host: str) -> None:
    assert strict.http.get("/health", headers={"Host": host}).status_code == 200


def test_a_local_service_answers_to_the_address_that_it_listens_on(path: Path) -> None:
    with serving(path, MEMORY_LISTEN="127.0.0.9:0") as running:
        assert running.http.get("/health").status_code == 200
        assert running.http.get("/health", headers={"Host": "localhost"}).status_code == 200
        assert running.http.get("/health", headers={"Host": "127.0.0.8"}).status_code == 403


def test_a_page_whose_name_came_to_mean_this_machine_is_refused(strict: Service) -> None:
    host = f"evil.example:{strict.http.base_url.port}"

    answer = strict.http.get("/export", headers={"Host": host, "Origin": f"http://{host}"})

    assert refusal(answer) == RENAMED


@pytest.mark.parametrize("host", ["memory.agents.svc:7437", "10.0.0.1:7437", "localhost"])
def test_a_service_that_others_reach_has_any_name(public: Service, host: str) -> None:
    assert public.http.get("/health", headers={"Host": host}).status_code == 200


@for_each("origin", [CONSOLE, LOCAL])
@for_each("path, status", [("/stats", 200), ("/nowhere", 404), ("/search", 200)])
def test_an_allowed_page_reads_answers_and_refusals(
    service: Service, origin: str, path: str, status: int
) -> None:
    answer = service.http.get(path, headers={"Origin": origin})

    assert answer.status_code == status
    assert answer.headers[READABLE] == origin
    assert answer.headers["vary"] == "Origin"
    assert answer.headers["access-control-expose-headers"] == (
        "X-Redacted, X-Erasure-Id, X-Results-Omitted, X-Memory-Warning, X-Request-Id, ETag, "
        "X-Total-Count, request-id, openwop-Idempotent-Replay, Retry-After, x-should-retry, "
        "Idempotent-Replayed, Mcp-Session-Id"
    )
    assert "access-control-allow-credentials" not in answer.headers


def test_no_other_page_is_told_of_allowed_ones(service: Service) -> None:
    answers = [
        service.http.get("/stats"),
        service.http.get("/stats", headers={"Origin": "https://evil.example"}),
        service.http.get("/stats", headers={"Origin": service.url}),
    ]

    assert [answer.status_code for answer in answers] == [200, 403, 200]
    assert [answer for answer in answers if READABLE in answer.headers] == []


def test_an_allowed_page_reads_what_a_service_says_that_stops(path: Path) -> None:
    own = {"MEMORY_DRAIN": "1h", "MEMORY_ALLOWED_ORIGINS": CONSOLE}
    with served(path, **own) as (process, http):
        process.send(signal.SIGTERM)
        until(lambda: http.get("/health").status_code == 503)

        assert http.get("/health", headers={"Origin": CONSOLE}).headers[READABLE] == CONSOLE


@for_each("method", ["GET", "POST", "PATCH", "PUT", "DELETE"])
@for_each("path", ["/observations", "/observations/1", "/import"])
def test_a_browser_learns_without_a_key_what_an_allowed_page_may_send(
    service: Service, path: str, method: str
) -> None:
    answer = preflight(service, path, method=method)

    assert answer.status_code == 200
    assert answer.headers[READABLE] == CONSOLE
    assert method in answer.headers["access-control-allow-methods"].split(", ")
    assert "access-control-allow-credentials" not in answer.headers


@for_each(
    "header",
    [
        "authorization", "x-api-key", "content-type", "idempotency-key", "x-idempotency-key",
        "traceparent",
    ],
)  # fmt: skip
def test_an_allowed_page_may_send_a_key_and_what_goes_with_it(
    service: Service, header: str
) -> None:
    assert preflight(service, headers=header).status_code == 200


def test_an_allowed_page_may_send_whatever_the_package_sends(service: Service) -> None:
    asked: list[httpx.Request] = []
    transport = anthropic.DefaultHttpxClient(event_hooks={"request": [asked.append]})
    with client(service, http_client=transport) as sdk:
        notes = store(sdk)
        list(sdk.beta.memory_stores.memories.list(notes.id, betas=["x"], workspace_id="w"))

    own = {"host", "connection", "user-agent", "accept-encoding", "content-length"}  # the browser's
    sent = {name for one in asked for name in one.headers} - own
    names = ", ".join(sorted(sent | {"x-request-id", "x-stainless-helper-method"}))
    assert {"anthropic-beta", "anthropic-workspace-id", "x-stainless-retry-count"} < sent
    assert preflight(service, "/anthropic/v1/x", headers=names).status_code == 200


@for_each("path", ["/stats", STORES, "/api/v1/cloud/memory_stores"])
def test_what_no_page_may_send_is_refused_in_plain_text(service: Service, path: str) -> None:
    answer = preflight(service, path, headers="x-other")

    assert (answer.status_code, answer.text) == (400, "Disallowed CORS headers")
    assert answer.headers["content-type"].startswith("text/plain")


def test_an_allowed_page_from_the_internet_may_ask_this_machine(service: Service) -> None:
    answer = preflight(service, private_network="true")

    assert answer.headers["access-control-allow-private-network"] == "true"


@for_each("asked", [{"method": "TRACE"}, {"method": "get"}, {"headers": "authorization,x-other"}])
def test_a_browser_learns_what_no_page_may_send(service: Service, asked: dict[str, str]) -> None:
    assert preflight(service, **asked).status_code == 400


def test_a_browser_learns_of_no_other_page(service: Service, strict: Service) -> None:
    answers = [preflight(service, origin="https://evil.example"), preflight(strict)]

    assert [refusal(answer) for answer in answers] == [FOREIGN, FOREIGN]


@for_each(
    "text, origins",
    [
        ("", set()),
        (" , ,", set()),
        ("https://console.example", {"https://console.example"}),
        (" HTTPS://Console.Example , ", {"https://console.example"}),
        ("https://a.example:443,http://a.example:80", {"https://a.example", "http://a.example"}),
        ("https://a.example:80,http://a.example:443", {"https://a.example:80",
                                                       "http://a.example:443"}),
        ("http://localhost:03000", {"http://localhost:3000"}),
        ("http://[::1]:3000,http://127.0.0.1", {"http://[::1]:3000", "http://127.0.0.1"}),
    ],
)  # fmt: skip
def test_allowed_origins_are_read_as_a_browser_writes_them(text: str, origins: set[str]) -> None:
    assert allowed_origins(text) == origins


@for_each(
    "text",
    ["*", "null", "console.example", "https://", "https://console.example/", "https://*.example",
     "https://console.example/app", "https://user@console.example", "https://console.example?q",
     "ftp://console.example", "https://console.example:65536", "https://console.example:x",
     "https://console.example:", "https://caf\xe9.example", "https://console.example,*",
     "https://a.example https://b.example", "https://::1", "//console.example"],
)  # fmt: skip
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match="contains something other than an origin such as https://"
    ):
        allowed_origins(text)


@for_each(
    "host",
    ["localhost", "LOCALHOST", "127.0.0.1", "127.255.255.254", "127.1", "::1", "0:0:0:0:0:0:0:1",
     "::1%lo", "::ffff:127.0.0.1"],
)  # fmt: skip
def test_the_hosts_of_this_machine_alone_are_loopback(host: str) -> None:
    assert is_loopback(host)


@for_each(
    "host",
    ["", "0.0.0.0",  # noqa: S104 - asked about, not bound
     "::", "::2", "10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1", "localhost.",
     "localhost.example", "memory", "128.0.0.1"],
)  # fmt: skip
def test_any_other_host_is_not(host: str) -> None:
    assert not is_loopback(host)


@given(st.text(), st.text())
def test_any_text_may_stand_in_a_header(host: str, origin: str) -> None:
    assert host_of(f"{host}\n") is None
    assert not is_welcome(f"x{origin}", [host], ())
    assert is_welcome(origin, [host], ()) <= origin.lower().startswith("http")
    assert is_loopback(host) <= host.isascii()


def preflight(
    service: Service, path: str = "/stats", *, origin: str = CONSOLE, **asked: str
) -> httpx.Response:
    """What a browser asks before a page's request: `method="GET"`, `headers="x-api-key"`."""
    named = {
        f"Access-Control-Request-{name.replace('_', '-').title()}": value
        for name, value in asked.items()
    }
    defaults = {"Origin": origin, "Access-Control-Request-Method": "GET"}
    return service.http.options(path, headers=defaults | named)
