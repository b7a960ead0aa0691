"""How much is measured, quickly or in full, and what every program here asks for."""

import argparse
import platform
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .process import Running, running
from .seeding import Files, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The sizes of everything."""

    few: Size
    wide: Size  # many projects, few observations in each
    many: Size
    reads: int  # of each kind
    crowd: int  # requests of 16 connections
    saves: int  # of 16 writers
    slowed: int  # of 16 writers, with slowed syncs
    imported: int
    beside: int  # rows of an import beside which others save
    rounds: int  # of imports and of starts
    soak: int


FULL = Plan(
    few=Size(rows=10_000, projects=10),
    wide=Size(rows=100_000, projects=1000),
    many=Size(rows=1_000_000, projects=1000),
    reads=600,
    crowd=6000,
    saves=8000,
    slowed=1600,
    imported=50_000,
    beside=100_000,
    rounds=3,
    soak=100_000,
)
REDUCED = Plan(
    few=Size(rows=5_000, projects=5),
    wide=Size(rows=20_000, projects=200),
    many=Size(rows=50_000, projects=50),
    reads=200,
    crowd=1600,
    saves=2400,
    slowed=800,
    imported=10_000,
    beside=10_000,
    rounds=1,
    soak=20_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One run of measurements: its plan, its files, and the seed of its texts."""

    plan: Plan
    files: Files
    folder: Path
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A service that is measured, and how much it holds."""

    size: Size
    service: Running

    def project(self, number: int) -> str:
        """A project for the request of this number: in the end, each is asked for."""
        return f"project-{number * 7 % self.size.projects}"


@contextmanager
def subject(bench: Bench, size: Size, under: Sequence[str] = ()) -> Iterator[Subject]:
    """A service over a new file of this size, started by the command `under`, if there is one."""
    with running(bench.files.of(size), under) as service:
        yield Subject(size=size, service=service)


@contextmanager
def bench(program: str, about: str | None) -> Iterator[Bench]:
    """What the command line asks for."""
    options = parser(program, about).parse_args()
    if not options.full:
        print("Reduced sizes; the aims are for those of --full.")
    with prepared(options) as made:
        yield made


def parser(program: str, about: str | None) -> argparse.ArgumentParser:
    """The options of every program."""
    options = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    options.add_argument("--full", action="store_true", help="the sizes that the aims are for")
    options.add_argument("--seed", type=int, default=1, help="of the texts and their order")
    options.add_argument(
        "--folder", type=Path, help="where the databases lie; on a disk, as syncs count"
    )
    options.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep the seeded files there for further runs; only copies of them are changed",
    )
    return options


@contextmanager
def prepared(options: argparse.Namespace) -> Iterator[Bench]:
    """A folder of its own, which goes away at the end."""
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}")
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        folder = Path(made)
        files = Files(folder=folder, keep=options.keep, seed=options.seed)
        plan = FULL if options.full else REDUCED
        yield Bench(plan=plan, files=files, folder=folder, seed=options.seed)
