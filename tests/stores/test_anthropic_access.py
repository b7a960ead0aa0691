"""Who may do what to the stores of the Anthropic dialect, and what lies apart."""

import json
from pathlib import Path

import anthropic
import pytest

from ..support.anthropic_access import every_request
from ..support.anthropic_sdk import NEVER, NOTHING, NOWHERE, STORES, memory, sdk, store, versions
from ..support.callers import audit, calling, made_key, revoke
from ..support.requirements import requirement
from ..support.service import Service, observation, serving

__all__ = ["sdk"]

ROLES = ("reader", "writer", "admin")


@pytest.fixture
def held(service: Service, sdk: anthropic.Anthropic) -> tuple[str, str, str]:
    """The ids of a store, a memory in it, and a version that is its past."""
    notes = store(sdk)
    kept = memory(sdk, notes, "/a")
    sdk.beta.memory_stores.memories.update(kept.id, memory_store_id=notes.id, content="second")
    made_key(service.path)  # from now on a key is needed
    return notes.id, kept.id, kept.memory_version_id


def test_every_operation_is_asked_for() -> None:
    asked = every_request(NOWHERE, NOTHING, NEVER)

    assert len(asked) == 14
    assert {one.name for one in asked if one.role == "reader"} == {
        f"anthropic_{name}"
        for name in ("get_store", "list_stores", "get_memory", "list_memories", "get_version",
                     "list_versions")
    }  # fmt: skip
    assert {one.name for one in asked if one.role == "admin"} == {
        "anthropic_delete_store",
        "anthropic_redact_version",
    }


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize("role", ROLES)
@requirement("anthropic:keys:roles")
def test_a_key_does_what_its_role_may_and_no_more(
    service: Service, held: tuple[str, str, str], role: str
) -> None:
    may = ROLES[: ROLES.index(role) + 1]
    with calling(service, made_key(service.path, role)) as client:
        answers = [(asked, asked.of(client)) for asked in every_request(*held)]

    for asked, answer in answers:
        assert answer.status_code == (200 if asked.role in may else 403), (asked, answer.text)
        if answer.status_code == 403:
            assert answer.json()["error"]["type"] == "permission_error"


@pytest.mark.parametrize("projects", [("billing",), ("billing-*", "shop")])
@requirement("anthropic:keys:projects")
def test_a_key_for_some_projects_has_no_stores(
    service: Service, held: tuple[str, str, str], projects: tuple[str, ...]
) -> None:
    token = made_key(service.path, "admin", projects=projects)
    with calling(service, token) as client:
        theirs = [asked.of(client) for asked in every_request(*held)]
        nobodys = [asked.of(client) for asked in every_request(NOWHERE, NOTHING, NEVER)]

    assert {answer.status_code for answer in [*theirs, *nobodys]} == {403}
    for one, other in zip(theirs, nobodys, strict=True):
        assert one.json()["error"] == other.json()["error"]


@pytest.mark.representative(2)
@pytest.mark.parametrize("token", [None, "amk_nobody", ""])
@requirement("anthropic:sdk:keys")
def test_without_a_key_that_works_nothing_is_done(
    service: Service, held: tuple[str, str, str], token: str | None
) -> None:
    with calling(service, token) as client:
        answers = [asked.of(client) for asked in every_request(*held)]

    assert {answer.status_code for answer in answers} == {401}
    assert {answer.json()["error"]["type"] for answer in answers} == {"authentication_error"}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}


def test_a_revoked_key_works_no_more(service: Service) -> None:
    token = made_key(service.path)
    made_key(service.path)
    with calling(service, token) as client:
        assert client.get(STORES).status_code == 200
        revoke(service.path, token)
        assert client.get(STORES).status_code == 401


@requirement("anthropic:keys:roles")
def test_what_cannot_be_undone_is_noted_with_the_key(service: Service) -> None:
    token = made_key(service.path)
    with calling(service, token) as client:
        made = client.post(STORES, json={"name": "notes"}).json()["id"]
        kept = client.post(f"{STORES}/{made}/memories", json={"path": "/a", "content": "x"}).json()
        client.delete(f"{STORES}/{made}/memories/{kept['id']}")
        client.post(f"{STORES}/{made}/memory_versions/{kept['memory_version_id']}/redact")
        client.delete(f"{STORES}/{made}")

    done = [line for line in audit(service.path) if "store" in line]
    assert [(line["action"], line["by"]) for line in done] == [
        ("version.redacted", {"key": token.split("_")[1]}),
        ("store.deleted", {"key": token.split("_")[1]}),
    ]


@requirement("anthropic:separate")
def test_projects_and_stores_see_nothing_of_each_other(
    service: Service, sdk: anthropic.Anthropic
) -> None:
    notes = store(sdk)
    held = memory(sdk, notes, "/zebra", "a zebra in a store")
    service.save("a giraffe in a project", project="demo")

    for path in ("/search?q=zebra", "/context?query=zebra", "/observations/recent",
                 "/export", "/stats", "/timeline?observation_id=2"):  # fmt: skip
        assert "zebra" not in service.http.get(path).text
    for id_ in ("1", held.id, held.id.removeprefix("mem_")):
        assert service.http.get(f"/observations/{id_}").status_code in (400, 404)
    assert "giraffe" not in service.http.get(f"{STORES}/{notes.id}/memories?view=full").text
    assert service.http.get(f"{STORES}/{notes.id}/memories/1").status_code == 404
    assert len(versions(sdk, notes)) == 1


@pytest.mark.slow
def test_no_store_crosses_tenants(path: Path) -> None:
    with serving(path) as service:
        ada, bob = (
            calling(service, made_key(service.path, tenant=tenant)) for tenant in ("ada", "bob")
        )
        with ada, bob:
            hers = ada.post(STORES, json={"name": "canary of ada"}).json()["id"]
            kept = ada.post(
                f"{STORES}/{hers}/memories", json={"path": "/canary", "content": "canary"}
            ).json()
            asked = every_request(hers, kept["id"], kept["memory_version_id"])
            never = every_request(NOWHERE, NOTHING, NEVER)

            theirs = [one.of(bob) for one in asked]
            nobodys = [one.of(bob) for one in never]

            for one, other in zip(theirs, nobodys, strict=True):
                assert one.status_code == other.status_code
                assert "canary" not in one.text
                if one.status_code != 200:
                    assert one.json()["error"] == other.json()["error"]
            assert [one.name for one, got in zip(asked, theirs, strict=True)
                    if got.status_code != 404] == [
                "anthropic_create_store", "anthropic_list_stores",
            ]  # fmt: skip
            found = ada.get(f"{STORES}/{hers}/memories?view=full").json()["data"]
            assert [(item["path"], item["content"]) for item in found] == [("/canary", "canary")]


def test_a_key_for_some_projects_finds_what_is_in_them_beside_stores(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db") as service:
        service.save("apples grow here", project="billing-eu")
        with calling(service, made_key(service.path)) as keeper:
            for number in range(3):
                store_id = keeper.post(STORES, json={"name": "notes"}).json()["id"]
                url = f"{STORES}/{store_id}/memories"
                body = {"path": f"/{number}", "content": "apples grow there"}
                assert keeper.post(url, json=body).status_code == 200
        with calling(service, made_key(service.path, projects=("billing-*",))) as some:
            for path in ("/search?q=apples", "/context?query=apples&project=billing-eu",
                         "/observations/recent", "/export", "/stats", "/sessions/recent",
                         "/timeline?observation_id=1"):  # fmt: skip
                answer = some.get(path)
                assert answer.status_code == 200, (path, answer.text)
                assert "there" not in answer.text
            assert [hit["content"] for hit in some.get("/search?q=apples").json()] == [
                "apples grow here"
            ]


def test_a_session_of_agentops_is_no_author(service: Service, sdk: anthropic.Anthropic) -> None:
    notes = store(sdk)
    memory(sdk, notes, "/a")
    service.http.post("/observations", content=json.dumps(observation("apple")))

    assert versions(sdk, notes, session_id="s1") == []
