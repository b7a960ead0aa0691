"""The unused bytes of pages: what SQLite leaves there when it moves rows is blanked."""

import asyncio
import os
import struct
from collections.abc import Collection
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.errors import StartRefused
from agentops_memory.memory.memories import save
from agentops_memory.memory.model.access import OPERATOR
from agentops_memory.memory.model.memory import MemoryId
from agentops_memory.memory.writes import erase
from agentops_memory.sqlite import SqliteEngine
from agentops_memory.sqlite.base.connection import connect, connection
from agentops_memory.sqlite.base.open_files import OpenFiles, file_in_use
from agentops_memory.sqlite.engine import opening
from agentops_memory.sqlite.engine.tenant_files import remove
from agentops_memory.sqlite.maintenance import scrub as slack
from agentops_memory.sqlite.maintenance.scrub import dirty_spans as unused_remains

from ..support.engine import draft, locked
from ..support.erasing import erased, gone, receipt, remains
from ..support.files import assert_sound
from ..support.process import Load
from ..support.service import START, Service, serving

PAGE = 4096
LEFT = b"hippogriff"
HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}


def plant(path: Path, pages: Collection[int] = range(2, 9999)) -> int:
    """Leave a word in the unused part of every such page that has one; in how many it is."""
    content, planted = bytearray(path.read_bytes()), 0
    for start in range(PAGE, len(content), PAGE):
        if start // PAGE + 1 not in pages:
            continue
        kind, _, rows, begin = struct.unpack_from(">BHHH", content, start)
        gap = HEADERS.get(kind, PAGE) + 2 * rows
        if begin - gap > 200:
            content[start + begin - 50 : start + begin - 40] = LEFT
            planted += 1
    path.write_bytes(content)
    return planted


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A file that a service has left, with remains in its pages."""
    path = tmp_path / "memory.db"
    with serving(path) as service:
        for number in range(30):
            service.save(f"walnut {number} " * (1 + number * 7 % 40), project=f"p{number % 10}")
    assert plant(path) > 10
    assert remains(path.parent, "hippogriff") != set()
    return path


def test_what_lies_in_unused_parts_is_blanked_and_does_not_come_back(planted: Path) -> None:
    with serving(planted) as service:
        service.save("This reads pages.")  # and keeps them in memory, with what is in them
        gone(service.http, erased(service.http, 1))
        assert remains(planted.parent, "hippogriff") == set()

        for number in range(10):
            service.save(f"This writes pages {number}.", project=f"p{number}")
        assert remains(planted.parent, "hippogriff") == set()

    assert remains(planted.parent, "hippogriff") == set()
    assert_sound(planted, live=40)


def test_pages_that_change_behind_the_walk_are_walked_again(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack, "PAGES", 3)
    with serving(planted) as service:
        load = Load(service.url, saves=150).start()
        load.reach(10)
        gone(service.http, erased(service.http, 1))
        assert remains(planted.parent, "hippogriff") == set()
        load.join()
        assert remains(planted.parent, "hippogriff") == set()

    assert load.refused == {}
    assert_sound(planted, live=29 + 150)


@pytest.mark.parametrize("own", [True, False])
def test_a_page_that_is_written_behind_the_walk_is_blanked_before_its_end(
    planted: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.setattr(slack, "PAGES", 3)
    with (
        file_in_use(planted) as file,
        closing(connect(planted)) as database,
        closing(connect(planted)) as other,
    ):
        walk = slack.Walk(planted, OpenFiles.of(planted, file, database))
        ((root,),) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sessions'")
        for _ in range(root):  # far behind it
            assert walk.step(database) is slack.WalkState.MORE
        assert plant(planted, {root}) == 1
        (database if own else other).execute("UPDATE sessions SET summary = 'x'")

        while (progress := walk.step(database)) is slack.WalkState.MORE:
            pass

    assert progress is slack.WalkState.DONE
    assert remains(planted.parent, "hippogriff") == set()


def test_another_process_that_writes_holds_it_back(service: Service) -> None:
    memory = service.save("one")["id"]
    erasure = erased(service.http, memory)
    gone(service.http, erasure)
    other = erased(service.http, service.save("two")["id"])
    with locked(service.path):
        assert service.http.get("/stats").status_code == 200
        assert receipt(service.http, other)["id"] == other

    gone(service.http, other)


# Pages


def page(*rows: bytes, kind: int = 13) -> bytearray:
    """A page with these rows at its end."""
    made = bytearray(PAGE)
    end = PAGE
    for number, row in enumerate(rows):
        end -= len(row)
        made[end : end + len(row)] = row
        struct.pack_into(">H", made, HEADERS[kind] + 2 * number, end)
    struct.pack_into(">BHHHB", made, 0, kind, 0, len(rows), end, 0)
    return made


@pytest.mark.parametrize("kind", HEADERS)
def test_a_page_whose_unused_part_is_zero_has_no_remains(kind: int) -> None:
    assert unused_remains(bytes(page(b"row one", b"row two", kind=kind))) == []


def test_remains_are_found_between_the_pointers_and_the_rows() -> None:
    made = page(b"row one", b"row two")
    made[2000:2004] = b"left"

    assert unused_remains(bytes(made)) == [(12, PAGE - 14)]


def test_remains_are_found_in_a_free_block_behind_its_own_header() -> None:
    made = page(b"row one" * 10)
    struct.pack_into(">H", made, 1, PAGE - 60)
    struct.pack_into(">HH", made, PAGE - 60, 0, 20)

    assert unused_remains(bytes(made)) == [(PAGE - 56, PAGE - 40)]


@pytest.mark.parametrize("first", [0, 1, 3, 255])
def test_a_page_that_is_none_of_rows_counts_as_used(first: int) -> None:
    assert unused_remains(bytes([first]) + os.urandom(PAGE - 1)) == []


@pytest.mark.parametrize(
    ("rows", "begin", "free", "size"),
    [(3000, 100, 0, 0), (1, 5, 0, 0), (1, 4000, 30, 9), (1, 4000, 4010, 3), (1, 4000, 4090, 90)],
)
def test_a_page_that_makes_no_sense_counts_as_used(
    rows: int, begin: int, free: int, size: int
) -> None:
    made = bytearray(b"\x07" * PAGE)
    struct.pack_into(">BHHHB", made, 0, 13, free, rows, begin, 0)
    if free > 100:
        struct.pack_into(">HH", made, free, 0, size)

    assert unused_remains(bytes(made)) == []


def test_a_file_that_is_replaced_while_it_is_opened_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.db"

    def connection_to_another(*given: Any) -> Any:
        other = path.with_name("other")
        other.write_bytes(path.read_bytes())
        other.replace(path)
        return connection(*given)

    async def use() -> None:
        with pytest.raises(StartRefused, match="was replaced while it was opened"):
            async with SqliteEngine.opened(path, clock=lambda: START):
                pass

    monkeypatch.setattr(opening, "connection", connection_to_another)
    asyncio.run(use())


def test_a_file_that_has_taken_the_place_of_another_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "acme.db"

    async def use() -> None:
        async with SqliteEngine.opened(path, clock=lambda: START) as old:
            await old.write(OPERATOR, save, draft("hippogriff"), timedelta())
            assert await old.write(OPERATOR, erase, MemoryId(1)) is not None
            remove(path)
            async with SqliteEngine.opened(path, clock=lambda: START) as new:
                await new.write(OPERATOR, save, draft("one"), timedelta())
                await new.scrub_file(OPERATOR)
                assert plant(path) > 1
                assert not await old.scrub_file(OPERATOR)
                assert remains(tmp_path, "hippogriff") != set()
                assert await new.scrub_file(OPERATOR)
                assert remains(tmp_path, "hippogriff") == set()

    asyncio.run(use())
