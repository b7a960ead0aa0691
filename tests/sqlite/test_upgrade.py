"""A file of the original is upgraded in place: what becomes of its rows."""

import hashlib
import os
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.memory import ChangeKind, Memory, MemoryId, Session, SessionId
from agentops_memory.memory.saves import RevisionTable
from agentops_memory.memory.sessions import SessionTable
from agentops_memory.memory.space import project_name
from agentops_memory.sqlite.migrate import migrated

from ..support.engines import rows
from ..support.files import NOW, assert_sound, beside, copy_of, found, old_texts, reading, schema
from ..support.original import LATER, Value, filled, original

AT_EARLIER = datetime(2026, 4, 12, 10, tzinfo=UTC)
AT_LATER = datetime(2026, 4, 12, 11, tzinfo=UTC)
SECOND = timedelta(seconds=1)
Columns = dict[str, Value]
Case = tuple[Columns, str, object]


# What a row becomes


def of(column: str, name: str, *becomes: tuple[Value, object]) -> list[Case]:
    """What values of a column become."""
    return [({column: value}, name, expected) for value, expected in becomes]


def counted(stored: Value, count: int) -> Case:
    columns: Columns = {"revision_count": stored, "duplicate_count": stored}
    return columns, "revision duplicates", (count, count)


def created(text: Value, instant: datetime) -> Case:
    """A time of creation, and what is read; what is none gives way to that of the last change."""
    return {"created_at": text, "updated_at": LATER}, "created_at", instant


BECOMES: list[Case] = [
    *of("project", "space.project", (" MyApp ", "myapp"), ("MYAPP", "myapp"),
        ("Cafe\u0301", "caf\u00e9"), ("", "unknown"), ("  ", "unknown"), (None, "unknown")),
    *of("scope", "space.scope", ("", "project"), (None, "project"), ("global", "global"),
        ("mine", "mine")),
    *of("tags", "text.tags", ('["a", "\u00e9"]', ("a", "\u00e9")),
        ('["a", 1, null, "b"]', ("a", "b")), ('["\\ud800", "\\u0000"]', ("\ufffd", "\ufffd")),
        (b'["\xff"]', ("\ufffd",)), (None, ()), ("", ()), ('{"a": 1}', ()), ("a, b", ()),
        ("[" * 100_000, ())),
    created("2026-04-12T10:00:00Z", AT_EARLIER),
    created("2026-04-12 10:00:00", AT_EARLIER),
    created("2026-04-12T12:30:00+02:30", AT_EARLIER),
    created("2026-04-12T10:00:00.5Z", AT_EARLIER + SECOND / 2),
    created("2026-04-12T10:00:00.123456789Z", AT_EARLIER + timedelta(microseconds=123456)),
    created("2026-04-12T05:00:00.000001234-05:00", AT_EARLIER + timedelta(microseconds=1)),
    *(created(it, AT_LATER)
      for it in ("not a time", "", None, b"\xff\x00", "0001-01-01T00:00:00+14:00")),
    *(counted(it, count)
      for it, count in ((None, 1), (0, 1), (-3, 1), (5, 5), (2.5, 2), ("many", 1))),
    (
        {"created_at": None, "updated_at": "", "last_seen_at": None},
        "created_at updated_at last_seen_at", (NOW, NOW, NOW),
    ),
    (
        {"content": b"a\xffb\x00c", "title": b"\xc3", "type": b"t\x00", "topic_key": b"k\xfe",
         "session_id": b"s\x80"},
        "text.content text.title text.type key session",
        ("a\ufffdb\ufffdc", "\ufffd", "t\ufffd", "k\ufffd", "s\ufffd"),
    ),
    (
        {"content": "Some\n  CONTENT", "normalized_hash": "stale"}, "content_hash",
        hashlib.sha256(b"some content").hexdigest(),
    ),
    (
        {"type": "decision", "title": "The title", "topic_key": "a/b", "revision_count": 7,
         "duplicate_count": 3, "promoted_to": "elsewhere"},
        "text.type text.title key revision duplicates promoted_to session deleted_at",
        ("decision", "The title", "a/b", 7, 3, "elsewhere", "s1", None),
    ),
    (
        {"last_seen_at": "2026-04-12 10:00:01", "revision_count": 4, "updated_at": LATER},
        "last_seen_at created_at updated_at", (AT_EARLIER + SECOND, AT_EARLIER, AT_LATER),
    ),
    ({"deleted_at": LATER, "topic_key": "k"}, "deleted_at key", (AT_LATER, "k")),
]  # fmt: skip


@pytest.mark.slow
def test_each_column_becomes_what_a_memory_has_for_it(path: Path) -> None:
    with original(path) as old:
        old.session("s1")
        old.database.execute("INSERT INTO sqlite_sequence VALUES ('observations', 41)")
        ids = [
            old.observation(**({"content": f"aardvark {number}"} | columns))  # type: ignore[arg-type]
            for number, (columns, *_) in enumerate(BECOMES)
        ]

    def every(tx: Transaction) -> dict[int, Memory]:
        found = {it: tx[MemoryTable].get(MemoryId(it)) for it in ids}
        return {id_: memory for id_, memory in found.items() if memory is not None}

    memories = reading(path, every)

    assert ids[0] == 42
    for id_, (columns, names, expected) in zip(ids, BECOMES, strict=True):
        assert attrgetter(*names.split())(memories[id_]) == expected, columns
    assert_sound(path, live=len(ids) - 1)
    assert ids[-1] not in found(path, "aardvark")  # it was deleted

    newest = reading(path, lambda tx: [*tx[RevisionTable].newest(memories[ids[-2]])])
    assert [(it.number, it.kind, it.at, it.text) for it in newest] == [
        (4, ChangeKind.UPDATED, AT_LATER, memories[ids[-2]].text)
    ]
    last = reading(path, lambda tx: [it.kind for it in tx[RevisionTable].newest(memories[ids[-1]])])
    assert last == [ChangeKind.DELETED]
    uids = [uid for (uid,) in rows(path, f"SELECT uid FROM memories WHERE created_at = {MICROS}")]
    assert len(uids) == len({*uids}) > 10
    assert {it.replace("-", "")[:12] for it in uids} == {f"{MICROS // 1000:012x}"}


MICROS = int(AT_EARLIER.timestamp() * 1_000_000)


def test_sessions_keep_what_they_have_and_their_order_and_those_that_miss_are_made(
    path: Path,
) -> None:
    with original(path) as old:
        old.observation("text", session_id="gone", project="Demo", created_at=LATER)
        old.observation("text", session_id=None, project="Demo", created_at=LATER)
        old.observation("text", session_id="s1", project="other", created_at=LATER)
        old.session("s1", project=" Demo ", message_count=9, summary="What was said.")
        for name in ("b", "c", "a"):
            old.session(name, ended_at=None, summary=None, message_count=None)

    project = project_name("demo")
    sessions = {it.id: it for it in reading(path, lambda tx: tx[SessionTable].newest(None, 10))}

    assert [*sessions] == ["unknown", "gone", "a", "c", "b", "s1"]
    assert sessions[SessionId("s1")] == Session(
        id=SessionId("s1"), project=project, started_at=AT_EARLIER, ended_at=AT_LATER,
        summary="What was said.", message_count=9,
    )  # fmt: skip
    assert sessions[SessionId("b")] == Session(
        id=SessionId("b"), project=project, started_at=AT_EARLIER
    )
    assert sessions[SessionId("gone")] == Session(
        id=SessionId("gone"), project=project, started_at=AT_LATER
    )


def test_of_those_at_one_key_once_projects_are_folded_the_one_updated_last_keeps_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of_keys: dict[str, list[Columns]] = {
        "the latest": [
            {"project": " MyApp ", "updated_at": LATER}, {"project": "MYAPP"}, {"project": "myapp"},
        ],
        "the instant and not its text": [
            {"project": "A", "updated_at": "2026-04-12 10:00:00"},
            {"project": "a", "updated_at": "2026-04-12T11:00:00+05:00"},
        ],
        "of equal ones that saved last": [{"project": "a"}, {"project": "A"}],
        "a deleted one contests none": [
            {"project": "A"}, {"project": "a", "updated_at": LATER, "deleted_at": LATER},
        ],
        "another scope": [{"project": "A"}, {"project": "a", "scope": "global"}],
    }  # fmt: skip
    with original(path) as old:
        for key, several in of_keys.items():
            for columns in several:
                old.observation(key, topic_key=key, **columns)

    migrated(path, NOW)

    kept = rows(path, "SELECT content, key IS NOT NULL FROM memories ORDER BY id")
    assert [
        [has for content, has in kept if content == key] for key in of_keys
    ] == [[1, 0, 0], [1, 0], [0, 1], [1, 1], [1, 1]]  # fmt: skip
    name = "memories_that_lost_a_shared_topic_key"
    assert [getattr(it, name) for it in caplog.records if hasattr(it, name)] == [4]


# The file afterwards


@pytest.mark.slow
def test_ids_that_were_given_out_are_not_given_out_again(tmp_path: Path) -> None:
    for number, kept in enumerate((1, 0)):
        file = tmp_path / f"{number}.db"
        with original(file) as old:
            ids = [old.observation(f"{it}") for it in range(kept + 1)]
            old.database.execute("DELETE FROM observations WHERE id = ?", (ids[-1],))

        migrated(file, NOW)

        assert rows(file, "SELECT name, seq FROM sqlite_sequence") == [("memories", ids[-1])]
        assert_sound(file, live=kept)


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize("journal_mode", ["DELETE", "WAL", "TRUNCATE", "PERSIST"])
def test_a_file_is_upgraded_once_and_a_copy_is_on_disk_before_that_the_original_can_use(
    path: Path, tmp_path: Path, journal_mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path, journal_mode=journal_mode)
    path.chmod(0o600)
    before, synced, fsync = old_texts(path), list[str](), os.fsync

    def noted(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        fsync(file)

    with monkeypatch.context() as noting:
        noting.setattr(os, "fsync", noted)
        migrated(path, NOW)
    once = rows(path, "SELECT * FROM memories ORDER BY id")
    migrated(path, NOW)
    migrated(fresh := tmp_path / "fresh" / "memory.db", NOW)

    assert synced == ["memory.db.before-upgrade.part", path.parent.name]
    assert rows(path, "SELECT * FROM memories ORDER BY id") == once
    assert schema(path) == schema(fresh)  # nothing of the original is left in it
    assert found(path, "where is word77?") == [77]
    assert_sound(path, live=200)
    copy = copy_of(path)
    assert beside(path) == ["fresh", copy.name]
    assert old_texts(copy) == before
    assert rows(copy, "SELECT rowid FROM observations_fts('word77')") == [(77,)]
    assert rows(copy, "PRAGMA integrity_check") == [("ok",)]
    assert rows(copy, "PRAGMA journal_mode") == [("delete",)]
    assert copy.stat().st_mode & 0o777 == 0o600
