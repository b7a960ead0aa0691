"""`python -m benchmarks.confined`: the service in 128 MiB and a fifth of a core. For root."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .footprint import MIB, STARTED, Column, exported, mixed
from .plan import Bench, Subject, parser, prepared
from .process import running
from .seeding import Size
from .sizing import IN_A_PROJECT, table

SIZES = (10_000, 100_000)
MEMORY = 128  # MiB
CPU = 0.2  # cores

GROUPS = Path("/sys/fs/cgroup")
PERIOD = 100_000  # microseconds
_JOIN = 'for group in "$1" "$2"; do echo $$ > "$group/cgroup.procs"; done; shift 2; exec "$@"'


def main() -> None:
    """Seed, start within the limits, drive, and print a table."""
    options = parser("benchmarks.confined", __doc__)
    options.add_argument("--sizes", type=int, nargs="+", metavar="ROWS", default=SIZES)
    options.add_argument("--memory", type=int, default=MEMORY, metavar="MIB")
    options.add_argument("--cpu", type=float, default=CPU, metavar="CORES")
    given = options.parse_args()
    with prepared(given) as made:
        print(f"{given.memory} MiB, {given.cpu:g} of a core")
        columns = {}
        for rows in given.sizes:
            size = Size(rows=rows, projects=max(1, rows // IN_A_PROJECT))
            columns[rows] = _measured(made, size, given.memory, given.cpu)
            print(f"{rows:,} memories are measured.", flush=True)
    print(table(columns))


def _measured(made: Bench, size: Size, memory: int, cpu: float) -> Column:
    path, document = made.files.of(size), made.folder / "export.json"
    with ExitStack() as stack:
        groups = stack.enter_context(_limits(memory, cpu))
        under = ["sh", "-c", _JOIN, "sh", *map(str, groups)]
        service = stack.enter_context(running(path, under, first=STARTED))
        column: Column = {"start, seconds": service.started_in}
        column |= mixed(made, Subject(size=size, service=service))
        column |= exported(service, document, size)
        return column | _told_by_the_kernel(*groups)


def _told_by_the_kernel(memory: Path, cpu: Path) -> Column:
    usage = int((memory / "memory.max_usage_in_bytes").read_text("ascii"))
    killed = _field(memory / "memory.oom_control", "oom_kill")
    periods, held = (_field(cpu / "cpu.stat", name) for name in ("nr_periods", "nr_throttled"))
    return {
        "the same with the page cache, MiB": usage / MIB,
        "times that it was killed": killed,
        "share of the time in which it waited for its fifth, %": 100 * held / periods,
    }


def _field(file: Path, name: str) -> int:
    lines = (line.split() for line in file.read_text("ascii").splitlines())
    return {key: int(value) for key, value in lines}[name]


@contextmanager
def _limits(memory: int, cpu: float) -> Iterator[Sequence[Path]]:
    """Two control groups of their own, of version 1, which go away at the end."""
    groups = [GROUPS / kind / f"agentops-memory-{os.getpid()}" for kind in ("memory", "cpu")]
    limits = {"memory.limit_in_bytes": memory * MIB, "cpu.cfs_quota_us": int(cpu * PERIOD)}
    try:
        for group, (name, limit) in zip(groups, limits.items(), strict=True):
            group.mkdir()
            (group / name).write_text(str(limit), "ascii")
    except OSError as error:
        raise SystemExit(f"This wants root, and control groups of version 1: {error}") from error
    try:
        yield groups
    finally:
        for group in groups:
            group.rmdir()


if __name__ == "__main__":
    main()
