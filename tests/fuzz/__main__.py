"""`python -m tests.fuzz --minutes 10`: every route, from several workers at once.

Ends with 1 if anything was answered with a 500 or not at all, not as the service
describes itself, or if a route was never reached, a file is damaged, or memory has grown.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from ..support.callers import made_key
from ..support.process import Program, served
from ..support.vitals import resident
from .report import Report, counted, faults, routes
from .tally import Tally, together
from .worker import Order, work

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
    path, began = folder / "memory.db", time.monotonic()
    keys = {tenant: made_key(path, tenant=tenant) for tenant in ("default", "ada", "bob")}
    with served(path, **SETTINGS) as (program, http):
        http.headers["Authorization"] = f"Bearer {keys['default']}"
        every = routes(http)
        url = str(http.base_url).rstrip("/")
        asked = [
            Order(kind=kind, url=url, key=keys[tenant], seed=seed + place, seconds=seconds)
            for place, (kind, tenant) in enumerate(WORKERS)
            if kind in kinds
        ]
        tally, start = _driven(program, asked)
        counts, end = counted(http), resident(program.pid)
        program.send(signal.SIGTERM)
        code = program.wait()
        errors = [line for line in program.lines if '"level": "ERROR"' in line]
    tally.failures += errors[: max(0, 20 - len(tally.failures))]
    return Report(
        seconds=time.monotonic() - began, seed=seed, tally=tally, counted=counts, routes=every,
        memory=(start, end), exit_code=code, faults=list(faults(path)),
    )  # fmt: skip


def _driven(program: Program, orders: Sequence[Order]) -> tuple[Tally, float]:
    """What the workers have seen, and the memory of the service once it was warm."""
    with ProcessPoolExecutor(len(orders), mp_context=get_context("spawn")) as workers:
        working = [workers.submit(work, order) for order in orders]
        time.sleep(min(WARM, orders[0].seconds / 2))
        start = resident(program.pid)
        return together(_seen(done) for done in working), start


def _seen(done: "Future[Tally]") -> Tally:
    """What a worker has seen; its own end is a failure, too."""
    if error := done.exception():
        return Tally(failures=[f"a worker ended: {error!r}"])
    return done.result()


if __name__ == "__main__":
    sys.exit(main())
