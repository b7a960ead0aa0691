"""What has expired leaves the index in a sweep, and the file when its time is over."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from agentops_memory.jobs import jobs as sweeping
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.space import FOR_EVER, Kind, Retentions
from agentops_memory.sqlite import SqliteEngine

from ..support.engine import stats
from ..support.engines import rows
from ..support.files import assert_index_is_whole
from ..support.recall import found
from ..support.requirements import requirement
from ..support.service import START, Service
from .test_retention import run

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
MONTH = timedelta(days=30)
KEPT = Retentions(expired=MONTH)
MARKED = "SELECT memory_id FROM lifecycles WHERE is_swept ORDER BY memory_id"


@requirement("life:2:swept", "life:2:back", "life:2:clock")
def test_what_has_expired_leaves_the_index_and_comes_back_with_its_end(service: Service) -> None:
    ending(service, "A xylographer.", START + HOUR)
    service.save("And then it was carved.")  # borrows
    ending(service, "A zymurgist.", START + 2 * HOUR)
    service.clock.advance(hours=1)
    assert 1 not in found(service, "xylographer")

    assert index_swept(service, START + HOUR - timedelta(microseconds=1)) == 0
    assert index_swept(service, START + HOUR) == 1
    assert index_swept(service, START + HOUR) == 0

    assert rows(service.path, MARKED) == [(1,)]
    assert_index_is_whole(service.path)
    change = {"expires_at": (START + DAY).isoformat()}
    assert service.http.patch("/observations/1", json=change).status_code == 200
    assert rows(service.path, MARKED) == []
    assert_index_is_whole(service.path)
    assert 1 in found(service, "xylographer")
    assert index_swept(service, START + 2 * DAY) == 2
    assert index_swept(service, START) == 0  # the clock went back
    assert rows(service.path, MARKED) == []
    assert_index_is_whole(service.path)
    assert 1 in found(service, "xylographer")


@requirement("life:3:kept", "life:3:for-ever")
@pytest.mark.parametrize("is_deleted", [False, True])
def test_it_goes_by_the_later_of_its_end_and_its_last_change(
    service: Service, is_deleted: bool
) -> None:
    ending(service, "A pear.", START + HOUR)  # ends in an hour
    service.clock.advance(hours=2)
    ending(service, "A plum.", START - 900 * DAY)  # changed in two
    service.save("A fig.")
    if is_deleted:
        service.http.delete("/observations/1")
    revisions = 1 + is_deleted

    assert swept(service, START + 900 * MONTH, Retentions(expired=FOR_EVER)) == 0
    assert swept(service, START + HOUR + MONTH - timedelta(microseconds=1)) == 0
    told = stats(service.path, KEPT, START + HOUR + MONTH).held
    assert [it.past_retention for it in told if it.kind is Kind.EXPIRED] == [1 + revisions]
    assert swept(service, START + HOUR + MONTH) == 1 + revisions
    assert swept(service, START + 2 * HOUR + MONTH) == 2
    assert swept(service, START + 900 * MONTH) == 0

    assert rows(service.path, "SELECT id FROM memories") == [(3,)]
    assert rows(service.path, "SELECT * FROM lifecycles") == []
    assert rows(service.path, "SELECT count(*) FROM erasures") == [(2,)]
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_a_clock_that_jumps_erases_nothing_that_has_expired(service: Service) -> None:
    ending(service, "A pear.", START + SECOND)
    removed = run(service, lambda it: sweeping.sweep(it, OPERATOR), START + 2 * MONTH, KEPT)
    assert removed[Kind.EXPIRED] == 0  # what is still in the index
    assert index_swept(service, START + SECOND) == 1

    def swept_by(by: datetime, at: datetime) -> int:
        return run(service, lambda it: sweeping.sweep(it, OPERATOR, by=by), at, KEPT)[Kind.EXPIRED]

    end = START + SECOND + MONTH
    assert swept_by(end - timedelta(microseconds=1), START + 900 * MONTH) == 0
    assert swept_by(START + 900 * MONTH, START - MONTH) == 0
    assert rows(service.path, "SELECT id FROM memories") == [(1,)]
    assert swept_by(end, end) > 0
    assert rows(service.path, "SELECT id FROM memories") == []


def ending(service: Service, words: str, end: datetime, **fields: object) -> object:
    """Save a memory that has an end, and answer its id."""
    return service.save(words, expires_at=end.isoformat(), **fields)["id"]


def index_swept(service: Service, at: Any) -> int:
    """How many left the index in a sweep at that instant."""
    return run(service, lambda it: sweeping.sweep_index(it, OPERATOR), at, KEPT)


def swept(service: Service, at: Any, retention: Retentions = KEPT) -> int:
    """How many rows of expired memories a sweep erases at that instant."""

    async def sweep(engine: SqliteEngine) -> int:
        await sweeping.sweep_index(engine, OPERATOR)
        return (await sweeping.sweep(engine, OPERATOR))[Kind.EXPIRED]

    return run(service, sweep, at, retention)
