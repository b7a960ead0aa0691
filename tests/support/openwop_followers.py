"""Hosts that write in runs at once, and others that follow what is told of it."""

import threading
from collections.abc import Sequence

import httpx

from .openwop_hosts import Host, Json, ok, refused
from .service import PLAIN

TIMEOUT = 60.0


class Writers:
    """One thread for each of the runs, which may repeat; each puts until it is refused."""

    def __init__(
        self, url: str, runs: Sequence[str | None], start: threading.Barrier, *, puts: int
    ) -> None:
        self._url, self._start, self._puts = url, start, puts
        self._lock = threading.Lock()
        self.made: list[tuple[str, str | None]] = []  # ids, and their runs
        self.refusals: set[tuple[int, str]] = set()
        self.threads = [
            threading.Thread(target=self._write, args=(number, run))
            for number, run in enumerate(runs)
        ]

    def _write(self, number: int, run: str | None) -> None:
        with httpx.Client(base_url=self._url, timeout=TIMEOUT, verify=PLAIN) as http:
            host = Host(http, f"mem://{number % 2}", run)
            self._start.wait(TIMEOUT)
            for put in range(self._puts):
                answer = host.post(f"writer {number}, put {put}")
                with self._lock:
                    if answer.status_code == 201:
                        self.made.append((answer.json()["entry"]["id"], run))
                    else:
                        self.refusals.add(refused(answer))


class Follower(threading.Thread):
    """Asks on from where it is, until all is over and nothing more is told."""

    def __init__(
        self, url: str, start: threading.Barrier, is_over: threading.Event, *, limit: int
    ) -> None:
        super().__init__()
        self._url, self._start, self._is_over, self._limit = url, start, is_over, limit
        self.events: list[Json] = []

    def run(self) -> None:
        query: dict[str, int | str] = {"limit": self._limit}
        with httpx.Client(base_url=self._url, timeout=TIMEOUT, verify=PLAIN) as http:
            self._start.wait(TIMEOUT)
            while True:
                was_over = self._is_over.is_set()
                page = ok(Host(http).ask("GET", "/events", params=query))
                if was_over and not page["events"]:
                    return
                self.events += page["events"]
                query["after"] = page["next"]
