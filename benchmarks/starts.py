"""`python -m benchmarks.starts`: from exec to the first answer of /context with nothing cached."""

from collections.abc import Iterator
from pathlib import Path

from .disk import caches_dropped
from .figures import Figure, at_most, show
from .plan import Bench, Subject, bench
from .process import running
from .seeding import Size

COLD = at_most(1)  # second
MEMORY = {100_000: at_most(128), 1_000_000: at_most(200e6 / (1 << 20))}  # MiB, by observations


def main() -> None:
    """Seed, drop what is cached, start, print."""
    with bench("benchmarks.starts", __doc__) as made:
        many = made.plan.many
        show(cold(made, made.files.of(many), many))


def cold(made: Bench, path: Path, size: Size) -> Iterator[Figure]:
    """The slowest of a few starts."""
    taken = []
    for _ in range(made.plan.rounds):
        how = caches_dropped(path)
        with running(path) as service:
            taken.append(service.started_in)
    with running(path) as service:
        warm = service.started_in
    yield Figure(
        what=f"start over {size} projects, to the first answer of /context",
        value=max(taken),
        aim=COLD,
        unit="s",
        beside=f"slowest of {len(taken)}; {how}; with everything cached {warm:.2f} s",
    )


def memory(made: Bench, asked: Subject) -> Iterator[Figure]:
    """What the service has taken at its peak, after all that it was asked."""
    resident, peak = asked.service.memory()
    read = min(made.plan.reads, asked.size.projects)
    yield Figure(
        what=f"memory at its peak, {asked.size} projects",
        value=peak,
        aim=MEMORY.get(asked.size.rows),
        unit="MiB",
        beside=f"resident now {resident:.1f} MiB, after reads in {read:,} projects or more",
    )


if __name__ == "__main__":
    main()
