"""Who may use memory stores, and that nothing else of the service sees into them."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..support.callers import audit, calling, made_key
from ..support.database import assert_index_is_whole
from ..support.engines import rows
from ..support.requirements import requirement
from ..support.service import Service, observation, serving
from ..support.stores import (
    NEVER,
    STORES,
    Object,
    at,
    delete,
    entry,
    entry_at,
    fault,
    ids,
    ok,
    redact,
    refusal,
    store,
    version_at,
    versions,
)

DENIED = (403, "permission_error", None)
WORD = "xylographer"


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "memory.db") as service:
        yield service


def client(service: Service, role: str, *projects: str, tenant: str = "default") -> httpx.Client:
    return calling(service, made_key(service.path, role, tenant, projects or ("*",)))


@requirement("stores:roles", "stores:error:403")
def test_readers_read_writers_write_and_admins_delete_and_redact(closed: Service) -> None:
    with (
        client(closed, "reader") as reader,
        client(closed, "writer") as writer,
        client(closed, "admin") as admin,
    ):
        home = store(writer)
        made, gone = entry(writer, home, "a"), entry(writer, home, "b")
        version = versions(reader, home, entry_id=made["id"])[0]
        reads = [
            STORES, at(home), at(home, "memories"), entry_at(home, made), at(home, "versions"),
            version_at(home, version), f"{at(home, 'search')}?q=hello",
        ]  # fmt: skip
        writes: list[tuple[str, str, Object | None]] = [
            ("POST", STORES, {"name": "a"}),
            ("POST", at(home, "memories"), {"path": "c", "content": "d"}),
            ("PUT", entry_at(home, made), {"content": "e"}),
            ("DELETE", entry_at(home, gone), None),
            ("POST", at(home, "archive"), None),
        ]
        deletes: list[tuple[str, str, Object | None]] = [
            ("POST", f"{version_at(home, version)}/redact", None),
            ("DELETE", at(home), None),
        ]
        for path in reads:
            assert reader.get(path).status_code == 200
        for method, path, body in writes + deletes:
            assert fault(reader.request(method, path, json=body)) == DENIED
        for method, path, body in deletes:
            assert fault(writer.request(method, path, json=body)) == DENIED
        for method, path, body in writes:
            assert writer.request(method, path, json=body).is_success
        for method, path, body in deletes:
            assert admin.request(method, path, json=body).is_success


@pytest.mark.slow
@requirement("stores:error:403")
def test_a_key_for_some_projects_has_no_stores_at_all(closed: Service) -> None:
    with client(closed, "admin") as whole, client(closed, "admin", "billing-*", "s*") as part:
        home = store(whole)
        made = entry(whole, home, "a")
        (version,) = versions(whole, home)
        for known in (True, False):
            sid = home["id"] if known else "memstore_x"
            eid, vid = (made["id"], version["id"]) if known else ("x", f"memver_{NEVER}")
            base = f"{STORES}/{sid}"
            for method, path in [
                ("POST", STORES), ("GET", STORES), ("GET", base), ("POST", f"{base}/archive"),
                ("DELETE", base), ("GET", f"{base}/search"), ("POST", f"{base}/memories"),
                ("GET", f"{base}/memories?limit=x"), ("GET", f"{base}/memories/{eid}"),
                ("PUT", f"{base}/memories/{eid}"), ("DELETE", f"{base}/memories/{eid}"),
                ("GET", f"{base}/versions"), ("GET", f"{base}/versions/{vid}"),
                ("POST", f"{base}/versions/{vid}/redact"),
            ]:  # fmt: skip
                told = refusal(part.request(method, path, content=b"{"))
                sentence = "Memory stores are for keys that act on every project."
                assert told == (403, "permission_error", sentence, None), (method, path)
        assert ok(whole.get(entry_at(home, made))) == made


def test_what_cannot_be_undone_is_noted(closed: Service) -> None:
    with client(closed, "admin") as admin:
        home = store(admin)
        entry(admin, home, "a")
        (version,) = versions(admin, home)
        redact(admin, home, version)
        delete(admin, at(home))

    told = [(line["action"], line.get("observations")) for line in audit(closed.path)][1:]
    assert told == [("version.redacted", None), ("store.deleted", 1)]


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
def test_no_list_of_agentops_shows_an_entry(beside: tuple[Service, Object, Object, int]) -> None:
    http, home = beside[0].http, beside[1]
    for path in [
        f"/search?q={WORD}", "/search?q=notes/a", f"/search?q={WORD}&scope={home['id']}",
        f"/context?query={WORD}", f"/context?query={WORD}&project=demo", "/context?project=",
        "/observations/recent", "/observations/recent?type=memory", "/observations/recent?project=",
        "/export", "/timeline?observation_id=1&before=9&after=9", "/sessions/recent",
    ]:  # fmt: skip
        answer = http.get(path)
        assert answer.status_code == 200, path
        assert "of a store" not in answer.text, path
    stats = http.get("/stats").json()
    assert stats == {"total_sessions": 1, "total_observations": 1, "projects": ["demo"]}
    assert http.delete("/projects/%20?hard=true").status_code in (400, 404)
    assert http.delete("/projects/?hard=true").status_code in (400, 404)
    assert len(ids(http.get(at(home, "memories")))) == 1


@requirement("stores:apart")
def test_a_key_for_some_projects_reads_on_beside_stores(closed: Service) -> None:
    with client(closed, "admin") as whole, client(closed, "admin", "demo*") as part:
        closed_home = store(whole)
        entry(whole, closed_home, "notes/a", f"The {WORD} of a store.")
        body = observation(f"The {WORD} of a project.", topic_key="notes/a")
        assert part.post("/observations", json=body).status_code == 201
        for path in [
            f"/search?q={WORD}", f"/search?q={WORD}&explain=true&why_not=1", "/search?q=notes/a",
            f"/context?query={WORD}", "/observations/recent", "/observations/recent?scope=project",
            f"/observations/recent?scope={closed_home['id']}", "/stats", "/export",
            "/sessions/recent", "/timeline?observation_id=2", "/observations/2",
        ]:  # fmt: skip
            answer = part.get(path)
            assert answer.status_code == 200, path
            assert "of a store" not in answer.text, path
        assert part.get("/stats").json()["projects"] == ["demo"]
        for path in ("/observations/1", "/observations/1/history", "/timeline?observation_id=1"):
            assert part.get(path).status_code == 404


@requirement("stores:apart")
def test_no_store_shows_a_memory_of_a_project(beside: tuple[Service, Object, Object, int]) -> None:
    service, home, made, _ = beside
    service.save(f"Another {WORD}, for all.", scope="global", topic_key="notes/b")
    uids = [row["uid"] for row in service.http.get("/export").json()["observations"]]

    found = service.http.get(at(home, "search"), params={"q": f"{WORD} notes/b notes/a"})
    assert ids(found) == ids(service.http.get(at(home, "memories"))) == [made["id"]]
    for uid in uids:
        told = service.http.get(at(home, "memories", f"mem_{uid.replace('-', '')}"))
        assert fault(told) == (404, "not_found_error", None)
    assert len(versions(service.http, home)) == 1


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


@requirement("stores:apart")
def test_erasing_every_project_leaves_the_stores(
    beside: tuple[Service, Object, Object, int],
) -> None:
    service, home, made, _ = beside

    assert service.http.delete("/projects/demo?hard=true").status_code == 200
    assert service.http.delete(f"/projects/{home['id']}?hard=true").status_code == 404

    assert ok(service.http.get(entry_at(home, made))) == made
    assert_index_is_whole(service.path)
