"""Requests for passes, their undo, the index and forgetting: who may, and what they may say."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from ..support.openwop_hosts import REF, H, Host, Json, faults, ok, refused
from ..support.openwop_passes import CONSOLIDATED, events, ids, of_type, passed, state
from ..support.openwop_tenants import SECRET, counted, keyed
from ..support.process import until
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving
from ..support.service import lasting as closed

__all__ = ["closed"]

WORD = "xylophagan"
FORBIDDEN = (403, "forbidden")
INVALID = (400, "validation_error")
MISMATCH = (409, "idempotency_key_mismatch")

Ask = Callable[[Host], httpx.Response]

PASSES: dict[str, Ask] = {
    "compact": lambda it: it.compact(),
    "distill": lambda it: it.distill(),
    "consolidate": lambda it: it.consolidate(),
}


class Asked(NamedTuple):
    """A request for which a role is needed."""

    role: str
    ask: Ask


REQUESTS: dict[str, Asked] = {
    **{name: Asked("writer", ask) for name, ask in PASSES.items()},
    "undo": Asked("writer", lambda it: it.undo("run_" + "0" * 32)),
    "index": Asked("reader", lambda it: it.ask("GET", "/index", params={"memoryRef": it.ref})),
    "forget": Asked("admin", lambda it: it.forget(WORD)),
    "dry run": Asked("admin", lambda it: it.forget(WORD, dryRun=True)),
    "receipt": Asked("reader", lambda it: it.ask("GET", "/erasures/7")),
}
ROLES = ["reader", "writer", "admin"]


@pytest.mark.parametrize("name", REQUESTS)
@requirement("OW-8", "OW-7", "OW-9")
def test_each_role_may_do_what_is_its_own(closed: Service, name: str) -> None:
    needed, ask = REQUESTS[name]
    with keyed(closed, "writer") as writer:
        at = replace(writer, ref=f"of {name}")
        at.put("herons wade"), at.put("egrets fly")
        held = state(at)
        for role in ROLES:
            with keyed(closed, role) as host:
                answer = ask(replace(host, ref=at.ref))
            if ROLES.index(role) < ROLES.index(needed):
                assert refused(answer) == FORBIDDEN, role
                assert answer.json()["details"]["scopeRequired"]
                assert state(at) == held
            else:
                assert answer.status_code in (200, 404), (role, answer.text)
                break
        with keyed(closed, "admin", "default", "a-*") as part:
            assert refused(ask(replace(part, ref=at.ref))) == FORBIDDEN
    unknown = ask(Host(closed.http, at.ref))
    assert refused(unknown) == (401, "unauthenticated")


@for_each("name", PASSES)
@requirement("OW-30", "OW-31", "OW-44", "OW-14")
def test_refs_that_may_not_be_written_are_refused(closed: Service, name: str) -> None:
    with keyed(closed) as host:
        held = counted(host), len(events(host))
        for ref in ("x" * 257, "", "a\x01b", "..", "a/../b", "..\\a", f"mem://{SECRET}"):
            answer = PASSES[name](replace(host, ref=ref))
            assert faults(answer) == ["memoryRef"], ref
            assert not ref or ref not in answer.json()["message"]
        for ref in ("tenants/acme/x", "tenant:ACME", "mem_tenant:acme_agent:7"):
            answer = PASSES[name](replace(host, ref=ref))
            assert refused(answer) == FORBIDDEN, ref
        for body in ({}, {"memoryRef": None}, {"memoryRef": 7}, {"memoryRef": [REF]}):
            assert faults(host.ask("POST", f"/{name}", body)) == ["memoryRef"]
        assert (counted(host), len(events(host))) == held


@requirement("OW-12")
def test_every_field_at_fault_is_named(host: Host) -> None:
    bodies: dict[str, Json] = {
        "/compact": {"memoryRef": 7, "content": " ", "keepSources": "no"},
        "/distill": {"memoryRef": "..", "content": 7, "tokenBudget": 0, "recursive": 2,
                     "expiresAt": "soon"},
        "/consolidate": {"memoryRef": "", "merges": [{"ids": ["a"], "content": ""}]},
        "/forget": {"subject": "", "dryRun": 7},
    }  # fmt: skip
    for path, body in bodies.items():
        named = {it.split("[")[0] for it in faults(host.ask("POST", path, body))}
        assert named == {*body}, path
    for path in bodies:
        for other in ("x", 7, ["x"]):
            answer = host.ask("POST", path, other)
            assert refused(answer) == INVALID, path


@requirement("OW-12")
def test_unknown_fields_are_ignored_and_null_is_absent(host: Host) -> None:
    host.put("herons wade"), host.put("egrets fly")
    more = {"runId": "no", "nodeId": None, "tenantId": "acme", "more": {"x": [1]}}

    answers = [
        host.consolidate(merges=None, **more), host.consolidate(merges=[], **more),
        host.distill(content=None, tokenBudget=None, recursive=None, expiresAt=None, **more),
        host.compact(content=None, keepSources=None, **more),
        host.forget("nobody", dryRun=None, **more),
    ]  # fmt: skip

    assert [it.status_code for it in answers] == [200] * 5
    assert ids(host.entries(limit=1)) == [passed(answers[3])["outputId"]]


@pytest.mark.slow
@requirement("OW-34", "OW-32", "OW-83")
def test_passes_are_of_one_tenant(closed: Service) -> None:
    with keyed(closed) as ours, keyed(closed, "writer", "acme") as theirs:
        at = [replace(it, ref="both") for it in (ours, theirs)]
        for it in at:
            for name in ("a", "b"):
                it.put("green apples", id=name)
        held = state(at[1])

        for name in ("distill", "consolidate"):
            ok(PASSES[name](at[0]))
        at[0].put("herons wade")
        assert passed(at[0].compact())["sourceCount"] == 2
        again = at[0].consolidate(tenantId="acme")

        assert passed(again, CONSOLIDATED)["memoryRef"] == "both"
        assert state(at[1]) == held
        merge = {"ids": ["a", "b"], "content": "theirs"}
        assert passed(at[1].consolidate(merge), CONSOLIDATED)["outputCount"] == 1


@pytest.mark.representative(2)
@pytest.mark.parametrize("name", PASSES)
@requirement("OW-13")
def test_a_pass_under_a_key_is_done_once(host: Host, name: str) -> None:
    for _ in range(2):
        host.put("herons wade"), host.put("egrets fly", tags=["x"])
    once, ask = replace(host, headers={"Idempotency-Key": "k1"}), PASSES[name]
    first = ask(once)
    host.put("late"), host.put("late")
    held = state(host)

    again = ask(once)

    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["openwop-idempotent-replay"] == "true"
    assert again.headers["idempotent-replayed"] == "true"
    assert "openwop-idempotent-replay" not in first.headers
    assert state(host) == held
    assert refused(ask(replace(once, ref="other"))) == MISMATCH
    for other in PASSES.keys() - {name}:
        host.put("storks nest"), host.put("cranes dance")
        answer = PASSES[other](once)
        assert "openwop-idempotent-replay" not in answer.headers
        assert answer.status_code == 200
    host.put("ibises dig"), host.put("herons wade again")
    assert ok(ask(host))["runId"] != ok(first)["runId"]


@requirement("OW-13", "OW-69")
def test_a_refusal_is_not_kept(host: Host) -> None:
    once = replace(host, headers={"Idempotency-Key": "k1"})
    assert refused(once.compact()) == (409, "nothing_to_compact")
    assert refused(once.distill()) == (409, "nothing_to_distill")
    assert refused(once.undo("run_" + "0" * 32)) == (404, "not_found")
    host.put("herons wade"), host.put("egrets fly")

    assert ok(once.distill())["created"] is True
    assert passed(once.compact())["sourceCount"] == 2


@requirement("OW-14")
def test_no_refusal_tells_what_was_said(host: Host) -> None:
    at = replace(host, ref=f"mem://{WORD}")
    at.put(f"a {WORD}", tags=[WORD], id=f"{WORD}-1")
    bad: Json = {"ids": [f"{WORD}-1", f"{WORD}-2"], "content": WORD}
    answers = [
        at.compact(), at.compact(content=7), at.distill(tokenBudget=1),
        at.distill(tokenBudget=WORD),
        at.consolidate(bad), at.consolidate({**bad, "tags": ["archive", WORD]}), at.undo(WORD),
        at.consolidate(merges=WORD), at.forget(WORD * 30), replace(at, ref=f"../{WORD}").distill(),
        replace(at, ref=f"tenants/acme/{WORD}").compact(), at.ask("GET", f"/erasures/{WORD}"),
        replace(at, headers={"Idempotency-Key": WORD}).undo(WORD),
    ]  # fmt: skip

    assert all(400 <= it.status_code < 500 for it in answers)
    for answer in answers:
        refused(answer)
        assert WORD not in answer.text


@pytest.mark.slow
@requirement("OW-11")
def test_bodies_are_exact_json_and_not_too_large(host: Host) -> None:
    bodies = [
        b"{", b'{"memoryRef": "\xff"}', b'{"subject": "a\\u0000", "memoryRef": "a\\u0000"}',
        b'{"subject": "\\ud800", "memoryRef": "\\ud800"}',
    ]  # fmt: skip
    for path in ("/compact", "/distill", "/consolidate", "/forget"):
        for content in bodies:
            answer = host.http.post(f"{H}{path}", content=content)
            assert refused(answer) == INVALID, content
        large = b'{"x": "' + b"x" * 1024 * 1024 + b'"}'
        answer = host.http.post(f"{H}{path}", content=large)
        assert refused(answer) == (413, "payload_too_large")
        got = host.ask("GET", path)
        assert refused(got) == (405, "method_not_allowed")


@pytest.mark.slow
@requirement("OW-77", "OW-82")
def test_refs_that_changed_are_consolidated_by_themselves(path: Path) -> None:
    with serving(path, MEMORY_CONSOLIDATE_EVERY="5ms") as service:
        host, other = Host(service.http), Host(service.http, "other")

        def settles(at: Host, text: str) -> None:
            at.put(text), at.put(text)
            until(lambda: at.contents().count(text) == 1)

        settles(host, "herons wade")
        for number in range(2):
            settles(other, f"egrets {number}")
        done = [it for it in of_type(host, CONSOLIDATED) if it["memoryRef"] == REF]
        for number in range(2, 4):
            settles(other, f"egrets {number}")
        assert [it for it in of_type(host, CONSOLIDATED) if it["memoryRef"] == REF] == done
        assert {it["trigger"] for it in done} == {"host-managed"}
        assert sum(it["inputCount"] - it["outputCount"] for it in done) == 1
