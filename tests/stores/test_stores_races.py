"""What an update expects is compared and written at once, however many race."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ..support.files import assert_index_is_whole
from ..support.requirements import requirement
from ..support.samples import for_each, sampled
from ..support.service import PLAIN, Service, lasting as service
from ..support.stores import (
    Object,
    at,
    entry,
    entry_at,
    fault,
    invalid,
    ok,
    refusal,
    store,
    update,
    versions,
)

__all__ = ["service"]

RACERS = 50
CONFLICT = (409, "conflict_error", "Version or state conflict.", None)


@requirement("stores:decided:occ", "stores:error:409")
def test_an_update_is_done_if_it_expects_what_is_there_and_else_changes_nothing(
    service: Service, home: Object
) -> None:
    made = entry(service.http, home, "a", "one")
    one = made["content_sha256"]
    two = update(service.http, home, made, "two", version=1)
    for expected in [
        {"version": 1}, {"version": 3}, {"version": 0}, {"version": -1}, {"version": 10**19},
        {"content_sha256": one}, {"version": 2, "content_sha256": one},
        {"version": 7, "content_sha256": two["content_sha256"]},
    ]:  # fmt: skip
        body = {"content": "three", **expected}
        assert refusal(service.http.put(entry_at(home, made), json=body)) == CONFLICT, expected
    assert ok(service.http.get(entry_at(home, made))) == two
    assert len(versions(service.http, home)) == 2

    three = update(service.http, home, made, "three", content_sha256=two["content_sha256"].upper())
    both = {"version": 3, "content_sha256": three["content_sha256"]}
    assert update(service.http, home, made, "four", **both)["version"] == 4
    last = update(service.http, home, made, "one", version=None, content_sha256=None)
    assert (last["version"], last["content_sha256"]) == (5, one)


@for_each(
    "field, value",
    [("version", True), ("version", 1.0), ("version", "1"), ("version", [1]),
     ("content_sha256", "abc"), ("content_sha256", "g" * 64), ("content_sha256", "a" * 65),
     ("content_sha256", "a" * 64 + "\n"), ("content_sha256", 1), ("content_sha256", "")],
)  # fmt: skip
def test_an_expectation_that_is_none_is_refused_by_its_name(
    service: Service, field: str, value: object
) -> None:
    home = store(service.http)
    made = entry(service.http, home, "a")

    answer = service.http.put(entry_at(home, made), json={"content": "x", field: value})

    assert fault(answer) == invalid(field)
    assert ok(service.http.get(entry_at(home, made))) == made


RACES: dict[str, Object] = {
    "create": {"path": "a/b"}, "version": {"version": 1}, "content_sha256": {}, "nothing": {},
}  # fmt: skip


@requirement("stores:decided:occ-atomic", "stores:entries:path-taken")
@pytest.mark.parametrize("race", sampled(RACES, 4))
def test_of_racing_writes_one_is_done_unless_they_expect_nothing(
    service: Service, home: Object, race: str
) -> None:
    expected, url, method = RACES[race], at(home, "memories"), "POST"
    if race != "create":
        made = entry(service.http, home, "a/b", "first")
        expected = expected or {race: made["content_sha256"]} if race != "nothing" else {}
        url, method = entry_at(home, made), "PUT"

    def write(number: int) -> httpx.Response:
        body = {"content": f"racer {number}", **expected}
        return httpx.request(method, service.url + url, json=body, timeout=30, verify=PLAIN)

    with ThreadPoolExecutor(RACERS) as pool:
        answers = list(pool.map(write, range(RACERS)))

    done = [answer.json() for answer in answers if answer.is_success]
    before = race != "create"
    if race == "nothing":
        assert sorted(it["version"] for it in done) == list(range(2, RACERS + 2))
        assert len(versions(service.http, home, limit="100")) == RACERS + 1
        return
    assert [refusal(it) for it in answers if it.is_error] == [CONFLICT] * (RACERS - 1)
    assert ok(service.http.get(entry_at(home, done[0]))) == done[0]
    told = ok(service.http.get(at(home)))
    assert (told["entry_count"], told["total_size"]) == (1, done[0]["size"])
    assert len(versions(service.http, home)) == 1 + before
    assert_index_is_whole(service.path)
