"""`python -m benchmarks.imports`: POST /import beside a bare loop of inserts, and others' saves."""

import gc
import io
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path

from agentops_memory.agentops.transfer import Document, chunks_of
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.imports import import_whole
from agentops_memory.memory.redactor import Redactor
from agentops_memory.memory.rows import rendered, uid_of
from agentops_memory.recall.visibility import AREA
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.migrate import migrated
from agentops_memory.sqlite.partitions import table
from agentops_memory.sqlite.transaction import SqliteTransaction

from .client import Client, post, with_body
from .corpus import Piece, pieces
from .direct import Recorder, Statement, is_read
from .figures import Figure, at_least, at_most, show
from .measures import Times
from .plan import Bench, bench
from .process import running
from .seeding import START, TYPES

PROJECTS = 50
SESSION = 10  # observations
TIMEOUT = 600.0  # seconds for one import

ALONE = 2000  # saves

RATE = at_least(0.7)
EQUAL = at_most(1.5)
BESIDE = at_most(5)


def main() -> None:
    """Write a document, import it, print."""
    with bench("benchmarks.imports", __doc__) as made:
        show(imports(made))
        show(equal(made))
        show(saves(made))


def imports(made: Bench) -> Iterator[Figure]:
    """In turns: the import, and a bare loop that inserts the same rows one by one."""
    size = made.plan.imported
    document = exported(size, made.seed)
    inserts = _inserts(made.folder / "recorded.db", document)
    taken: dict[str, list[float]] = {"import": [], "bare": []}
    for number in range(made.plan.rounds):
        path = partial(made.folder.joinpath, f"import-{number}")
        taken["import"].append(_through_http(path("http.db"), document))
        taken["bare"].append(_bare(path("bare.db"), inserts))
    best = {name: min(each) for name, each in taken.items()}
    yield Figure(
        what=f"import of {size:,} into {PROJECTS} projects against a bare loop of inserts",
        value=best["bare"] / best["import"],
        aim=RATE,
        beside=f"{size / best['import']:,.0f} a second against {size / best['bare']:,.0f}",
    )


def equal(made: Bench) -> Iterator[Figure]:
    """In turns: texts of one second that are equal but for their titles, and all the same later."""
    size = made.plan.imported // 5
    taken: dict[str, list[float]] = {"equal": [], "other": []}
    for number in range(made.plan.rounds):
        for name, each in taken.items():
            document = _alike(size, seconds=1 if name == "equal" else size)
            each.append(_through_http(made.folder / f"{name}-{number}.db", document))
    best = {name: min(each) for name, each in taken.items()}
    yield Figure(
        what=f"import of {size:,} equal texts, all of one second against each of its own",
        value=best["equal"] / best["other"],
        aim=EQUAL,
        beside=f"{size / best['equal']:,.0f} a second against {size / best['other']:,.0f}",
    )


def saves(made: Bench) -> Iterator[Figure]:
    """In one run: saves, one after another, without an import and beside one."""
    size, source = made.plan.beside, pieces(made.seed + 1)
    with (
        running(made.folder / "beside.db") as service,
        closing(Client(service.port)) as client,
        ThreadPoolExecutor(1) as apart,
    ):
        _saved(client, source, lambda count: count == ALONE // 4)
        alone = _saved(client, source, lambda count: count == ALONE)
        document = exported(size, made.seed)
        importing = apart.submit(imported, service.port, document)
        beside = _saved(client, source, lambda _: importing.done())
        importing.result()
    yield Figure(
        what=f"p99 of a save beside an import of {size:,} against without one",
        value=beside.p99 / alone.p99,
        aim=BESIDE,
        beside=f"{beside} and at most {max(beside.taken) * 1e3:,.0f}; without {alone}; "
        f"{size / beside.whole:,.0f} rows a second",
    )


def _saved(client: Client, source: Iterator[Piece], is_enough: Callable[[int], bool]) -> Times:
    """Saves into a project of their own, one after another."""
    times, began = Times(), time.perf_counter()
    while not is_enough(len(times.taken)):
        piece = next(source)
        body = {"session_id": "mine", "project": "mine", "type": "note", "title": piece.title,
                "content": piece.content}  # fmt: skip
        request, sent = post("/observations", body), time.perf_counter()
        client.ask(request)
        times.taken.append(time.perf_counter() - sent)
    times.whole = time.perf_counter() - began
    return times


def _alike(size: int, seconds: int) -> bytes:
    row = _observation(0, Piece(title="", content="The same words, again and again."))
    rows = [
        {**row, "title": f"Title {number}", "uid": "", "project": "project-0",
         "created_at": rendered(START + timedelta(seconds=number % seconds))}
        for number in range(size)
    ]  # fmt: skip
    return json.dumps({"observations": rows}).encode()


def exported(size: int, seed: int) -> bytes:
    """An export of so many observations, as the service writes one."""
    source = enumerate(islice(pieces(seed), size))
    observations = [_observation(number, piece) for number, piece in source]
    started = {row["session_id"]: row for row in reversed(observations)}
    sessions = [_session(row) for row in reversed(started.values())]
    return json.dumps({"sessions": sessions, "observations": observations}).encode()


def _observation(number: int, piece: Piece) -> Mapping[str, object]:
    at = START + timedelta(seconds=number)
    project, type_ = number % PROJECTS, TYPES[number % len(TYPES)]
    return {
        "id": number + 1,
        "session_id": f"s{project}-{number // (SESSION * PROJECTS)}",
        "type": type_,
        "title": piece.title,
        "content": piece.content,
        "tags": [type_],
        "project": f"project-{project}",
        "scope": "project",
        "revision_count": 1,
        "duplicate_count": 1,
        "last_seen_at": rendered(at),
        "created_at": rendered(at),
        "updated_at": rendered(at),
        "uid": uid_of(at),
    }


def _session(first: Mapping[str, object]) -> Mapping[str, object]:
    return {
        "id": first["session_id"],
        "project": first["project"],
        "started_at": first["created_at"],
        "ended_at": first["created_at"],
        "summary": f"Session: 2 messages (1 user, 1 assistant). Started with: {first['title']}",
        "message_count": 2,
    }


def _inserts(path: Path, document: bytes) -> list[Statement]:
    """Every row that an import of the document stores, and the tables that it makes."""
    migrated(path, START)
    with closing(connect(path)) as database:
        recorder = Recorder(database)
        database.execute("BEGIN IMMEDIATE")
        rows = Document(io.BytesIO(document), START)
        rows.check()
        for chunk in chunks_of(Redactor(DEFAULT_RULES), rows):
            import_whole(SqliteTransaction(recorder.connection, START, OPERATOR), chunk)
        database.execute("COMMIT")
    return [
        (text, each)
        for text, values in recorder.statements
        if not is_read(text) and not _INDEXES.search(text)
        for each in (values if isinstance(values, list) else [values])  # of many at once
    ]


def _through_http(path: Path, document: bytes) -> float:
    with running(path) as service:
        began = time.perf_counter()
        answer = imported(service.port, document)
        taken = time.perf_counter() - began
    if answer["imported_observations"] != document.count(b'"uid"'):
        raise SystemExit("The import left observations out.")
    return taken


def imported(port: int, document: bytes) -> Mapping[str, int]:
    with closing(Client(port, TIMEOUT)) as client:
        answer: dict[str, int] = json.loads(client.ask(with_body("POST", "/import", document)))
    return answer


def _bare(path: Path, inserts: Iterable[Statement]) -> float:
    """The rows one by one, each memory with its entry in the index."""
    migrated(path, START)
    gc.freeze()  # what is kept of the document is not looked through again and again
    with closing(connect(path)) as database:
        began = time.perf_counter()
        database.execute("BEGIN IMMEDIATE")
        places = {}
        for statement, values in inserts:
            inserted = database.execute(statement, values)
            if statement.startswith("INSERT INTO memories"):
                columns = statement.partition("(")[2].partition(")")[0].split(",")
                space = dict(zip(map(str.strip, columns), values, strict=False))["space_id"]
                if space not in places:
                    places[space] = database.execute(_PLACE, (space,)).fetchone()
                area, partition = places[space]
                row = {"id": inserted.lastrowid, "area": area}
                database.execute(_ENTRY.format(table=table(partition), bits=AREA), row)
        database.execute("COMMIT")
        return time.perf_counter() - began


_INDEXES = re.compile(r"INSERT INTO memories_fts")
_PLACE = "SELECT area, partition FROM spaces WHERE id = ?"
_ENTRY = """INSERT INTO {table} (rowid, title, content, context, tags)
            SELECT area << {bits} | id, title, content, context, tags
              FROM memory_text
             WHERE id = :id AND area = :area"""

if __name__ == "__main__":
    main()
