"""Every write of every protocol is answered again as before: after a restart, by another process,
and after what it has written has changed; and what is erased is in no stored answer."""

from pathlib import Path

import pytest

from ..support.answers import (
    AGENTS,
    ANTHROPIC,
    HOSTS,
    STORES,
    Writer,
    described,
    every_write,
    told,
)
from ..support.engines import rows
from ..support.erasing import remains
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Clock, Service, serving


@pytest.mark.slow
@requirement("stores:idempotency:again", "anthropic:once")
def test_every_write_is_answered_again_as_before_after_a_restart(path: Path) -> None:
    clock = Clock()
    with serving(path, clock=clock, MEMORY_SWEEP_EVERY="0") as service:
        write = Writer(service.http)
        every_write(write)
        assert {name.split(",")[0] for name in write.sent} == described(service.http)
        stored = content_of(path)
        write.assert_same(service.http)
        assert content_of(path) == stored  # nothing is done again
    clock.advance(hours=23)

    with serving(path, clock=clock, MEMORY_SWEEP_EVERY="0") as service:
        write.assert_same(service.http)


def content_of(path: Path) -> list[list[tuple[object, ...]]]:
    """What writes leave in the tables that every protocol's writes go through."""
    return [
        sorted(rows(path, f"SELECT * FROM {table}"), key=repr)
        for table in ("memories", "revisions", "versions", "sessions", "transcripts", "stores",
                      "events", "tasks", "intents", "coordinators", "grants", "proposals", "runs",
                      "passes", "commitments", "done")
    ]  # fmt: skip


# What is erased or redacted


@pytest.mark.slow
def test_a_deleted_store_and_a_redacted_version_are_in_no_stored_answer(service: Service) -> None:
    write = Writer(service.http)
    store, other = (
        write(name, "POST", STORES, {"name": name})["id"] for name in ("quokka", "kept")
    )
    body = {"path": "a", "content": "xylograph"}
    made = write("create", "POST", f"{STORES}/{store}/memories", body)["id"]
    write("replace", "PUT", f"{STORES}/{store}/memories/{made}", {"content": "more xylograph"})
    write("rename", "POST", f"{ANTHROPIC}/{store}", {"name": "quokka, too"})
    body = {"path": "a", "content": "zanzibar"}
    held = write("redacted", "POST", f"{STORES}/{other}/memories", body)
    write.plain("PUT", f"{STORES}/{other}/memories/{held['id']}", {"content": "next"})
    version = write.plain("GET", f"{STORES}/{other}/versions").json()["data"][-1]["id"]

    write.plain("POST", f"{STORES}/{other}/versions/{version}/redact")
    write.plain("DELETE", f"{STORES}/{store}")

    until(lambda: remains(service.path.parent, "xylograph", "zanzibar", "quokka") == set())
    again = write.again(service.http)
    assert {name: it.status_code for name, it in again.items()} == {
        "quokka": 404, "kept": 404, "create": 404, "replace": 404, "rename": 404, "redacted": 409,
    }  # fmt: skip
    assert len(write.plain("GET", STORES).json()["data"]) == 1


@pytest.mark.slow
def test_what_agents_and_hosts_forget_is_in_no_stored_answer(service: Service) -> None:
    write = Writer(service.http)
    # First, for a subject's erasure removes each answer that goes with no memory.
    write("forget nobody", "POST", f"{HOSTS}/forget", {"subject": "nobody"})
    body = {"agent_id": "ada", "namespace": "notes", "key": "a", "value": {"v": "xylograph"},
            "memory_type": "episodic"}  # fmt: skip
    entry = write("entry", "POST", f"{AGENTS}/memory", body)
    ref = {"memoryRef": "mem://notes", "content": "zanzibar", "tags": ["subject:quokka"]}
    write("put", "POST", f"{HOSTS}/memory", ref)

    write.plain("DELETE", f"{AGENTS}/memory/{entry['id']}")
    until(lambda: remains(service.path.parent, "xylograph") == set())
    write("forget", "POST", f"{HOSTS}/forget", {"subject": "quokka"})

    until(lambda: remains(service.path.parent, "xylograph", "zanzibar", "quokka") == set())
    again = write.again(service.http)
    assert {name: it.status_code for name, it in again.items()} == {
        "entry": 404, "put": 409, "forget nobody": 409, "forget": 200,
    }  # fmt: skip
    assert told(again["forget"]) == told(write.sent["forget"][1])


def test_a_sealed_value_is_in_no_stored_answer_and_told_as_it_is(service: Service) -> None:
    write = Writer(service.http)
    body = {"agent_id": "ada", "namespace": "notes", "key": "a", "value": {"v": "xylograph"},
            "memory_type": "episodic", "sensitivity": "confidential"}  # fmt: skip
    write("sealed", "POST", f"{AGENTS}/memory", body)

    assert remains(service.path.parent, "xylograph") == set()
    write.assert_same(service.http)


# What is not stored


@pytest.mark.slow
def test_an_answer_that_is_too_large_is_not_stored_and_nothing_is_done_again(
    service: Service,
) -> None:
    write = Writer(service.http)
    entries = [
        {"agent_id": "ada", "namespace": "notes", "key": str(it), "value": {"v": "x" * 60_000},
         "memory_type": "episodic"}
        for it in range(36)
    ]  # fmt: skip
    write("batch", "POST", f"{AGENTS}/memory/batch", {"entries": entries})

    assert write.again(service.http)["batch"].status_code == 409
    assert rows(service.path, "SELECT answer FROM done") == [("",)]
