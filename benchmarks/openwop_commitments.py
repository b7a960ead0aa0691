"""`python -m benchmarks.openwop_commitments`: saves while thousands of commitments fire.

A put meets more commitments than one transaction fires, and many become due at once. The rows are
inserted beside the service, as a ref accepts fewer. Each storm is measured on SQLite and on
PostgreSQL, against the same saves without a storm.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any
from uuid import uuid4

import psycopg

from agentops_memory.postgresql.connection import schema_of, with_placeholders
from agentops_memory.sqlite.connection import connect

from .client import Client, Request, get, post
from .figures import Figure, at_most, show
from .measures import Times
from .openwop_host import H
from .openwop_refs import texts
from .postgresql.database import filled, server
from .process import running
from .seeding import Size, seeded

REF = "mem://storm"
EACH = 49  # commitments of an entry
SAVERS = 2
QUIET = 8.0  # seconds without a storm
AHEAD = 2.0  # seconds until what is inserted is due
PATIENCE = 300.0  # seconds until an answer has failed to come
SETTINGS = {"MEMORY_DEDUPE_WINDOW": "0"}

ARM = """INSERT INTO commitments (uid, memory_id, space_id, due_at, tag, state, created_at)
         SELECT :uid, e.memory_id, e.space_id, :due_at, :tag, 'armed', :at
           FROM ref_entries e
          WHERE e.name = :entry"""
ARMED = "SELECT 1 FROM commitments WHERE state = 'armed' LIMIT 1"

Connected = Callable[[], Any]
"""A connection to where the service stores, with named parameters."""


def main() -> None:
    """Seed, start, storm, print."""
    parser = ArgumentParser(prog="python -m benchmarks.openwop_commitments", description=__doc__)
    parser.add_argument("--met", type=int, default=14_700, help="by one put")
    parser.add_argument("--due", type=int, default=9_800, help="at one instant")
    parser.add_argument("--rounds", type=int, default=3, help="of each storm")
    parser.add_argument("--engine", choices=["sqlite", "postgresql"], action="append")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        for engine in options.engine or ["sqlite", "postgresql"]:
            with _served(Path(folder), engine) as (port, connected):
                show(_figures(engine, port, connected, options))


@contextmanager
def _served(folder: Path, engine: str) -> Iterator[tuple[int, Connected]]:
    path = folder / f"{engine}.db"
    seeded(path, Size(rows=5000, projects=10), 7)
    if engine == "sqlite":
        with running(path, settings=SETTINGS) as service:
            yield service.port, lambda: connect(path)
        return
    with server() as url, filled(url, path, "storm") as database:
        settings = SETTINGS | {"MEMORY_DATABASE_URL": database.url}
        with running(path, settings=settings) as service:
            yield service.port, lambda: _Postgres(database.url)


class _Postgres:
    """A connection of PostgreSQL that takes what one of SQLite does."""

    def __init__(self, url: str) -> None:
        options = f"-c search_path={schema_of('default')}"  # type: ignore[arg-type]
        self._connection = psycopg.connect(url, autocommit=True, options=options)

    def execute(self, statement: str, parameters: Any = None) -> Any:
        return self._connection.execute(with_placeholders(statement).encode(), parameters)

    def executemany(self, statement: str, rows: Any) -> None:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(with_placeholders(statement).encode(), rows)

    def close(self) -> None:
        self._connection.close()


def _figures(engine: str, port: int, connected: Connected, options: Namespace) -> Iterator[Figure]:
    with closing(Client(port, PATIENCE)) as host:
        for number in range(max(options.met, options.due) // EACH):
            host.ask(post(f"{H}/memory", _entry(id=f"waits-{number}")))
        quiet = Saves()
        quiet.during(port, partial(time.sleep, QUIET))
        for name, storm in (
            (f"{options.met:,} commitments are met by one put", _met),
            (f"{options.due:,} commitments are due at once", _due),
        ):
            during, answered = Saves(), list[str]()
            for _ in range(options.rounds):
                with closing(connected()) as database:
                    request = storm(database, options)
                    during.during(port, partial(_until_fired, host, database, request, answered))
            yield Figure(
                what=f"{engine}: a save while {name}: p99",
                value=during.times.p99 / quiet.times.p99,
                aim=at_most(5),
                beside=f"{during} against {quiet}; request: {', '.join(answered)} ms",
            )


@dataclass(slots=True)
class Saves:
    """Saves without pause while something happens, and how many of them were refused."""

    times: Times = field(default_factory=Times)
    refused: int = 0

    def during(self, port: int, work: Callable[[], object]) -> None:
        over, began = Event(), time.perf_counter()
        with ThreadPoolExecutor(SAVERS) as savers:
            savings = [savers.submit(self._save, port, over, number) for number in range(SAVERS)]
            try:
                work()
            finally:
                over.set()
            for saving in savings:
                saving.result()
        self.times.whole += time.perf_counter() - began

    def __str__(self) -> str:
        times, longest = self.times, max(self.times.taken) * 1e3
        return (
            f"{times}, longest {longest:.0f} ms, of {len(times.taken)} in {times.whole:.1f} s, "
            f"{self.refused} refused,"
        )

    def _save(self, port: int, over: Event, number: int) -> None:
        body = {"session_id": f"s-{number}", "project": "project-0", "type": "note", "title": "t"}
        with closing(Client(port, PATIENCE)) as client:
            for text in cycle(texts(number, 50)):
                if over.is_set():
                    return
                request = post("/observations", body | {"content": f"{time.time_ns()} {text}"})
                began = time.perf_counter()
                answer = client.answer(request)
                self.times.taken.append(time.perf_counter() - began)
                self.refused += not answer.is_good


def _met(database: Any, options: Namespace) -> Request:
    tags = [f"tag-{number}-{time.time_ns()}" for number in range(EACH)]
    _arm(database, options.met // EACH, [(None, tag) for tag in tags])
    return post(f"{H}/memory", _entry(tags=tags))


def _due(database: Any, options: Namespace) -> Request:
    due_at = time.time_ns() // 1000 + int(AHEAD * 1e6)
    _arm(database, options.due // EACH, [(due_at + number, None) for number in range(EACH)])
    time.sleep(max(0.0, due_at / 1e6 - time.time() + 0.001))
    return get(f"{H}/events", type="commitment.fired", limit=100)


def _arm(database: Any, entries: int, conditions: list[tuple[int | None, str | None]]) -> None:
    now = time.time_ns() // 1000
    database.execute("BEGIN")
    for number in range(entries):
        database.executemany(
            ARM,
            [
                {"uid": f"{uuid4()}", "due_at": due, "tag": tag, "at": now,
                 "entry": f"waits-{number}"}
                for due, tag in conditions
            ],
        )  # fmt: skip
    database.execute("COMMIT")


def _until_fired(host: Client, database: Any, request: Request, answered: list[str]) -> None:
    """Ask, note after how many milliseconds it was answered, and wait until nothing is armed."""
    began = time.perf_counter()
    host.ask(request)
    answered.append(f"{(time.perf_counter() - began) * 1e3:.0f}")
    while database.execute(ARMED).fetchone():
        time.sleep(0.02)


def _entry(**fields: object) -> dict[str, object]:
    return {"memoryRef": REF, "content": "What is to be done.", **fields}


if __name__ == "__main__":
    main()
