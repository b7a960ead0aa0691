"""exclude_type=: what is of these types is in no context, search or list, and takes no place."""

from collections.abc import Iterator
from typing import Any

import pytest

from ..support.asking import KINDS, asking
from ..support.engines import storage_at
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving
from ..support.terminal import Terminal

ROUTES = ("/context", "/context?query=orders", "/search?q=orders", "/observations/recent")
HOOKED = 30  # audit observations, all newer than what an agent should be reminded of
STRANGE = ("it's", 'a "b"', "a,b", "x); --", "ä", "😀", "audit\0", " audit", "Audit")
DECIDED = {"decision", "config", *(type_.replace("\0", "\ufffd") for type_ in STRANGE)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("types") / "memory.db") as running:
        for type_ in ("decision", "config", *STRANGE):
            running.save(f"Orders of {type_}.", type=type_)
        for number in range(HOOKED):
            running.clock.advance(seconds=1)
            running.save(f"Orders {number}.", type="audit", session_id="hook")
        running.save("Rules for orders.", type="rule", scope="global", project="all")
        running.save("Orders are audited.", type="audit", scope="global", project="all")
        end = {"messages": [{"role": "user", "content": "Hello."}]}
        running.http.post("/sessions/hook/end", json=end).raise_for_status()
        yield running


def asked(service: Service, route: str, exclude: Any, **parameters: Any) -> Any:
    parameters = {"project": "demo", "limit": 20, **parameters}
    path, _, query = route.partition("?")
    parameters |= dict([query.split("=")]) if query else {}
    answer = service.http.get(path, params={**parameters, "exclude_type": exclude})
    assert answer.status_code == 200, answer.text
    return answer.json()


def types(answer: Any) -> list[str]:
    rows = answer["recent_observations"] if isinstance(answer, dict) else answer
    return [row["type"] for row in rows]


@pytest.mark.slow
@for_each("route", ROUTES)
@requirement("agentops:types:excluded", "agentops:parameters:empty-is-unset")
def test_what_is_of_an_excluded_type_takes_no_place_and_no_other_is_left_out(
    service: Service, route: str
) -> None:
    crowded, cleared = (asked(service, route, it, limit=5) for it in ("", "audit"))

    assert "audit" in types(crowded)
    assert len(types(cleared)) == 5
    assert "audit" not in types(cleared)
    everyones = set() if route == "/observations/recent" else {"rule"}
    assert set(types(asked(service, route, "audit"))) == DECIDED | everyones
    excluded = ["audit", *STRANGE, "audit", "", "no such type"]
    assert set(types(asked(service, route, excluded))) == {"decision", "config"} | everyones
    for type_ in STRANGE:
        seen = set(types(asked(service, route, ["audit", type_])))
        assert seen == DECIDED - {type_.replace("\0", "\ufffd")} | everyones
    assert types(asked(service, route, "audit", type="decision")) == ["decision"]
    assert types(asked(service, route, "audit", type="audit")) == []
    for nothing in ("", ["", ""], "no such type", "x" * 1000):
        assert asked(service, route, nothing, limit=5) == crowded
    path, _, query = route.partition("?")
    twenty = [f"t{number}" for number in range(20)]
    repeated, more = (
        service.http.get(f"{path}?{query}", params={"exclude_type": it})
        for it in (twenty * 2, [*twenty, "one more"])
    )
    assert repeated.status_code == 200
    assert (more.status_code, more.json()["error"]) == (
        400,
        "exclude_type takes at most 20 different values.",
    )


@requirement("agentops:types:excluded")
def test_the_summaries_of_a_context_stay_and_a_list_goes_on_before_an_id(service: Service) -> None:
    plain, cleared = (asked(service, "/context", it) for it in ("", "audit"))
    rows = asked(service, "/observations/recent", "audit", limit=3)
    rest = asked(service, "/observations/recent", "audit", before_id=rows[-1]["id"])

    assert cleared["recent_sessions"] == plain["recent_sessions"] != []
    assert len(rows) + len(rest) == len(DECIDED)
    assert "audit" not in types(rest)


@requirement("agentops:types:excluded")
def test_a_missing_memory_is_explained_by_its_type(service: Service) -> None:
    newest = asked(service, "/observations/recent", "", type="audit")[0]["id"]
    for route in ROUTES[:3]:
        for more, filters in [({}, ["exclude_type"]), ({"type": "rule"}, ["type", "exclude_type"])]:
            told = asked(service, route, "audit", why_not=newest, **more)["explain"]["why_not"]

            assert told == {"id": newest, "reason": "filter", "filters": filters}
        told = asked(service, route, "rule", why_not=newest, limit=100)["explain"]["why_not"]
        assert told["reason"] == "none"


@for_each("route", [*ROUTES[:2], "/search?q=rules/"])
@requirement("agentops:types:excluded")
def test_what_is_pinned_or_at_a_topic_key_is_excluded_too(service: Service, route: str) -> None:
    project = f"pins {route}"
    for type_, pinned in [("audit", True), ("note", False)]:
        service.save(
            f"Orders: {type_}.", type=type_, topic_key=f"rules/{type_}", pinned=pinned,
            project=project, session_id=project,
        )  # fmt: skip

    assert types(asked(service, route, "", project=project, type="audit")) == ["audit"] * 2
    assert set(types(asked(service, route, "audit", project=project))) - {"rule"} == {"note"}


@requirement("agentops:types:excluded")
def test_what_joins_a_context_is_not_of_these_types(service: Service) -> None:
    stores = "/api/v1/cloud/memory_stores"
    store = service.http.post(stores, json={"name": "Papers"}).json()["id"]
    entry = {"path": "orders.md", "content": "Orders on paper."}
    service.http.post(f"{stores}/{store}/memories", json=entry).raise_for_status()

    seen = types(asked(service, "/context?query=orders", ["audit", "memory"], stores=store))

    assert "memory" in seen
    assert "audit" not in seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_excludes_types(service: Service, kind: str) -> None:
    with asking(kind, service.url) as memory:
        lists: list[Any] = [
            memory.recent("demo", exclude_types=("audit", "config")),
            memory.search("orders", project="demo", exclude_types=["audit", "config"]).hits,
            memory.context(project="demo", exclude_types=["audit", "config"]).observations,
            memory.recent("demo", exclude_types="config", type="decision"),
        ]

    for rows in lists:
        seen = {row.type for row in rows}
        assert "decision" in seen or len(rows) == 5
        assert not seen & {"audit", "config"}


@for_each("command", [["search", "orders"], ["context", "orders"]])
def test_a_command_excludes_types(service: Service, command: list[str]) -> None:
    options = ("--project", "demo", "--limit", "50", "--exclude-type", "audit")
    terminal = Terminal(storage_at(service.path))

    answer = terminal.json(*command, *options, "--exclude-type", "config")

    assert set(types(answer)) == DECIDED - {"config"} | {"rule"}
