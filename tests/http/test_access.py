"""What a caller may do, and what it gets to see: by its role, and by its project patterns."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import example, given, strategies as st

from agentops_memory.agentops import operations
from agentops_memory.memory.access import NOT_YOUR_PROJECT, Patterns, Role
from agentops_memory.memory.space import Project, project_name
from agentops_memory.recall.summary import Transcript, transcript

from ..support.callers import calling, made_key, revoke
from ..support.raw import Wire, request, wire
from ..support.samples import for_each
from ..support.service import Service, observation, serving

ROLES = [role.value for role in Role]


class House:
    """A service with two projects of one tenant, and clients that act on some of it."""

    def __init__(self, service: Service, clients: ExitStack) -> None:
        self.service, self._clients = service, clients
        self.admin, self.billing = self.client("admin"), self.client("writer", "billing-*")
        self.ids: dict[str, int] = {}
        for name, project, scope in [
            ("own", "billing-eu", "project"), ("own global", "billing-eu", "global"),
            ("foreign", "shop", "project"), ("foreign global", "shop", "global"),
        ]:  # fmt: skip
            fields = {"project": project, "scope": scope, "session_id": f"in {project}"}
            body = observation(f"apple of {project} {scope}", **fields)
            answer = self.admin.post("/observations", json=body).raise_for_status()
            self.ids[name] = answer.json()["id"]

    def client(self, role: str, *projects: str) -> httpx.Client:
        token = made_key(self.service.path, role, projects=projects or ("*",))
        return self._clients.enter_context(calling(self.service, token))


@pytest.fixture
def house(service: Service) -> Iterator[House]:
    with ExitStack() as clients:
        yield House(service, clients)


def titles(rows: list[dict[str, Any]]) -> set[str]:
    return {row["title"] for row in rows}


OWN = {"apple of billing-eu project", "apple of billing-eu global"}
GLOBAL = {"apple of billing-eu global", "apple of shop global"}


@for_each(
    "path, expected",
    [
        ("/observations/recent", OWN), ("/observations/recent?project=billing-eu", OWN),
        ("/observations/recent?project=shop", set()), ("/observations/recent?scope=global", GLOBAL),
        ("/observations/recent?scope=project", {"apple of billing-eu project"}),
        ("/search?q=apple", OWN | GLOBAL), ("/search?q=apple&project=billing-eu", OWN | GLOBAL),
        ("/search?q=apple&project=shop", GLOBAL),
        ("/search?q=apple&scope=project", {"apple of billing-eu project"}),
        ("/search?q=apple&project=shop&scope=project", set()),
        ("/observations/recent?before_id={own global}", {"apple of billing-eu project"}),
    ],
)  # fmt: skip
def test_a_caller_sees_what_its_patterns_match_and_what_is_global(
    house: House, path: str, expected: set[str]
) -> None:
    assert titles(house.billing.get(path.format(**house.ids)).json()) == expected


def test_counts_and_exports_are_of_what_the_patterns_match(house: House) -> None:
    assert house.billing.get("/stats").json() == {
        "total_sessions": 1, "total_observations": 2, "projects": ["billing-eu"],
    }  # fmt: skip
    assert house.billing.get("/stats?project=shop").json()["total_observations"] == 0
    exporting = house.client("admin", "billing-*")
    exported = exporting.get("/export").json()
    assert titles(exported["observations"]) == OWN
    assert [row["id"] for row in exported["sessions"]] == ["in billing-eu"]
    assert [row["id"] for row in house.billing.get("/sessions/recent").json()] == ["in billing-eu"]


def test_a_global_memory_is_read_with_any_key_and_changed_with_one_for_everything(
    house: House,
) -> None:
    partly = house.client("admin", "billing-*", "shop")
    saved = observation("mine", project="billing-eu", scope="global")
    assert partly.post("/observations", json=saved).status_code == 403
    for name in ("own global", "foreign global"):
        path = f"/observations/{house.ids[name]}"
        assert house.billing.get(path).status_code == 200
        for method, target, body in [
            ("PATCH", path, {"title": "no"}), ("DELETE", path, None),
            ("DELETE", f"{path}?hard=true", None), ("POST", f"{path}/restore", {"revision": 1}),
        ]:  # fmt: skip
            assert partly.request(method, target, json=body).status_code == 403, target
        assert house.admin.patch(path, json={"title": "yes"}).json()["revision_count"] == 2


def test_nothing_is_saved_into_another_project_or_attached_to_its_session(house: House) -> None:
    before = house.admin.get("/stats").json(), house.admin.get("/sessions/recent").json()

    for path, body in [
        ("/observations", observation("x", project="shop")),
        ("/observations", observation("x", project="never-was")),
        ("/observations", observation("x", project="billing-eu", session_id="in shop")),
        ("/sessions", {"id": "new", "project": "shop"}),
        ("/sessions", {"id": "new", "project": "never-was"}),
        ("/sessions", {"id": "in shop", "project": "billing-eu"}),
        ("/sessions/new/end?project=shop", None), ("/sessions/new/end", None),
        ("/sessions/in shop/end", {"messages": [{"role": "user"}]}),
        ("/sessions/in shop/end?project=billing-eu", None),
    ]:  # fmt: skip
        answer = house.billing.post(path, json=body)
        assert (answer.status_code, answer.json()) == (403, {"error": NOT_YOUR_PROJECT}), path

    assert (house.admin.get("/stats").json(), house.admin.get("/sessions/recent").json()) == before
    own = house.billing.post("/sessions/in billing-eu/end", json={"messages": []})
    assert own.status_code == 200


def test_an_import_brings_nothing_into_another_project(house: House) -> None:
    exported = house.admin.get("/export").json()
    partly = house.client("admin", "billing-*")
    foreign_uid = next(o["uid"] for o in exported["observations"] if o["project"] == "shop")
    row = observation("stolen", project="billing-eu")
    for name in ("own global", "foreign global"):
        house.admin.delete(f"/observations/{house.ids[name]}")
    before = house.admin.get("/export").json()["observations"]

    for document in [
        {"observations": [observation("x", project="shop")]},
        {"observations": [observation("x", project="billing-eu", scope="global")]},
        {"observations": [row | {"session_id": "in shop"}]},
        {"sessions": [{"id": "in shop", "project": "billing-eu"}]},
        {"sessions": [{"id": "new", "project": "shop"}]},
        *[
            # Deleted by then; nobody may bring it back without a key for everything.
            {"observations": [gone | {"project": "billing-eu", "session_id": "in billing-eu",
                                      "scope": "project"}]}
            for gone in exported["observations"] if gone["scope"] == "global"
        ],
    ]:  # fmt: skip
        for path in ("/import", "/import?dry_run=true"):
            assert partly.post(path, json=document).status_code == 403, document
    assert house.admin.get("/export").json()["observations"] == before
    for own, count in [
        ({"observations": [row | {"uid": foreign_uid}]}, 1),  # as one that never was
        ({"observations": [row | {"uid": foreign_uid}]}, 0),
        ({"observations": [row | {"content": "another"}], "sessions": []}, 1),
    ]:
        plan = partly.post("/import?dry_run=true", json=own).json()
        assert plan["new_observations"] == count
        assert partly.post("/import", json=own).json()["imported_observations"] == count


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_it_says_and_no_more(house: House, role: str) -> None:
    client = house.client(role)
    own = f"/observations/{house.ids['own']}"
    needed: dict[str, list[tuple[str, str, object]]] = {
        "reader": [
            ("GET", path, None)
            for path in (
                "/sessions/recent", "/observations/recent", own, f"{own}/history", "/search?q=a",
                "/context", f"/timeline?observation_id={house.ids['own']}", "/stats",
                "/openapi.json", "/docs",
            )
        ],
        "writer": [
            ("POST", "/sessions", {"id": "s", "project": "p"}),
            ("POST", "/sessions/s/messages", {"messages": []}), ("POST", "/sessions/s/end", None),
            ("POST", "/observations", observation("x")), ("PATCH", own, {"title": "t"}),
            ("POST", f"{own}/restore", {"revision": 1}), ("DELETE", own, None),
        ],
        "admin": [
            ("DELETE", f"{own}?hard=true", None),
            ("GET", "/export", None),
            ("POST", "/import", {"observations": []}),
            ("POST", "/import?dry_run=true", {"observations": []}),
        ],
    }  # fmt: skip

    for needs, requests in needed.items():
        for method, path, body in requests:
            status = client.request(method, path, json=body).status_code
            may = ROLES.index(role) >= ROLES.index(needs)
            assert (status < 400) if may else (status == 403), (method, path, status)


def test_without_a_key_nothing_is_answered_but_probes_and_descriptions(house: House) -> None:
    paths = house.admin.get("/openapi.json").json()["paths"]
    with calling(house.service, None) as nobody:
        for path, methods in paths.items():
            for method in methods:
                answer = nobody.request(method, path.replace("{id}", "1"))
                is_open = path.startswith(("/health", "/docs", "/.well-known/", "/v1/openapi.json"))
                assert answer.status_code == (200 if is_open else 401), path
                assert ("www-authenticate" in answer.headers) is not is_open
        assert nobody.get("/health").json() == {"status": "ok"}
        assert nobody.get("/nothing").status_code == nobody.post("/stats").status_code == 401
    assert house.billing.get("/nothing").status_code == 404
    assert house.billing.post("/stats").status_code == 405


def test_the_first_key_closes_the_service_and_revoking_it_does_not_open_it(path: Path) -> None:
    with serving(path, MEMORY_AUTH="none") as service:
        service.save("apple")
        sent_all_the_same = {"authorization": "Bearer anything", "x-api-key": "sk-something"}
        assert service.http.get("/stats", headers=sent_all_the_same).status_code == 200
        token = made_key(service.path)
        assert service.http.get("/stats").status_code == 401
        with calling(service, token) as client:
            assert client.get("/stats").json()["total_observations"] == 1
            revoke(service.path, token)
            assert client.get("/stats").status_code == 401
        assert service.http.get("/stats").status_code == 401


def test_the_stored_patterns_mean_the_same_in_sql(house: House) -> None:
    names = ["Éclair", "a*b", "a.b", "axb", "x" * 200, "line\nbreak", "[a]", "A-ONE"]
    stored = [observation(name, project=name) for name in names]  # as older versions took them
    house.admin.post("/import", json={"observations": stored}).raise_for_status()

    for pattern in ["éclair", "a.b", "*a*", "x*", "line*", "[a]", "a-*", "*"]:
        folded = {project_name(name) for name in [*names, "shop", "billing-eu"]}
        client = house.client("reader", pattern)
        projects = client.get("/stats").json()["projects"]
        expected = {name for name in folded if _matches(pattern, name)}
        assert set(projects) == expected, pattern
    slow = house.client("reader", "*".join(["a", *["-"] * 7, "b"]))  # were it tried place by place
    for path in ("/search?q=x&project=", "/context?project="):
        assert slow.get(path + "a" + "-" * 40_000).status_code == 200


@example("a*bb*b", "abb")
@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=8))
def test_a_star_stands_for_anything_and_nothing_else_does(pattern: str, name: str) -> None:
    assert Patterns((pattern,)).match(Project(name)) == _matches(pattern, name)


def _matches(pattern: str, name: str) -> bool:
    """A star matches anything: tried place by place."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(_matches(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return name[:1] == pattern[0] and _matches(pattern[1:], name[1:])


def test_a_right_that_was_taken_away_holds_no_more_for_a_body_that_is_still_coming(
    path: Path,
) -> None:
    memories = {**observation("apple"), "observations": [observation("pear")]}
    prompt = {"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "use-memory"}}
    with serving(path) as service, ExitStack() as stack:

        def begun(path: str, body: object, **key: str) -> tuple[Wire, bytes]:
            """A client that has sent the head and some of the body, and the rest."""
            content = json.dumps(body).encode()
            client = stack.enter_context(wire(service.url))
            head = request("POST", path, b"", content_length=str(len(content)), **key)
            client.send(head, content[:10])
            return client, content[10:]

        clients = [begun("/import", memories)]
        assert service.http.get("/stats").status_code == 200  # the head is in
        token = made_key(service.path)
        for path_, body in (("/observations", memories), ("/mcp/any", prompt)):
            clients.append(begun(path_, body, authorization=f"Bearer {token}"))
        with calling(service, made_key(service.path)) as other:
            assert other.get("/stats").json()["total_observations"] == 0
            revoke(service.path, token)
            for client, rest in clients:  # the service is closed, the key is revoked
                client.send(rest)
                assert client.answer().status == 401
            assert other.get("/stats").json()["total_observations"] == 0


def test_a_right_that_was_taken_away_holds_no_more_while_a_transcript_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(path) as service:
        token, other = made_key(service.path), made_key(service.path)

        def meanwhile(*given: Any) -> Transcript:
            revoke(service.path, token)
            return transcript(*given)

        monkeypatch.setattr(operations, "transcript", meanwhile)
        with calling(service, token) as writer:
            said = {"messages": [{"role": "user", "content": "hello"}]}
            assert writer.post("/sessions/s1/end", json=said).status_code == 401
        with calling(service, other) as client:
            assert client.get("/stats").json()["total_sessions"] == 0
