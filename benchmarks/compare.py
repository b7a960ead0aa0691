"""`python -m benchmarks.compare REVISION`: the service beside that of another commit, in turns.

Rate and processor time of a request, as ratios within one run. Each commit has a file that it
seeded itself. With `--traced` this one sends its spans, to a collector that drops them: beside
`HEAD` that tells what tracing costs.
"""

import os
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import islice
from pathlib import Path
from threading import Thread

from . import reads, saves
from .client import Request, get
from .crowd import Crowd, in_turn
from .figures import Figure, show
from .imports import exported, imported
from .plan import Bench, Subject, parser, prepared
from .process import running
from .protocols import Turn, turns as of_protocols
from .seeding import Size

ROOT = Path(__file__).parents[1]
CONNECTIONS = 16
REQUESTS = 800  # of 16 connections in a turn; one connection makes a quarter of them
WARMING = 3  # turns that do not count: until the index is in memory, and prompts' words are known
SECONDS = 2.0  # of a turn of reads, at least: speed of the machine may double within a second
ROWS = 3_000  # of an import, in a turn
TICKS = os.sysconf("SC_CLK_TCK")
SEED = """
import sqlite3
import sys
from pathlib import Path

from benchmarks.seeding import Size, seeded

path, rows, projects, seed = sys.argv[1:]
seeded(Path(path), Size(rows=int(rows), projects=int(projects)), int(seed))
# However many segments the index has by chance, both begin with one.
database = sqlite3.connect(path)
for (number,) in database.execute("SELECT number FROM partitions").fetchall():
    name = f"memories_fts_{number}"
    database.execute(f"INSERT INTO {name} ({name}) VALUES ('optimize')")
database.commit()
database.close()
"""


@dataclass(slots=True)
class Measured:
    """What the turns of one service came to."""

    rates: list[float] = field(default_factory=list)  # a second
    processor: list[float] = field(default_factory=list)  # milliseconds each


def main() -> None:
    """Seed, start both, drive them in turns, print."""
    options = parser("benchmarks.compare", __doc__)
    options.add_argument("revision", help="the commit before, as git names it")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--projects", type=int, default=200)
    options.add_argument("--only", default="", help="kinds whose names contain this")
    options.add_argument("--traced", action="store_true", help="this one, to a local collector")
    given = options.parse_args()
    size = Size(rows=given.rows, projects=given.projects)
    with prepared(given) as made, ExitStack() as stack:
        sources = {"before": checked_out(given.revision, made.folder), "now": ROOT}
        sent = stack.enter_context(_collector()) if given.traced else {}
        subjects = {
            name: stack.enter_context(
                _started(made, name, source, size, sent if source is ROOT else {})
            )
            for name, source in sources.items()
        }
        for kinds, seconds in ((_reads(made), SECONDS), (_others(made), 0.0)):
            chosen = {name: turn for name, turn in kinds.items() if given.only in name}
            show(figures(subjects, chosen, given.rounds, seconds))


def figures(
    subjects: dict[str, Subject], kinds: dict[str, Turn], rounds: int, seconds: float
) -> Iterator[Figure]:
    """For each kind of request the ratios of rate and of processor time, now to before.

    A turn's requests are repeated for so many seconds, so that the faster one is not measured
    in moments.
    """
    for kind, turn in kinds.items():
        measured = {name: Measured() for name in subjects}
        for number in range(WARMING + rounds):
            for name in list(subjects)[:: 1 if number % 2 else -1]:
                counted = measured[name] if number >= WARMING else Measured()
                _measure(subjects[name], turn, number, counted, seconds)
        yield from compared(kind, measured["before"], measured["now"])


def compared(kind: str, before: Measured, now: Measured) -> Iterator[Figure]:
    """The medians of the ratios of each round, and what they are of."""
    rate = statistics.median(b / a for a, b in zip(before.rates, now.rates, strict=True))
    cost = statistics.median(b / a for a, b in zip(before.processor, now.processor, strict=True))
    rates, costs = (
        [statistics.median(it) for it in each]
        for each in ((before.rates, now.rates), (before.processor, now.processor))
    )
    beside = f"{rates[1]:,.0f} a second against {rates[0]:,.0f}"
    yield Figure(what=f"{kind}: rate", value=rate, beside=beside)
    beside = f"{costs[1]:.3f} ms each against {costs[0]:.3f}"
    yield Figure(what=f"{kind}: processor time", value=cost, beside=beside)


def _reads(made: Bench) -> dict[str, Turn]:
    def health(_: Subject, count: int) -> list[Request]:
        return [get("/health")] * count

    def reading(kind: reads.Kind) -> Callable[[Subject, int], list[Request]]:
        return lambda asked, count: [reads.request(read) for read in kind.reads(made, asked, count)]

    asked = {str(kind): reading(kind) for kind in (reads.RUN, reads.SIX, reads.WORDS)}
    return {
        f"{name}, {connections} connections": _asking(requests, connections)
        for name, requests in {**asked, "/health": health}.items()
        for connections in (CONNECTIONS, 1)
    }


def _others(made: Bench) -> dict[str, Turn]:
    return {
        f"{reads.RUN}, never asked before, {CONNECTIONS} connections": _asking_anew(made),
        f"saves, {CONNECTIONS} writers": _saving(made.seed, CONNECTIONS),
        "saves, 1 writer": _saving(made.seed, 1),
        "import, projects in turns": _importing(made.seed),
        **dict(of_protocols()),
    }


def _asking(requests: Callable[[Subject, int], list[Request]], connections: int) -> Turn:
    def turn(asked: Subject, _: int) -> tuple[int, Callable[[], None]]:
        given = requests(asked, REQUESTS if connections > 1 else REQUESTS // 4)
        return len(given), partial(_drive, asked, given, connections)

    return turn


def _asking_anew(made: Bench) -> Turn:
    def turn(asked: Subject, number: int) -> tuple[int, Callable[[], None]]:
        given = reads.RUN.reads(made, asked, REQUESTS, turn=100 + number)
        requests = [reads.request(read) for read in given]
        return len(given), partial(_drive, asked, requests, CONNECTIONS)

    return turn


def _saving(seed: int, connections: int) -> Turn:
    def turn(asked: Subject, number: int) -> tuple[int, Callable[[], None]]:
        count = REQUESTS if connections > 1 else REQUESTS // 4
        source = saves.requests(asked, seed * 1_000 + number * 10 + connections)
        return count, partial(_drive, asked, list(islice(source, count)), connections)

    return turn


def _importing(seed: int) -> Turn:
    def turn(asked: Subject, number: int) -> tuple[int, Callable[[], None]]:
        document = exported(ROWS, seed + 100 + number)

        def ask() -> None:
            imported(asked.service.port, document)

        return ROWS, ask

    return turn


def _drive(asked: Subject, requests: list[Request], connections: int) -> None:
    shared = iter(requests)
    with closing(Crowd(asked.service.port, connections)) as crowd:
        crowd.converse([in_turn(shared) for _ in range(connections)])


def _measure(asked: Subject, turn: Turn, number: int, measured: Measured, seconds: float) -> None:
    count, ask = turn(asked, number)
    spent, began = _processor_time(asked.service.pid), time.perf_counter()
    ask()
    times = 1
    while (taken := time.perf_counter() - began) < seconds:
        ask()
        times += 1
    measured.rates.append(times * count / taken)
    spent = _processor_time(asked.service.pid) - spent
    measured.processor.append(spent / (times * count) * 1e3)


def _processor_time(pid: int) -> float:
    """The seconds that all threads of a process have had."""
    numbers = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / TICKS


def checked_out(revision: str, folder: Path) -> Path:
    """The files of a commit, in a folder of their own."""
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder / "before", filter="data")
    return folder / "before"


class _Dropping(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - theirs
        """Say nothing."""


@contextmanager
def _collector() -> Iterator[dict[str, str]]:
    """The settings of a service that sends its spans to this process."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Dropping) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        server.shutdown()


def seed(made: Bench, path: Path, source: Path, size: Size) -> None:
    """Make a file as these sources make it."""
    given = [str(it) for it in (path, size.rows, size.projects, made.seed)]
    environment = os.environ | settings_of(source)
    subprocess.run([sys.executable, "-c", SEED, *given], env=environment, cwd=source, check=True)


def settings_of(source: Path) -> dict[str, str]:
    """The environment in which these sources run."""
    sources = [source, source / "service", source / "service" / "client"]
    return {"PYTHONPATH": os.pathsep.join(map(str, sources))}


@contextmanager
def _started(
    made: Bench, name: str, source: Path, size: Size, more: dict[str, str]
) -> Iterator[Subject]:
    """The service of these sources over a file that they have seeded."""
    path = made.folder / f"{name}.db"
    seed(made, path, source, size)
    with running(path, settings={**settings_of(source), **more}) as service:
        yield Subject(size=size, service=service)


if __name__ == "__main__":
    main()
