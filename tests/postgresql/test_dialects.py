"""What one dialect of memory stores makes, the other reads, over HTTP."""

import hashlib
from typing import Any

from agentops_memory.stores.anthropic import POLICY as ANTHROPIC
from agentops_memory.stores.cloud import POLICY as SEED
from agentops_memory.stores.store import Policy

from ..stores.test_stores_erasing import scrubbed
from ..support.anthropic_sdk import STORES
from ..support.erasing import remains
from ..support.requirements import requirement
from ..support.service import Service

OTHERS = "/api/v1/cloud/memory_stores"


def made(service: Service, base: str, **fields: object) -> str:
    """The id of a new store."""
    return str(service.http.post(base, json={"name": "n", **fields}).json()["id"])


def put(service: Service, base: str, store: str, path: str, content: str) -> Any:
    """A new memory of a store."""
    body = {"path": path, "content": content}
    return service.http.post(f"{base}/{store}/memories", json=body).json()


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@requirement("anthropic:both")
def test_a_store_and_a_memory_of_either_dialect_is_one_of_both(service: Service) -> None:
    http = service.http
    theirs = made(service, OTHERS, metadata={"a": "b"})
    ours = made(service, STORES, name="o" * 255, description="d")
    first = put(service, STORES, ours, "/a/..b", "first")["id"]
    second = put(service, OTHERS, ours, "c/d", "second")["id"]

    seen, shown = http.get(f"{STORES}/{theirs}").json(), http.get(f"{OTHERS}/{ours}").json()
    of_ours = http.get(f"{OTHERS}/{ours}/memories/{first}").json()
    of_theirs = http.get(f"{STORES}/{ours}/memories/{second}").json()

    assert (seen["id"], seen["name"], seen["metadata"]) == (theirs, "n", {"a": "b"})
    assert seen["archived_at"] is None
    assert (shown["id"], shown["name"], shown["status"]) == (ours, "o" * 255, "active")
    assert (shown["entry_count"], shown["total_size"]) == (2, 11)
    for base in (STORES, OTHERS):
        assert [one["id"] for one in http.get(base).json()["data"]] == [ours, theirs]
    assert (of_ours["path"], of_ours["content"], of_ours["version"]) == ("a/..b", "first", 1)
    assert (of_ours["size"], of_ours["content_sha256"]) == (5, sha256("first"))
    assert (of_theirs["path"], of_theirs["content"]) == ("/c/d", "second")
    size = of_theirs["content_size_bytes"], of_theirs["content_sha256"]
    assert size == (6, sha256("second"))

    http.post(f"{STORES}/{ours}/archive")
    assert http.post(f"{OTHERS}/{ours}/archive").status_code == 409
    assert http.get(f"{OTHERS}/{ours}").json()["status"] == "archived"
    assert http.delete(f"{OTHERS}/{ours}").status_code == 204
    assert http.get(f"{STORES}/{ours}").status_code == 404


@requirement("anthropic:both")
def test_a_conflict_between_the_dialects_is_one_in_each(service: Service) -> None:
    store = made(service, OTHERS)
    held = put(service, OTHERS, store, "a/b", "x")

    below = service.http.post(f"{STORES}/{store}/memories", json={"path": "/a/b/c", "content": "x"})
    same = service.http.post(f"{STORES}/{store}/memories", json={"path": "/a/b", "content": "x"})
    nested = service.http.post(f"{OTHERS}/{store}/memories", json={"path": "a/b/c", "content": "x"})

    for answer in (below, same):
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (409, "memory_path_conflict_error")
        assert (error["conflicting_memory_id"], error["conflicting_path"]) == (held["id"], "/a/b")
    assert nested.status_code == 201
    listed = service.http.get(f"{STORES}/{store}/memories").json()["data"]
    assert [item["path"] for item in listed] == ["/a/b", "/a/b/c"]


@requirement("anthropic:both")
def test_versions_and_their_redactions_are_told_by_both(service: Service) -> None:
    store = made(service, STORES)
    held = put(service, STORES, store, "/a", "first")
    service.http.put(f"{OTHERS}/{store}/memories/{held['id']}", json={"content": "second"})
    service.http.delete(f"{STORES}/{store}/memories/{held['id']}")
    ours = service.http.get(f"{STORES}/{store}/memory_versions").json()["data"]
    theirs = service.http.get(f"{OTHERS}/{store}/versions").json()["data"]

    assert [one["id"] for one in ours] == [one["id"] for one in theirs]
    assert [one["operation"] for one in ours] == ["deleted", "modified", "created"]
    assert [one["action"] for one in theirs] == ["deleted", "updated", "created"]
    assert (ours[0]["content_size_bytes"], ours[0]["content_sha256"]) == (None, None)
    assert (theirs[0]["size"], theirs[0]["content_sha256"]) == (0, "")

    service.http.post(f"{OTHERS}/{store}/versions/{ours[1]['id']}/redact")
    service.http.post(f"{STORES}/{store}/memory_versions/{ours[2]['id']}/redact")

    seen = service.http.get(f"{STORES}/{store}/memory_versions/{ours[1]['id']}").json()
    shown = service.http.get(f"{OTHERS}/{store}/versions/{ours[2]['id']}").json()
    assert (seen["content"], seen["path"], seen["content_size_bytes"]) == (None, None, None)
    assert seen["redacted_at"] is not None
    assert (shown["redacted"], "content" in shown) == (True, False)

    held = put(service, STORES, store, "/a", "first")
    head = held["memory_version_id"]
    service.http.post(f"{OTHERS}/{store}/versions/{head}/redact")
    seen = service.http.get(f"{STORES}/{store}/memory_versions/{head}").json()
    memory = service.http.get(f"{STORES}/{store}/memories/{held['id']}").json()
    assert (seen["content"], seen["path"], seen["content_size_bytes"]) == (None, None, None)
    assert (memory["content"], memory["content_size_bytes"]) == ("first", 5)
    assert (memory["memory_version_id"], memory["path"]) == (head, "/a")


def test_the_dialects_differ_in_every_rule_that_a_policy_has() -> None:
    ours, theirs = (
        {rule: getattr(policy, rule) for rule in Policy.__slots__ if rule != "longest_name"}
        for policy in (ANTHROPIC, SEED)
    )

    assert {rule: not is_so for rule, is_so in ours.items()} == theirs


def test_a_path_that_its_placeholders_make_too_long_is_refused_and_never_cut(
    service: Service,
) -> None:
    notes = made(service, STORES)
    secrets = [f"AKIA{number:016}" for number in range(48)]
    path = "/" + ".".join(secrets[:24]) + "/" + ".".join(secrets[24:])
    assert len(path) <= 1024

    answers = [
        service.http.post(f"{STORES}/{notes}/memories", json={"path": given, "content": "x"})
        for given in (path, path[:-42])
    ]

    assert [answer.status_code for answer in answers] == [400, 200]
    assert answers[0].json()["error"]["message"] == "path has at most 1,024 bytes."
    assert answers[1].json()["path"].endswith("]")


def test_what_one_dialect_keeps_of_a_redacted_version_the_other_takes_out(service: Service) -> None:
    store = made(service, STORES)
    path = "xylograph/zanzibar"
    held = put(service, OTHERS, store, path, "hidden")
    version = service.http.get(f"{OTHERS}/{store}/versions").json()["data"][0]["id"]
    theirs = f"{OTHERS}/{store}/versions/{version}"
    first = service.http.post(f"{theirs}/redact").json()
    renamed = {"path": "/plain", "content": "plain"}
    memory = f"{STORES}/{store}/memories/{held['id']}"
    assert service.http.post(memory, json=renamed).status_code == 200
    service.clock.advance(hours=1)

    again = service.http.post(f"{STORES}/{store}/memory_versions/{version}/redact")

    assert (first["entry_path"], first["size"]) == (path, 6)
    assert again.status_code == 200
    assert again.json()["redacted_at"] == first["redacted_at"]
    shown = service.http.get(theirs).json()
    assert (shown["entry_path"], shown["size"], shown["content_sha256"]) == ("", 0, "")
    scrubbed(service.path)
    assert remains(service.path.parent, "zanzibar", sha256("hidden")) == set()
