"""Requests that the event loop reads in one turn share a check; those of the next turn do not."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from agentops_memory.light import OncePerTurn


def test_a_value_is_computed_once_in_each_turn() -> None:
    value, seen = OncePerTurn(count().__next__), list[int]()

    def note(get: Callable[[], int]) -> None:
        seen.append(get())

    async def turns() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            for get in (value.get, value.get, value.renewed, value.get):
                loop.call_soon(note, get)
            await asyncio.sleep(0)

    asyncio.run(turns())
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_value_is_computed_each_time_outside_of_a_loop_and_in_a_task() -> None:
    value = OncePerTurn(count().__next__)

    async def task() -> list[int]:
        return [value.get(), value.get()]

    assert [value.get(), value.get()] == [0, 1]
    assert asyncio.run(task()) == [2, 3]


def test_an_error_is_not_kept() -> None:
    answers, seen = iter([None, 7]), list[int]()

    def compute() -> int:
        if (answer := next(answers)) is None:
            raise ValueError("not yet")
        return answer

    def ask() -> None:
        with suppress(ValueError):
            seen.append(value.get())

    async def turn() -> None:
        for _ in range(3):
            asyncio.get_running_loop().call_soon(ask)
        await asyncio.sleep(0)

    value = OncePerTurn(compute)
    asyncio.run(turn())
    assert seen == [7, 7]
