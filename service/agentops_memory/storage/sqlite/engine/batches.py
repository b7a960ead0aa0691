"""Changes that share one commit: each in a savepoint of its own, none answered before it.

A change that raises is rolled back alone. When the transaction itself is lost,
with the error of one or with the commit, nothing of the batch happened.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from ..base.errors import RunAgain
from ..base.transactions import Check, carried, change, nothing

T_co = TypeVar("T_co", covariant=True)

LONGEST = timedelta(milliseconds=50)  # of a batch: all its callers wait for the commit


class Work(Protocol[T_co]):
    """A change that never commits, and can be run again when what it did was rolled back."""

    def __call__(self, database: sqlite3.Connection, *, is_alone: bool) -> T_co: ...


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """The change is committed; this is what the work answered."""

    answer: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing of the change happened, for this reason."""

    error: BaseException


Outcome = IdempotencyRecord | Failed


def alone(
    work: Work[object],
    patient_until: float,
    database: sqlite3.Connection,
    check: Check = nothing,
) -> Outcome:
    """What came of work in a transaction of its own."""
    run = partial(_changed, work, patient_until, database, check)
    outcome = _outcome(run)
    return _outcome(run) if _is_to_run_again(outcome) else outcome


def together(
    works: Sequence[Work[object]],
    patient_until: float,
    database: sqlite3.Connection,
    check: Check = nothing,
) -> list[Outcome | None]:
    """What came of the first of these, in order: one at least, and all that had time to begin.

    None says that nothing happened and that the work is to be run alone.
    """
    outcomes: list[Outcome | None] = []
    try:
        with change(database, patient_until, check):
            for work in _timely(works):
                outcomes.append(_in_savepoint(work, database))  # noqa: PERF401 - some may raise
    except _TransactionEnded as ended:
        return [*_nothing(outcomes), ended.outcome]
    except sqlite3.Error:  # of BEGIN or COMMIT: alone, each meets it or does not
        return _nothing(outcomes or works)
    return outcomes


class _TransactionEnded(Exception):
    """A work ended more than itself: what was done before it is undone too."""

    def __init__(self, outcome: Failed) -> None:
        super().__init__()
        self.outcome = outcome


def _changed(
    work: Work[T_co], patient_until: float, database: sqlite3.Connection, check: Check
) -> T_co:
    with change(database, patient_until, check):
        return work(database, is_alone=True)


def _in_savepoint(work: Work[object], database: sqlite3.Connection) -> Outcome | None:
    outcome = _outcome(partial(_saved, work, database))
    if isinstance(outcome, IdempotencyRecord):
        return outcome
    if not _is_undone(database):
        raise _TransactionEnded(outcome)
    return None if _is_to_run_again(outcome) else outcome


def _saved(work: Work[T_co], database: sqlite3.Connection) -> T_co:
    with carried():
        database.execute("SAVEPOINT work")
        answer = work(database, is_alone=False)
        database.execute("RELEASE work")
        return answer


def _is_undone(database: sqlite3.Connection) -> bool:
    """Whether what began with the savepoint is rolled back, and nothing else."""
    with suppress(sqlite3.Error):
        database.execute("ROLLBACK TO work")
        database.execute("RELEASE work")
        return database.in_transaction
    return False


def _outcome(work: Callable[[], object]) -> Outcome:
    try:
        return IdempotencyRecord(work())
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        return Failed(error)


def _is_to_run_again(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and isinstance(outcome.error, RunAgain)


def _timely(works: Sequence[Work[object]]) -> Iterator[Work[object]]:
    end = time.monotonic() + LONGEST.total_seconds()
    for work in works:
        yield work
        if time.monotonic() > end:
            return


def _nothing(of: Sequence[object]) -> list[Outcome | None]:
    return [None] * len(of)
