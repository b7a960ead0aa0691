"""Whatever anybody asks, on any route: nothing of another tenant or project comes back.

Four callers, two tenants with two project patterns each, do what they like for a
while, with ids, projects and sessions of their own, of each other and of nobody.
So does, beside them, a keeper of memory stores in each tenant. What each of them
wrote has a word in it that nobody else may ever see.
"""

import json
import logging
import random
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from agentops_memory.telemetry import Telemetry
from agentops_memory.telemetry.logs import JsonFormatter

from ..support.callers import calling, made_key
from ..support.crossing import (
    NEVER,
    STORE_DEEDS,
    Party,
    Place,
    look_into_stores,
    make_store,
    reach_as_an_agent,
    reach_for_intents,
    same,
    work_as_an_agent,
    work_on_intents,
    work_with_entries,
    write_entry,
)
from ..support.crossing_hosts import reach_as_a_host, work_as_a_host
from ..support.files import assert_index_is_whole
from ..support.openwop_walk import route_of, routes_of
from ..support.otlp import Collector, collector
from ..support.requirements import requirement
from ..support.service import Service, serving

__all__ = ["collector"]

STEPS = 20  # requests of one run, and as many of the keepers


# Each drives an operation as a caller may, and keeps account of what becomes its own.


def create_session(place: Place, me: Party) -> None:
    name = f"{me.tenant} {me.prefix} {place.chance.randrange(4)}"
    answer = me.ask("POST", "/sessions", {"id": name, "project": place.project(me)})
    assert answer.status_code == 201
    me.sessions.append(name)


def end_session(_: Place, me: Party) -> None:
    for session in me.sessions[-1:]:
        told = [{"role": "user", "content": f"tell me of {me.word}"}]
        path = f"/sessions/{session}"
        assert me.ask("POST", f"{path}/messages", {"messages": told}).status_code == 204
        said = {"messages": told} if len(me.sessions) % 2 else None
        assert me.ask("POST", f"{path}/end", said).status_code == 200


def add_observation(place: Place, me: Party) -> None:
    project = place.project(me)
    session = place.chance.choice(me.sessions or [f"{me.tenant} {me.prefix} own"])
    answer = me.ask("POST", "/observations?similar=3", place.body(me, project, session))
    assert answer.status_code == 201, answer.text
    me.live[answer.json()["id"]] = project


def add_foreign(place: Place, me: Party) -> None:
    """Save where others are, and where nobody ever was: refused with one sentence."""
    theirs = me.ask("POST", "/observations", place.body(me, place.foreign_project(me), "s"))
    nobodys = me.ask("POST", "/observations", place.body(me, "nobodys", "s"))
    same(theirs, nobodys)
    assert theirs.status_code == 403


def use_foreign_session(place: Place, me: Party) -> None:
    """Save into a session of another: refused in the same tenant, unknown in another."""
    other = place.chance.choice(place.others(me))
    for session in other.sessions[-1:]:
        if other.tenant == me.tenant:
            body = place.body(me, place.project(me), session)
            for answer in [
                me.ask("POST", "/observations", body),
                me.ask("POST", "/sessions", {"id": session, "project": place.project(me)}),
                me.ask("POST", f"/sessions/{session}/messages", {"messages": []}),
                me.ask("POST", f"/sessions/{session}/end"),
            ]:
                assert answer.status_code == 403
        both = [me.ask("GET", f"/sessions/recent?before_id={id_}") for id_ in (session, "nobodys")]
        same(*both)


def read_one(place: Place, me: Party) -> None:
    id_ = place.own_id(me)
    for path in (f"/observations/{id_}", f"/observations/{id_}/history"):
        assert me.ask("GET", path).status_code == (200 if id_ in me.live else 404)
    assert me.ask("GET", f"/timeline?observation_id={id_}&before=50").status_code in (200, 404)


def change_one(place: Place, me: Party) -> None:
    path = f"/observations/{place.own_id(me)}"
    me.ask("PATCH", path, {"title": f"changed {me.word} {place.chance.random()}"})
    me.ask("PATCH", path, {"pinned": place.chance.random() < 0.5, "supersedes": [place.own_id(me)]})
    me.ask("POST", f"{path}/restore", {"revision": 1})
    me.ask("POST", f"{path}/confirm")


def delete_one(place: Place, me: Party) -> None:
    id_ = place.own_id(me)
    hard = place.chance.choice(["", "?hard=true"])
    assert me.ask("DELETE", f"/observations/{id_}{hard}").status_code == 204
    me.live.pop(id_, None)
    me.dead.add(id_)


def touch_foreign(place: Place, me: Party) -> None:
    """Every way to name a memory by its id: another's is as one that never was."""
    theirs = place.foreign_id(me)
    for method, path, body in [
        ("GET", "/observations/{}", None), ("GET", "/observations/{}/history", None),
        ("POST", "/observations/{}/restore", {"revision": 1}),
        ("PATCH", "/observations/{}", {"title": "mine"}),
        ("PATCH", "/observations/{}", {"pinned": True, "ttl": 1}),
        ("POST", "/observations/{}/confirm", None), ("DELETE", "/observations/{}", None),
        ("DELETE", "/observations/{}?hard=true", None),
        ("GET", "/timeline?observation_id={}", None),
        ("GET", "/observations/recent?before_id={}", None),
        ("GET", "/search?q=apple&explain=true&why_not={}", None),
        ("GET", "/context?query=apple&why_not={}", None),
        ("GET", f"/context?project={place.project(me)}&query=apple&why_not={{}}", None),
    ]:  # fmt: skip
        answers = [me.ask(method, path.format(id_), body) for id_ in (theirs, NEVER)]
        same(*answers, ids=(theirs, NEVER))
    own = f"/observations/{place.own_id(me)}"
    same(*[me.ask("PATCH", own, {"supersedes": [id_]}) for id_ in (theirs, NEVER)])


def look_around(place: Place, me: Party) -> None:
    """Every list, with a project of its own, of another, of nobody, and without one."""
    for path in ("/observations/recent?limit=100", "/sessions/recent?limit=100", "/stats?",
                 "/export?", "/review?limit=100", "/search?q=apple&superseded=true",
                 "/search?q=apple+pear&limit=50&explain=true",
                 "/context?query=the+aple+pear&limit=50&explain=true"):  # fmt: skip
        me.ask("GET", f"{path}&project={place.project(me)}")
        me.ask("GET", path)
        theirs = me.ask("GET", f"{path}&project={place.foreign_project(me)}")
        same(theirs, me.ask("GET", f"{path}&project=nobodys"))
    for scope in ("global", "project"):
        for path in ("/observations/recent?", "/search?q=apple&", "/context?query=apple&"):
            me.ask("GET", f"{path}scope={scope}")


def import_own(_: Place, me: Party) -> None:
    exported = me.ask("GET", "/export").json()
    answer = me.ask("POST", "/import", exported)
    assert answer.json() == {"imported_sessions": 0, "imported_observations": 0}


def import_foreign(place: Place, me: Party) -> None:
    row = place.body(me, place.foreign_project(me), "s")
    same(
        me.ask("POST", "/import", {"observations": [row]}),
        me.ask("POST", "/import", {"observations": [row | {"project": "nobodys"}]}),
    )


def erase_project(place: Place, me: Party) -> None:
    for end in ("hard=true", "hard=true&dry_run=true", "dry_run=true", ""):
        theirs = me.ask("DELETE", f"/projects/{place.foreign_project(me)}?{end}")
        same(theirs, me.ask("DELETE", f"/projects/nobodys?{end}"))
    if place.chance.random() < 0.2:
        project = place.project(me)
        erased = me.ask("DELETE", f"/projects/{project}?hard=true")
        never_held = erased.status_code == 404 and project not in me.live.values()
        assert never_held or erased.status_code == 200
        gone = {id_ for id_, where in me.live.items() if where == project}
        me.dead |= gone
        for id_ in gone:
            del me.live[id_]
        me.sessions.clear()  # some went with it


def describe(_: Place, me: Party) -> None:
    me.ask("GET", "/openapi.json")
    me.ask("GET", "/docs")
    for path in ("/health", "/health/live", "/health/ready", "/health/startup", "/metrics"):
        me.ask("GET", path)
    me.ask("GET", f"/erasures/{NEVER}")


ChangeKind = Callable[[Place, Party], None]

DEEDS = (
    create_session, end_session, add_observation, add_foreign, use_foreign_session, read_one,
    change_one, delete_one, touch_foreign, look_around, import_own, import_foreign, erase_project,
    describe, work_as_an_agent, reach_as_an_agent,
)  # fmt: skip
Heard = list[tuple[Party, httpx.Response]]
CALLERS = (
    ("default", "a-"), ("default", "b-"), ("acme", "a-"), ("acme", "b-"), ("default", ""),
    ("acme", ""),
)  # fmt: skip


def party_of(service: Service, number: int, stack: ExitStack, heard: Heard) -> Party:
    """A caller, and what it is answered."""
    tenant, prefix = CALLERS[number]
    agents = (f"agent-{number}",)
    tokens = (
        made_key(service.path, "admin", tenant, (f"{prefix}*",), agents=agents),
        made_key(service.path, "writer", tenant, agents=agents, coordinates=True),
    )
    client, writer = (stack.enter_context(calling(service, token)) for token in tokens)
    party = Party(tenant=tenant, prefix=prefix, number=number, client=client, writer=writer)

    def hear(response: httpx.Response) -> None:
        response.read()
        heard.append((party, response))

    for each in (client, writer):
        each.event_hooks["response"] = [hear]
    return party


@requirement("OW-32", "OW-33", "OW-34", "OW-59", "OI-92")
@pytest.mark.slow
def test_nothing_crosses(
    tmp_path: Path, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    heard: Heard = []
    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    chance = random.Random(0)  # noqa: S311 - the same each time
    deeds, store_deeds = _in_turn(DEEDS, chance), _in_turn(STORE_DEEDS, chance)

    with (
        serving(tmp_path / "memory.db", telemetry=telemetry, MEMORY_TOOLS="all") as service,
        ExitStack() as stack,
        caplog.at_level(logging.DEBUG, logger="agentops_memory"),
    ):
        everyone = [party_of(service, number, stack, heard) for number in range(len(CALLERS))]
        parties, keepers = everyone[:4], everyone[4:]
        going_on = Place(parties=parties, keepers=keepers, chance=chance)
        for party in parties * 2:
            create_session(going_on, party)
            add_observation(going_on, party)
        for keeper in keepers * 2:
            make_store(going_on, keeper)
            write_entry(going_on, keeper)
        for _ in range(STEPS):
            next(deeds)(going_on, chance.choice(parties))
            next(store_deeds)(going_on, chance.choice(keepers))
        for party in parties:
            work_with_entries(going_on, party)
            work_on_intents(going_on, party)
            work_as_a_host(going_on, party)
            work_as_an_agent(going_on, party)
            reach_as_an_agent(going_on, party)
            stats = party.ask("GET", "/stats").json()
            assert stats["total_observations"] == len(party.live)
            assert {*party.live.values()} <= {*stats["projects"]}
            assert all(project.startswith(party.prefix) for project in stats["projects"])
            look_around(going_on, party)
        for party in parties:
            reach_for_intents(going_on, party)
            reach_as_a_host(going_on, party)
        for keeper in keepers:
            look_into_stores(going_on, keeper)

        routes = routes_of(parties[0].ask("GET", "/openapi.json").json())

    _assert_silent(everyone, heard)
    assert routes.keys() - {route_of(answer.request, routes) for _, answer in heard} == set()
    lines = [
        JsonFormatter().format(record)
        for record in caplog.records
        if record.name.startswith("agentops_memory")
    ]
    assert lines
    assert [line for line in lines if any(party.word in line for party in everyone)] == []
    telemetry.stop()
    _assert_traces_apart(everyone, collector)
    for file in service.path.parent.rglob("*.db"):
        assert_index_is_whole(file)


def _in_turn(deeds: Collection[ChangeKind], chance: random.Random) -> Iterator[ChangeKind]:
    """Each of them, in any order, and again and again."""
    while True:
        yield from chance.sample(list(deeds), k=len(deeds))


def _assert_silent(parties: list[Party], heard: Heard) -> None:
    own = {party.number: 0 for party in parties}
    for party, answer in heard:
        text = f"{answer.headers} {answer.text}"
        own[party.number] += party.word in text
        for other in parties:
            assert other is party or other.word not in text, (party, text)
    assert all(own.values())  # else the words would prove nothing


def _assert_traces_apart(parties: list[Party], collector: Collector) -> None:
    assert collector.all("memory.search")
    for span in collector.spans:
        for party in parties:
            assert span.trace == party.trace or party.word not in repr(span), span
    told = repr(collector.labels)
    assert told
    assert [party.word for party in parties if party.word in told] == []


def test_what_is_measured_names_nobody_and_nothing_of_theirs(
    service: Service, collector: Collector
) -> None:
    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    with serving(
        service.path.with_name("other.db"), telemetry=telemetry, MEMORY_SWEEP_EVERY="1ms"
    ) as other:
        other.save("apple", project="billing")
    telemetry.stop()

    assert collector.gauges
    labels = {
        "action", "limit", "method", "outcome", "route", "status", "table", "tier", "version",
    }  # fmt: skip
    assert {name for of in collector.labels for name in of} <= labels
    assert "billing" not in json.dumps(collector.labels)
