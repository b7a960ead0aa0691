"""`python -m benchmarks.imports`: POST /import beside a bare loop of inserts."""

import gc
import io
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path

from agentops_memory.api.agentops.imports import Document
from agentops_memory.domain.instants import rendered
from agentops_memory.domain.model import OPERATOR
from agentops_memory.domain.redaction import DEFAULT_RULES
from agentops_memory.domain.transfer import import_all
from agentops_memory.domain.uids import uid_of
from agentops_memory.storage.sqlite.connection import connect
from agentops_memory.storage.sqlite.migrate import migrated
from agentops_memory.storage.sqlite.partitions import AREA, table
from agentops_memory.storage.sqlite.transaction import SqliteTransaction

from .client import Client, with_body
from .corpus import Piece, pieces
from .direct import Recorder, Statement, is_read
from .figures import Figure, at_least, show
from .plan import Bench, bench
from .process import running
from .seeding import START, TYPES

PROJECTS = 50
SESSION = 10  # observations
PATIENCE = 600.0  # seconds for one import

RATE = at_least(0.7)


def main() -> None:
    """Write a document, import it, print."""
    with bench("benchmarks.imports", __doc__) as made:
        show(imports(made))


def imports(made: Bench) -> Iterator[Figure]:
    """In turns: the import, and a bare loop that inserts the same rows one by one."""
    size = made.plan.imported
    document = _document(size, made.seed)
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


def _document(size: int, seed: int) -> bytes:
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
        import_all(
            SqliteTransaction(recorder.connection, START, OPERATOR),
            Document(io.BytesIO(document), START),
            DEFAULT_RULES,
        )
        database.execute("COMMIT")
    return [
        (text, values)
        for text, values in recorder.statements
        if not is_read(text) and not _INDEXES.search(text)
    ]


def _through_http(path: Path, document: bytes) -> float:
    with running(path) as service, closing(Client(service.port, PATIENCE)) as client:
        request = with_body("POST", "/import", document)
        began = time.perf_counter()
        answer = json.loads(client.ask(request))
        taken = time.perf_counter() - began
    if answer["imported_observations"] != document.count(b'"uid"'):
        raise SystemExit("The import left observations out.")
    return taken


def _bare(path: Path, inserts: Iterable[Statement]) -> float:
    """The rows one by one, each memory with its entry in the index and its terms."""
    migrated(path, START)
    gc.freeze()  # what is kept of the document is not looked through again and again
    with closing(connect(path)) as database:
        began = time.perf_counter()
        database.execute("BEGIN IMMEDIATE")
        places = {}
        for statement, values in inserts:
            inserted = database.execute(statement, values)
            if statement.startswith("INSERT INTO memories"):
                assert isinstance(values, Mapping)
                space = values["space_id"]
                if space not in places:
                    places[space] = database.execute(_PLACE, (space,)).fetchone()
                area, partition = places[space]
                row = {"id": inserted.lastrowid, "area": area}
                database.execute(_ENTRY.format(table=table(partition), bits=AREA), row)
                database.execute(_TERMS, row)
        database.execute("COMMIT")
        return time.perf_counter() - began


_INDEXES = re.compile(r"INSERT INTO (terms|memories_fts)")
_PLACE = "SELECT area, partition FROM spaces WHERE id = ?"
_ENTRY = """INSERT INTO {table} (rowid, title, content, context, tags)
            SELECT area << {bits} | id, title, content, context, tags
              FROM memory_text
             WHERE id = :id AND area = :area"""
_TERMS = """INSERT INTO terms (area, length, term)
            SELECT :area, length(value), value
              FROM json_each(forms((SELECT title || ' ' || content || ' ' || tags
                                      FROM memories
                                     WHERE id = :id)))
             WHERE TRUE
                ON CONFLICT DO NOTHING"""

if __name__ == "__main__":
    main()
