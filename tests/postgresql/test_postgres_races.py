"""Of requests that race over two services of one database, each unique thing is made once."""

from collections import Counter

import httpx
import pytest

from ..support.pods import RACERS, Pods, two
from ..support.service import observation

__all__ = ["two"]

PINS = 20  # of a project, at most
KEY = {"Idempotency-Key": "the-key-of-all-racers"}


def save(http: httpx.Client, content: str, **fields: object) -> httpx.Response:
    return http.post("/observations", json=observation(content, **fields))


def stored(pods: Pods) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pods.http.get("/export").json()["observations"]
    return rows


@pytest.mark.heavy
@pytest.mark.representative(4)
@pytest.mark.parametrize(
    ("method", "path", "body", "table"),
    [
        ("POST", "/observations", observation("said once"), "memories"),
        ("POST", "/sessions", {"id": "s1", "project": "demo"}, "sessions"),
        ("POST", "/sessions/s1/end?project=demo", {"messages": [{"role": "user", "content": "Hi"}]},
         "sessions"),
        ("POST", "/api/v1/cloud/memory_stores", {"name": "Notes"}, "stores"),
        ("POST", "/v1/host/agentops-memory/memory",
         {"memoryRef": "mem://notes", "content": "said once"}, "memories"),
        ("POST", "/v1/host/agentops-memory/proposals",
         {"kind": "automation", "artifact": {"workflowId": "harvest"},
          "provenance": {"sourceRunIds": []}}, "proposals"),
        ("POST", "/api/v1/intents", {"title": "Invoices"}, "intents"),
        ("POST", "/api/v1/memory",
         {"agent_id": "ada", "namespace": "notes", "key": "a", "value": {},
          "memory_type": "episodic"}, "memories"),
    ],
)  # fmt: skip
def test_racing_requests_under_one_key_are_done_once(
    two: Pods, method: str, path: str, body: object, table: str
) -> None:
    headers = KEY | {"X-Agent-ID": "ada"}

    answers = two.racing(lambda http, _: http.request(method, path, json=body, headers=headers))

    assert {it.status_code for it in answers} <= {200, 201}, [it.text for it in answers]
    told = Counter(it.text for it in answers)
    assert len(told) == 1 or path == "/observations", told  # a repeated save says that it is one
    assert two.rows(f"SELECT count(*) FROM {table}") == [(1,)]
    assert two.rows("SELECT count(*) FROM done") == [(1,)]
    if table == "memories":
        assert two.rows("SELECT duplicates, revision FROM memories") == [(1, 1)]


def test_racing_requests_under_one_key_in_several_sessions_are_done_once(two: Pods) -> None:
    """The key is what they have in common: nothing else makes one wait for another."""
    answers = two.racing(
        lambda http, it: http.post(
            "/observations",
            json=observation("said once", session_id=f"s{it}", project=f"p{it}"),
            headers=KEY,
        )
    )

    done = [it for it in answers if it.status_code == 201]
    assert len(done) == 1
    assert {it.status_code for it in answers} - {201} == {409}, [it.text for it in answers]
    assert two.rows("SELECT count(*) FROM memories") == [(1,)]
    assert two.rows("SELECT count(*) FROM sessions") == [(1,)]


@pytest.mark.slow
def test_racing_saves_at_one_topic_key_are_one_memory_of_many_revisions(two: Pods) -> None:
    answers = two.racing(
        lambda http, it: save(http, f"said by {it}", topic_key="k", session_id=f"s{it}")
    )

    told = sorted(it.json()["revision_count"] for it in answers)
    assert told == [*range(1, RACERS + 1)]
    (found,) = stored(two)
    assert found["revision_count"] == RACERS
    history = two.http.get(f"/observations/{found['id']}/history").json()
    assert {it["content"] for it in history} == {f"said by {it}" for it in range(RACERS)}
    two.assert_index_is_whole()


@pytest.mark.heavy
def test_racing_saves_of_the_same_words_are_one_memory_and_counted(two: Pods) -> None:
    answers = two.racing(lambda http, it: save(http, "the same words", session_id=f"s{it}"))

    assert Counter(it.json()["action"] for it in answers) == {
        "created": 1, "deduplicated": RACERS - 1,
    }  # fmt: skip
    (found,) = stored(two)
    assert found["duplicate_count"] == RACERS
    two.assert_index_is_whole()


@pytest.mark.slow
def test_a_session_that_many_open_is_of_one_project(two: Pods) -> None:
    answers = two.racing(
        lambda http, it: http.post("/sessions", json={"id": "s1", "project": f"p{it}"})
    )

    assert {it.status_code for it in answers} <= {201, 409}
    assert two.rows("SELECT count(*) FROM sessions") == [(1,)]


@pytest.mark.slow
def test_racing_messages_of_a_session_are_all_counted(two: Pods) -> None:
    two.http.post("/sessions", json={"id": "s1", "project": "demo"})

    answers = two.racing(
        lambda http, it: http.post(
            "/sessions/s1/messages", json={"messages": [{"role": "user", "content": f"Say {it}"}]}
        )
    )

    assert {it.status_code for it in answers} == {204}
    ended = two.http.post("/sessions/s1/end").json()
    assert ended["message_count"] == RACERS


@pytest.mark.heavy
@pytest.mark.parametrize("scopes", [1, RACERS])
def test_racing_first_saves_give_a_project_one_area(two: Pods, scopes: int) -> None:
    answers = two.racing(
        lambda http, it: save(
            http, f"said by {it}", session_id=f"s{it}", scope=f"scope-{it % scopes}"
        )
    )

    assert {it.status_code for it in answers} == {201}, [it.text for it in answers]
    assert two.rows("SELECT count(DISTINCT area), count(*) FROM spaces") == [(1, scopes)]
    two.assert_index_is_whole()


@pytest.mark.heavy
def test_racing_first_saves_of_many_projects_give_each_an_area_of_its_own(two: Pods) -> None:
    answers = two.racing(
        lambda http, it: [
            save(http, f"said by {it}", session_id=f"s{it}-{project}", project=f"p{project}")
            for project in range(6)
        ]
    )

    assert {it.status_code for each in answers for it in each} == {201}
    areas = two.rows("SELECT project, area FROM spaces GROUP BY project, area")
    assert len(areas) == len({area for _, area in areas}) == 6
    two.assert_index_is_whole()


@pytest.mark.slow
def test_racing_changes_and_deletions_of_a_memory_are_each_a_revision(two: Pods) -> None:
    memory = save(two.http, "what was said").json()["id"]
    at = f"/observations/{memory}"

    answers = two.racing(
        lambda http, it: (
            http.delete(at) if it == RACERS - 1
            else http.patch(at, json={"content": f"what {it} says"})
        )
    )  # fmt: skip

    changed = [it.json()["revision_count"] for it in answers if it.status_code == 200]
    assert sorted(changed) == [*range(2, len(changed) + 2)]
    assert {it.status_code for it in answers} <= {200, 204, 404}
    history = two.http.get(f"{at}/history").json()
    numbers = [it["revision"] for it in history]
    assert numbers == sorted({*numbers}, reverse=True)
    assert len(numbers) == len(changed) + 2
    two.assert_index_is_whole()


@pytest.mark.heavy
def test_of_racing_changes_of_a_life_none_is_lost(two: Pods) -> None:
    changes = ({"pinned": True}, {"ttl": 9}, {"tags": ["a"]}, {"content": "said again"})
    for number in range(4):
        at = f"/observations/{save(two.http, f'said {number}').json()['id']}"

        def work(http: httpx.Client, it: int, at: str = at) -> httpx.Response:
            return (
                http.patch(at, json=changes[it]) if it < 4 else http.post(f"{at}/confirm", json={})
            )

        answers = two.racing(work, 5)

        assert {it.status_code for it in answers} == {200}, [it.text for it in answers]
        shown = two.http.get(at).json()
        given = ("pinned", "confirmed_at", "expires_at", "tags")
        assert [it for it in given if not shown.get(it)] == []
        assert shown["content"] == "said again"


@pytest.mark.heavy
def test_racing_pins_do_not_pass_their_bound(two: Pods) -> None:
    for number in range(PINS - 4):
        assert save(two.http, f"pinned {number}", pinned=True).status_code == 201

    answers = two.racing(lambda http, it: save(http, f"also {it}", session_id="x", pinned=True))

    assert Counter(it.status_code for it in answers)[201] == 4, [it.text for it in answers]
    assert two.rows("SELECT count(*) FROM lifecycles WHERE pinned_at IS NOT NULL") == [(PINS,)]


@pytest.mark.heavy
def test_racing_imports_of_a_document_store_it_once(two: Pods) -> None:
    rows = [
        observation(
            f"carried {it}", uid=f"01900000-0000-7000-8000-{it:012}",
            created_at="2029-05-06T07:08:09Z", updated_at="2029-05-06T07:08:09Z",
            last_seen_at="2029-05-06T07:08:09Z",
        )
        for it in range(20)
    ]  # fmt: skip

    answers = two.racing(lambda http, _: http.post("/import", json={"observations": rows}))

    assert sum(it.json()["imported_observations"] for it in answers) == 20
    assert sorted(str(it["content"]) for it in stored(two)) == sorted(
        f"carried {it}" for it in range(20)
    )
    two.assert_index_is_whole()


@pytest.mark.heavy
def test_saves_that_race_with_an_erasure_of_their_project_leave_all_or_nothing(two: Pods) -> None:
    for number in range(20):
        save(two.http, f"before {number}")

    def work(http: httpx.Client, it: int) -> httpx.Response:
        if it % 4 == 3:
            return http.delete("/projects/demo?hard=true")
        return save(http, f"beside {it}", session_id=f"s{it}")

    answers = two.racing(work, 2 * RACERS)

    assert {it.status_code for it in answers} <= {200, 201, 404}, [it.text for it in answers]
    assert not [it for it in stored(two) if str(it["content"]).startswith("before")]
    assert len(two.rows("SELECT DISTINCT area FROM spaces WHERE project = 'demo'")) <= 1
    two.assert_index_is_whole()
