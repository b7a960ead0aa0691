"""With 100,000 memories: each view is answered within three times what its twins take."""

import json
import random
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ..support.openintent_agents import Agent
from ..support.openwop_hosts import Host
from ..support.pages import Page, get
from ..support.service import Service, serving
from ..support.stores import entry, store, update

pytestmark = pytest.mark.heavy

MEMORIES, DOCUMENTS = 100_000, 600
TIMES, ROUNDS = 3, 15
VIEWS = {
    "ask": "/ui/ask?project=shop&query=why+do+w1+and+w2+wait+in+w3",
    "memories of a project": "/ui/memories?project=shop",
    "search": "/ui/memories?q=w1+w2+w3&project=shop",
    "memories": "/ui/memories",
    "memory": "/ui/memories/500",
    "review": "/ui/review",
    "projects": "/ui/projects",
    "project": "/ui/projects?project=shop",
    "sessions": "/ui/sessions",
    "session": "/ui/sessions/s500",
    "documents": "/ui/documents",
    "store": "",  # these three when their ids are known
    "document": "",
    "agent": "/ui/documents/agents/ada",
    "agent entry": "",
    "ref": "/ui/documents/refs?memoryRef=mem://support",
    "ref entry": "/ui/documents/refs/entry?memoryRef=mem://support&memoryId=n500",
    "service": "/ui/service",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        running.http.timeout = httpx.Timeout(600)
        running.http.post("/import", content=json.dumps(document())).raise_for_status()
        for number in range(40):
            due = f"2029-12-31T12:00:{number:02}Z"
            running.save(f"Setting {number}.", session_id="due", project="shop", review_at=due)
        VIEWS.update(with_documents(running.http))
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


def with_documents(http: httpx.Client) -> dict[str, str]:
    """Documents of a store, entries of an agent and of a ref; the paths of some of them."""
    ada, host, notes = Agent(http), Host(http, "mem://support"), store(http)
    first = entry(http, notes, "first.md", "Staging is deployed on Fridays.")

    def put(number: int) -> None:
        entry(http, notes, f"{number % 30}/{number}.md")
        ada.make(key=f"n{number}", namespace=f"space{number % 30}")
        host.put(f"Refunds of {number} EUR.", id=f"n{number}")

    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(put, range(DOCUMENTS)))) == DOCUMENTS
    for number in range(20):
        update(http, notes, first, f"Staging is deployed at {number}.")
    own, page = ada.make(key="own"), "/ui/documents"
    return {
        "store": f"{page}/stores/{notes['id']}",
        "document": f"{page}/stores/{notes['id']}/{first['id']}",
        "agent entry": f"{page}/agents/ada/{own['id']}",
    }


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_takes_no_more_than_three_times_its_twins(service: Service, view: str) -> None:
    path = VIEWS[view]
    twins = twins_of(get(service.http, path))
    of_view, of_twins = [], []
    for _ in range(ROUNDS):
        of_view.append(elapsed(service, [path]))
        of_twins.append(elapsed(service, twins))

    assert twins
    assert statistics.median(of_view) <= TIMES * statistics.median(of_twins)
    assert len(service.http.get(path).content) < 300_000


def twins_of(page: Page) -> list[str]:
    """The paths in its foot, whose links an agent's page cannot have."""
    return [it for it in page.texts[page.texts.index("The same as JSON") :] if it.startswith("/")]


def elapsed(service: Service, paths: list[str]) -> float:
    began = time.process_time()
    for path in paths:
        service.http.get(path, headers={"X-Agent-ID": "ada"}).raise_for_status()
    return time.process_time() - began
