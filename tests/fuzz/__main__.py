"""`python -m tests.fuzz --minutes 10`: every route, from several workers at once.

Ends with 1 if anything was answered with a 500 or not at all, not as the service
describes itself, or if a route was never reached, a file is damaged, or memory has grown.
"""

import argparse
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import httpx

from agentops_memory.sqlite.connection import connect

from ..support.callers import made_key
from ..support.files import assert_index_is_whole
from ..support.process import served
from ..support.vitals import resident
from .asker import FAILURES, MOST, Faults, no_faults
from .worker import work

# Kind and tenant of each worker. The keys of one tenant meet each other's rows.
WORKERS = (
    ("known", "default"), ("known", "default"), ("known", "ada"), ("agents", "ada"),
    ("wild", "default"), ("described", "bob"),
)  # fmt: skip
KINDS = ("known", "agents", "wild", "described")
SETTINGS = {
    "MEMORY_TENANT_QUOTA": "64MiB", "MEMORY_SWEEP_EVERY": "5s", "MEMORY_MAX_UPLOAD": "8MiB",
    "MEMORY_TOOLS": "all", "MEMORY_DRAIN": "0s", "MEMORY_METRICS": "open",
}  # fmt: skip
WARM = 60.0  # seconds after which memory is first looked at; a short run looks earlier
GROWTH = 64  # MiB that a service may hold more after ten minutes of this than after a few seconds
COUNTED = re.compile(
    r'^memory_requests_total\{method="(\w+)",route="([^"]*)",status="(\d+)"\} (\S+)', re.MULTILINE
)
ROUTES_OF_AGENTS = {
    (how, path) for how in ("POST", "DELETE") for path in ("/mcp", "/mcp/{project}")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was asked and answered, and what was wrong with it or with what is left behind."""

    summary: str
    counted: Counter[tuple[str, str, str]]  # by method, route and status, as the service counts
    faults: Faults

    @property
    def is_good(self) -> bool:
        return not any(self.faults.values())

    def lines(self) -> Iterator[str]:
        """A table, and below it how to do again what went wrong."""
        yield f"{self.counted.total():,} requests {self.summary}"
        statuses = Counter[str]()
        for (_, _, status), count in self.counted.items():
            statuses[status if status in ("503", "507") else f"{status[0]}xx"] += count
        for name, count in sorted(statuses.items()):
            yield f"  {name:<24} {count:,}"
        for kind, found in self.faults.items():
            yield f"{kind:<26} {len(found)}"
        for found in self.faults.values():
            yield from found


def main() -> int:
    """Start, drive, look, print."""
    options = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=None, help="of a run that is to be repeated")
    given = options.parse_args()
    number = int(time.time()) % 100_000 if given.seed is None else given.seed
    with tempfile.TemporaryDirectory() as folder:
        report = fuzzed(Path(folder), 60 * given.minutes, number)
    print("\n".join(report.lines()))  # noqa: T201 - the result
    return 0 if report.is_good else 1


def fuzzed(folder: Path, seconds: float, seed: int, kinds: Collection[str] = KINDS) -> Report:
    """What so many seconds of requests have shown."""
    path, faults = folder / "memory.db", no_faults()
    keys = {tenant: made_key(path, tenant=tenant) for tenant in ("default", "ada", "bob")}
    chosen = [(place, *it) for place, it in enumerate(WORKERS) if it[0] in kinds]
    with (
        served(path, **SETTINGS) as (program, http),
        ProcessPoolExecutor(len(chosen), mp_context=get_context("spawn")) as workers,
    ):
        http.headers["Authorization"] = f"Bearer {keys['default']}"
        every, url = routes(http), str(http.base_url).rstrip("/")
        working = [
            workers.submit(work, kind, url, keys[tenant], seed + place, seconds)
            for place, kind, tenant in chosen
        ]
        time.sleep(min(WARM, seconds / 2))
        start = resident(program.pid)
        for done in working:
            if error := done.exception():
                faults[FAILURES].append(f"a worker ended: {error!r}")
                continue
            for kind, found in done.result().items():
                faults[kind] += found
        counts, end = counted(http), resident(program.pid)
        program.send(signal.SIGTERM)
        code = program.wait()
    faults[FAILURES] += [line for line in program.lines if '"level": "ERROR"' in line][:MOST]
    faults["routes never reached"] = [
        " ".join(it) for it in sorted(every - {(how, route) for how, route, _ in counts})
    ]
    faults["files"] = list(damage(path))
    faults["memory"] = [f"it has grown to {end:.0f} MiB"] if end - start >= GROWTH else []
    faults["exit code"] = [f"the service ended with {code}"] if code else []
    held = f"{start:.0f} MiB at the start, {end:.0f} at the end"
    summary = f"to {len(every)} routes in {seconds:.0f} s, seed {seed}; {held}"
    return Report(summary=summary, counted=counts, faults=faults)


def counted(http: httpx.Client) -> Counter[tuple[str, str, str]]:
    """The requests that the service has answered."""
    counts = Counter[tuple[str, str, str]]()
    for method, route, status, count in COUNTED.findall(http.get("/metrics").text):
        counts[method, route, status] += int(float(count))
    return counts


def routes(http: httpx.Client) -> set[tuple[str, str]]:
    """Every route, by method and template."""
    paths = http.get("/openapi.json").json()["paths"]
    described = {(how.upper(), path) for path, methods in paths.items() for how in methods}
    return described | ROUTES_OF_AGENTS


def damage(database: Path) -> Iterator[str]:
    """What is wrong with the file of each tenant."""
    for path in (database, *sorted(Path(f"{database}.tenants").glob("*.db"))):
        with closing(connect(path)) as opened:
            for check in ("integrity_check", "foreign_key_check"):
                found = opened.execute(f"PRAGMA {check}").fetchall()
                if found not in ([], [("ok",)]):
                    yield f"{path.name}: {check}: {found[:3]}"
        try:
            assert_index_is_whole(path)
        except AssertionError as error:
            yield f"{path.name}: the index is not exact: {error}"


if __name__ == "__main__":
    sys.exit(main())
