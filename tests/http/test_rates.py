"""How often a key may ask: as a rate says, and never more."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from agentops_memory.errors import TooMany
from agentops_memory.http.gate import MOST_KEYS, RateLimiter
from agentops_memory.settings import Rate

from ..support.callers import calling, made_key
from ..support.service import Service, lasting_with, observation, serving

SECOND = 1_000_000_000  # nanoseconds

RATES = st.builds(Rate, count=st.integers(1, 5) | st.just(1_000_000), unit=st.sampled_from("smh"))
PAUSES = st.lists(
    st.just(0) | st.integers(0, 2 * SECOND) | st.integers(0, 4000).map(lambda s: s * SECOND)
)


class Ticking:
    """A clock that a test moves; it begins where a machine's may."""

    def __init__(self) -> None:
        self.now = 123_456_789_012_345

    def __call__(self) -> int:
        return self.now


def wait(rates: RateLimiter, key: str | None = "a") -> int:
    """How many seconds a request is told to wait; 0 when it is let through."""
    try:
        rates.require(key)
    except TooMany as refusal:
        return refusal.retry_after
    return 0


def is_let_through(rates: RateLimiter, key: str | None = "a") -> bool:
    return not wait(rates, key)


@given(RATES, PAUSES)
def test_no_more_pass_than_a_bucket_holds_and_who_keeps_to_the_rate_is_never_refused(
    limit: Rate, pauses: list[int]
) -> None:
    clock = Ticking()
    rates, passed = RateLimiter(limit, clock), []
    for pause in pauses:
        clock.now += pause
        if is_let_through(rates):
            passed.append(clock.now)

    for first, since in enumerate(passed):
        for last, until in enumerate(passed[first:], first):
            filled = (until - since) * limit.count // limit.nanoseconds
            assert last - first + 1 <= limit.count + filled
    for pause in pauses:  # under another key, which takes nothing from the first
        clock.now += -(-limit.nanoseconds // limit.count) + pause
        assert is_let_through(rates, "b")


@given(RATES, PAUSES, st.integers(0, 50))
def test_who_waits_as_told_is_let_through_and_who_waits_a_second_less_is_not(
    limit: Rate, pauses: list[int], more: int
) -> None:
    clock = Ticking()
    rates = RateLimiter(limit, clock)
    for pause in [*pauses, *[0] * more]:
        clock.now += pause
        if told := wait(rates):
            assert told <= limit.nanoseconds // SECOND
            clock.now += (told - 1) * SECOND
            assert told == 1 or not is_let_through(rates)
            clock.now += SECOND
            assert is_let_through(rates)


def test_a_bucket_fills_and_a_refusal_says_how_often_and_how_long() -> None:
    clock = Ticking()
    rates, unlimited = RateLimiter(Rate(count=60, unit="m"), clock), RateLimiter(None)
    for key in ("a", None):
        assert [is_let_through(rates, key) for _ in range(61)] == [True] * 60 + [False]
    clock.now += SECOND
    assert [is_let_through(rates) for _ in range(2)] == [True, False]
    with pytest.raises(
        TooMany, match=r"^This key is used more often than 60/m; try again in 1 s.$"
    ):
        rates.require("a")
    clock.now += 60 * SECOND
    assert [is_let_through(rates, None) for _ in range(61)] == [True] * 60 + [False]
    with pytest.raises(TooMany, match=r"^This service is used more often than 60/m;"):
        rates.require(None)
    assert all(is_let_through(unlimited) for _ in range(10_000))
    assert len(unlimited) == 0


def test_a_key_is_forgotten_once_its_bucket_is_full_again() -> None:
    clock = Ticking()
    rates = RateLimiter(Rate(count=10, unit="s"), clock)
    for number in range(1_000):
        clock.now += SECOND // 100
        rates.require(f"key {number}")

    assert len(rates) <= 10


def test_of_too_many_keys_the_one_is_forgotten_that_asked_longest_ago() -> None:
    rates = RateLimiter(Rate(count=2, unit="h"), Ticking())
    keys = [f"key {number}" for number in range(MOST_KEYS)]
    for key in [*keys, keys[0], "one more"]:
        rates.require(key)

    assert len(rates) == MOST_KEYS
    assert not is_let_through(rates, keys[0])
    assert [is_let_through(rates, keys[2]) for _ in range(2)] == [True, False]
    assert [is_let_through(rates, keys[1]) for _ in range(2)] == [True, True]


service = lasting_with(MEMORY_RATE_LIMIT="3/h")


def test_a_service_refuses_what_is_over_its_limit_and_says_when_to_come_again(
    service: Service,
) -> None:
    answers = [service.http.get("/stats") for _ in range(5)]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    refused = answers[-1]
    seconds = int(refused.headers["retry-after"])
    assert 1190 <= seconds <= 1200
    assert refused.json() == {
        "error": f"This service is used more often than 3/h; try again in {seconds} s."
    }


def test_what_is_not_there_and_what_a_key_may_not_do_count_too(path: Path) -> None:
    with serving(path, MEMORY_RATE_LIMIT="3/h") as limited:
        answers = [limited.http.get("/nothing") for _ in range(2)]
        answers += [limited.http.put("/stats") for _ in range(2)]
        with calling(limited, made_key(limited.path, "reader")) as reader:
            denied = [reader.post("/observations", json=observation("x")) for _ in range(4)]

    assert [answer.status_code for answer in answers] == [404, 404, 405, 429]
    assert [answer.status_code for answer in denied] == [403, 403, 403, 429]


def test_the_start_and_the_end_of_a_session_and_health_are_never_refused(service: Service) -> None:
    for _ in range(5):
        answers = [
            service.http.post("/sessions", json={"id": "s1", "project": "demo"}),
            service.http.post("/sessions/s1/end"),
            service.http.get("/health"),
        ]

        assert [answer.status_code for answer in answers] == [201, 200, 200]
    told = [service.http.post("/sessions/s1/messages", json={"messages": []}) for _ in range(4)]
    assert told[-1].status_code == 429
