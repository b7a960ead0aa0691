"""Which web pages may ask, which may read the answers, and which names a local service has."""

import json
from pathlib import Path

import anthropic
import httpx
from hypothesis import given, strategies as st

from agentops_memory.http.app import FOREIGN, RENAMED, host_of, is_welcome
from agentops_memory.http.gate import is_loopback

from ..support.anthropic_sdk import STORES, client, store
from ..support.raw import request, wire
from ..support.samples import for_each
from ..support.service import Service, lasting_with, observation, serving

strict = lasting_with()

CONSOLE = "https://console.example"
LOCAL = "http://localhost:3000"
READABLE = "access-control-allow-origin"


service = lasting_with(MEMORY_ALLOWED_ORIGINS=f"{CONSOLE}, {LOCAL}")
public = lasting_with(MEMORY_LISTEN="0.0.0.0:0", MEMORY_AUTH="none")  # which others reach too


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


@for_each("path", ["/health", "/stats", "/nowhere", "/openapi.json", "/docs", "/observations"])
@for_each("method", ["GET", "POST", "OPTIONS", "DELETE"])
def test_a_page_from_elsewhere_is_refused_everywhere_and_stores_nothing(
    strict: Service, method: str, path: str
) -> None:
    # What a form may send without asking first.
    headers = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    content = json.dumps(observation("planted")) if method == "POST" else None
    answer = strict.http.request(method, path, headers=headers, content=content)

    assert refusal(answer) == FOREIGN
    assert READABLE not in answer.headers
    assert strict.http.get("/stats").json()["total_observations"] == 0


LOCALS = ("localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:{port}")


@for_each(
    "origin, host, status",
    [
        *[
            (origin, "localhost:{port}", 403)
            for origin in (
                "null", "", "*", "http://", "https://evil.example", "http://localhost",
                "http://localhost:1", "https://localhost.evil.example",
                "http://localhost:{port}@evil.example", "http://localhost:{port}/",
                "http://localhost:{port}.evil.example", "ftp://localhost:{port}", "file://",
                "chrome-extension://abcdef", "http://localhost:{port}, https://evil.example",
                "http://127.0.0.1:{port}", "http://localhost.:{port}", "http://localhost:{port}0",
                "http://loc\xe4lhost:{port}", "localhost:{port}",
            )
        ],
        *[
            (origin.format(host), host, 200)
            for host in LOCALS for origin in ("http://{}", "https://{}", "HTTP://{}")
        ],
        ("https://memory.example", "memory.example", 200),
        ("https://memory.example", "memory.example:443", 200),
        ("https://memory.example:443", "Memory.Example", 200),
        ("http://memory.example", "memory.example:80", 200),
        ("http://memory.example:8080", "memory.example:8080", 200),
        ("https://memory.example", "memory.example:80", 403),
        ("http://memory.example", "memory.example:443", 403),
        ("http://memory.example", "memory.example:8080", 403),
        ("http://memory.example:8080", "memory.example", 403),
        ("http://example", "memory.example", 403),
        ("http://memory.example", "memory.example/", 403), (None, "localhost", 200),
        (None, "memory.agents.svc:7437", 200), (None, "10.0.0.1:7437", 200),
    ],
)  # fmt: skip
def test_the_own_origin_alone_is_welcome_and_is_what_the_host_header_says_as_behind_a_proxy(
    strict: Service, public: Service, origin: str | None, host: str, status: int
) -> None:
    service = strict if "port" in host else public
    port = service.http.base_url.port
    headers = {"Host": host.format(port=port)}
    if origin is not None:
        headers["Origin"] = origin.format(port=port)

    answer = service.http.get("/stats", headers=[
        (name.encode(), value.encode("latin-1")) for name, value in headers.items()
    ])  # fmt: skip

    assert answer.status_code == status
    assert refusal(answer) == (FOREIGN if status == 403 else None)


@for_each(
    "origins, status, is_readable",
    [([], 200, False), ([CONSOLE], 200, True), ([LOCAL], 200, True), (["{own}"], 200, False),
     ([CONSOLE, LOCAL], 200, None), ([CONSOLE, "https://evil.example"], 403, False),
     (["null", CONSOLE], 403, False), (["https://evil.example"], 403, False)],
)  # fmt: skip
def test_of_several_origins_all_must_be_welcome_and_no_other_page_is_told_of_allowed_ones(
    service: Service, origins: list[str], status: int, is_readable: bool | None
) -> None:
    headers = [("Origin", origin.format(own=service.url)) for origin in origins]
    answer = service.http.get("/stats", headers=headers)

    assert answer.status_code == status
    assert is_readable is None or (READABLE in answer.headers) is is_readable


@for_each(
    "host",
    ["evil.example", "evil.example:{port}", "localhost.", "localhost.evil.example", "10.0.0.1",
     "[::]", "[::2]:80", "", ":7437", "localhost@evil.example", "127.0.0.1.evil.example",
     "localhost:evil.example", "localhost:80:80", "[localhost", "::1", "localhost/", "127.9.9.9",
     "127.1", "[0:0:0:0:0:0:0:1]", "[localhost]", "[127.0.0.1]"],
)  # fmt: skip
@for_each("version", ["1.0", "1.1"])
def test_a_local_service_refuses_any_other_name_whatever_page_asks(
    strict: Service, host: str, version: str
) -> None:
    name = host.format(port=strict.http.base_url.port)
    with wire(strict.url) as client:
        client.send(
            request("GET", "/health", host=name, version=version),
            request("GET", "/export", host=name, version=version, origin=f"http://{name}"),
        )

        answer = client.answer()

    assert (answer.status, answer.json) == (403, {"error": RENAMED})


def test_a_local_service_has_the_names_of_this_machine_and_its_own_address(path: Path) -> None:
    with serving(path, MEMORY_LISTEN="127.0.0.9:0") as running:
        for host in (
            running.url.removeprefix("http://"), "localhost", "localhost:7437", "LocalHost:80",
            "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:7437", "localhost:",
        ):  # fmt: skip
            assert running.http.get("/health", headers={"Host": host}).status_code == 200, host
        assert running.http.get("/health", headers={"Host": "127.0.0.8"}).status_code == 403


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


def test_a_browser_learns_which_headers_a_page_may_send_and_the_package_sends_no_other(
    service: Service, strict: Service
) -> None:
    asked: list[httpx.Request] = []
    transport = anthropic.DefaultHttpxClient(event_hooks={"request": [asked.append]})
    with client(service, http_client=transport) as sdk:
        notes = store(sdk)
        list(sdk.beta.memory_stores.memories.list(notes.id, betas=["x"], workspace_id="w"))
    own = {"host", "connection", "user-agent", "accept-encoding", "content-length"}  # the browser's
    sent = {name for one in asked for name in one.headers} - own
    assert {"anthropic-beta", "anthropic-workspace-id", "x-stainless-retry-count"} < sent
    sent |= {
        "x-request-id", "x-stainless-helper-method", "authorization", "x-api-key", "content-type",
        "idempotency-key", "x-idempotency-key", "traceparent",
    }  # fmt: skip

    for path in ("/stats", STORES, "/api/v1/cloud/memory_stores"):
        for method in ("GET", "POST", "PATCH", "PUT", "DELETE"):
            allowed = preflight(
                service,
                path,
                method=method,
                headers=", ".join(sorted(sent)),
                private_network="true",
            )
            assert (allowed.status_code, allowed.headers[READABLE]) == (200, CONSOLE)
            assert method in allowed.headers["access-control-allow-methods"].split(", ")
            assert allowed.headers["access-control-allow-private-network"] == "true"
            assert "access-control-allow-credentials" not in allowed.headers
        for wrong, status in (
            ({"headers": "authorization,x-other"}, 400), ({"method": "TRACE"}, 400),
            ({"method": "get"}, 400), ({"origin": "https://evil.example"}, 403),
        ):  # fmt: skip
            answer = preflight(service, path, **wrong)
            assert answer.status_code == status
            if "headers" in wrong:
                assert answer.text == "Disallowed CORS headers"
                assert answer.headers["content-type"].startswith("text/plain")
            assert refusal(preflight(strict, **wrong)) == FOREIGN


LOOPBACK = (
    "localhost", "LOCALHOST", "127.0.0.1", "127.255.255.254", "::1", "0:0:0:0:0:0:0:1",
    "::1%lo", "::ffff:127.0.0.1",
)  # fmt: skip
OTHERS = (
    "", "0.0.0.0",  # noqa: S104 - asked about, not bound
    "::", "::2", "10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1", "localhost.", "localhost.example",
    "memory", "128.0.0.1", "127.1",
)  # fmt: skip


def test_the_hosts_of_this_machine_alone_are_loopback() -> None:
    assert [host for host in (*LOOPBACK, *OTHERS) if is_loopback(host)] == [*LOOPBACK]


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
