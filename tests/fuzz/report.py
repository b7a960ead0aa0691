"""What a run has found, as one table: in its answers, and in the files that it left."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from agentops_memory.sqlite.connection import connect

from ..support.files import assert_index_is_whole
from .tally import Tally

COUNTED = re.compile(
    r'^memory_requests_total\{method="(\w+)",route="([^"]*)",status="(\d+)"\} (\S+)', re.MULTILINE
)
ROUTES_OF_AGENTS = (("POST", "/mcp"), ("DELETE", "/mcp"), ("POST", "/mcp/{project}"),
                    ("DELETE", "/mcp/{project}"))  # fmt: skip
GROWTH = 64  # MiB that a service may hold more after ten minutes of this than after a few seconds


@dataclass(slots=True, kw_only=True)
class Report:
    """What was asked and answered, and what was left behind."""

    seconds: float
    seed: int
    tally: Tally
    counted: Counter[tuple[str, str, str]]  # by method, route and status, as the service counts
    routes: Sequence[tuple[str, str]]
    memory: tuple[float, float]  # MiB at the start and at the end
    exit_code: int
    faults: list[str] = field(default_factory=list)

    @property
    def unreached(self) -> list[str]:
        reached = {(method, route) for method, route, _ in self.counted}
        return [
            f"{method} {route}" for method, route in self.routes if (method, route) not in reached
        ]

    @property
    def is_good(self) -> bool:
        return (
            self.tally.is_good
            and not (self.unreached or self.faults or self.exit_code)
            and self.memory[1] - self.memory[0] < GROWTH
        )

    def lines(self) -> Iterator[str]:
        """The table, and below it how to do again what went wrong."""
        tally, (start, end) = self.tally, self.memory
        classes = Counter[str]()
        for (_, _, status), count in self.counted.items():
            classes[f"{status[0]}xx" if status not in ("503", "507") else status] += count
        took = f"in {self.seconds:.0f} s, seed {self.seed}"
        yield f"requests                 {self.counted.total():,} {took}"
        for status, count in sorted(classes.items()):
            yield f"  {status:<22} {count:,}"
        yield f"routes                   {len(self.routes)}"
        yield f"  never reached          {len(self.unreached)}"
        yield f"500s                     {len(tally.failures)}"
        yield f"hangs                    {len(tally.hangs)}"
        yield f"connections lost         {len(tally.lost)}"
        yield f"answers not as described {len(tally.untrue)}"
        yield f"memory                   {start:.0f} MiB at the start, {end:.0f} at the end"
        yield f"exit code                {self.exit_code}"
        yield f"files                    {len(self.faults)} faults"
        for kind in (self.unreached, tally.failures, tally.hangs, tally.lost, tally.untrue):
            yield from kind
        yield from self.faults


def counted(http: httpx.Client) -> Counter[tuple[str, str, str]]:
    """The requests that the service has answered."""
    counts = Counter[tuple[str, str, str]]()
    for method, route, status, count in COUNTED.findall(http.get("/metrics").text):
        counts[method, route, status] += int(float(count))
    return counts


def routes(http: httpx.Client) -> list[tuple[str, str]]:
    """Every route, by method and template."""
    paths = http.get("/openapi.json").json()["paths"]
    described = [(how.upper(), path) for path, methods in paths.items() for how in methods]
    return [*described, *ROUTES_OF_AGENTS]


def faults(database: Path) -> Iterator[str]:
    """What is wrong with the file of each tenant."""
    for path in files(database):
        with closing(connect(path)) as opened:
            for check in ("integrity_check", "foreign_key_check"):
                found = opened.execute(f"PRAGMA {check}").fetchall()
                if found not in ([], [("ok",)]):
                    yield f"{path.name}: {check}: {found[:3]}"
        try:
            assert_index_is_whole(path)
        except AssertionError as error:
            yield f"{path.name}: the index is not exact: {error}"


def files(database: Path) -> list[Path]:
    """The file of each tenant, the default one first."""
    return [database, *sorted(Path(f"{database}.tenants").glob("*.db"))]
