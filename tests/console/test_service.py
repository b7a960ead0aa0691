"""The view *Service*: what its checks and its twins say, and to whom the rest is told."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agentops_memory.telemetry import metrics

from ..support.callers import made_key
from ..support.engines import is_postgresql
from ..support.pages import Page, get
from ..support.service import Service, serving


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, dict[str, str]]]:
    """A service with memories, an erasure, and a key of each kind."""
    path = tmp_path_factory.mktemp("closed") / "memory.db"
    kept = serving(
        path, MEMORY_KEEP_DELETED="90d", MEMORY_KEEP_EXPIRED="0", MEMORY_KEEP_REVISIONS="7"
    )
    with kept as service:
        for number in range(3):
            service.save(f"The door {number} is green.")
        service.save("Another house.", project="house", session_id="s2")
        service.http.delete("/observations/2", params={"hard": "true"}).raise_for_status()
        keys = {role: made_key(path, role) for role in ("reader", "admin")}
        keys["other"] = made_key(path, "admin", projects=("other",))
        keys["tenant"] = made_key(path, "admin", tenant="acme")
        yield service, keys


def shown(service: Service, key: str) -> Page:
    with httpx.Client(base_url=service.url, auth=("anybody", key)) as http:
        return get(http, "/ui/service")


def said(page: Page) -> str:
    """The words of a page, each cell of a table apart from the next."""
    return " ".join(" ".join(page.texts).split())


@pytest.mark.slow
def test_an_admin_sees_the_numbers_of_the_twins_receipts_and_keys_without_secrets(
    closed: tuple[Service, dict[str, str]],
) -> None:
    service, keys = closed
    shown(service, keys["reader"])
    page, bearer = shown(service, keys["admin"]), {"authorization": f"Bearer {keys['admin']}"}
    stats = service.http.get("/stats", headers=bearer).json()
    ready = service.http.get("/health/ready").json()
    words = said(page)

    assert {"/health/ready", "/stats", "/metrics"} <= page.links.keys()
    assert f"Memories {stats['total_observations']}" in words
    assert f"Sessions {stats['total_sessions']}" in words
    for name, check in ready["checks"].items():
        assert f"{name} {check['status']}" in words
    assert ("All is well." in words) is (ready["status"] == "ok")
    receipt = next(it for it in page.links.values() if it.startswith("/ui/erasures/"))
    erased = service.http.get(receipt.removeprefix("/ui"), headers=bearer).json()
    assert erased["observations"] == 1
    assert "observation: 1 memory, 1 revision" in words
    assert "reader of default reader * " in words
    assert "admin of acme" not in words  # of another tenant
    if not is_postgresql():  # where a test has used each key to see that it is known
        assert words.count("not yet") == 1  # the key for another project
    assert not [key for key in keys.values() if key.split("_", 2)[2] in page.text]
    assert service.path.name in page.text


@pytest.mark.slow
def test_who_may_not_see_everything_is_told_of_nothing_but_the_service(
    closed: tuple[Service, dict[str, str]],
) -> None:
    service, keys = closed
    for who, memories in (("reader", 3), ("other", 0), ("tenant", 0)):
        page = shown(service, keys[who])
        words = said(page)

        assert str(service.path.parent) not in page.text
        assert f"Memories {memories} " in words
        assert "Deleted memories 90 days after their deletion MEMORY_KEEP_DELETED" in words
        assert "Expired memories never MEMORY_KEEP_EXPIRED" in words
        assert "Requests with an idempotency key 1 day after the request" in words
        assert "Older revisions of a memory beyond the newest 7" in words
        assert ("pg_dump" if is_postgresql() else "agentops-memory backup --to FILE") in words
        if who != "tenant":
            own = ("Key reader of default", "Key admin of default")
            assert "of default" not in words.replace(own[0], "").replace(own[1], "")
            assert not [it for it in page.links if it.startswith(("/ui/erasures", "/metrics"))]


def test_a_slow_request_is_named_with_its_route_and_not_with_what_it_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "SLOW", 0.0)
    with serving(tmp_path / "memory.db") as service:
        service.save("The door is green.")
        service.http.get("/observations/1", params={"secret": "unseen word"})
        words = said(get(service.http, "/ui/service"))

    assert "GET /observations/{id}" in words
    assert "POST /observations" in words
    assert "unseen" not in words
