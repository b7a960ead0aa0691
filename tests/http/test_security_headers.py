"""What every answer tells a browser: it is data, for whom it is, and that nobody keeps it."""

import asyncio
import signal
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from agentops_memory.http.middleware import SecurityHeaders

from ..support.pages import get, press
from ..support.process import served, until
from ..support.samples import for_each
from ..support.service import Service, lasting_with, observation

CONSOLE = "https://console.example"
EXPECTED = {
    "x-content-type-options": "nosniff", "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer", "cross-origin-resource-policy": "same-origin",
}  # fmt: skip


service = lasting_with(lambda it: it.save("a memory"), MEMORY_ALLOWED_ORIGINS=CONSOLE)


def told(answer: httpx.Response) -> dict[str, str]:
    """What the answer tells a browser, of the names that are expected."""
    return {name: value for name, value in answer.headers.items() if name in EXPECTED}


@for_each(
    "method, path, headers, status",
    [
        *[
            (method, path, {}, status)
            for method, path, status in (
                ("GET", "/health", 200), ("HEAD", "/health", 200), ("GET", "/openapi.json", 200),
                ("GET", "/context?query=memory", 200), ("GET", "/export", 200),
                ("DELETE", "/observations/9", 204), ("GET", "/observations/x", 400),
                ("GET", "/observations/9", 404), ("GET", "/nowhere", 404),
                ("PUT", "/observations/1", 405),
            )
        ],
        ("DELETE", "/observations/9", {"Origin": "https://evil.example"}, 403),
        ("DELETE", "/observations/9", {"Host": "evil.example"}, 403),
        ("DELETE", "/observations/9", {"Origin": CONSOLE}, 204),
        ("OPTIONS", "/x", {"Origin": CONSOLE, "Access-Control-Request-Method": "GET"}, 200),
        ("OPTIONS", "/x", {"Origin": CONSOLE, "Access-Control-Request-Method": "TRACE"}, 400),
    ],
)  # fmt: skip
def test_every_answer_has_them_once_and_names_no_server(
    service: Service, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = service.http.request(method, path, headers=headers)

    assert answer.status_code == status
    assert told(answer) == EXPECTED  # joined, had one come twice
    assert "server" not in answer.headers


@pytest.mark.slow
def test_a_service_that_stops_answers_with_them_shows_pages_and_takes_forms(path: Path) -> None:
    with served(path, MEMORY_DRAIN="1h", MEMORY_ALLOWED_ORIGINS=CONSOLE) as (process, http):
        http.post("/observations", json=observation("The door is green.")).raise_for_status()
        process.send(signal.SIGTERM)
        until(lambda: http.get("/health").status_code == 503)

        answer = http.get("/health", headers={"Origin": CONSOLE})
        assert (told(answer), answer.headers["access-control-allow-origin"]) == (EXPECTED, CONSOLE)
        page = press(http, get(http, "/ui/memories/1"), "Pin")
        assert (page.status, "Pinned" in page.text) == (200, True)


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


def test_a_failure_has_them_and_what_an_answer_says_itself_is_left_as_it_is() -> None:
    answer = asked("/failure")

    assert (answer.status_code, told(answer)) == (500, EXPECTED)
    policy = {"content-security-policy": "default-src 'self'"}
    assert told(asked("/page")) == EXPECTED | policy
