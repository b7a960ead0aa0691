"""What an update expects is compared and written at once, however many race."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ..support.database import assert_index_is_whole
from ..support.requirements import requirement
from ..support.service import PLAIN, Service
from ..support.service import lasting as service
from ..support.stores import (
    Object,
    at,
    entry,
    entry_at,
    fault,
    invalid,
    ok,
    refusal,
    update,
    versions,
)

__all__ = ["service"]

RACERS = 50
CONFLICT = (409, "conflict_error", "Version or state conflict.", None)
OTHER = "0" * 64


@pytest.mark.slow
@requirement("stores:decided:occ")
def test_an_update_that_expects_what_is_there_is_done(service: Service, home: Object) -> None:
    made = entry(service.http, home, "a", "one")
    sha256 = made["content_sha256"]

    two = update(service.http, home, made, "two", version=1)
    three = update(service.http, home, made, "three", content_sha256=two["content_sha256"].upper())
    four = update(
        service.http, home, made, "four", version=3, content_sha256=three["content_sha256"]
    )
    five = update(service.http, home, made, "one", version=None, content_sha256=None)

    assert [two["version"], three["version"], four["version"], five["version"]] == [2, 3, 4, 5]
    assert five["content_sha256"] == sha256


@pytest.mark.slow
@pytest.mark.parametrize(
    "expected",
    [{"version": 1}, {"version": 3}, {"version": 0}, {"version": -1}, {"version": 10**19},
     {"content_sha256": OTHER}, {"version": 2, "content_sha256": OTHER}],
)  # fmt: skip
@requirement("stores:decided:occ", "stores:error:409")
def test_an_update_that_expects_something_else_changes_nothing(
    service: Service, home: Object, expected: Object
) -> None:
    made = update(service.http, home, entry(service.http, home, "a", "one"), "two")

    answer = service.http.put(entry_at(home, made), json={"content": "three", **expected})

    assert refusal(answer) == CONFLICT
    assert ok(service.http.get(entry_at(home, made))) == made
    assert len(versions(service.http, home)) == 2


@requirement("stores:decided:occ")
def test_both_expectations_must_be_met(service: Service, home: Object) -> None:
    made = entry(service.http, home, "a", "one")
    body = {"content": "two", "version": 7, "content_sha256": made["content_sha256"]}

    assert refusal(service.http.put(entry_at(home, made), json=body)) == CONFLICT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value"),
    [("version", True), ("version", 1.0), ("version", "1"), ("version", [1]),
     ("content_sha256", "abc"), ("content_sha256", "g" * 64), ("content_sha256", "a" * 65),
     ("content_sha256", "a" * 64 + "\n"), ("content_sha256", 1), ("content_sha256", "")],
)  # fmt: skip
def test_an_expectation_that_is_none_is_refused_by_its_name(
    service: Service, home: Object, field: str, value: object
) -> None:
    made = entry(service.http, home, "a")

    answer = service.http.put(entry_at(home, made), json={"content": "x", field: value})

    assert fault(answer) == invalid(field)
    assert ok(service.http.get(entry_at(home, made))) == made


@pytest.mark.heavy
@requirement("stores:decided:occ-atomic")
@pytest.mark.parametrize("by", ["version", "content_sha256"])
def test_of_racing_updates_of_one_state_one_is_done(
    service: Service, home: Object, by: str
) -> None:
    made = entry(service.http, home, "a", "first")

    def race(number: int) -> httpx.Response:
        body = {"content": f"racer {number}", by: made[by]}
        return httpx.put(service.url + entry_at(home, made), json=body, timeout=30, verify=PLAIN)

    with ThreadPoolExecutor(RACERS) as pool:
        answers = list(pool.map(race, range(RACERS)))

    done = [answer.json() for answer in answers if answer.status_code == 200]
    refused = [refusal(answer) for answer in answers if answer.status_code != 200]
    assert len(done) == 1
    assert refused == [CONFLICT] * (RACERS - 1)
    assert ok(service.http.get(entry_at(home, made))) == done[0]
    assert len(versions(service.http, home)) == 2
    assert ok(service.http.get(at(home)))["total_size"] == done[0]["size"]
    assert_index_is_whole(service.path)


@requirement("stores:decided:occ-atomic", "stores:entries:path-taken")
def test_of_racing_creates_at_one_path_one_is_done(service: Service, home: Object) -> None:
    def race(number: int) -> httpx.Response:
        body = {"path": "a/b", "content": f"racer {number}"}
        return httpx.post(service.url + at(home, "memories"), json=body, timeout=30, verify=PLAIN)

    with ThreadPoolExecutor(RACERS) as pool:
        answers = list(pool.map(race, range(RACERS)))

    done = [answer.json() for answer in answers if answer.status_code == 201]
    refused = [refusal(answer) for answer in answers if answer.status_code != 201]
    assert len(done) == 1
    assert refused == [CONFLICT] * (RACERS - 1)
    told = ok(service.http.get(at(home)))
    assert (told["entry_count"], told["total_size"]) == (1, done[0]["size"])
    assert len(versions(service.http, home)) == 1


@pytest.mark.heavy
def test_racing_updates_that_expect_nothing_are_all_done(service: Service, home: Object) -> None:
    made = entry(service.http, home, "a", "first")

    def race(number: int) -> int:
        body = {"content": f"racer {number}"}
        answer = httpx.put(service.url + entry_at(home, made), json=body, timeout=30, verify=PLAIN)
        numbered: int = answer.json()["version"]
        return numbered

    with ThreadPoolExecutor(RACERS) as pool:
        assert sorted(pool.map(race, range(RACERS))) == list(range(2, RACERS + 2))
    assert len(versions(service.http, home, limit="100")) == RACERS + 1
