"""The write-ahead log stays short, also where some read or other always runs."""

import asyncio
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory.access import OPERATOR
from agentops_memory.sqlite import SqliteEngine, open_files, scrub
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.open_files import OpenFiles

from ..support.engine import count, run, save, statement
from ..support.files import assert_sound

PAGE = 4096
LONG = 200  # pages
SAVES = 100


@pytest.mark.slow
def test_a_log_that_cannot_begin_again_holds_nothing_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "EVERY", 1)
    monkeypatch.setattr(open_files, "LONG", 1)
    is_over = threading.Event()

    def read_on(tx: Transaction) -> None:
        statement(tx, "SELECT 1 FROM memories")
        assert is_over.wait(60)

    async def write_beside_a_long_read(engine: SqliteEngine) -> None:
        reading = asyncio.create_task(engine.read(OPERATOR, read_on))
        for number in range(3):
            await save(engine, f"apple {number}")
            assert await count(engine) == number + 1
        is_over.set()
        await reading

    run(path, write_beside_a_long_read)


def test_the_log_begins_again_once_a_read_that_began_before_has_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "EVERY", 1)
    monkeypatch.setattr(open_files, "LONG", 1)
    monkeypatch.setattr(open_files, "TIMEOUT", timedelta(minutes=1))
    has_begun, is_over = threading.Event(), threading.Event()
    outcomes = tried(monkeypatch, is_over.set)

    def read_on(tx: Transaction) -> None:
        statement(tx, "SELECT 1 FROM memories")
        has_begun.set()
        assert is_over.wait(60)

    async def write_beside_a_read(engine: SqliteEngine) -> None:
        reading = asyncio.create_task(engine.read(OPERATOR, read_on))
        await asyncio.to_thread(has_begun.wait)
        await save(engine, "apple")
        await reading

    run(path, write_beside_a_read)
    assert outcomes[0]


@pytest.mark.slow
def test_what_holds_the_log_for_long_is_waited_for_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "EVERY", 1)
    monkeypatch.setattr(open_files, "LONG", LONG)
    monkeypatch.setattr(open_files, "TIMEOUT", timedelta(milliseconds=1))
    path, outcomes = tmp_path / "memory.db", tried(monkeypatch)

    async def write_beside_a_replicator(engine: SqliteEngine) -> None:
        await save(engine, "apple")
        with closing(connect(path)) as replicator:
            replicator.execute("BEGIN")
            replicator.execute("SELECT 1 FROM memories").fetchone()
            for number in range(SAVES):
                await save(engine, f"apple {number} " + "x" * 2 * PAGE)
        assert outcomes
        assert not any(outcomes)
        assert len(outcomes) <= path.with_name("memory.db-wal").stat().st_size / PAGE / LONG
        for _ in range(2):
            outcomes.clear()
            await save(engine, "x" * LONG * PAGE)  # too little, were it held
            while not outcomes:  # the log is seen to after a save was answered
                await save(engine, "pear")
            assert outcomes == [True]

    run(path, write_beside_a_replicator)


def test_saves_go_on_while_the_log_is_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "EVERY", 1)
    is_over, copied, outcomes = threading.Event(), open_files.copied, list[bool]()

    def copied_at_last(files: OpenFiles, database: sqlite3.Connection) -> tuple[int, int]:
        outcomes.append(is_over.wait(60))
        return copied(files, database)

    monkeypatch.setattr(open_files, "copied", copied_at_last)

    async def write(engine: SqliteEngine) -> None:
        for number in range(3):
            await save(engine, f"apple {number}")
        is_over.set()

    run(path, write)
    assert outcomes == [True]
    assert_sound(path, live=3)


def test_the_log_is_copied_beside_the_writer_only_while_it_has_more_than_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "EVERY", 1)
    monkeypatch.setattr(scrub, "TRIES", 1)
    rests, copied, has_ended = list[int](), open_files.copied, threading.Event()
    index = list[int]()  # a descriptor: the process that closes it loses SQLite's locks

    def noted(files: OpenFiles, database: sqlite3.Connection) -> tuple[int, int]:
        index[:] = index or [os.open(f"{path}-shm", os.O_RDONLY)]
        end, at = (int.from_bytes(os.pread(index[0], 4, at), sys.byteorder) for at in (16, 96))
        rests.append(end - at)  # pages: https://sqlite.org/walformat.html
        try:
            return copied(files, database)
        finally:
            has_ended.set()

    monkeypatch.setattr(open_files, "copied", noted)

    async def write_nothing(engine: SqliteEngine) -> None:
        for _ in range(3):
            await engine.write(OPERATOR, lambda _: None)

    async def write(engine: SqliteEngine) -> None:
        await save(engine, "apple")
        await asyncio.to_thread(has_ended.wait)
        await write_nothing(engine)
        assert len(rests) == 1
        monkeypatch.setattr(open_files, "EVERY", 100)
        await save(engine, "pear")
        with closing(connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT 1 FROM memories").fetchone()
            assert not await engine.scrub_file(OPERATOR)  # but all was copied
        monkeypatch.setattr(open_files, "EVERY", 1)
        await write_nothing(engine)

    run(path, write)
    os.close(index[0])
    assert all(rests), rests


def tried(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object] = lambda: None
) -> list[bool]:
    """Whether the log has begun again, each time that it was to."""
    outcomes, try_it = list[bool](), open_files.restarted

    def restarted(database: sqlite3.Connection) -> bool:
        before()
        outcomes.append(try_it(database))
        return outcomes[-1]

    monkeypatch.setattr(open_files, "restarted", restarted)
    return outcomes
