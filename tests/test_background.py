"""Work in a thread of its own: answered, stopped, or left behind."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from agentops_memory import background
from agentops_memory.background import MODEST, GoOn, Stopped, apart


def test_what_a_thread_answers_or_raises_is_what_is_awaited() -> None:
    async def both() -> str:
        with pytest.raises(ZeroDivisionError):
            await apart(lambda _: 1 / 0)
        return await apart(lambda _: threading.current_thread().name)

    assert asyncio.run(both()) != threading.current_thread().name


def test_a_thread_that_asks_ends_with_who_waits_for_it() -> None:
    ended = threading.Event()

    def work(go_on: GoOn) -> None:
        try:
            while True:
                go_on(1, 2)
        except Stopped:
            ended.set()
            raise

    asyncio.run(cancelled_in(work))

    assert ended.is_set()


def test_a_thread_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "HURRY", timedelta(milliseconds=5))
    answer = threading.Event()

    asyncio.run(cancelled_in(lambda _: answer.wait(30)))

    assert not answer.is_set()
    answer.set()


async def cancelled_in(work: Callable[[GoOn], object]) -> None:
    begun = threading.Event()

    def begin(go_on: GoOn) -> object:
        begun.set()
        return work(go_on)

    task = asyncio.create_task(apart(begin))
    await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await task


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has no priority elsewhere")
def test_a_thread_apart_lets_the_others_go_first() -> None:
    def niceness(_: object) -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert asyncio.run(apart(niceness)) == min(own + MODEST, 19)
    assert os.getpriority(os.PRIO_PROCESS, 0) == own
