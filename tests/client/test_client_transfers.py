"""Exports and imports by a client: whole or not at all, and never held in memory."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory_client import (
    MemoryClient,
    Message,
    Unauthenticated,
    UnexpectedAnswer,
    Unreachable,
)
from agentops_memory_client.client import CHUNK
from agentops_memory_client.contract.models import ImportConflict, Imported, ImportPlan

from ..support.asking import Road, answering, asking, over, saying
from ..support.callers import made_key
from ..support.service import Service, serving

CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + b'{"exported_at":"'


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with more than one piece of an export."""
    with serving(tmp_path_factory.mktemp("full") / "memory.db") as running:
        with MemoryClient(running.url) as client:
            client.end_session("s1", [Message(role="user", content="Go")], project="demo")
            for number in range(30):
                text = f"Number {number} " + "x" * 8000
                client.save(session_id="s1", project="demo", type="note", title="T", content=text)
            client.save(
                session_id="s2", project="other", type="note", title="T", content="漢 \0 <b>"
            )
        yield running


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "empty.db") as running:
        yield running


@pytest.mark.slow
def test_an_export_is_carried_to_another_service(
    kind: str, full: Service, empty: Service, tmp_path: Path
) -> None:
    path, part = tmp_path / "\xfcn\xef code.json", tmp_path / "other.json"
    came: list[tuple[int, int | None]] = []
    went: list[tuple[int, int | None]] = []

    with asking(kind, full.url) as client:
        size = client.export_to(path, progress=lambda *told: came.append(told))
        assert path.read_bytes() == b"".join(client.export())
        client.export_to(part, "Other ")
        assert part.read_bytes() == b"".join(client.export("other"))
    with asking(kind, empty.url) as client:
        first = client.import_from(str(path), lambda *told: went.append(told))
        again = client.import_from(path)
        told = [observation.content for observation in client.recent(limit=1000)]

    assert first == Imported(imported_sessions=2, imported_observations=31)
    assert again == Imported(imported_sessions=0, imported_observations=0)
    assert len(told) == 31
    assert told[0] == "漢 \ufffd <b>"
    assert size == path.stat().st_size > 3 * CHUNK
    assert came[-1] == (size, None)
    assert (went[0], went[-1]) == ((CHUNK, size), (size, size))
    assert (sorted(came), sorted(went)) == (came, went)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".*"))
    assert (b'"project":"other"' in part.read_bytes(), b"demo" in part.read_bytes()) == (
        True,
        False,
    )


def test_a_failed_export_leaves_what_was_there(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "export.json"
    target.write_text("as before")

    def fail(url: str, road: Road | None = None) -> Exception:
        with asking(kind, url, road=road) as client, pytest.raises(Exception, match=r".") as error:
            client.export_to(target)
        assert [(it.name, it.read_text()) for it in tmp_path.iterdir()] == [
            ("export.json", "as before")
        ]
        return error.value

    with saying(CUT) as url:
        assert type(fail(url)) is Unreachable
    with saying(CUT, reset=True) as url:
        assert type(fail(url)) is Unreachable
    for answer in (
        answering(html="<html>"), answering(content=b'{"exported_at"'), answering(content=b""),
        answering(content=b'{"a":[1]'),
    ):  # fmt: skip
        assert type(fail("http://memory.test", Road([answer]))) is UnexpectedAnswer
    refused = Road([answering(401, {"error": "No key."})])
    assert type(fail("http://memory.test", refused)) is Unauthenticated


@pytest.mark.slow
def test_an_export_is_asked_for_again_until_it_begins(kind: str, full: Service) -> None:
    road = Road([httpx.ReadError("cut"), answering(503, {"error": "Busy."}), over(full)])
    with asking(kind, road=road) as client:
        assert b"".join(client.export("other")).endswith(b"]}")

    assert len(road.requests) == 3
    with saying(CUT) as url, asking(kind, url) as client:
        pieces = client.export()
        assert next(pieces).startswith(b'{"exported_at"')
        with pytest.raises(Unreachable):
            next(pieces)


def test_where_no_file_can_be_the_service_is_not_asked(kind: str, tmp_path: Path) -> None:
    road = Road([answering(500)])
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    holder = os.open(fifo, os.O_RDWR)
    with asking(kind, road=road) as client:
        for path, error in ((tmp_path, OSError), (tmp_path / "no/a", FileNotFoundError)):
            with pytest.raises(error):
                client.export_to(path)
            with pytest.raises(error):
                client.import_from(path)
        with pytest.raises(OSError, match="Not a regular file"):
            client.import_from(fifo)
    os.close(holder)

    assert road.requests == []
    assert [it.name for it in tmp_path.iterdir()] == ["fifo"]


@pytest.mark.slow
def test_the_refusal_of_a_large_file_is_heard(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(16 << 20)
    made_key(tmp_path / "memory.db")
    with (
        serving(tmp_path / "memory.db") as closed,
        asking(kind, closed.url) as client,
        pytest.raises(Unauthenticated),
    ):
        client.import_from(path)


def test_a_file_that_shrinks_on_the_way_is_an_error(
    kind: str, empty: Service, tmp_path: Path
) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(b" " * 4 * CHUNK)
    with (
        asking(kind, empty.url) as client,
        pytest.raises(OSError, match=r"^The file became shorter while it was sent"),
    ):
        client.import_from(path, lambda *_: os.truncate(path, CHUNK))


def test_a_transfer_may_be_stopped_or_left_half_way(
    kind: str, full: Service, tmp_path: Path
) -> None:
    told: list[tuple[int, int | None]] = []

    def stop(*done: Any) -> None:
        told.append(done)
        raise InterruptedError

    path = tmp_path / "export.json"
    document = b'{"exported_at":"","sessions":[],"observations":[]}'
    with (
        asking(kind, road=Road([answering(content=document)])) as client,
        pytest.raises(InterruptedError),
    ):
        client.export_to(path, progress=stop)
    assert told == [(len(document), len(document))]  # where the size is known
    with asking(kind, full.url) as client:
        for _ in range(3):
            with contextlib.closing(client.export()) as pieces:
                assert next(pieces)
        with pytest.raises(InterruptedError):
            client.export_to(path, progress=stop)
        assert list(tmp_path.iterdir()) == []
        client.export_to(path)
        with pytest.raises(InterruptedError):
            client.import_from(path, stop)
        assert client.health() == "ok"


def test_a_plan_is_read_whole(kind: str, tmp_path: Path) -> None:
    conflict = {
        "place": 2, "id": 7, "reason": "changed", "kept": "stored", "project": "p", "title": "t",
    }  # fmt: skip
    counts = {
        "new_sessions": 1, "same_sessions": 2, "conflicting_sessions": 3, "new_observations": 4,
        "restored_observations": 5, "same_observations": 6, "conflicting_observations": 7,
    }  # fmt: skip
    path = tmp_path / "export.json"
    path.write_text("{}")
    road = Road([httpx.ReadError("cut"), answering(json={**counts, "conflicts": [conflict]})])

    with asking(kind, road=road) as client:
        plan = client.plan_import(path)

    assert plan == ImportPlan(**counts, conflicts=(ImportConflict(**conflict),))  # type: ignore[arg-type]
    assert [it.url.raw_path for it in road.requests] == [b"/import?dry_run=true"] * 2
    assert [it.content for it in road.requests] == [b"{}"] * 2
    assert road.requests[0].extensions["timeout"] == {
        "connect": 10.0, "read": 600.0, "write": 10.0, "pool": 10.0,
    }  # fmt: skip
    assert [it.headers["content-length"] for it in road.requests] == ["2"] * 2
    assert road.keys == [None, None]
