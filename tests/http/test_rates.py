"""How often a key may ask: as a rate says, and never more."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentops_memory.errors import TooMany
from agentops_memory.http.gate import MOST_KEYS, RateLimiter
from agentops_memory.settings.parsing import Rate, rate

from ..support.callers import calling, made_key
from ..support.samples import for_each
from ..support.service import Service, observation, serving

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


@for_each(
    "text, expected",
    [
        ("", None), ("50/s", Rate(count=50, unit="s")), ("600/m", Rate(count=600, unit="m")),
        ("20000/h", Rate(count=20_000, unit="h")), ("1/h", Rate(count=1, unit="h")),
        ("1000000/s", Rate(count=1_000_000, unit="s")),
    ],
)  # fmt: skip
def test_a_rate_is_a_number_and_a_unit(text: str, expected: Rate | None) -> None:
    assert rate(text) == expected
    assert str(expected or "") == text


@for_each(
    "text",
    ["50", "/s", "0/s", "-1/s", "1000001/s", "1.5/s", "50/d", "50/sec", "50 /s", "50/S", "1e3/s",
     "50/s ", "\u0661/s", "9" * 5000 + "/s", "unlimited"],
)  # fmt: skip
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate such as 50/s, 600/m or 20000/h, from 1 to"):
        rate(text)


@given(RATES, PAUSES)
def test_no_more_pass_than_a_bucket_holds_and_time_fills(limit: Rate, pauses: list[int]) -> None:
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


@given(RATES, PAUSES)
def test_who_keeps_to_the_rate_is_never_refused(limit: Rate, pauses: list[int]) -> None:
    clock = Ticking()
    rates, least = RateLimiter(limit, clock), -(-limit.nanoseconds // limit.count)
    for pause in pauses:
        clock.now += least + pause

        assert is_let_through(rates)


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


@given(st.lists(st.tuples(st.integers(0, SECOND), st.sampled_from(["a", "b", None]))))
def test_keys_do_not_take_from_each_other(asked: list[tuple[int, str | None]]) -> None:
    clock, limit = Ticking(), Rate(count=3, unit="s")
    together, alone = (
        RateLimiter(limit, clock),
        {key: RateLimiter(limit, clock) for key in ("a", "b", None)},
    )
    for pause, key in asked:
        clock.now += pause

        assert is_let_through(together, key) == is_let_through(alone[key], key)


def test_after_a_quiet_unit_all_of_its_requests_may_come_at_once() -> None:
    clock = Ticking()
    rates = RateLimiter(Rate(count=60, unit="m"), clock)

    assert [is_let_through(rates) for _ in range(61)] == [True] * 60 + [False]
    clock.now += SECOND
    assert [is_let_through(rates) for _ in range(2)] == [True, False]
    clock.now += 60 * SECOND
    assert [is_let_through(rates) for _ in range(61)] == [True] * 60 + [False]


def test_a_refusal_says_how_often_and_how_long() -> None:
    rates = RateLimiter(Rate(count=1, unit="m"), Ticking())
    for key in ("a", None):
        rates.require(key)

    with pytest.raises(
        TooMany, match=r"^This key is used more often than 1/m; try again in 60 s.$"
    ):
        rates.require("a")
    with pytest.raises(TooMany, match=r"^This service is used more often than 1/m;"):
        rates.require(None)


def test_without_a_limit_everything_passes_and_nothing_is_remembered() -> None:
    rates = RateLimiter(None)

    assert all(is_let_through(rates) for _ in range(10_000))
    assert len(rates) == 0


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


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path = tmp_path_factory.mktemp("service") / "memory.db"
    with serving(path, MEMORY_RATE_LIMIT="3/h") as running:
        yield running


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


def test_what_is_not_there_counts_too(path: Path) -> None:
    with serving(path, MEMORY_RATE_LIMIT="3/h") as limited:
        answers = [limited.http.get("/nothing") for _ in range(2)]
        answers += [limited.http.put("/stats") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [404, 404, 405, 429]


def test_what_a_key_may_not_do_counts_too(path: Path) -> None:
    with serving(path, MEMORY_RATE_LIMIT="3/h") as limited:
        token = made_key(limited.path, "reader")
        with calling(limited, token) as reader:
            answers = [reader.post("/observations", json=observation("x")) for _ in range(4)]

    assert [answer.status_code for answer in answers] == [403, 403, 403, 429]


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


@pytest.mark.heavy
def test_by_default_there_is_no_limit(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("free") / "memory.db") as free:
        saves = [free.http.post("/observations", json=observation("again")) for _ in range(200)]

    assert {answer.status_code for answer in saves} == {201}
