"""`python -m benchmarks`: what requests cost beside the same reads made directly on SQLite."""

import argparse
import platform
import sqlite3
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from . import corpus, direct
from .client import Client, Request, get, post
from .direct import Read
from .measures import Times, request_times, times_in_turns
from .process import Running, running
from .seeding import seeded

READ_KINDS = {
    "/context, 500 characters in one run": ("/context", corpus.prompts),
    "/context, 500 characters in six sentences": ("/context", corpus.sentences),
    "/search, three words": ("/search", corpus.keywords),
}
QUERIES = {"/context": "query", "/search": "q"}
CROWDS = (4, 16)  # connections at a time


def main() -> None:
    """Seed, start, drive, print."""
    options = _options()
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        _cold_start(Path(folder) / "empty.db", "without data", options.starts)
        for rows in options.rows:
            _measure(Path(folder) / f"{rows}.db", rows, options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--rows-a-project", type=int, default=100)
    parser.add_argument("--requests", type=int, default=400, help="of each kind")
    parser.add_argument("--starts", type=int, default=5, help="cold starts; the median is shown")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where the databases lie while it runs")
    return parser.parse_args()


def _measure(path: Path, rows: int, options: argparse.Namespace) -> None:
    projects = max(rows // options.rows_a_project, 1)
    seeded(path, rows, projects, options.seed)
    print(f"\n{rows:,} observations in {projects:,} projects, {path.stat().st_size >> 20} MiB")
    _cold_start(path, "with data", options.starts)
    with running(path) as service:
        for name, (kind, texts) in READ_KINDS.items():
            asked = enumerate(texts(options.seed + 1, options.requests))
            reads = [
                Read(path=kind, text=text, project=f"project-{number * 7 % projects}")
                for number, text in asked
            ]
            print(f"{name}:")
            _reads(path, service, reads)
        print("POST /observations:")
        _saves(service, options.seed + 2, options.requests, projects)
        print("resident {:.0f} MiB, at its peak {:.0f} MiB".format(*service.memory()))


def _cold_start(path: Path, name: str, starts: int) -> None:
    taken = []
    for _ in range(starts):
        with running(path) as service:
            taken.append(service.started_in)
            resident, _ = service.memory()
    median = sorted(taken)[len(taken) // 2]
    print(f"cold start {name}: {median * 1e3:.0f} ms, then {resident:.0f} MiB resident")


def _reads(path: Path, service: Running, reads: Sequence[Read]) -> None:
    requests = [
        get(read.path, **{QUERIES[read.path]: read.text}, project=read.project) for read in reads
    ]
    with direct.opened(path) as database:
        recorded = [direct.statements(database, read) for read in reads]  # warms the cache, too
        request_times(service.port, requests[::4], 1)
        client = Client(service.port)
        alone = times_in_turns(
            {
                "bare SQL": partial(direct.bare, database, statements),
                "the domain's functions": partial(direct.through_the_domain, database, read),
                "HTTP, 1 at a time": partial(client.ask, request),
            }
            for read, request, statements in zip(reads, requests, recorded, strict=True)
        )
        client.close()
    for name, taken in alone.items():
        _line(name, taken, alone["bare SQL"])
    for connections in CROWDS:
        _line(f"HTTP, {connections} at a time", request_times(service.port, requests, connections))


def _saves(service: Running, seed: int, count: int, projects: int) -> None:
    source = corpus.pieces(seed)
    for connections in (1, *CROWDS):
        requests = [_save(next(source), number % projects) for number in range(count)]
        _line(f"HTTP, {connections} at a time", request_times(service.port, requests, connections))


def _save(piece: corpus.Piece, project: int) -> Request:
    body = {
        "session_id": f"s{project}",
        "type": "discovery",
        "title": piece.title,
        "content": piece.content,
        "project": f"project-{project}",
    }
    return post("/observations", body)


def _line(name: str, taken: Times, base: Times | None = None) -> None:
    ratio = "" if base is None else f"  {taken.p50 / base.p50:5.2f} x bare SQL"
    print(
        f"  {name:24} p50 {taken.p50:7.2f} ms  p99 {taken.p99:7.2f} ms"
        f"  {taken.rate:7.0f} a second{ratio}"
    )


if __name__ == "__main__":
    main()
