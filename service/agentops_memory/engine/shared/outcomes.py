"""Outcomes of work on another thread, handed to its caller."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The work is done, and a change committed; this is what it answered."""

    answer: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing of the work happened, for this reason."""

    error: BaseException


Outcome = Succeeded | Failed


def outcome_of(work: Callable[[], object]) -> Outcome:
    try:
        return Succeeded(work())
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        return Failed(error)


def answer_of(outcome: Outcome) -> Any:
    if isinstance(outcome, Failed):
        raise outcome.error
    return outcome.answer


def settle(answer: asyncio.Future[Any], outcome: Outcome) -> None:
    if answer.done():
        return
    if isinstance(outcome, Succeeded):
        answer.set_result(outcome.answer)
    else:
        answer.set_exception(outcome.error)
        answer.exception()  # a caller that leaves now does not ask for it
