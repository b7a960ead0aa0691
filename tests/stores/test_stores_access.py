"""Who may use memory stores in either dialect; nothing else of the service sees into them."""

from pathlib import Path

import httpx
import pytest

from ..support.callers import audit, calling, made_key
from ..support.engines import rows
from ..support.files import assert_index_is_whole
from ..support.requirements import requirement
from ..support.service import Service, observation, serving
from ..support.store_dialects import (
    ANTHROPIC,
    CLOUD,
    UNKNOWN,
    Dialect,
    every_request,
    in_both,
    stocked,
)
from ..support.stores import (
    STORES,
    Object,
    at,
    entry,
    entry_at,
    ids,
    ok,
    store,
    version_at,
    versions,
)

WORD = "xylographer"
ROLES = ("reader", "writer", "admin")


def client(service: Service, role: str, *projects: str, tenant: str = "default") -> httpx.Client:
    return calling(service, made_key(service.path, role, tenant, projects or ("*",)))


@requirement("stores:roles", "stores:error:403", "anthropic:keys:roles")
@pytest.mark.representative(3)
@pytest.mark.parametrize("role", ROLES)
@in_both
def test_a_key_does_what_its_role_may_and_no_more(
    service: Service, dialect: Dialect, role: str
) -> None:
    every = every_request(*stocked(service.http), dialect)
    may = ROLES[: ROLES.index(role) + 1]
    with client(service, role) as http:
        answers = [(it, it.send(http)) for it in every]

    for it, answer in answers:
        if it.role in may:
            assert answer.status_code == it.status, (it, answer.text)
        else:
            assert dialect.fault(answer) == (403, "permission_error"), it


@requirement("stores:error:403", "anthropic:keys:projects")
@in_both
def test_a_key_for_some_projects_has_no_stores(service: Service, dialect: Dialect) -> None:
    known = stocked(service.http)
    for projects in (("billing",), ("billing-*", "shop")):
        with client(service, "admin", *projects) as http:
            for ids_ in (known, UNKNOWN):
                for it in every_request(*ids_, dialect):
                    unread = {"json": None, "content": b"{"} if dialect is CLOUD else {}
                    told = dialect.refusal(it.send(http, **unread))
                    sentence = "Memory stores are for keys that act on every project."
                    assert told == (403, "permission_error", sentence, None), it


@pytest.mark.slow
@requirement("anthropic:sdk:keys", "stores:error:401", "stores:auth:authorization")
@in_both
def test_without_a_key_that_works_nothing_is_done(service: Service, dialect: Dialect) -> None:
    every = every_request(*stocked(service.http), dialect)
    made_key(service.path)
    for token in (None, "amk_nobody", ""):
        with calling(service, token) as http:
            strange = [http.get(f"{dialect.prefix}/x"), http.put(dialect.stores)]
            for answer in (*(it.send(http) for it in every), *strange):
                assert dialect.fault(answer) == (401, "authentication_error")
                assert answer.headers["www-authenticate"] == "Bearer"


# What is done for good is noted once, and only when it is done.


def noted(path: Path) -> list[tuple[object, object, object]]:
    """The deeds in stores that the audit has, by which key, and of how many entries."""
    lines = [line for line in audit(path) if "store" in line]
    return [(line["action"], line["by"], line.get("observations")) for line in lines]


@requirement("anthropic:keys:roles")
def test_a_redaction_is_noted_once_however_often_it_is_asked_for(path: Path) -> None:
    token = made_key(path)
    with serving(path) as service, calling(service, token) as http:
        home = store(http)
        entry(http, home, "a.md")
        (head,) = versions(http, home)
        theirs = f"{ANTHROPIC.at(home, 'versions', head['id'])}/redact"
        ours, key = f"{version_at(home, head)}/redact", {"Idempotency-Key": "k1"}

        asked = [
            http.post(theirs),  # it is the current one: refused
            http.post(ours, headers=key),
            http.post(ours, headers=key),
            http.post(ours),
            http.post(theirs),  # it is still
            http.post(ours, headers={"Idempotency-Key": "k2"}),
            http.post(f"{at(home, 'versions')}/memver_{'0' * 32}/redact"),
        ]

    assert [it.status_code for it in asked] == [400, 200, 200, 409, 400, 409, 404]
    assert noted(path) == [("version.redacted", {"key": token.split("_")[1]}, None)]


@requirement("anthropic:keys:roles")
@in_both
def test_a_deletion_is_noted_once_and_not_under_a_key_that_was_used(
    path: Path, dialect: Dialect
) -> None:
    token = made_key(path)
    with serving(path) as service, calling(service, token) as http:
        one, other = (store(http) for _ in range(2))
        entry(http, one, "a")
        key = {"Idempotency-Key": "k1"}

        asked = [
            http.delete(dialect.at(one), headers=key), http.delete(dialect.at(one), headers=key),
            http.delete(dialect.at(other), headers=key), http.delete(dialect.at(one)),
        ]  # fmt: skip

        assert asked[0].is_success
        assert asked[0].content == asked[1].content
        assert [answer.status_code for answer in asked[2:]] == [409, 404]
        assert ids(http.get(STORES)) == [other["id"]]
    assert noted(path) == [("store.deleted", {"key": token.split("_")[1]}, 1)]


# Stores and projects are apart


@pytest.fixture
def beside(service: Service) -> tuple[Service, Object, Object, int]:
    """An entry of a store beside an observation; and the entry's number in the database."""
    service.save(f"The {WORD} of a project.", project="demo", topic_key="notes/a")
    home = store(service.http)
    made = entry(service.http, home, "notes/a", f"The {WORD} of a store.")
    ((number,),) = rows(service.path, "SELECT id FROM memories WHERE session_id IS NULL")
    return service, home, made, number


@requirement("stores:apart")
def test_no_route_of_agentops_reaches_an_entry(beside: tuple[Service, Object, Object, int]) -> None:
    service, home, made, number = beside
    http, never = service.http, 999_999

    for method, path, body in [
        ("GET", "/observations/{}", None), ("GET", "/observations/{}/history", None),
        ("PATCH", "/observations/{}", {"title": "mine"}),
        ("POST", "/observations/{}/restore", {"revision": 1}), ("DELETE", "/observations/{}", None),
        ("DELETE", "/observations/{}?hard=true", None),
        ("GET", "/timeline?observation_id={}", None),
        ("GET", "/observations/recent?before_id={}", None),
        ("GET", f"/search?q={WORD}&explain=true&why_not={{}}", None),
        ("GET", f"/context?project=demo&query={WORD}&why_not={{}}", None),
    ]:  # fmt: skip
        told, known = (http.request(method, path.format(id_), json=body) for id_ in (number, never))
        assert told.status_code == known.status_code
        assert told.text.replace(f'"id":{number},', f'"id":{never},') == known.text
        assert "X-Erasure-Id" not in told.headers
    assert ok(http.get(entry_at(home, made))) == made
    assert len(versions(http, home)) == 1


@requirement("stores:apart")
def test_an_import_with_the_id_of_an_entry_leaves_the_entry_alone(
    beside: tuple[Service, Object, Object, int],
) -> None:
    service, home, made, number = beside
    row = observation("From elsewhere.", uid=made["id"].removeprefix("mem_"))

    answer = service.http.post("/import", json={"observations": [row]})

    assert answer.json() == {"imported_sessions": 0, "imported_observations": 1}
    assert ok(service.http.get(entry_at(home, made))) == made
    exported = service.http.get("/export").json()["observations"]
    assert len({each["uid"] for each in exported}) == 2
    assert made["id"].removeprefix("mem_") not in {
        each["uid"].replace("-", "") for each in exported
    }
    assert number not in {each["id"] for each in exported}
    assert_index_is_whole(service.path)
