"""What every answer tells a browser: it is data, for whom it is, and that nobody keeps it."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from agentops_memory.http.middleware import SecurityHeaders

from ..support.process import served, until
from ..support.raw import request, wire
from ..support.samples import for_each
from ..support.service import Service, serving

CONSOLE = "https://console.example"
EXPECTED = {
    "x-content-type-options": "nosniff", "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer", "cross-origin-resource-policy": "same-origin",
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path = tmp_path_factory.mktemp("service") / "memory.db"
    with serving(path, MEMORY_ALLOWED_ORIGINS=CONSOLE) as running:
        running.save("a memory")
        yield running


def told(answer: httpx.Response) -> dict[str, str]:
    """What the answer tells a browser, of the names that are expected."""
    return {name: value for name, value in answer.headers.items() if name in EXPECTED}


@for_each(
    "method, path, status",
    [
        ("GET", "/health", 200), ("HEAD", "/health", 200), ("GET", "/openapi.json", 200),
        ("GET", "/context?query=memory", 200), ("GET", "/export", 200),
        ("DELETE", "/observations/9", 204), ("GET", "/observations/x", 400),
        ("GET", "/observations/9", 404), ("GET", "/nowhere", 404), ("PUT", "/observations/1", 405),
    ],
)  # fmt: skip
def test_every_answer_has_them_and_names_no_server(
    service: Service, method: str, path: str, status: int
) -> None:
    answer = service.http.request(method, path)

    assert answer.status_code == status
    assert told(answer) == EXPECTED
    assert "server" not in answer.headers


@for_each(
    "headers, status",
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Origin": CONSOLE}, 204),
        ({"Origin": CONSOLE, "Access-Control-Request-Method": "GET"}, 200),
        ({"Origin": CONSOLE, "Access-Control-Request-Method": "TRACE"}, 400),
    ],
)
def test_an_answer_to_a_page_has_them(
    service: Service, headers: dict[str, str], status: int
) -> None:
    method = "OPTIONS" if "Access-Control-Request-Method" in headers else "DELETE"

    answer = service.http.request(method, "/observations/9", headers=headers)

    assert (answer.status_code, told(answer)) == (status, EXPECTED)


def test_each_is_there_once(service: Service) -> None:
    with wire(service.url) as client:
        client.send(request("GET", "/stats", connection="close"))

        head = client.rest().lower()

    assert [head.count(f"\r\n{name}: ".encode()) for name in EXPECTED] == [1] * len(EXPECTED)


def test_a_service_that_stops_answers_with_them(path: Path) -> None:
    with served(path, MEMORY_DRAIN="1h") as (process, http):
        process.send(signal.SIGTERM)
        until(lambda: http.get("/health").status_code == 503)

        assert told(http.get("/health")) == EXPECTED


async def page(_: Request) -> Response:
    return HTMLResponse(
        "", headers={"Content-Security-Policy": "default-src 'self'", "Server": "x"}
    )


async def failure(_: Request) -> Response:
    raise ZeroDivisionError


APPLICATION = SecurityHeaders(Starlette(routes=[Route("/page", page), Route("/failure", failure)]))


def asked(path: str) -> httpx.Response:
    """What the application answers, also when it fails."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(APPLICATION, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.get(path)

    return asyncio.run(ask())


def test_what_an_answer_says_itself_is_left_as_it_is() -> None:
    policy = {"content-security-policy": "default-src 'self'"}

    assert told(asked("/page")) == EXPECTED | policy


def test_a_failure_has_them() -> None:
    answer = asked("/failure")

    assert (answer.status_code, told(answer)) == (500, EXPECTED)
