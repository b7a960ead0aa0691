"""Requests that the event loop reads in one turn share a check; those of the next turn do not."""

import asyncio
from itertools import count

import pytest

from agentops_memory.light import OncePerTurn


def test_a_value_is_computed_once_in_each_turn_and_each_time_outside_of_a_loop() -> None:
    value = OncePerTurn(count().__next__)

    async def turns() -> list[int]:
        seen = [value.get(), value.get()]
        await asyncio.sleep(0)
        return [*seen, value.get(), value.get(), value.renewed(), value.get()]

    assert [value.get(), value.get()] == [0, 1]
    assert asyncio.run(turns()) == [2, 2, 3, 3, 4, 4]


def test_an_error_is_not_kept() -> None:
    answers = iter([None, 7])

    def compute() -> int:
        if (answer := next(answers)) is None:
            raise ValueError("not yet")
        return answer

    async def turn() -> int:
        with pytest.raises(ValueError, match="not yet"):
            value.get()
        return value.get()

    value = OncePerTurn(compute)
    assert asyncio.run(turn()) == 7
