"""Stable ids are UUIDs of version 7 that order as they were made."""

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from agentops_memory.recall.instants import Uids

INSTANTS = st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001


@given(at=INSTANTS, count=st.integers(2, 50))
def test_those_of_one_instant_order_as_they_were_made(at: datetime, count: int) -> None:
    uids = Uids()

    made = [uids.make(at) for _ in range(count)]

    assert made == sorted(set(made))


@given(at=INSTANTS, later=st.timedeltas(timedelta(milliseconds=1), timedelta(days=1)))
def test_those_of_a_later_millisecond_come_later(at: datetime, later: timedelta) -> None:
    uids = Uids()
    first = [uids.make(at) for _ in range(3)]

    assert max(first) < uids.make(at + later)


@given(at=INSTANTS)
def test_they_are_uuids_of_version_7_that_tell_their_millisecond(at: datetime) -> None:
    uids = Uids()
    for _ in range(3):
        uid = UUID(uids.make(at))

        assert (uid.version, uid.variant) == (7, RFC_4122)
        assert abs((uid.int >> 80) - at.timestamp() * 1000) <= 1


def test_two_makers_do_not_make_the_same() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)

    assert len({Uids().make(at) for _ in range(100)}) == 100
