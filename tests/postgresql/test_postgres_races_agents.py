"""Of requests for agents, stores and keys that race over two services, each is done once."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from agentops_memory.errors import Refusal
from agentops_memory.memory.access import Role, TenantId, patterns
from agentops_memory.memory.keys import issued
from agentops_memory.postgresql.keys import PostgresKeys

from ..support.callers import OPERATOR
from ..support.openintent_agents import NAMESPACES, Agent
from ..support.openintent_team import COORDINATORS, INTENTS, TASKS
from ..support.openwop_hosts import Json, ok
from ..support.pods import RACERS, Pods, pods, two
from ..support.process import until
from ..support.service import START, observation
from ..support.stores import STORES, at, entry, entry_at, store, update, versions

__all__ = ["two"]

CAPACITY = 5


def statuses(answers: list[httpx.Response]) -> Counter[int]:
    return Counter(it.status_code for it in answers)


ONE_DONE = {201: 1, 409: RACERS - 1}


@pytest.fixture
def home(two: Pods) -> Json:
    return store(two.http)


@pytest.mark.slow
def test_of_racing_creates_at_one_path_one_is_done(two: Pods, home: Json) -> None:
    answers = two.racing(
        lambda http, it: http.post(
            at(home, "memories"), json={"path": "a/b", "content": f"racer {it}"}
        )
    )

    assert statuses(answers) == ONE_DONE
    assert len(versions(two.http, home)) == 1
    two.assert_index_is_whole()


@pytest.mark.heavy
@pytest.mark.parametrize("by", ["version", "content_sha256"])
def test_of_racing_updates_of_one_state_one_is_done(two: Pods, home: Json, by: str) -> None:
    made = entry(two.http, home, "a", "first")

    answers = two.racing(
        lambda http, it: http.put(
            entry_at(home, made), json={"content": f"racer {it}", by: made[by]}
        )
    )

    assert statuses(answers) == {200: 1, 409: RACERS - 1}
    assert len(versions(two.http, home)) == 2
    two.assert_index_is_whole()


@pytest.mark.heavy
def test_racing_updates_that_expect_nothing_are_each_a_version_in_order(
    two: Pods, home: Json
) -> None:
    made = entry(two.http, home, "a", "first")

    numbers = two.racing(
        lambda http, it: [
            update(http, home, made, f"racer {it}, turn {turn}")["version"] for turn in range(3)
        ]
    )

    assert sorted(it for each in numbers for it in each) == [*range(2, 3 * RACERS + 2)]
    told = [it["id"] for it in versions(two.http, home, limit="100")]
    assert len(told) == 3 * RACERS + 1
    assert told == sorted(told, reverse=True)


@pytest.mark.slow
def test_stores_of_one_name_and_what_is_stored_in_each_are_all_made(two: Pods) -> None:
    answers = two.racing(lambda http, _: http.post(STORES, json={"name": "Notes"}))

    assert statuses(answers) == {201: RACERS}
    assert len({it.json()["id"] for it in answers}) == RACERS


def test_of_racing_entries_at_one_key_of_an_agent_one_is_made(two: Pods) -> None:
    answers = two.racing(lambda http, it: Agent(http).post(value={"racer": it}))

    assert statuses(answers) == ONE_DONE
    ada = Agent(two.http)
    assert ada.query()["total"] == 1
    assert ada.told() == [("created", "apple")]


def test_of_racing_changes_of_one_version_one_is_done(two: Pods) -> None:
    made = Agent(two.http).make()

    answers = two.racing(lambda http, it: Agent(http).patch(made, value={"racer": it}))

    assert statuses(answers) == {200: 1, 409: RACERS - 1}
    assert [it[0] for it in Agent(two.http).told()] == ["created", "updated"]


@pytest.mark.slow
def test_racing_puts_at_one_place_of_an_agent_are_each_a_version(two: Pods) -> None:
    path = "/api/v1/agents/ada/memory/notes/a"

    answers = two.racing(lambda http, it: Agent(http).ask("PUT", path, {"value": it}))

    assert statuses(answers) == {201: 1, 200: RACERS - 1}
    (found,) = Agent(two.http).query()["entries"]
    assert found["version"] == RACERS


@pytest.fixture
def few(tmp_path: Path, postgresql: str) -> Iterator[Pods]:
    with pods(tmp_path / "postgresql", postgresql, MEMORY_EPISODIC_CAPACITY=str(CAPACITY)) as both:
        yield both


@pytest.mark.heavy
def test_racing_entries_do_not_pass_an_agents_capacity(few: Pods) -> None:
    answers = few.racing(
        lambda http, it: [
            Agent(http).post(key=f"{it}-{turn}", pinned=turn == 0).status_code for turn in range(3)
        ]
    )

    counts = Counter(it for each in answers for it in each)
    assert Agent(few.http).query()["total"] == CAPACITY
    told = Counter(it for it, _ in Agent(few.http).told())
    assert told["created"] == counts[201]
    assert set(counts) <= {201, 429}
    assert told["created"] - told["evicted"] == CAPACITY


@pytest.mark.heavy
def test_racing_permissions_of_a_namespace_are_each_a_change_of_one(two: Pods) -> None:
    def permit(http: httpx.Client, it: int) -> httpx.Response:
        body = {
            "permissions": {"default": "read", "allow": [{"agent": f"a{it}", "access": "write"}]}
        }
        return Agent(http).ask("PATCH", f"{NAMESPACES}/shared", body)

    answers = two.racing(permit)

    assert statuses(answers) == {200: RACERS}
    assert two.rows("SELECT count(*) FROM namespaces") == [(1,)]
    allowed = two.rows("SELECT count(*) FROM namespace_access")
    assert allowed == [(1,)]


def intent(pods: Pods) -> Json:
    made: Json = ok(Agent(pods.http, "lead").ask("POST", INTENTS, {"title": "Invoices"}), 201)
    return made


@pytest.mark.heavy
@pytest.mark.parametrize("path", [INTENTS, TASKS])
def test_of_racing_intents_and_tasks_of_one_id_one_is_made(two: Pods, path: str) -> None:
    of = intent(two)["id"]
    body = {"id": "one-id", "title": "Invoices", "intent_id": of, "name": "read"}
    if path == INTENTS:
        body = {"id": "one-id", "title": "Invoices"}

    answers = two.racing(lambda http, _: Agent(http, "lead").ask("POST", path, body))

    assert statuses(answers) == ONE_DONE


@pytest.mark.heavy
def test_of_racing_changes_of_a_task_one_is_done_and_told(two: Pods) -> None:
    of = intent(two)["id"]
    lead = Agent(two.http, "lead")
    task = ok(lead.ask("POST", TASKS, {"intent_id": of, "name": "n", "assigned_agent": "ada"}), 201)

    answers = two.racing(
        lambda http, it: Agent(http, "ada").ask(
            "PATCH", f"{TASKS}/{task['id']}",
            {"status": ("completed", "failed")[it % 2]},
            headers={"If-Match": f'"{task["version"]}"'},
        )
    )  # fmt: skip

    assert statuses(answers) == {200: 1, 409: RACERS - 1}
    told = ok(lead.ask("GET", f"{INTENTS}/{of}/events", params={"after": 0, "limit": 100}))
    ended = [it for it in told if it["type"] in ("task.completed", "task.failed")]
    assert len(ended) == 1, [it["type"] for it in told]


@pytest.mark.heavy
def test_racing_coordinators_and_grants_of_an_intent_are_each_told_once(two: Pods) -> None:
    of = intent(two)["id"]
    grants = f"{INTENTS}/{of}/acl/entries"

    def work(http: httpx.Client, it: int) -> httpx.Response:
        lead = Agent(http, "lead")
        if it % 2:
            return lead.ask("POST", COORDINATORS, {"intent_id": of, "agent_id": "ada"})
        given = {"principal_id": "bob", "principal_type": "agent", "permission": "read"}
        return lead.ask("POST", grants, given)

    answers = two.racing(work)

    made = {it.json()["id"] for it in answers if it.status_code == 201}
    lead = Agent(two.http, "lead")
    shown = ok(lead.ask("GET", f"{INTENTS}/{of}/coordinators"))
    shown += ok(lead.ask("GET", f"{INTENTS}/{of}/acl"))["entries"]
    assert {it["id"] for it in shown} == made
    assert set(statuses(answers)) <= {201, 409}
    told = ok(lead.ask("GET", f"{INTENTS}/{of}/events", params={"after": 0, "limit": 100}))
    assert len(told) == len({it["id"] for it in told})


@pytest.mark.heavy
def test_racing_grants_end_once(two: Pods) -> None:
    of = intent(two)["id"]
    at_ = f"{INTENTS}/{of}/acl/entries"
    given = {"principal_id": "bob", "principal_type": "agent", "permission": "read"}
    grant = ok(Agent(two.http, "lead").ask("POST", at_, given), 201)["id"]

    answers = two.racing(lambda http, _: Agent(http, "lead").ask("DELETE", f"{at_}/{grant}"))

    assert set(statuses(answers)) <= {200, 404}
    told = ok(Agent(two.http, "lead").ask("GET", f"{INTENTS}/{of}/events", params={"after": 0}))
    removed = [it for it in told if "revoked" in it["type"] or "removed" in it["type"]]
    assert len(removed) <= 1, [it["type"] for it in told]


@pytest.mark.heavy
def test_racing_first_requests_of_a_tenant_make_it_once(two: Pods) -> None:
    tokens = [made_key(two, "ci", tenant="new")]
    bearer = {"Authorization": f"Bearer {tokens[0]}"}
    until(lambda: all(known(it.http, bearer) for it in two.services))

    answers = two.racing(
        lambda http, it: http.post(
            "/observations", json=observation(f"said {it}", session_id=f"s{it}"), headers=bearer
        )
    )

    assert statuses(answers) == {201: RACERS}, [it.text for it in answers]
    assert two.rows("SELECT count(*) FROM agentops.tenants WHERE tenant = 'new'") == [(1,)]
    assert two.http.get("/stats", headers=bearer).json()["total_observations"] == RACERS


@pytest.mark.slow
def test_of_racing_keys_none_is_lost_and_one_revocation_is_audited(two: Pods) -> None:
    with ThreadPoolExecutor(RACERS) as threads:
        tokens = [*threads.map(lambda it: made_key(two, f"key {it}"), range(RACERS))]
    ring = PostgresKeys(two.url).ring()
    assert {it.name for it in ring.keys.values()} == {f"key {it}" for it in range(RACERS)}
    assert len({*tokens}) == RACERS

    (first, *_) = ring.keys

    def revoke(_: int) -> bool:
        try:
            PostgresKeys(two.url).revoke(first, at=START, by=OPERATOR)
        except Refusal:
            return False
        return True

    with ThreadPoolExecutor(RACERS) as threads:
        assert sum(threads.map(revoke, range(RACERS))) >= 1
    revoked = "SELECT count(*) FROM agentops.audit WHERE line LIKE '%revoked%'"
    assert two.rows(revoked) == [(1,)]


def made_key(two: Pods, name: str, *, tenant: str = "default") -> str:
    key, token = issued(name, TenantId(tenant), Role.ADMIN, patterns(("*",)), START)
    PostgresKeys(two.url).create(key, at=START, by=OPERATOR)
    return token


def known(http: httpx.Client, bearer: dict[str, str]) -> bool:
    """Whether a pod knows a key; it is not asked for anything that is stored."""
    return http.get("/health/ready", headers=bearer).status_code != 401
