"""Imports whose documents a process reads: the same answers and rows, and none lost with it."""

import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.agentops.reader import Reader
from agentops_memory.agentops.transfer import CHUNK, Document, Transfer
from agentops_memory.memory.access import OPERATOR
from agentops_memory.recall.features import Feature
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory_client.contract.models import Imported

from ..support.engine import opened
from ..support.engines import rows
from ..support.files import assert_sound
from ..support.service import Clock, observation, serving

SIZE = CHUNK + 200
MOST_SELECTED = 1024  # FD_SETSIZE
SECRET = "AKIA" + "IOSFODNN7" + "EXAMPLE"
UID = "01900000-0000-7000-8000-{:012}"
STORED = (
    """SELECT uid, session_id, key, type, title, content, tags, content_hash, fingerprint, revision,
              duplicates, last_seen_at, promoted_to, created_at, updated_at
         FROM memories
     ORDER BY uid""",
    """SELECT m.uid, l.expires_at, l.pinned_at, l.review_at, l.confirmed_at
         FROM lifecycles l
         JOIN memories m ON m.id = l.memory_id
     ORDER BY m.uid""",
    """SELECT n.uid, o.uid
         FROM supersessions s
         JOIN memories n ON n.id = s.newer_id
         JOIN memories o ON o.id = s.older_id
     ORDER BY n.uid""",
    "SELECT id, project, started_at, ended_at, summary, message_count FROM sessions ORDER BY id",
)


def _row(number: int) -> dict[str, object]:
    row = observation(
        f"Row {number} of many calls max_connections in HTTPServer.run. {'x' * 200} {number}",
        title=f"naïve Größe {number}" if number % 5 == 0 else f"Title {number}",
        project="other" if number % 3 == 0 else "demo", session_id=f"s{number % 3 == 0}-{number}",
        uid=UID.format(number), tags=["one", "two"][: number % 3],
        created_at=f"2029-01-01T00:00:{number % 60:02}.{number:06}Z",
    )  # fmt: skip
    if number % 100 == 0:
        row |= {"content": f"The key is {SECRET}, said {number}.", "pinned": True,
                "expires_at": "2039-01-01T00:00:00Z"}  # fmt: skip
    if number % 100 == 1:
        row |= {"topic_key": f"topic/{number}", "promoted_to": f"docs/{number}.md",
                "revision_count": 3, "supersedes": [UID.format(0)]}  # fmt: skip
    return row


def _body(size: int = SIZE, **more: object) -> bytes:
    sessions = [{"id": "told", "project": "demo", "summary": f"It had {SECRET}."}]
    body = {"sessions": sessions, "observations": [_row(it) for it in range(size)], **more}
    return json.dumps(body, ensure_ascii=False).encode()


@pytest.fixture
def reader() -> Iterator[Reader]:
    with closing(Reader()) as made:
        started(made)
        yield made


def started(reader: Reader) -> None:
    """Wait until its process is ready for the next document."""
    with spooled(_body()) as file:
        assert reader.opened(file, Clock()())
        reader.end(file)


def spooled(body: bytes) -> Any:
    file = tempfile.SpooledTemporaryFile(2 * len(body))  # noqa: SIM115 - its caller closes it
    file.write(body)
    return file


async def imported(path: Path, reader: Reader | None, kill_at: int = SIZE + 2) -> Imported:
    """Import the document; the process is killed once so many rows are stored."""

    def on_progress(stored: int) -> None:
        if stored >= kill_at and reader is not None and reader.process is not None:
            reader.process.kill()

    async with opened(path) as engine:
        with spooled(_body()) as file, closing(Document(file, Clock()(), reader)) as document:
            document.check()
            assert document.is_read == (reader is not None)
            answer = await Transfer(engine=engine).import_all(OPERATOR, document, on_progress)
    assert_sound(path, live=SIZE)
    return answer


@pytest.mark.parametrize(
    "kill_at", [None, *(pytest.param(it, marks=pytest.mark.slow) for it in (0, 1, CHUNK))]
)
async def test_a_process_reads_a_document_as_a_thread_which_continues_where_it_was_killed(
    tmp_path: Path, reader: Reader, kill_at: int | None
) -> None:
    one, other = tmp_path / "a.db", tmp_path / "b.db"
    as_ever = await imported(one, None)
    if kill_at == 0:
        assert reader.process is not None
        reader.process.kill()
        started(reader)  # another one

    assert await imported(other, reader, kill_at or SIZE + 2) == as_ever
    assert as_ever.redacted == 1 + SIZE // 100
    for statement in STORED:
        assert rows(other, statement) == rows(one, statement) != []
        assert SECRET not in str(rows(other, statement))


@pytest.mark.slow
async def test_words_by_other_rules_than_those_of_the_index_are_prepared_again(
    tmp_path: Path,
) -> None:
    with closing(Reader(frozenset({Feature.TAGS}))) as reader:
        started(reader)
        await imported(tmp_path / "memory.db", reader)


@pytest.mark.slow
@pytest.mark.parametrize("executable", [None, "", "/none"])
def test_without_a_process_threads_read_all_documents(
    path: Path, monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with serving(path) as service:
        answer = service.http.post("/import", content=_body()).raise_for_status()

    assert answer.json()["imported_observations"] == SIZE


@pytest.mark.slow
def test_a_service_names_a_faulty_row_and_stores_none_whoever_reads_them(path: Path) -> None:
    faulty = [*(_row(it) for it in range(SIZE)), _row(SIZE) | {"created_at": "yesterday"}]
    body = json.dumps({"observations": faulty}).encode()
    fault = f"validation failed: observations[{SIZE}].created_at"
    with serving(path) as service:
        for _ in range(3):  # the first starts a process, which reads one of the others
            answer = service.http.post("/import", content=body)
            assert answer.status_code == 400
            assert answer.json()["error"].startswith(fault)
        assert service.http.post("/import?dry_run=true", content=_body()).is_success
    assert rows(path, "SELECT count(*) FROM memories") == [(0,)]


@pytest.mark.slow
def test_a_document_is_read_by_a_thread_while_the_process_reads_another_which_ends_with_its_service(
    reader: Reader,
) -> None:
    assert reader.process is not None
    with spooled(_body()) as one, spooled(_body()) as other:
        assert reader.opened(one, Clock()()) == {"sessions": 1, "observations": SIZE}
        assert reader.opened(other, Clock()()) is None
        late = reader.rows(one, DEFAULT_RULES, 10)
        assert len(next(late)[0]) == 10
        reader.end(one)
        assert reader.opened(other, Clock()())
        with pytest.raises(EOFError):  # and gets no rows of another
            next(late)
    pid = reader.process.pid
    reader.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_a_service_with_many_connections_has_a_process_too() -> None:
    """Whose numbers are more than `select` takes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2 * MOST_SELECTED), limits[1]))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(MOST_SELECTED):
            stack.enter_context(Path(os.devnull).open("rb"))
        started(stack.enter_context(closing(Reader())))


@pytest.mark.slow
def test_a_process_of_another_version_than_the_service_reads_nothing() -> None:
    program = "from agentops_memory.agentops.reader import main; main()"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-c", program, "0.0.0"]
        assert (
            subprocess.run(command, stdin=theirs.fileno(), timeout=60, check=False).returncode == 0
        )
