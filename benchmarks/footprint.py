"""What a service over a file of one size takes: bytes, memory, time."""

import shutil
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.projects import row_counts
from agentops_memory.sqlite.transaction import SqliteTransaction

from . import corpus, direct, saves
from .agent import Agent
from .client import Client, Request, get, patch, with_body
from .crowd import Conversation, Crowd
from .measures import Times, times_in_turns
from .plan import Bench, Subject
from .process import Running, running
from .seeding import START, Size

MIXED = 1_000  # requests
CONNECTIONS = 8  # that make these
CHANGED = 1_000  # memories, to see what a change adds
SCRAPES = 50
COUNTS = 5
UPLOAD = 256 * 2**20  # bytes; larger documents are not imported without a setting
TOLD_FOR = 2.1  # seconds until /health/ready looks again
LOOK = 0.01  # seconds between two looks at the log
TIMEOUT = 1_800.0  # seconds for one import
MIB = 2**20

STARTED = get("/health/startup")
READY = get("/health/ready")
METRICS = get("/metrics")

Column = dict[str, float | None]


def measured(made: Bench, size: Size) -> Column:
    """Everything, by name and unit."""
    path, document = made.files.of(size), made.folder / "export.json"
    column: Column = {"database, bytes a memory": path.stat().st_size / size.rows}
    column |= _counted(path)
    with running(path, first=STARTED) as service:
        column |= exported(service, document, size)
    with running(path, first=STARTED) as service:
        column["start, seconds"] = service.started_in
        asked = Subject(size=size, service=service)
        column |= _first_scrape(service)
        column |= _reads(made, asked)
        column |= mixed(made, asked)
        column |= _probed(made, service)
        column |= _saves(made, asked)
        column["memory at its peak, MiB"] = service.memory()[1]
    column |= _changed(made, path)
    column |= _imported(made, document, size)
    return column


def _first_scrape(service: Running) -> Column:
    """The one that counts rows, and the memory of a service that was asked nothing else."""
    began = time.perf_counter()
    resident = _resident(service)
    return {
        "memory after the start, MiB": resident,
        "first /metrics, ms": (time.perf_counter() - began) * 1e3,
    }


def _reads(made: Bench, asked: Subject) -> Column:
    """Prompts of 500 characters and searches for three words, over all projects."""
    asking = zip(
        corpus.prompts(made.seed + 1, made.plan.reads),
        corpus.keywords(made.seed + 1, made.plan.reads),
        strict=True,
    )
    with closing(Client(asked.service.port)) as client:
        times = times_in_turns(
            {
                "/context": partial(client.ask, get("/context", project=project, query=prompt)),
                "/search": partial(client.ask, get("/search", project=project, q=words)),
            }
            for number, (prompt, words) in enumerate(asking)
            for project in (asked.project(number),)
        )
    return {
        f"{path}, ms, {name}": value
        for path, each in times.items()
        for name, value in (("p50", each.p50), ("p99", each.p99))
    }


def mixed(made: Bench, asked: Subject) -> Column:
    """Agents that read, save, change and delete, while a probe asks again and again."""
    heard = _Heard()
    agents = [Agent(number, made.seed, asked.size.projects) for number in range(CONNECTIONS)]
    talks = [_conversation(agent, heard) for agent in agents]
    with closing(Crowd(asked.service.port, CONNECTIONS + 1)) as crowd:
        crowd.converse([*talks, _probes(heard)])
    return {
        f"memory after {MIXED:,} mixed requests, MiB": _resident(asked.service),
        "errors among these": heard.failed,
        "of these, ms, p50": heard.times.p50,
        "of these, ms, p99": heard.times.p99,
        "/health/ready meanwhile, ms, at most": max(heard.ready) * 1e3,
    }


@dataclass(slots=True)
class _Heard:
    begun: Iterator[int] = field(default_factory=lambda: iter(range(MIXED)))
    times: Times = field(default_factory=Times)
    ready: list[float] = field(default_factory=list)  # seconds
    failed: int = 0


def _conversation(agent: Agent, heard: _Heard) -> Conversation:
    for _ in heard.begun:
        began = time.perf_counter()
        answer = yield agent.request()
        heard.times.taken.append(time.perf_counter() - began)
        agent.hear(answer)
        heard.failed += not answer.is_good


def _probes(heard: _Heard) -> Conversation:
    """As long as there are requests to come."""
    while len(heard.times.taken) < MIXED - CONNECTIONS:
        began = time.perf_counter()
        answer = yield READY
        heard.ready.append(time.perf_counter() - began)
        heard.failed += not answer.is_good


def _probed(made: Bench, service: Running) -> Column:
    """Each look of /health/ready for itself: between two of them, the last one is told again."""
    with closing(Client(service.port)) as client:
        scrapes = _times(partial(client.ask, METRICS), SCRAPES)
        looks = []
        for _ in range(made.plan.rounds):
            time.sleep(TOLD_FOR)
            looks.append(_times(partial(client.ask, READY), 1).p50)
    return {"/metrics, ms, p50": scrapes.p50, "/health/ready, ms, median": statistics.median(looks)}


def _saves(made: Bench, asked: Subject) -> Column:
    with _watched(asked.service.path) as log:
        times = saves.measured(asked, made.seed + 2, made.plan.saves)
    return {
        "saves a second, 1 writer": times[1].rate,
        f"saves a second, {saves.WRITERS} writers": times[saves.WRITERS].rate,
        "log while saving, at its peak, MiB": log.peak,
    }


def _counted(path: Path) -> Column:
    """What a count of rows takes of a reader."""
    with direct.opened(path) as database:
        transaction = SqliteTransaction(database, START, OPERATOR)
        times = _times(lambda: row_counts(transaction), COUNTS)
    return {"counting rows, ms, median": times.p50}


def exported(service: Running, document: Path, size: Size) -> Column:
    """All of it, into a file."""
    began = time.perf_counter()
    address = f"http://127.0.0.1:{service.port}/export"
    with urllib.request.urlopen(address) as answer, document.open("wb") as file:
        shutil.copyfileobj(answer, file)
    return {
        "export, bytes a memory": document.stat().st_size / size.rows,
        "export, seconds": time.perf_counter() - began,
        "memory at its peak after that, MiB": service.memory()[1],
    }


def _changed(made: Bench, path: Path) -> Column:
    """By how much each change lets the file grow; a new text, the old one kept as a revision."""
    before = path.stat().st_size
    texts = islice(corpus.pieces(made.seed + 3), CHANGED)
    with running(path) as service, closing(Client(service.port)) as client:
        for number, piece in enumerate(texts, 1):
            client.ask(patch(f"/observations/{number}", {"content": piece.content}))
    return {"a change, bytes": (path.stat().st_size - before) / CHANGED}


def _imported(made: Bench, document: Path, size: Size) -> Column:
    """The export into an empty service, in one transaction."""
    column: Column = {"log while importing, bytes a memory": None}
    if document.stat().st_size > UPLOAD:
        return column
    path = made.folder / f"imported-{size.rows}.db"
    request: Request = with_body("POST", "/import", document.read_bytes())
    with running(path, first=STARTED) as service, _watched(path) as log:
        with closing(Client(service.port, TIMEOUT)) as client:
            began = time.perf_counter()
            client.ask(request)
            taken = time.perf_counter() - began
        return {
            "log while importing, bytes a memory": log.peak * MIB / size.rows,
            "import, seconds": taken,
            "memory at its peak while importing, MiB": service.memory()[1],
        }


@dataclass(slots=True)
class _Log:
    peak: float = 0.0  # MiB
    over: threading.Event = field(default_factory=threading.Event)

    def watch(self, path: Path) -> None:
        while not self.over.wait(LOOK):
            if path.exists():
                self.peak = max(self.peak, path.stat().st_size / MIB)


@contextmanager
def _watched(database: Path) -> Iterator[_Log]:
    """The write-ahead log, looked at until the end."""
    log = _Log()
    thread = threading.Thread(target=log.watch, args=(Path(f"{database}-wal"),))
    thread.start()
    try:
        yield log
    finally:
        log.over.set()
        thread.join()


def _times(work: Callable[[], object], count: int) -> Times:
    return times_in_turns([{"": work}] * count)[""]


def _resident(service: Running) -> float:
    """The memory that the service says it has, in MiB."""
    with closing(Client(service.port)) as client:
        told = client.ask(METRICS).decode()
    for line in told.splitlines():
        name, _, value = line.partition(" ")
        if name == "process_resident_memory_bytes":
            return float(value) / MIB
    raise SystemExit("The service does not say how much memory it has.")
