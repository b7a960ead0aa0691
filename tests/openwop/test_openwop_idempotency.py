"""What a host sends again under an idempotency key is done once."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ..support.callers import calling, made_key
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_tenants import counted, keyed
from ..support.requirements import requirement
from ..support.service import Service, serving

MISMATCH = (409, "idempotency_key_mismatch")
OURS, THEIRS = "idempotent-replayed", "openwop-idempotent-replay"


def under(host: Host, key: str) -> Host:
    return replace(host, headers={"Idempotency-Key": key})


def is_replay(answer: httpx.Response) -> bool:
    assert (OURS in answer.headers) == (THEIRS in answer.headers)
    return (answer.headers.get(THEIRS), answer.headers.get(OURS)) == ("true", "true")


@requirement("OW-13")
def test_a_put_under_a_key_makes_one_entry(service: Service, host: Host) -> None:
    once = under(host, "k1")
    first = once.post("one", tags=["a"], ttlSeconds=60)
    service.clock.advance(seconds=5)
    host.put("between")

    again = [once.post("one", tags=["a"], ttlSeconds=60) for _ in range(2)]

    made: Json = ok(first, 201)
    assert not is_replay(first)
    for answer in again:
        assert (answer.status_code, answer.content) == (201, first.content)
        assert is_replay(answer)
    assert host.contents() == ["between", "one"]
    assert ok(host.get(made["entry"]["id"]))["entry"] == made["entry"]
    assert counted(host) == {host.ref: (2, 10)}


@pytest.mark.slow
@requirement("OW-13")
def test_another_body_under_the_key_is_a_mismatch(host: Host) -> None:
    once = under(host, "k1")
    once.put("one")

    for other in ({"content": "two"}, {"tags": ["a"]}, {"memoryRef": "other"}, {"id": "plan"}):
        answer = once.post(**{"content": "one", **other})  # type: ignore[arg-type]
        assert refused(answer) == MISMATCH, other
        assert not is_replay(answer)
    assert host.contents() == ["one"]
    assert {*counted(host)} == {host.ref}


@requirement("OW-13")
def test_a_deletion_under_a_key_is_answered_as_before(host: Host) -> None:
    made, other, once = host.put("one")["id"], host.put("two")["id"], under(host, "k1")

    first, again = once.delete(made), once.delete(made)

    assert ok(first) == ok(again) == {"memoryRef": host.ref, "memoryId": made, "removed": True}
    assert (is_replay(first), is_replay(again)) == (False, True)
    assert refused(once.delete(other)) == MISMATCH
    assert refused(host.delete(made)) == (404, "not_found")
    assert host.contents() == ["two"]


@requirement("OW-13")
def test_a_key_is_of_one_operation(host: Host) -> None:
    once = under(host, "k1")
    made = once.put("one")
    run = ok(once.ask("POST", "/runs", {"runId": "r1"}), 201)
    assert run["runId"] == "r1"
    assert ok(once.delete(made["id"]))["removed"] is True
    again = once.ask("POST", "/runs", {"runId": "r1"})
    assert (ok(again, 201), is_replay(again)) == (run, True)
    assert host.entries() == []


@requirement("OW-13")
def test_a_key_is_of_one_caller(path: Path) -> None:
    with serving(path) as service:
        tokens = [made_key(service.path, "writer") for _ in range(2)]
        with (
            calling(service, tokens[0]) as first,
            calling(service, tokens[1]) as second,
            keyed(service, "writer", "acme") as acme,
        ):
            hosts = [under(host, "k1") for host in (Host(first), Host(second), acme)]
            made = [host.put(str(number)) for number, host in enumerate(hosts)]
            assert len({it["id"] for it in made}) == 3
            assert hosts[0].contents() == ["1", "0"]
            assert acme.contents() == ["2"]
            assert is_replay(hosts[0].post("0"))


@requirement("OW-13")
def test_a_refusal_is_not_kept_so_a_later_attempt_is_one(host: Host) -> None:
    once = under(host, "k1")
    assert refused(once.delete("plan")) == (404, "not_found")
    put = under(host, "k2")
    assert refused(put.post("one", supersedes=["plan"])) == (409, "memory_changed")
    assert refused(put.post("one", tags=["archive"])) == (400, "validation_error")
    host.put("old", id="plan")

    assert ok(put.post("one", supersedes=["plan"]), 201)
    deleted = once.delete("plan")

    assert ok(deleted)["removed"] is True
    assert not is_replay(deleted)
    assert host.contents() == ["one"]


@requirement("OW-13")
def test_reads_take_no_key_and_neither_do_secrets(host: Host) -> None:
    once = under(host, "k1")
    host.put("one")
    assert [it["content"] for it in once.entries()] == ["one"]
    host.put("two")
    answer = once.ask("GET", "/memory", params={"memoryRef": host.ref})
    assert (len(ok(answer)["entries"]), is_replay(answer)) == (2, False)
    run = under(host.in_run("r1"), "k1")
    for value in ("12345678", "12345678", "87654321"):
        assert run.register("s", value)["registered"] is True


@requirement("OW-13", "OW-26")
def test_a_put_with_a_hosts_id_that_changed_nothing_is_answered_alike(host: Host) -> None:
    host.put("one", id="plan")
    once = under(host, "k1")

    first, again = once.post("one", id="plan"), once.post("one", id="plan")

    assert ok(first) == ok(again)
    assert is_replay(again)
    assert len(host.entries()) == 1
