"""A file of the original is upgraded in place: what becomes of its rows."""

import hashlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.memory import ChangeKind, Memory, MemoryId, Session, SessionId
from agentops_memory.memory.revisions import RevisionTable
from agentops_memory.memory.sessions import SessionTable
from agentops_memory.memory.space import project_name
from agentops_memory.sqlite.migrate import migrated

from ..support.engines import rows
from ..support.files import NOW, assert_sound, beside, found, reading, schema
from ..support.original import EARLIER, LATER, Value, filled, original

AT_EARLIER = datetime(2026, 4, 12, 10, tzinfo=UTC)
AT_LATER = datetime(2026, 4, 12, 11, tzinfo=UTC)
S1, S2 = SessionId("s1"), SessionId("s2")


# What a row becomes


@pytest.mark.heavy
def test_a_memory_keeps_its_id_counters_and_dates(path: Path) -> None:
    with original(path) as old:
        old.session("s1")
        old.database.execute("INSERT INTO sqlite_sequence VALUES ('observations', 41)")
        old.observation(
            "Some Content", type="decision", title="The title", tags='["one", "two"]',
            topic_key="a/b", revision_count=7, duplicate_count=3, promoted_to="elsewhere",
            last_seen_at="2026-04-12 10:30:00", updated_at=LATER,
        )  # fmt: skip

    memory = upgraded_memory(path, 42)

    assert memory.session == "s1"
    assert (memory.space.project, memory.space.scope, memory.key) == ("demo", "project", "a/b")
    assert (memory.text.type, memory.text.title) == ("decision", "The title")
    assert (memory.text.content, memory.text.tags) == ("Some Content", ("one", "two"))
    assert (memory.revision, memory.duplicates, memory.promoted_to) == (7, 3, "elsewhere")
    assert (memory.created_at, memory.updated_at) == (AT_EARLIER, AT_LATER)
    assert memory.last_seen_at == AT_EARLIER + timedelta(minutes=30)
    assert memory.deleted_at is None


@pytest.mark.heavy
def test_a_session_keeps_its_dates_its_summary_and_its_count(path: Path) -> None:
    with original(path) as old:
        old.session("s1", project=" Demo ", message_count=9, summary="What was said.")
        old.session("s2", ended_at=None, summary=None, message_count=None)

    project = project_name("demo")
    assert reading(path, lambda tx: tx[SessionTable].get(S1)) == Session(
        id=S1, project=project, started_at=AT_EARLIER, ended_at=AT_LATER, summary="What was said.",
        message_count=9,
    )  # fmt: skip
    assert reading(path, lambda tx: tx[SessionTable].get(S2)) == Session(
        id=S2, project=project, started_at=AT_EARLIER
    )


@pytest.mark.slow
def test_sessions_keep_their_order(path: Path) -> None:
    with original(path) as old:
        for name in ("b", "c", "a"):
            old.session(name)

    newest = reading(path, lambda tx: tx[SessionTable].newest(None, 10))

    assert [session.id for session in newest] == ["a", "c", "b"]


@pytest.mark.heavy
def test_a_deleted_memory_stays_deleted(path: Path) -> None:
    memory = upgraded_one(path, "aardvark", deleted_at=LATER, topic_key="k")

    assert (memory.deleted_at, memory.key) == (AT_LATER, "k")
    assert found(path, "aardvark") == []
    assert reading(path, lambda tx: [r.deed for r in tx[RevisionTable].newest(memory)]) == [
        ChangeKind.DELETED
    ]


@pytest.mark.heavy
def test_a_memory_brings_the_revision_that_its_counter_tells(path: Path) -> None:
    memory = upgraded_one(path, "text", revision_count=4, updated_at=LATER)

    (revision,) = reading(path, lambda tx: tx[RevisionTable].newest(memory))

    assert (revision.number, revision.deed, revision.at) == (4, ChangeKind.UPDATED, AT_LATER)
    assert revision.text == memory.text


@pytest.mark.heavy
def test_hashes_are_computed_anew(path: Path) -> None:
    memory = upgraded_one(path, "Some\n  CONTENT", normalized_hash="stale")

    assert memory.content_hash == hashlib.sha256(b"some content").hexdigest()


@pytest.mark.slow
def test_every_memory_gets_a_uid_of_its_own_from_its_own_time(path: Path) -> None:
    filled(path, rows=50)

    migrated(path, NOW)

    uids = [uid for (uid,) in rows(path, "SELECT uid FROM memories")]
    assert len(set(uids)) == 50
    milliseconds = f"{int(AT_EARLIER.timestamp() * 1000):012x}"
    assert {uid.replace("-", "")[:12] for uid in uids} == {milliseconds}


@pytest.mark.heavy
@pytest.mark.representative(4)
@pytest.mark.parametrize(
    ("name", "folded"),
    [
        (" MyApp ", "myapp"), ("MYAPP", "myapp"), ("Cafe\u0301", "caf\u00e9"), ("", "unknown"),
        ("  ", "unknown"), (None, "unknown"),
    ],
)  # fmt: skip
def test_projects_are_folded(path: Path, name: str | None, folded: str) -> None:
    assert upgraded_one(path, "text", project=name).space.project == folded


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("scope", "known"), [("", "project"), (None, "project"), ("global", "global"), ("mine", "mine")]
)
def test_an_empty_scope_is_the_project(path: Path, scope: str | None, known: str) -> None:
    assert upgraded_one(path, "text", scope=scope).space.scope == known


@pytest.mark.heavy
@pytest.mark.representative(4)
@pytest.mark.parametrize(
    ("tags", "known"),
    [
        (None, ()), ("", ()), ("[]", ()), ('["a", "\u00e9"]', ("a", "\u00e9")),
        ('["a", 1, null, "b"]', ("a", "b")), ('["\\ud800", "\\u0000"]', ("\ufffd", "\ufffd")),
        ('{"a": 1}', ()), ("a, b", ()), ("[" * 100_000, ()), (b'["\xff"]', ("\ufffd",)),
    ],
)  # fmt: skip
def test_tags_are_what_the_array_holds_or_none(
    path: Path, tags: str | bytes | None, known: tuple[str, ...]
) -> None:
    assert upgraded_one(path, "text", tags=tags).text.tags == known


@pytest.mark.heavy
@pytest.mark.representative(4)
@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-04-12T10:00:00Z", AT_EARLIER), ("2026-04-12 10:00:00", AT_EARLIER),
        ("2026-04-12T12:30:00+02:30", AT_EARLIER),
        ("2026-04-12T10:00:00.5Z", AT_EARLIER + timedelta(milliseconds=500)),
        ("2026-04-12T10:00:00.123456789Z", AT_EARLIER + timedelta(microseconds=123456)),
        ("2026-04-12T05:00:00.000001234-05:00", AT_EARLIER + timedelta(microseconds=1)),
        ("not a time", AT_LATER), ("", AT_LATER), (None, AT_LATER), (b"\xff\x00", AT_LATER),
        ("0001-01-01T00:00:00+14:00", AT_LATER),
    ],
)  # fmt: skip
def test_times_of_every_form_are_read_and_others_give_way_to_the_next_best(
    path: Path, text: str | bytes | None, instant: datetime
) -> None:
    assert upgraded_one(path, "text", created_at=text, updated_at=LATER).created_at == instant


@pytest.mark.heavy
def test_a_memory_without_any_time_is_from_now(path: Path) -> None:
    memory = upgraded_one(path, "text", created_at=None, updated_at="", last_seen_at=None)

    assert (memory.created_at, memory.updated_at, memory.last_seen_at) == (NOW, NOW, NOW)


@pytest.mark.heavy
@pytest.mark.representative(4)
@pytest.mark.parametrize(
    ("stored", "count"), [(None, 1), (0, 1), (-3, 1), (5, 5), (2.5, 2), ("many", 1)]
)
def test_counters_are_whole_and_at_least_one(path: Path, stored: Value, count: int) -> None:
    memory = upgraded_one(path, "text", revision_count=stored, duplicate_count=stored)

    assert (memory.revision, memory.duplicates) == (count, count)


@pytest.mark.heavy
def test_bytes_that_are_no_text_become_replacement_characters(path: Path) -> None:
    memory = upgraded_one(
        path, b"a\xffb\x00c", title=b"\xc3", type=b"t\x00", topic_key=b"k\xfe", session_id=b"s\x80"
    )

    assert (memory.text.content, memory.text.title) == ("a\ufffdb\ufffdc", "\ufffd")
    assert (memory.text.type, memory.key, memory.session) == ("t\ufffd", "k\ufffd", "s\ufffd")


@pytest.mark.slow
def test_a_missing_session_is_created(path: Path) -> None:
    with original(path) as old:
        old.observation("text", session_id="gone", project="Demo", created_at=LATER)
        old.observation("text", session_id=None, project="Demo")

    migrated(path, NOW)

    sessions = rows(path, "SELECT id, project, ended_at, summary, message_count FROM sessions")
    assert sessions == [("gone", "demo", None, "", 0), ("unknown", "demo", None, "", 0)]
    assert reading(path, lambda tx: tx[SessionTable].newest(None, 1))[0].started_at == AT_LATER


@pytest.mark.slow
def test_a_session_that_is_there_stays_as_it_is(path: Path) -> None:
    with original(path) as old:
        old.observation("text", session_id="s1", project="other", created_at=LATER)
        old.session("s1")

    migrated(path, NOW)

    assert rows(path, "SELECT id, project FROM sessions") == [("s1", "demo")]


# Keys that collide once their projects are folded


@pytest.mark.slow
def test_of_two_at_one_key_the_one_updated_last_keeps_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with original(path) as old:
        first = old.observation("first", topic_key="k", project=" MyApp ", updated_at=LATER)
        second = old.observation("second", topic_key="k", project="MYAPP", updated_at=EARLIER)
        third = old.observation("third", topic_key="k", project="myapp", updated_at=EARLIER)
        other = old.observation("other", topic_key="k", project="myapp", scope="global")

    migrated(path, NOW)

    keys = dict(rows(path, "SELECT id, key FROM memories WHERE deleted_at IS NULL"))
    assert keys == {first: "k", second: None, third: None, other: "k"}
    assert logged(caplog, "memories_that_lost_a_shared_topic_key") == 2


@pytest.mark.heavy
def test_later_means_the_instant_and_not_its_text(path: Path) -> None:
    with original(path) as old:
        old.observation("a", topic_key="k", project="A", updated_at="2026-04-12 10:00:00")
        old.observation("b", topic_key="k", project="a", updated_at="2026-04-12T11:00:00+05:00")

    migrated(path, NOW)

    assert rows(path, "SELECT id, key FROM memories") == [(1, "k"), (2, None)]


def test_of_two_updated_at_once_the_one_saved_last_keeps_the_key(path: Path) -> None:
    with original(path) as old:
        old.observation("a", topic_key="k", project="A")
        old.observation("b", topic_key="k", project="a")

    migrated(path, NOW)

    assert rows(path, "SELECT id, key FROM memories") == [(1, None), (2, "k")]


@pytest.mark.slow
def test_a_deleted_memory_contests_no_key(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with original(path) as old:
        old.observation("a", topic_key="k", project="A")
        old.observation("b", topic_key="k", project="a", updated_at=LATER, deleted_at=LATER)

    migrated(path, NOW)

    assert rows(path, "SELECT id, key FROM memories") == [(1, "k"), (2, "k")]
    assert logged(caplog, "memories_that_lost_a_shared_topic_key") == 0


# The file afterwards


def test_ids_that_were_given_out_are_not_given_out_again(path: Path) -> None:
    with original(path) as old:
        old.observation("kept")
        lost = old.observation("hard deleted")
        old.database.execute("DELETE FROM observations WHERE id = ?", (lost,))

    migrated(path, NOW)

    assert rows(path, "SELECT name, seq FROM sqlite_sequence") == [("memories", lost)]


@pytest.mark.heavy
def test_an_empty_file_of_the_original_upgrades(path: Path) -> None:
    with original(path) as old:
        old.observation("hard deleted")
        old.database.execute("DELETE FROM observations")

    migrated(path, NOW)

    assert_sound(path, live=0)
    assert rows(path, "SELECT name, seq FROM sqlite_sequence") == [("memories", 1)]


@pytest.mark.heavy
def test_nothing_of_the_original_is_left_in_the_schema(path: Path, tmp_path: Path) -> None:
    filled(path)
    fresh = tmp_path / "fresh.db"

    migrated(path, NOW)
    migrated(fresh, NOW)

    assert schema(path) == schema(fresh)


@pytest.mark.heavy
def test_a_file_is_upgraded_once(path: Path) -> None:
    filled(path)
    migrated(path, NOW)
    once = rows(path, "SELECT * FROM memories ORDER BY id")

    migrated(path, NOW)

    assert rows(path, "SELECT * FROM memories ORDER BY id") == once
    assert beside(path) == ["memory.db.before-upgrade"]


@pytest.mark.heavy
@pytest.mark.representative(2)
@pytest.mark.parametrize("journal_mode", ["DELETE", "WAL", "TRUNCATE", "PERSIST"])
def test_old_memories_are_found_by_their_words(path: Path, journal_mode: str) -> None:
    filled(path, journal_mode=journal_mode)

    migrated(path, NOW)

    assert found(path, "where is word77?") == [77]
    assert_sound(path, live=200)


# Helpers


def upgraded_one(path: Path, content: str | bytes, **columns: Value) -> Memory:
    """What one observation of the original becomes."""
    with original(path) as old:
        memory_id = old.observation(content, **columns)
    return upgraded_memory(path, memory_id)


def upgraded_memory(path: Path, memory_id: int) -> Memory:
    memory = reading(path, lambda tx: tx[MemoryTable].get(MemoryId(memory_id)))
    assert_sound(path, live=int(memory is not None and memory.deleted_at is None))
    assert memory is not None
    return memory


def logged(caplog: pytest.LogCaptureFixture, field: str) -> object:
    return next(getattr(record, field) for record in caplog.records if hasattr(record, field))


@pytest.mark.heavy
def test_the_copy_is_on_disk_before_anything_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path)
    synced, fsync = [], os.fsync

    def noted(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    migrated(path, NOW)

    assert synced == ["memory.db.before-upgrade.part", path.parent.name]
