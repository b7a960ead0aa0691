"""What every answer tells a browser: it is data, for whom it is, and that nobody keeps it."""

import signal
from pathlib import Path

import httpx
import pytest

from ..support.engines import rows
from ..support.pages import get, press
from ..support.process import served, until
from ..support.samples import for_each
from ..support.service import Service, lasting_with, observation, serving

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
        probes = [http.get(f"/health/{name}").status_code for name in ("live", "ready")]
        assert probes == [200, 503]

        answer = http.get("/health", headers={"Origin": CONSOLE})
        assert (told(answer), answer.headers["access-control-allow-origin"]) == (EXPECTED, CONSOLE)
        page = press(http, get(http, "/ui/memories/1"), "Pin")
        assert (page.status, "Pinned" in page.text) == (200, True)


def test_a_failure_has_them(path: Path) -> None:
    with serving(path) as failing:
        failing.save("a memory")
        rows(path, "ALTER TABLE sessions RENAME COLUMN summary TO elsewhere")
        answer = failing.http.get("/sessions/recent")

    assert (answer.status_code, told(answer)) == (500, EXPECTED)
