"""A value that restricts, permits or expires something and is damaged: it opens nothing.

Each case is asked through the front door before its value is damaged, and after. Readiness and the
doctor name the row.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from agentops_memory.http import app as health
from agentops_memory.memory.access import DEFAULT_TENANT
from agentops_memory.memory.damage import COLUMNS, Finding, Status
from agentops_memory.openwop.commitments import CommitmentState
from agentops_memory.openwop.entries import Method
from agentops_memory.openwop.proposals import ArtifactKind, ProposalState
from agentops_memory.openwop.runs import RunEventType, RunKind, RunStatus
from agentops_memory.operations.doctor import apply_fixes, findings_of
from agentops_memory.postgresql.tenants import check_schema
from agentops_memory.sqlite.connection import connect

from ..support import engines
from ..support.damaged_values import NO_TEXT, is_of_a_restriction
from ..support.openintent_agents import INTENTS, Agent, Team, working
from ..support.openwop_hosts import Host, ok
from ..support.openwop_proposals import COMPLETE, moved, proposed
from ..support.process import until
from ..support.samples import for_each
from ..support.service import START, Service, observation, serving
from .test_damaged_rows import patient_of

BIG, SMALL = "CAST(1 AS BIGINT) << 62", "-(CAST(1 AS BIGINT) << 62)"
PEAR = "pear"  # the word of what is guarded
Ask = Callable[[], httpx.Response]


class Guarded(NamedTuple):
    """What a column guards: how that is asked for, and whether the sound value lets it be."""

    name: str
    made: Callable[["Place"], Ask]
    opens: bool  # a permission does, or what has not ended; a restriction does not
    value: str  # that the column becomes
    where: str = "TRUE"  # of the rows that are damaged


@dataclass(frozen=True, slots=True)
class Place:
    """A service, and who asks it."""

    service: Service
    stack: ExitStack

    @property
    def http(self) -> httpx.Client:
        return self.service.http

    @property
    def host(self) -> Host:
        return Host(self.http)

    def team(self) -> Team:
        """Agents with keys of their own: from then on nobody is let in without one."""
        team = Team(self.service, self.stack.enter_context)
        team.agent("root", "admin")
        return team


def _posts(agent: Agent, **fields: object) -> Ask:
    """Another entry each time."""
    numbers = itertools.count()
    return lambda: agent.post(**fields, key=f"fruit {next(numbers)}")


def _guardrails(place: Place) -> Ask:
    """A write into a namespace that a coordinator denies."""
    team = place.team()
    team.root.permit("secret", "write")
    task = team.work()
    team.coordinate(
        {"id": task["intent_id"]}, denied_semantic_namespaces=["secret"],
        max_episodic_memory_per_agent=1,
    )  # fmt: skip
    scope = {"task_id": task["id"]}
    return _posts(team.ada, scope=scope, memory_type="semantic", namespace="secret")


def _coordinates(place: Place) -> Ask:
    team = place.team()
    intent = team.intent(title=PEAR)
    team.coordinate(intent, "bob")
    return lambda: team.bob.ask("GET", f"{INTENTS}/{intent['id']}")


def _granted(place: Place) -> Ask:
    team = place.team()
    intent = team.intent(title=PEAR)
    grant = {"principal_id": "bob", "expires_at": "2040-01-01T00:00:00Z"}
    ok(team.lead.ask("POST", f"{INTENTS}/{intent['id']}/acl/entries", grant), 201)
    return lambda: team.bob.ask("GET", f"{INTENTS}/{intent['id']}")


def _access(default: str, **allow: str) -> Callable[[Place], Ask]:
    """A write into a namespace that permissions keep an agent out of."""

    def made(place: Place) -> Ask:
        team = place.team()
        team.root.permit("vault", default, **allow)
        return _posts(team.bob, memory_type="semantic", namespace="vault")

    return made


def _read_in(default: str, **allow: str) -> Callable[[Place], Ask]:
    """A list of what is in such a namespace."""

    def made(place: Place) -> Ask:
        team = place.team()
        team.root.permit("vault", default, ada="write", **allow)
        team.ada.make(memory_type="semantic", namespace="vault", key=PEAR)
        return lambda: team.bob.ask("GET", "/api/v1/memory", params={"namespace": "vault"})

    return made


def _of_a_task(place: Place) -> Ask:
    """Working memory of another agent, read by who coordinates the task while it goes on."""
    team = place.team()
    task = team.work()
    team.coordinate({"id": task["intent_id"]}, "bob")
    entry = working(team.ada, task, PEAR)
    return lambda: team.bob.get(entry)


def _inherited(place: Place) -> Ask:
    """Working memory of a task, read by the agent of a part of it that does not inherit it."""
    team = place.team()
    task = team.work()
    team.task({"id": task["intent_id"]}, "bob", name="a part", parent_task_id=task["id"])
    entry = working(team.ada, task, PEAR)
    return lambda: team.bob.get(entry)


def _limited(place: Place) -> Ask:
    """One working entry more than the policy of a task allows."""
    team = place.team()
    task = team.work(memory_policy={"max_entries": 1})
    working(team.ada, task)
    return _posts(team.ada, memory_type="working", scope={"task_id": task["id"]})


def _capacity(place: Place) -> Ask:
    """An episodic entry of an agent whose capacity was set."""
    engines.rows(
        place.service.path, "INSERT INTO agents (name, episodic_capacity) VALUES ('ada', 5)"
    )
    return _posts(Agent(place.http))


def _bound(place: Place) -> Ask:
    """Working memory of a task that is going on."""
    team = place.team()
    entry = working(team.ada, team.work(), PEAR)
    return lambda: team.ada.get(entry)


def _sealed(place: Place) -> Ask:
    """The words of a confidential value."""
    ada = Agent(place.http)
    ada.make(value={"fruit": PEAR}, sensitivity="confidential")
    return lambda: ada.ask("GET", "/api/v1/memory/search", params={"q": PEAR})


def _named_in_a_log(place: Place) -> Ask:
    """An event that names an intent which its agent may not see, in the log of the intent."""
    team = place.team()
    intent = team.intent()
    team.bob.make(key=PEAR, scope={"intent_id": intent["id"]})
    return lambda: team.lead.ask("GET", f"{INTENTS}/{intent['id']}/events")


def _observation(path: str, *, is_over: bool = False) -> Callable[[Place], Ask]:
    """An observation that has expired, or has not."""

    def made(place: Place) -> Ask:
        saved = place.service.save(PEAR, ttl=1 if is_over else 86_400)
        if is_over:
            place.service.clock.advance(hours=1)
        return lambda: place.http.get(path.format(saved["id"]))

    return made


def _entry(place: Place) -> Ask:
    entry = Agent(place.http).make(key=PEAR, ttl="duration:P1D")
    return lambda: Agent(place.http).get(entry)


def _of_ref(place: Place) -> Ask:
    host = place.host
    host.put(PEAR, ttlSeconds=86_400)
    return lambda: host.ask("GET", "/memory", params={"memoryRef": host.ref})


def _once(place: Place) -> Ask:
    """A save under a key that it was done under before."""
    body, key = observation(PEAR), {"Idempotency-Key": "once"}
    assert place.http.post("/observations", json=body, headers=key).status_code == 201

    def again() -> httpx.Response:
        answer = place.http.post("/observations", json=body, headers=key)
        ((count,),) = engines.rows(place.service.path, "SELECT count(*) FROM memories")
        assert count == 1
        return answer

    return again


def _run(place: Place) -> Ask:
    host = place.host.in_run(PEAR, memoryRefs=["mem://notes"])
    host.put("an apple")
    return lambda: host.ask("GET", f"/runs/{PEAR}")


def _run_with_secrets(place: Place) -> Ask:
    """A put in a run whose registered values are known."""
    host = place.host.in_run("open")
    host.register("token", "zanzibar-hunter2-quokka")
    return host.post


def _ended_run(place: Place) -> Ask:
    """A put in a run that has ended."""
    host = place.host.in_run("over")
    host.put("an apple")
    host.end()
    return host.post


def _deleted_before(place: Place) -> Ask:
    """What was deleted before a run began, as the run sees it."""
    first = place.host.in_run("first")  # as long as it is open, what it sees is kept
    entry = first.put(PEAR)
    ok(place.host.delete(entry["id"]))
    run = place.host.in_run("second")
    return lambda: run.get(entry["id"])


def _expired_since(place: Place) -> Ask:
    """A fork of a run that saw what has expired since."""
    place.host.put(PEAR, ttlSeconds=60)
    run = place.host.in_run("first", memoryRefs=["mem://notes"])
    run.put("an apple")
    run.end()
    place.service.clock.advance(hours=1)
    return run.fork


def _erased_since(place: Place) -> Ask:
    """A fork of a run that saw what was erased since."""
    place.host.put(PEAR, memoryRef="mem://notes", tags=["subject:somebody"])
    run = place.host.in_run("first", memoryRefs=["mem://notes"])
    run.put("an apple")
    run.end()
    ok(place.host.ask("POST", "/forget", {"subject": "somebody"}))
    return run.fork


def _armed(place: Place) -> Ask:
    host = place.host
    entry = host.put("an apple", id=PEAR)
    due = {"memoryRef": host.ref, "memoryId": entry["id"], "condition": "time",
           "dueAt": (START + timedelta(hours=1)).isoformat()}  # fmt: skip
    id_ = ok(host.ask("POST", "/commitments", due), 201)["id"]
    return lambda: host.ask("GET", f"/commitments/{id_}")


def _rejected(place: Place) -> Ask:
    """The installation of what was rejected."""
    id_ = proposed(place.host, COMPLETE["agent-pack"])["id"]
    ok(moved(place.host, id_, "reject"))
    return lambda: moved(place.host, id_, "apply")


def _proposal(place: Place) -> Ask:
    id_ = proposed(place.host, COMPLETE["agent-pack"], title=PEAR)["id"]
    return lambda: place.host.ask("GET", f"/proposals/{id_}")


def _project(place: Place) -> Ask:
    place.service.save(PEAR)
    return lambda: place.http.get(f"/search?q={PEAR}&project=demo")


LISTS = (
    "/observations/recent?project=demo", f"/search?q={PEAR}&project=demo",
    f"/context?query={PEAR}&project=demo", "/export?x={}",
)  # fmt: skip
OPENS, CLOSES = True, False
CASES = [
    Guarded("coordinators.details", _guardrails, CLOSES, NO_TEXT),
    Guarded("coordinators.is_ended", _guardrails, CLOSES, "7"),
    Guarded("coordinators.expires_at", _guardrails, CLOSES, BIG),
    Guarded("coordinators.is_ended", _coordinates, OPENS, "7"),
    Guarded("coordinators.expires_at", _coordinates, OPENS, BIG),
    Guarded("grants.permission", _granted, OPENS, "'nothing'"),
    Guarded("grants.expires_at", _granted, OPENS, BIG),
    Guarded("namespaces.default_access", _access("none"), CLOSES, "-1"),
    Guarded("namespaces.default_access", _read_in("none"), CLOSES, "99"),
    Guarded("namespace_access.access", _access("write", bob="none"), CLOSES, "-1"),
    Guarded("namespace_access.access", _read_in("read", bob="none"), CLOSES, "99"),
    Guarded("tasks.status", _of_a_task, OPENS, "'[1, \"\\ud800\"]'"),
    Guarded("tasks.inherits", _inherited, CLOSES, "7"),
    Guarded("tasks.policy", _limited, CLOSES, "'{'"),
    Guarded("tasks.attempt", _bound, OPENS, BIG),
    Guarded("agents.episodic_capacity", _capacity, OPENS, "CAST(1 AS BIGINT) << 40"),
    Guarded("agent_spaces.tier", _bound, OPENS, NO_TEXT),
    Guarded("agent_memories.tier", _bound, OPENS, "'nothing'"),
    Guarded("agent_memories.binding", _bound, OPENS, "99"),
    Guarded("agent_memories.attempt", _bound, OPENS, "-1"),
    Guarded("agent_memories.sensitivity", _sealed, CLOSES, NO_TEXT),
    Guarded("agent_events.binding", _named_in_a_log, CLOSES, "-1", where="binding = 0"),
    *(Guarded("lifecycles.expires_at", _observation(it, is_over=is_over), not is_over, value)
      for is_over in (False, True) for it, value in zip(LISTS, [BIG, SMALL] * 2, strict=True)),
    Guarded("lifecycles.expires_at", _observation("/observations/{}"), OPENS, BIG),
    Guarded("lifecycles.expires_at", _entry, OPENS, SMALL),
    Guarded("lifecycles.expires_at", _of_ref, OPENS, BIG),
    Guarded("done.at", _once, OPENS, SMALL),
    Guarded("runs.kind", _run, OPENS, "'{'"),
    Guarded("runs.status", _ended_run, CLOSES, "'[1, \"\\ud800\"]'"),
    Guarded("runs.refs", _run, OPENS, NO_TEXT),
    Guarded("runs.wrote", _run, OPENS, "'nothing'"),
    Guarded("runs.secrets", _run_with_secrets, OPENS, '\'{"a": -1}\''),
    Guarded("ref_entries.deleted_after", _deleted_before, CLOSES, SMALL,
            where="deleted_after IS NOT NULL"),
    Guarded("ref_entries.ends_at", _expired_since, CLOSES, BIG),
    Guarded("ref_losses.ends_at", _erased_since, CLOSES, SMALL),
    Guarded("ref_losses.deleted_after", _erased_since, CLOSES, BIG),
    Guarded("commitments.due_at", _armed, OPENS, SMALL),
    Guarded("commitments.state", _armed, OPENS, NO_TEXT),
    Guarded("proposals.state", _rejected, CLOSES, "'nothing'"),
    Guarded("proposals.kind", _proposal, OPENS, "'{'"),
    Guarded("spaces.area", _project, OPENS, SMALL),
    Guarded("spaces.partition", _project, OPENS, "-1"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))


@pytest.fixture
def place(service: Service) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(service, stack)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{number}-{case.name}", marks=pytest.mark.slow if number % 6 else ())
        for number, case in enumerate(CASES)
    ],
)
def test_what_a_damaged_value_guards_is_closed_and_the_row_is_named(
    case: Guarded, place: Place
) -> None:
    path, ask = place.service.path, case.made(place)
    assert _is_open(ask()) is case.opens
    if not _let_hold(path, case):
        pytest.skip("the engine keeps the column from it")

    answer = ask()

    assert not _is_open(answer), answer.text
    assert answer.status_code < 500 or is_of_a_restriction(answer), answer.text
    (found,) = _of_values(path)
    table, column = case.name.split(".")
    assert re.search(rf"\b{table} (\S+): {column}\b", found.sentence), found.sentence
    if answer.status_code == 503:
        assert "first " in _detail(place.service)


@pytest.mark.slow
def test_a_damaged_value_of_an_entry_is_found_as_one_of_its_row(path: Path) -> None:
    with serving(path) as service:
        ada = Agent(service.http, "ada")
        entry = ada.make()
        ada.make(key="other", sensitivity="confidential")
        engines.rows(path, "UPDATE memories SET content = '[1]' WHERE id = 1")

        assert ada.get(entry).status_code == 503
        assert [it["key"] for it in ada.query()["entries"]] == ["other"]
        assert "first agent_memories 1" in _detail(service)
    (found,) = _of_values(path)
    assert "agent_memories 1: content" in found.sentence
    if not engines.is_postgresql():
        assert [it.status for it in apply_fixes([found])] == [Status.OK]
        assert [it.status for it in _of_values(path)] == [Status.OK]


@pytest.mark.slow
def test_what_has_a_damaged_end_is_left_out_of_lists_and_removed_by_no_sweep(path: Path) -> None:
    long_ago = "-(CAST(1 AS BIGINT) << 62)"
    with serving(path) as service:
        service.save(PEAR, ttl=86_400)
        service.save(f"another {PEAR}")
        service.save("deleted")
        service.http.delete("/observations/3")
        engines.rows(path, "UPDATE lifecycles SET expires_at = CAST(1 AS BIGINT) << 62")

        for asked in (LISTS[0], LISTS[1], f"/search?q={PEAR}"):
            assert [it["id"] for it in service.http.get(asked).json()] == [2], asked
        exported = service.http.get("/export").json()["observations"]
        assert [it["content"] for it in exported] == [f"another {PEAR}"]
        assert "first memories 1" in until(lambda: _detail(service))
    engines.rows(path, f"UPDATE lifecycles SET expires_at = {long_ago}")
    engines.rows(path, f"UPDATE memories SET deleted_at = {long_ago} WHERE id = 3")

    with serving(
        path, MEMORY_SWEEP_EVERY="5ms", MEMORY_KEEP_EXPIRED="1h", MEMORY_KEEP_DELETED="1h"
    ) as service:
        service.clock.advance(hours=1)
        until(lambda: _detail(service))
    assert engines.rows(path, "SELECT count(*) FROM memories") == [(3,)]


@pytest.mark.slow
def test_a_sweep_goes_on_beside_a_run_that_is_damaged(path: Path) -> None:
    with serving(path) as service:
        for run in ("damaged", "silent"):
            Host(service.http).in_run(run)
    engines.rows(path, "UPDATE runs SET kind = 'nothing' WHERE name = 'damaged'")
    with serving(path, MEMORY_SWEEP_EVERY="5ms", MEMORY_KEEP_EVENTS="1h") as service:
        service.clock.advance(hours=2)
        host = Host(service.http)
        until(lambda: ok(host.ask("GET", "/runs/silent"))["status"] == "cancelled")
        assert host.ask("GET", "/runs/damaged").status_code == 503


def _is_open(answer: httpx.Response) -> bool:
    """Whether what is guarded was done, or shown."""
    return answer.is_success and (answer.request.method != "GET" or PEAR in answer.text)


def _let_hold(path: Path, case: Guarded) -> bool:
    """Let a column hold what it cannot; whether the engine lets it."""
    table, column = case.name.split(".")
    said = case.value.replace("VALUE", f"coalesce({column}, 'a')")
    statement = f"UPDATE {table} SET {column} = {said} WHERE {case.where}"
    if engines.is_postgresql():
        # It has types for flags and for UTF-8, and a partition is a number of the projects there.
        if column in ("is_ended", "inherits") or case.value == NO_TEXT:
            return False
        engines.rows(path, statement)
        return True
    with closing(connect(path)) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("PRAGMA foreign_keys = OFF")
        assert database.execute(statement).rowcount
        # As a process does that writes, so that no answer comes from memory.
        database.execute("UPDATE database_state SET token = random()")
    return True


def _of_values(path: Path) -> list[Finding]:
    if engines.is_postgresql():
        url = engines.storage_at(path)[engines.DATABASE_URL]
        found = list(check_schema(url, DEFAULT_TENANT))
    else:
        found = findings_of(patient_of(path))
    return [it for it in found if it.code == "values"]


def _detail(service: Service) -> str:
    checks = service.http.get("/health/ready").json()["checks"]
    return str(checks["database"].get("detail", ""))


@for_each(
    "column, of",
    [
        ("runs.kind", RunKind), ("runs.status", RunStatus), ("run_events.type", RunEventType),
        ("commitments.state", CommitmentState), ("proposals.state", ProposalState),
        ("proposals.kind", ArtifactKind), ("ref_entries.method", Method),
    ],
)  # fmt: skip
def test_the_engines_know_every_value_that_hosts_have(column: str, of: type[StrEnum]) -> None:
    known: Any = COLUMNS[column]
    assert all(map(known, of))
    assert not known("nothing")
