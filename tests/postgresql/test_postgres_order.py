"""Over two services of one database, who reads on from a cursor is told of all, once, in order."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ..support.openintent_agents import INTENTS, Agent, Json, ok
from ..support.openwop_hosts import Host
from ..support.pods import TIMEOUT, Pods, pods
from ..support.service import PLAIN

WRITERS, WRITES = 4, 6  # the writes are of each

Page = Callable[[httpx.Client, int], list[Json]]


@pytest.fixture
def two(tmp_path: Path, postgresql: str) -> Iterator[Pods]:
    with pods(
        tmp_path / "postgresql", postgresql, MEMORY_EPISODIC_CAPACITY="20", MEMORY_DATABASE_POOL="6"
    ) as both:
        yield both


class Cursor(threading.Thread):
    """Reads on from the last `sequence` that it saw, until all is over and nothing more comes."""

    def __init__(self, url: str, page: Page, is_over: threading.Event) -> None:
        super().__init__()
        self._url, self._page, self._is_over = url, page, is_over
        self.seen: list[Json] = []

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=TIMEOUT, verify=PLAIN) as http:
            while True:
                was_over = self._is_over.is_set()
                page = self._page(http, self.seen[-1]["sequence"] if self.seen else 0)
                if was_over and not page:
                    return
                self.seen += page


@contextmanager
def followed(two: Pods, page: Page) -> Iterator[Sequence[Cursor]]:
    """Inside, each pod is asked for what is new; afterwards that is all seen."""
    is_over = threading.Event()
    cursors = [Cursor(it.url, page, is_over) for it in two.services]
    for cursor in cursors:
        cursor.start()
    try:
        yield cursors
    finally:
        is_over.set()
        for cursor in cursors:
            cursor.join(TIMEOUT)


@pytest.mark.slow
def test_no_event_of_an_intent_is_skipped_or_late_for_who_reads_on(two: Pods) -> None:
    intent = ok(Agent(two.http, "lead").ask("POST", INTENTS, {"title": "Invoices"}), 201)
    path = f"{INTENTS}/{intent['id']}/events"

    def page(http: httpx.Client, after: int) -> list[Json]:
        given = {"after": after, "limit": 50}
        found: list[Json] = ok(Agent(http, "lead").ask("GET", path, params=given))
        return found

    def work(http: httpx.Client, number: int) -> list[str]:
        lead = Agent(http, "lead")
        told = [{"event_type": "comment", "payload": {"at": [number, it]}} for it in range(WRITES)]
        return [ok(lead.ask("POST", path, it), 201)["id"] for it in told]

    with followed(two, page) as cursors:
        made = [it for each in two.racing(work, WRITERS) for it in each]

    for cursor in cursors:
        sequences = [it["sequence"] for it in cursor.seen]
        assert sequences == sorted({*sequences})
        assert sorted(it["id"] for it in cursor.seen if it["type"] == "comment") == sorted(made)
    assert cursors[0].seen == cursors[1].seen


@pytest.mark.slow
def test_what_a_run_sees_never_changes_once_it_has_begun(two: Pods) -> None:
    """A run sees memory as it was at its start, and what it writes itself."""

    def work(http: httpx.Client, number: int) -> dict[str, list[str]]:
        host, seen = Host(http), dict[str, list[str]]()
        for turn in range(WRITES):
            if number % 2:
                host.put(f"{number}, {turn}")
            else:
                run = host.in_run(f"r{number}-{turn}")
                seen[f"r{number}-{turn}"] = run.contents(limit=1000)
        return seen

    seen = {run: contents for each in two.racing(work, WRITERS) for run, contents in each.items()}

    last = Host(two.http).contents(limit=1000)
    assert len(last) == WRITERS // 2 * WRITES
    for run, contents in seen.items():
        assert Host(two.http, run=run).contents(limit=1000) == contents
        assert last[len(last) - len(contents) :] == contents
