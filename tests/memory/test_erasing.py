"""An erasure that is provable: a receipt, and no byte of the text in any file of the folder."""

import asyncio
import signal
import sqlite3
import struct
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agentops_memory.jobs.jobs import scrub_all
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memory import MemoryId
from agentops_memory.memory.saves import ERASE
from agentops_memory.sqlite import SqliteEngine, migrate, open_files, partitions
from agentops_memory.sqlite.connection import connect

from ..support import engine as engines
from ..support.callers import calling, made_key
from ..support.engine import locked
from ..support.engines import rows
from ..support.erasing import erased, gone, receipt, remains
from ..support.files import assert_index_is_whole, assert_sound
from ..support.original import original
from ..support.process import Load, served
from ..support.requirements import requirement
from ..support.service import Service, observation, serving
from ..support.terminal import Terminal

# Rare words: in full, as the index has them stemmed, and in the middle of a sentence.
EVER = ("xylographer", "wyvernlike", "vexillology", "quokkafarm", "jabberwock", "zugzwanging")
STEMS = ("xylograph", "wyvernlik", "vexillolog", "quokkafarm", "jabberwock", "zugzwang")
PAGE = 4096  # bytes
HIDDEN = "The xylographers of Zanzibar hide a key."


@contextmanager
def held_open(path: Path) -> Iterator[sqlite3.Connection]:
    """Another's read of the state as it is now, until the end."""
    with closing(connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchone()
        yield reader


def with_a_past(service: Service) -> object:
    """A memory that has said other things before, in each way in which that can be."""
    for number in range(3):
        service.save(f"walnut {number}", title="shared words")
    key = {"topic_key": "quokkafarm/place", "tags": ["vexillology"]}
    first = service.save(HIDDEN, title="About wyvernlike things", **key)
    service.save("A jabberwock was here.", title="Second", **key)
    again = service.save("A  JABBERWOCK was here.", title="Second", **key)
    service.http.patch(f"/observations/{first['id']}", json={"content": "Zugzwanging for all."})
    service.save("Yes.", title="borrows")  # its context holds the words before it
    assert again["id"] == first["id"]
    return first["id"]


@pytest.mark.slow
@requirement("agentops:observations:delete")
def test_nothing_of_an_erased_memory_is_left_in_any_file(service: Service) -> None:
    memory = with_a_past(service)
    stored = remains(service.path.parent, *EVER, *STEMS)
    assert {text for _, text in stored} == {*EVER, *STEMS}

    receipt = gone(service.http, erased(service.http, memory))

    assert remains(service.path.parent, *EVER, *STEMS, "Zanzibar", "hide a key") == set()
    assert (receipt["kind"], receipt["project"], receipt["observation_ids"]) == (
        "observation", "demo", [memory],
    )  # fmt: skip
    counts = (receipt["observations"], receipt["revisions"], receipt["sessions"])
    assert counts == (1, 4, 0)
    assert remains(service.path.parent, "walnut", "shared") != set()
    assert_index_is_whole(service.path)


def leave_in_free_space(path: Path, word: bytes, pages: Collection[int] = range(2, 9999)) -> None:
    """Leave a word before the rows of pages, as SQLite does with moved rows, and between them."""
    content, headers, left = bytearray(path.read_bytes()), {2: 12, 5: 12, 10: 8, 13: 8}, 0
    for number in pages:
        start = (number - 1) * PAGE
        if start >= len(content):
            break
        kind, block, rows, begin = struct.unpack_from(">BHHH", content, start)
        if kind not in headers:
            continue
        places = []
        gap = headers[kind] + 2 * rows
        if begin - gap > 2 * len(word):
            places.append(start + (gap + begin) // 2)
        if block and struct.unpack_from(">H", content, start + block + 2)[0] >= 4 + len(word):
            places.append(start + block + 4)
        for place in places:
            content[place : place + len(word)] = word
        left += len(places)
    assert left > 10 or left == len(pages)
    path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_pages_have_no_byte_of_what_is_erased_in_their_gaps_while_others_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words that differ in their last letters alone stand whole where an index page begins."""
    path = tmp_path / "memory.db"
    words = [f"account{number:05}" for number in range(3_000)]
    with serving(path) as service:
        for number in range(30):
            service.save(f"walnut {number} " * (1 + number * 7 % 40), project=f"p{number % 10}")
        service.save(" ".join(words[::2]))
        memory = service.save(" ".join(words[1::2]))["id"]
    leave_in_free_space(path, b"hippogriff")

    monkeypatch.setattr(open_files, "PAGES", 3)
    monkeypatch.setattr(partitions, "PAGES", 1)
    monkeypatch.setattr(partitions, "PAGES_OF_A_PURGE", 1)
    with serving(path) as service:
        load = Load(service.url, saves=150).start()
        load.reach(10)
        gone(service.http, erased(service.http, memory))
        assert remains(tmp_path, "hippogriff", *words[1::10]) == set()
        load.join()

    assert load.refused == {}
    assert remains(tmp_path, "hippogriff", *words[1::10]) == set()
    assert remains(tmp_path, *words[::10]) != set()
    assert_sound(path, live=31 + 150)


@pytest.mark.sqlite_files
def test_another_process_that_reads_or_writes_holds_it_back(service: Service) -> None:
    memory = service.save(HIDDEN)["id"]
    with held_open(service.path):
        erasure = erased(service.http, memory)
        for number in range(5):
            service.save(f"walnut {number}")
        assert "bytes_gone_at" not in receipt(service.http, erasure)
        assert remains(service.path.parent, "xylograph") != set()
    with locked(service.path):
        assert service.http.get("/stats").status_code == 200
        assert receipt(service.http, erasure)["id"] == erasure

    gone(service.http, erasure)

    assert remains(service.path.parent, "xylograph") == set()


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_what_was_held_back_is_tried_again_without_a_sweep(path: Path) -> None:
    with serving(path, MEMORY_SWEEP_EVERY="0") as service:
        ours, theirs = (made_key(path, "admin", tenant) for tenant in ("default", "acme"))
        with calling(service, ours) as http, calling(service, theirs) as other:
            ids = [it.post("/observations", json=observation(HIDDEN)).json()["id"]
                   for it in (http, other, other)]  # fmt: skip
            with held_open(path):
                erasure = erased(http, ids[0])
                for id_ in ids[1:]:  # tried behind it: what held the first one back is over
                    gone(other, erased(other, id_))
                assert "bytes_gone_at" not in receipt(http, erasure)

            gone(http, erasure)

        assert remains(path.parent, "xylograph") == set()


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_what_a_killed_process_left_pending_is_done_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with served(path) as (program, http):
        memory = http.post("/observations", json=observation(HIDDEN)).json()["id"]
        with held_open(path):
            erasure = erased(http, memory)
            program.send(signal.SIGKILL)
            program.wait()
        assert remains(tmp_path, "xylograph") != set()

    with served(path) as (_, http):
        gone(http, erasure)
        assert remains(tmp_path, "xylograph", "zanzibar") == set()


@pytest.mark.sqlite_files
def test_a_command_waits_for_readers_to_finish_what_it_has_erased(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with serving(path) as service:
        memory = MemoryId(int(str(service.save(HIDDEN)["id"])))

    async def erase(engine: SqliteEngine) -> None:
        with held_open(path) as reader:
            await engine.write(OPERATOR, ERASE, memory)
            scrubbing = asyncio.create_task(scrub_all(engine, OPERATOR))
            assert not (await asyncio.wait([scrubbing], timeout=0.1))[0]
            assert remains(tmp_path, "xylograph") != set()
            reader.rollback()
            assert await scrubbing == 1
            assert remains(tmp_path, "xylograph", "zanzibar") == set()
            assert await scrub_all(engine, OPERATOR) == 0

    engines.run(path, erase)


# Files that were used before


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_file_that_could_not_be_written_anew_is_with_the_next_erasure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = forgetful(tmp_path)
    with monkeypatch.context() as full:
        for module in (migrate, open_files):
            full.setattr(module, "vacuum_remains", lambda *_: False)
        with serving(path) as service:
            erasure = erased(service.http, 1)
            service.save("walnut")
            assert "bytes_gone_at" not in receipt(service.http, erasure)

    with serving(path) as service:
        gone(service.http, erasure)

    assert {name for name, _ in remains(tmp_path, *EVER)} == {"memory.db.before-upgrade"}


def forgetful(folder: Path) -> Path:
    """A file of the original in which much was deleted, and nothing written over it."""
    path = folder / "memory.db"
    with original(path) as old:
        old.database.execute("PRAGMA secure_delete = OFF")
        for number in range(40):
            old.observation(f"{EVER[number % 2] if number >= 20 else 'walnut'} {number} " * 30)
        old.database.execute("DELETE FROM observations WHERE id > 20")
    assert remains(folder, *EVER) != set()
    return path


# The receipt


def test_a_repeated_erasure_names_the_same_receipt_to_those_who_may_read_it(
    service: Service,
) -> None:
    memory = service.save(HIDDEN)["id"]
    erasure = erased(service.http, memory)
    assert erased(service.http, memory) == erasure
    assert gone(service.http, erasure)["observation_ids"] == [memory]

    with calling(service, made_key(service.path, projects=("other-*",))) as stranger:
        deletion = stranger.delete(f"/observations/{memory}?hard=true")
        receipts = [stranger.get(f"/erasures/{it}") for it in (erasure, "never")]
    assert (deletion.status_code, "X-Erasure-Id" in deletion.headers) == (204, False)
    for answer in receipts:
        assert (answer.status_code, answer.json()) == (404, {"error": "No such erasure."})


def test_only_what_was_erased_has_a_receipt(service: Service) -> None:
    service.save("one")
    for memory in ("99?hard=true", "1"):
        answer = service.http.delete(f"/observations/{memory}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert "X-Erasure-Id" not in answer.headers
    for unknown in ("1", "a%20b/c", "%00", "%ff", "%ed%a0%80", "x" * 3000):
        answer = service.http.get(f"/erasures/{unknown}")
        assert (answer.status_code, answer.json()) == (404, {"error": "No such erasure."})


@pytest.mark.sqlite_files
def test_a_receipt_names_the_copies_that_are_not_reached(service: Service) -> None:
    for name in ("memory.db.before-upgrade", "memory.db.before-upgrade-2", "other.before-upgrade"):
        (service.path.parent / name).write_text("a copy")

    told = receipt(service.http, erased(service.http, service.save("one")["id"]))

    assert told["copies_not_reached"][:2] == [
        "memory.db.before-upgrade",
        "memory.db.before-upgrade-2",
    ]
    assert all(" " in entry for entry in told["copies_not_reached"][2:])
    assert len(told["copies_not_reached"]) == 4


def test_the_index_command_leaves_pending_erasures_alone(service: Service) -> None:
    erasure = erased(service.http, service.save(HIDDEN)["id"])

    Terminal().say("index", "--db", service.path, "--check")
    gone(service.http, erasure)


def test_a_memory_with_a_damaged_revision_can_be_erased(service: Service) -> None:
    service.save("one", topic_key="k")
    service.save("two", topic_key="k")
    rows(service.path, "UPDATE revisions SET at = -4611686018427387904 WHERE number = 1")
    assert service.http.get("/observations/1/history").status_code == 503

    answer = service.http.delete("/observations/1", params={"hard": "true"})

    assert answer.status_code == 204
    id_ = answer.headers["x-erasure-id"]
    assert service.http.get(f"/erasures/{id_}").json()["revisions"] == 2
