"""Work beside the service: in a thread of its own, and what is told of it when it fails."""

import asyncio
import errno
import json
import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from agentops_memory.errors import Full, OverQuota
from agentops_memory.jobs import jobs as background
from agentops_memory.jobs.jobs import MODEST, CheckStopped, Stopped, attempted, run_in_thread
from agentops_memory.telemetry import JsonFormatter

from ..support.samples import for_each

NICEST = 19


def test_a_thread_that_asks_ends_with_who_waits_for_it() -> None:
    ended = threading.Event()

    def work(check_stopped: CheckStopped) -> None:
        try:
            while True:
                check_stopped(1, 2)
        except Stopped:
            ended.set()
            raise

    asyncio.run(cancelled_in(work))

    assert ended.is_set()


def test_a_thread_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "HURRY", timedelta(milliseconds=5))
    answer = threading.Event()

    asyncio.run(cancelled_in(lambda _: answer.wait(120)))

    assert not answer.is_set()
    answer.set()


async def cancelled_in(work: Callable[[CheckStopped], object]) -> None:
    begun = threading.Event()

    def begin(check_stopped: CheckStopped) -> object:
        begun.set()
        return work(check_stopped)

    task = asyncio.create_task(run_in_thread(begin))
    await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await task


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has no priority elsewhere")
@for_each("nicer", [0, 3])
def test_a_thread_apart_lets_the_others_go_first(nicer: int) -> None:
    def niceness(*_: object) -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def both() -> tuple[int, int]:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness() + nicer)
        return asyncio.run(run_in_thread(niceness)), niceness()

    with ThreadPoolExecutor(1) as thread:
        apart_from, own = thread.submit(both).result()

    assert own == min(niceness() + nicer, NICEST)
    assert apart_from == min(own + MODEST, NICEST)


def sqlite_error(name: str, message: str = "near 'quoted'") -> sqlite3.Error:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorname, error.sqlite_errorcode = name, getattr(sqlite3, name)
    return error


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        (caused(Full("It is full."), sqlite_error("SQLITE_FULL")), "It is full.", "SQLITE_FULL"),
        (OverQuota("Too much."), "Too much.", "over_quota"),
        (OSError(errno.ENOSPC, "quoted", "quoted"), "No space left on device", "ENOSPC"),
        (
            sqlite_error("SQLITE_IOERR_READ", "disk I/O error"),
            "disk I/O error",
            "SQLITE_IOERR_READ",
        ),
        (sqlite_error("SQLITE_CORRUPT"), "SQLITE_CORRUPT", "SQLITE_CORRUPT"),
        (TimeoutError(), "TimeoutError", ""),
        # A fault of the program has its stack.
        (KeyError("quoted"), "", ""), (sqlite_error("SQLITE_ERROR"), "", ""),
        (caused(KeyError("quoted"), by=sqlite_error("SQLITE_CORRUPT")), "", ""),
    ],
)  # fmt: skip
def test_what_can_be_expected_to_fail_is_a_line_with_a_reason_and_a_code(
    error: Exception, reason: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise error

    log = logging.getLogger("agentops_memory")
    is_done = asyncio.run(attempted(fail(), log, "it is tried again", tenant="acme"))

    assert is_done == (not reason)  # only an operational failure is tried again
    (line,) = map(json.loads, map(JsonFormatter().format, caplog.records))
    assert line.pop("time")
    assert "quoted" not in json.dumps(line)
    if not reason:
        assert (line["level"], line["tenant"]) == ("ERROR", "acme")
        *_, last = line["exception"].splitlines()
        assert last.startswith(("KeyError", "sqlite3.OperationalError (SQLITE_"))
        return
    assert line == {
        "level": "WARNING", "logger": "agentops_memory", "message": "it is tried again",
        "reason": reason, "code": code, "tenant": "acme",
    }  # fmt: skip


def test_a_loop_that_fails_leaves_the_others_running_and_all_have_ended_on_leaving() -> None:
    ended: list[str] = []

    async def failing() -> None:
        raise ZeroDivisionError

    async def loop(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as one that waits for its thread
            await asyncio.sleep(0)
            ended.append(name)

    async def leaving() -> None:
        async with background.background(failing(), loop("first"), loop("second")):
            await asyncio.sleep(0)
            assert not ended

    with pytest.raises(ZeroDivisionError):
        asyncio.run(leaving())
    assert ended == ["first", "second"]
