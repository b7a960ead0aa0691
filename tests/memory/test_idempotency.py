"""A request with an idempotency key is done once, and the same answer is given again."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory.http.bodies import KEY_HEADERS
from agentops_memory.memory import redactor
from agentops_memory.memory.access import DEFAULT_TENANT, NOT_YOUR_PROJECT, Role, issued, patterns

from ..support.answers import ANTHROPIC
from ..support.callers import OPERATOR, calling, heard, key_file, made_key
from ..support.engines import broken, rows
from ..support.erasing import gone, remains
from ..support.raw import Wire, request
from ..support.requirements import requirement
from ..support.service import PLAIN, START, Service, observation, serving
from ..support.stores import STORES
from ..telemetry.test_tracing import traced

KEY = "5b1d7e0c-order-17"
REUSED = {"error": "Idempotency key reused with a different request body."}
NOT_A_KEY = {"error": "An idempotency key must have 1 to 255 visible ASCII characters."}
ERASED = {"error": "This was done, but its response has been erased."}
SEVERAL = {"error": "A request may have only one idempotency key; this one has several."}

Ask = tuple[str, str, object]

TRANSCRIPT = {"messages": [{"role": "user", "content": "Ship it"}]}
OTHER_TRANSCRIPT = {"messages": [{"role": "user", "content": "Wait"}]}
RACERS = 24
SECRET = "AKIA" + "QZXV7RARE" + "K3YQ9AB"

# Each route that takes a key: the request, one that is another, and the status for a caller whose
# patterns do not match.
ROUTES = {
    "create_session": (
        "POST", "/sessions", {"id": "s9", "project": "demo"}, "/sessions?again=1", 403,
    ),
    "append_messages": (
        "POST", "/sessions/s1/messages", TRANSCRIPT, "/sessions/s2/messages", 403,
    ),
    "end_session": ("POST", "/sessions/s1/end", TRANSCRIPT, "/sessions/s2/end", 403),
    "add_observation": (
        "POST", "/observations", observation("blue whales sing"), "/observations?again=1", 403,
    ),
    "update_observation": (
        "PATCH", "/observations/1", {"title": "new", "content": "Newer."}, "/observations/2", 404,
    ),
    "restore_observation": (
        "POST", "/observations/1/restore", {"revision": 1}, "/observations/2/restore", 404,
    ),
    "confirm_observation": (
        "POST", "/observations/1/confirm", None, "/observations/2/confirm", 404,
    ),
    "delete_observation": ("DELETE", "/observations/1", None, "/observations/2", 204),
    "delete_observation, hard": (
        "DELETE", "/observations/1?hard=true", None, "/observations/2?hard=true", 204,
    ),
}  # fmt: skip


def ask(
    http: httpx.Client, method: str, path: str, body: object = None, key: str = KEY
) -> httpx.Response:
    return http.request(method, path, json=body, headers={"Idempotency-Key": key})


def saving(http: httpx.Client, content: str, key: str = KEY, **fields: object) -> httpx.Response:
    return ask(http, "POST", "/observations", observation(content, **fields), key)


def told(answer: httpx.Response) -> tuple[int, bytes, str | None, str | None]:
    """What must be the same again."""
    headers = answer.headers
    return (
        answer.status_code, answer.content, headers.get("x-erasure-id"), headers.get("x-redacted"),
    )  # fmt: skip


def is_replay(answer: httpx.Response) -> bool:
    replayed: str | None = answer.headers.get("idempotent-replayed")
    return replayed == "true"


def refusal(answer: httpx.Response) -> tuple[int, object]:
    return answer.status_code, answer.json()


def records(path: Path) -> int:
    ((number,),) = rows(path, "SELECT count(*) FROM done")
    return int(number)


@pytest.fixture
def two(service: Service) -> Service:
    """A service with two observations, each with a revision more than it began with."""
    for content in ("walnut trees grow", "pear trees grow"):
        memory = service.save(content)["id"]
        service.http.patch(f"/observations/{memory}", json={"title": f"of {content}"})
    return service


class Holder:
    """A key that is narrowed."""

    def __init__(self, service: Service) -> None:
        self._path = service.path
        self._key, token = issued("holder", DEFAULT_TENANT, Role.ADMIN, patterns(("*",)), START)
        self.narrow("*")
        self.http = calling(service, token)

    def narrow(self, *projects: str, role: Role = Role.ADMIN) -> None:
        key = replace(self._key, projects=patterns(projects), role=role)
        key_file(self._path).create(key, at=START, by=OPERATOR)
        heard(self._path)


@pytest.fixture
def holder(two: Service) -> Iterator[Holder]:
    holder = Holder(two)
    with holder.http:
        yield holder


# The same request again


@pytest.mark.slow
@pytest.mark.representative(3)
@pytest.mark.parametrize("route", ROUTES)
def test_a_request_is_done_once_and_its_key_stands_for_no_other_and_shows_no_more_than_without(
    two: Service, holder: Holder, route: str
) -> None:
    method, path, body, other, narrowed = ROUTES[route]
    first = ask(holder.http, method, path, body)
    two.clock.advance(hours=1)
    exported = holder.http.get("/export").json()
    again = [ask(holder.http, method, path, body) for _ in range(2)]

    assert first.is_success
    assert not is_replay(first)
    assert [told(answer) for answer in again] == [told(first)] * 2
    assert all(map(is_replay, again))
    assert refusal(ask(holder.http, method, other, body)) == (409, REUSED)
    assert holder.http.get("/export").json() == exported

    holder.narrow("other-*")
    denied = ask(holder.http, method, path, body)

    assert (denied.status_code, bool(denied.content)) == (narrowed, narrowed != 204)
    assert told(denied) == told(holder.http.request(method, path, json=body))
    if narrowed == 403:
        assert denied.json() == {"error": NOT_YOUR_PROJECT}


LONG = {"messages": [{"role": "user", "content": "x" * (2 * 1024 * 1024)}]}
# Requests that differ in their method or in their body, which may come in a file.
OTHERS: list[tuple[Ask, Ask]] = [
    (("PATCH", "/observations/1", {}), ("DELETE", "/observations/1", {})),
    (
        ("POST", "/observations", observation("a pear")),
        ("POST", "/observations", observation("a pear", title="x")),
    ),
    (("POST", "/sessions/s1/end", TRANSCRIPT), ("POST", "/sessions/s1/end", OTHER_TRANSCRIPT)),
    (("DELETE", "/observations/9", None), ("DELETE", "/observations/9", {"reason": "none"})),
    (("POST", "/sessions/s2/end", LONG), ("POST", "/sessions/s2/end", LONG | {"at": "b"})),
]


@pytest.mark.slow
def test_a_key_is_not_taken_for_another_method_or_body(two: Service) -> None:
    for number, (first, other) in enumerate(OTHERS):
        key = f"key-{number}"
        answer = ask(two.http, *first, key)

        assert refusal(ask(two.http, *other, key)) == (409, REUSED), other
        assert told(ask(two.http, *first, key)) == told(answer)


def test_without_a_key_each_request_is_done(service: Service) -> None:
    answers = [service.save("a pear") for _ in range(3)]

    assert [answer["duplicate_count"] for answer in answers] == [1, 2, 3]
    assert records(service.path) == 0


def test_an_older_spelling_of_the_header_means_the_same(service: Service) -> None:
    body = observation("a pear")
    spelled: list[list[tuple[str, str]]] = [
        [("Idempotency-Key", KEY)],
        [("X-Idempotency-Key", KEY)],
        [("X-Idempotency-Key", KEY), ("idempotency-key", KEY), ("idempotency-key", KEY)],
    ]

    answers = [service.http.post("/observations", json=body, headers=it) for it in spelled]

    assert len({told(answer) for answer in answers}) == 1
    assert [is_replay(answer) for answer in answers] == [False, True, True]


# What has changed since


PEAR: Ask = ("POST", "/observations", observation("a pear", topic_key="fruit"))
NEWER: Ask = ("PATCH", "/observations/1", {"content": "Newer.", "tags": ["one"]})
NO_MEMORY = {"error": "No such observation."}
NO_SESSION = {"error": "No such session."}
ERASE_PROJECT: list[Ask] = [("DELETE", "/projects/demo?hard=true", None)]

# A request; what is done after it; and what is answered again, if that is not the same.
CHANGED: dict[str, tuple[Ask, list[Ask], object]] = {
    "a save that was replaced and deleted": (
        PEAR,
        [("POST", "/observations", observation("an apple", topic_key="fruit")),
         ("DELETE", "/observations/3", None)], None,
    ),
    "a save that was erased": (
        PEAR, [("DELETE", "/observations/3?hard=true", None)], (404, ERASED),
    ),
    "a change of what was erased": (
        NEWER, [("DELETE", "/observations/1?hard=true", None)], (404, NO_MEMORY),
    ),
    "an opened session that was erased": (
        ("POST", "/sessions", {"id": "s9", "project": "demo"}), ERASE_PROJECT, (404, NO_SESSION),
    ),
    "an ended session that was erased": (
        ("POST", "/sessions/s1/end", TRANSCRIPT), ERASE_PROJECT, (404, NO_SESSION),
    ),
    "a deletion of what came back": (
        ("DELETE", "/observations/1", None),
        [("POST", "/observations/1/restore", {"revision": 1})], None,
    ),
    "an erasure of what was not there and has been erased since": (
        ("DELETE", "/observations/3?hard=true", None),
        [("POST", "/observations", observation("a plum")),
         ("DELETE", "/observations/3?hard=true", None)], None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_what_has_changed_since_changes_no_answer_and_what_was_erased_is_not_told(
    two: Service, name: str
) -> None:
    request_, since, expected = CHANGED[name]
    two.http.post("/sessions/s1/end", json=TRANSCRIPT).raise_for_status()
    first = ask(two.http, *request_)
    two.clock.advance(minutes=1)
    for method, path, body in since:
        two.http.request(method, path, json=body).raise_for_status()
    exported = two.http.get("/export").json()

    again = ask(two.http, *request_)

    assert first.is_success
    assert told(again) == told(first) if expected is None else refusal(again) == expected
    assert two.http.get("/export").json() == exported  # nothing is done again


def test_a_restored_secret_is_counted_again(two: Service) -> None:
    rows(two.path, f"UPDATE revisions SET title = '{SECRET}' WHERE number = 1")
    first = ask(two.http, "POST", "/observations/1/restore", {"revision": 1})

    again = ask(two.http, "POST", "/observations/1/restore", {"revision": 1})

    assert first.headers["x-redacted"] == "1"
    assert told(again) == told(first)


# For how long, and of what


def test_it_is_kept_for_a_day_and_not_an_instant_longer(service: Service) -> None:
    first = saving(service.http, "a pear")
    service.clock.advance(hours=24, microseconds=-1)
    again = saving(service.http, "a pear")
    service.clock.advance(microseconds=1)
    anew = saving(service.http, "a pear")

    assert (is_replay(again), told(again)) == (True, told(first))
    assert (is_replay(anew), anew.json()["id"]) == (False, 2)
    assert told(saving(service.http, "a pear")) == told(anew)
    service.clock.advance(hours=24)
    assert saving(service.http, "an apple").json()["id"] == 3


def test_what_was_refused_or_failed_is_not_remembered(service: Service) -> None:
    assert ask(service.http, "PATCH", "/observations/9", {"title": "new"}).status_code == 404
    assert saving(service.http, "").status_code == 400
    with broken(service.path, "INSERT", "done"):  # the disk takes the change, not its record
        assert saving(service.http, "a pear", topic_key="fruit").status_code == 409
        assert service.http.get("/stats").json()["total_observations"] == 0
    assert records(service.path) == 0

    answer = saving(service.http, "a pear", topic_key="fruit")
    assert (answer.json()["action"], is_replay(answer)) == ("created", False)
    path = f"/observations/{answer.json()['id']}"  # a failed one may have used up an id
    assert ask(service.http, "PATCH", path, {"title": "new"}, "another").status_code == 200
    service.http.delete(path)
    other = service.save("a plum", topic_key="fruit")["id"]
    restoring = ("POST", f"{path}/restore", {"revision": 1}, "restoring")
    assert ask(service.http, *restoring).status_code == 409
    service.http.delete(f"/observations/{other}")
    assert ask(service.http, *restoring).status_code == 200


def test_a_tenant_that_is_more_than_full_takes_no_record(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redactor, "QUOTA_MARGIN", 0)
    with serving(path, MEMORY_TENANT_QUOTA="1") as service:
        assert ask(service.http, "DELETE", "/observations/1").status_code == 507
        assert service.http.delete("/observations/1").status_code == 204
        assert records(service.path) == 0


# Where it holds


@pytest.mark.parametrize("is_one", [True, False])
def test_of_many_at_once_one_is_done_and_the_others_are_told_of_it(
    service: Service, is_one: bool
) -> None:
    barrier = threading.Barrier(RACERS)

    def racer(number: int) -> httpx.Response:
        barrier.wait(30)
        return saving(http, "a pear" if is_one else f"pear {number}")

    limits = httpx.Limits(max_connections=RACERS)
    with (
        httpx.Client(base_url=service.url, limits=limits, verify=PLAIN) as http,
        ThreadPoolExecutor(RACERS) as threads,
    ):
        answers = [*threads.map(racer, range(RACERS))]

    if is_one:
        assert len({told(answer) for answer in answers}) == 1
        assert sorted(map(is_replay, answers)) == [False, *[True] * (RACERS - 1)]
    else:
        assert sorted(answer.status_code for answer in answers) == [201, *[409] * (RACERS - 1)]
    assert rows(service.path, "SELECT id, duplicates FROM memories") == [(1, 1)]


# Whose it is


@requirement("stores:idempotency:holder")
def test_each_holder_has_keys_of_its_own(service: Service) -> None:
    tokens = [made_key(service.path), made_key(service.path), made_key(service.path, tenant="acme")]

    ids, stores = [], set()
    for token in tokens:
        with calling(service, token) as http:
            answers = [saving(http, f"a pear of {token[4:16]}") for _ in range(2)]
            stores.add(ask(http, "POST", STORES, {"name": "Mine"}, "store").json()["id"])
        assert [is_replay(answer) for answer in answers] == [False, True]
        ids.append(answers[1].json()["id"])
    assert ids == [1, 2, 1]
    assert len(stores) == 3


def test_a_narrowed_key_is_told_of_nothing_that_it_could_not_do_any_more(
    service: Service, holder: Holder
) -> None:
    erasing = ("DELETE", "/observations/3?hard=true")
    opening = ("POST", "/sessions", {"id": "s1", "project": "side"})
    assert ask(holder.http, *erasing).status_code == 204
    assert ask(holder.http, *opening, "opening").json()["project"] == "demo"
    assert saving(holder.http, "a pear", "saving", scope="global").status_code == 201

    holder.narrow("demo")
    assert ask(holder.http, *erasing).status_code == 403  # for the global one that has come since
    assert refusal(ask(holder.http, *opening, "opening")) == (403, {"error": NOT_YOUR_PROJECT})
    holder.narrow("*", role=Role.READER)
    assert saving(holder.http, "a pear", "saving", scope="global").status_code == 403
    assert saving(service.http, "a pear", "saving", scope="global").status_code == 401


@requirement("stores:idempotency:again", "anthropic:once")
def test_a_narrowed_key_is_told_of_no_write_to_a_store(holder: Holder) -> None:
    sent = list[tuple[str, str, object, str]]()

    def write(method: str, path: str, body: object = None) -> str:
        sent.append((method, path, body, f"k{len(sent)}"))
        answer = ask(holder.http, *sent[-1])
        assert answer.is_success, answer.text
        return str(answer.json()["id"]) if answer.content else ""

    store = f"{ANTHROPIC}/{write('POST', ANTHROPIC, {'name': 'Mine'})}"
    write("POST", store, {"name": "Ours"})
    entries = f"{store}/memories"
    entry = f"{entries}/{write('POST', entries, {'path': '/a', 'content': 'b'})}"
    write("POST", entry, {"content": "c"})
    write("DELETE", entry)
    write("POST", f"{store}/archive")

    holder.narrow("demo")
    assert [ask(holder.http, *it).status_code for it in sent] == [403] * len(sent)


def test_the_rate_of_a_key_counts_replays(path: Path) -> None:
    with (
        serving(path, MEMORY_RATE_LIMIT="3/h") as service,
        calling(service, made_key(service.path)) as http,
    ):
        answers = [saving(http, "a pear").status_code for _ in range(4)]

    assert answers == [201, 201, 201, 429]


# What is no key


def test_a_key_is_any_visible_ascii_and_there_is_one(service: Service) -> None:
    keys = ["k", "~" * 255, '"quoted"', "!", "a,b"]
    for key in keys:
        assert [is_replay(saving(service.http, "a pear", key)) for _ in range(2)] == [False, True]

    for name, wrong in product(KEY_HEADERS, [b"", b"k" * 256, b"a b", b"a\tb", "ä".encode()]):
        assert refused(service, [(name.encode(), wrong)]) == (400, NOT_A_KEY), wrong
    names = [KEY_HEADERS, KEY_HEADERS[:1] * 2, KEY_HEADERS[::-1]]
    for pair, values in product(names, [("a", "b"), ("a", ""), ("a", "A")]):
        assert refused(service, [*zip(pair, values, strict=True)]) == (400, SEVERAL)
    assert rows(service.path, "SELECT duplicates FROM memories") == [(len(keys),)]


def refused(service: Service, headers: list[tuple[Any, Any]]) -> tuple[int, object]:
    answer = service.http.post("/observations", json=observation("a pear"), headers=headers)
    return refusal(answer)


def test_white_space_around_a_key_is_none_of_it(client: Wire) -> None:
    for padded in (" k", "k  \t", "\tk "):
        client.send(request("DELETE", "/observations/7", idempotency_key=padded))
        answer = client.answer()
        assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["idempotent-replayed"] == "true"


# Where it means nothing


@pytest.mark.slow
@pytest.mark.parametrize("key", [KEY, "not a key"])
def test_what_reads_and_what_is_done_once_anyhow_does_not_look_at_it(
    two: Service, key: str
) -> None:
    exported = two.http.get("/export").json()
    requests: list[tuple[str, str, object, int]] = [
        ("GET", "/observations/1", None, 200), ("GET", "/stats", None, 200),
        ("GET", "/export", None, 200), ("POST", "/import", exported, 200),
        ("POST", "/import", {}, 200), ("DELETE", "/projects/demo?hard=true", None, 200),
        ("GET", "/observations/1", None, 404),
    ]  # fmt: skip

    answers = [ask(two.http, method, path, body, key) for method, path, body, _ in requests]

    assert [answer.status_code for answer in answers] == [status for *_, status in requests]
    assert not any(map(is_replay, answers))
    assert records(two.path) == 0
    assert exported.keys() == {"exported_at", "sessions", "observations"}


# What is kept


def test_no_key_is_kept_and_no_text_once_it_is_erased(tmp_path: Path) -> None:
    words = ("xylograph", "zanzibar", "quokka", "nasturtium", "orders-only-key")
    with serving(tmp_path / "memory.db") as service:
        fields = {"session_id": "quokka", "tags": ["nasturtium"], "title": "zanzibar"}
        memory = saving(service.http, "xylograph", words[4], **fields).json()["id"]
        change = {"title": "zanzibar xylograph"}
        ask(service.http, "PATCH", f"/observations/{memory}", change, "orders-only-key-2")
        restoring = ("POST", f"/observations/{memory}/restore", {"revision": 1})
        ask(service.http, *restoring, "orders-only-key-3")
        said = {"messages": [{"role": "user", "content": "xylograph"}]}
        ask(service.http, "POST", "/sessions/quokka/end", said, "orders-only-key-4")
        stored = repr(rows(service.path, "SELECT answer FROM done"))
        assert all(word in stored for word in words[:4])
        erasing = ("DELETE", f"/observations/{memory}?hard=true", None)
        ask(service.http, *erasing, "orders-only-key-5")
        erasure = service.http.delete("/projects/demo?hard=true").headers["X-Erasure-Id"]
        gone(service.http, erasure)
        kept = rows(service.path, "SELECT key, request, status, answer FROM done")
        assert remains(tmp_path, *words) == set()

    assert len(kept) == 5
    assert not any(word in repr(kept) for word in words)
    assert {len(digest) for key, request_, *_ in kept for digest in (key, request_)} == {32}
    assert {status for _, _, status, _ in kept} <= {200, 201, 204}


def test_the_status_is_that_of_the_first_answer(service: Service) -> None:
    first = saving(service.http, "a pear", "kept")
    saving(service.http, "a pear", "other")
    assert rows(service.path, "SELECT count(DISTINCT request) FROM done") == [(2,)]
    rows(service.path, "UPDATE done SET status = 202")  # as if the route had had another one then

    again = saving(service.http, "a pear", "kept")

    assert (first.status_code, again.status_code) == (201, 202)
    assert again.content == first.content


# What is told of it


def test_a_replay_is_told_on_the_span_of_its_request(tmp_path: Path) -> None:
    with traced(tmp_path) as (service, received):
        for _ in range(2):
            saving(service.http, "a pear")
        collector = received()

    spans = collector.all("memory.add_observation")
    assert [span.attributes.get("memory.idempotent_replay") for span in spans] == [None, True]
    assert len(collector.all("store.add_observation")) == 2
