"""With 100,000 memories: each view is answered within three times what its twins take."""

import json
import random
import statistics
import time
from collections.abc import Iterator

import httpx
import pytest

from ..support.pages import get
from ..support.service import Service, serving

pytestmark = pytest.mark.heavy

MEMORIES = 100_000
TIMES, ROUNDS = 3, 15
VIEWS = (
    "/ui/ask?project=shop&query=why+do+w1+and+w2+wait+in+w3", "/ui/memories?project=shop",
    "/ui/memories?q=w1+w2+w3&project=shop", "/ui/memories", "/ui/memories/500",
)  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        running.http.timeout = httpx.Timeout(600)
        running.http.post("/import", content=json.dumps(document())).raise_for_status()
        yield running


def document() -> dict[str, object]:
    chance = random.Random(7)  # noqa: S311 - the same each time
    words = [f"w{number}" for number in range(5_000)]
    every = [
        {
            "session_id": f"s{number // 50}", "project": "shop" if number % 3 else "house",
            "type": chance.choice(["decision", "bugfix", "note", "config"]),
            "title": " ".join(chance.choices(words, k=6)), "tags": chance.sample(words, 2),
            "content": " ".join(chance.choices(words, k=40)),
        }
        for number in range(MEMORIES)
    ]  # fmt: skip
    return {"sessions": [], "observations": every}


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_takes_no_more_than_three_times_its_twins(service: Service, path: str) -> None:
    twins = [it for it in get(service.http, path).links.values() if not it.startswith("/ui")]
    twins = [
        it for it in twins if it.startswith(("/context", "/observations", "/search", "/stats"))
    ]
    of_view, of_twins = [], []
    for _ in range(ROUNDS):
        of_view.append(elapsed(service, [path]))
        of_twins.append(elapsed(service, twins))

    assert twins
    assert statistics.median(of_view) <= TIMES * statistics.median(of_twins)
    assert len(service.http.get(path).content) < 300_000


def elapsed(service: Service, paths: list[str]) -> float:
    began = time.perf_counter()
    for path in paths:
        service.http.get(path).raise_for_status()
    return time.perf_counter() - began
