"""Who may do what with proposals: roles, tenants, races, and requests that are sent again."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ..support.callers import audit
from ..support.openwop_hosts import Host, Json, ok, refused
from ..support.openwop_proposals import (
    CONFLICT,
    NO_PROPOSAL,
    PACK,
    PACK_TEXT,
    applied,
    artifact,
    artifacts,
    got,
    handed_in,
    listed,
    moved,
    proposed,
    revised,
    told_of,
)
from ..support.openwop_tenants import keyed
from ..support.requirements import requirement
from ..support.service import Service, serving

FORBIDDEN = (403, "forbidden")
WORD = "xylographer"


@pytest.fixture
def hosts(path: Path) -> Iterator[dict[str, Host]]:
    """A service with a host of each role, and an administrator of another tenant."""
    with ExitStack() as stack:
        service = stack.enter_context(serving(path))
        found = {
            role: stack.enter_context(keyed(service, role))
            for role in ("reader", "writer", "admin")
        }
        yield found | {"theirs": stack.enter_context(keyed(service, "admin", "acme"))}


@requirement("OW-8", "OW-7", "OW-89")
def test_readers_read_writers_hand_in_and_administrators_apply(
    path: Path, hosts: dict[str, Host]
) -> None:
    reader, writer, admin = (hosts[role] for role in ("reader", "writer", "admin"))
    made = proposed(writer)
    for answer in (
        handed_in(reader), revised(reader, made["id"], title="x"),
        *(moved(reader, made["id"], move) for move in ("reject", "archive", "apply")),
        moved(writer, made["id"], "apply"), moved(writer, NO_PROPOSAL, "apply"),
    ):  # fmt: skip
        assert refused(answer) == FORBIDDEN
        assert answer.json()["details"]["scopeRequired"] in ("writer", "packs:publish")
    assert got(reader, made["id"]) == made
    assert listed(reader) == [made]
    assert artifacts(reader) == told_of(reader, "proposal.activated") == []
    assert [it for it in audit(path) if str(it["action"]).startswith("proposal.")] == []

    after = ok(revised(writer, made["id"], title="x"))
    assert after["owner"] == made["owner"]
    assert set(made["owner"]) == {"tenant", "principal"}
    ref = applied(admin, made["id"])
    assert artifact(reader, ref).text == PACK_TEXT
    assert ok(moved(writer, proposed(writer)["id"], "reject"))["state"] == "rejected"
    assert ok(moved(writer, made["id"], "archive"))["state"] == "archived"


@requirement("OW-9")
def test_a_key_of_some_projects_may_do_nothing(path: Path) -> None:
    with serving(path) as service, keyed(service, "admin") as admin:
        made = proposed(admin)["id"]
        with keyed(service, "admin", "default", "a-*") as some:
            for id_ in (made, NO_PROPOSAL):
                for answer in (
                    handed_in(some), some.ask("GET", "/proposals"), some.ask("GET", "/artifacts"),
                    some.ask("GET", f"/proposals/{id_}"), revised(some, id_), artifact(some, id_),
                    *(moved(some, id_, move) for move in ("apply", "reject", "archive")),
                ):  # fmt: skip
                    assert refused(answer) == FORBIDDEN


@requirement("OW-101", "OW-89")
def test_what_is_applied_and_withdrawn_is_audited_by_ids_alone(
    path: Path, hosts: dict[str, Host]
) -> None:
    admin = hosts["admin"]
    id_ = proposed(admin, {"name": WORD, "version": WORD}, title=WORD, rationale=WORD)["id"]
    ref = applied(admin, id_)
    assert applied(admin, id_) == ref
    ok(moved(admin, proposed(admin, {"a": 1})["id"], "archive"))
    ok(moved(admin, id_, "archive"))
    ok(moved(admin, id_, "archive"))

    lines = [it for it in audit(path) if str(it["action"]).startswith("proposal.")]
    assert [it["action"] for it in lines] == ["proposal.applied", "proposal.withdrawn"]
    for line in lines:
        assert (line["tenant"], line["proposal"]) == ("default", id_)
        assert (line["kind"], line["artifact"]) == ("agent-pack", ref)
    assert WORD not in json.dumps(audit(path))


@pytest.mark.heavy
@requirement("OW-89", "OW-90")
def test_racing_moves_end_in_one_state_with_one_event(path: Path) -> None:
    with serving(path) as service:
        host = Host(service.http)
        for _ in range(8):
            id_ = proposed(host)["id"]
            before = len(told_of(host, "proposal.activated"))
            asked = ["apply"] * 4 + ["reject"] * 2 + ["revise"] * 4
            with ThreadPoolExecutor(10) as pool:
                answers = list(pool.map(lambda move: _moved(host, id_, move), asked))  # noqa: B023
            state = got(host, id_)["state"]
            told = len(told_of(host, "proposal.activated")) - before
            assert (state, told) in (("applied", 1), ("rejected", 0))
            applies = answers[:4]
            if state == "applied":
                assert {it.status_code for it in applies} == {200}
                assert len({it.content for it in applies}) == 1
                ref = applies[0].json()["installedArtifactRef"]
                assert artifact(host, ref).json() == got(host, id_)["artifact"]
                recorded = [it for it in audit(path) if it.get("proposal") == id_]
                assert recorded[-1]["artifact"] == ref
            else:
                assert {refused(it) for it in applies} == {CONFLICT}


def _moved(host: Host, id_: str, move: str) -> httpx.Response:
    if move == "revise":
        return revised(host, id_, artifact=PACK | {"more": [1] * 1000})
    return moved(host, id_, move)


@requirement("OW-13")
def test_each_request_under_a_key_is_done_once_and_answered_alike(service: Service) -> None:
    host = Host(service.http)

    def twice(key: str, *asked: object) -> Json:
        under = replace(host, headers={"Idempotency-Key": key})
        first = under.ask(*asked)  # type: ignore[arg-type]
        service.clock.advance(seconds=1)
        again = under.ask(*asked)  # type: ignore[arg-type]
        assert first.is_success
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert "openwop-idempotent-replay" not in first.headers
        assert again.headers["openwop-idempotent-replay"] == "true"
        answer: Json = first.json()
        return answer

    body = {"kind": "agent-pack", "artifact": PACK, "provenance": {"sourceRunIds": []}}
    one = twice("k", "POST", "/proposals", body)["id"]
    twice("k", "PATCH", f"/proposals/{one}", {"title": "x"})
    twice("k", "POST", f"/proposals/{one}/apply", {})
    twice("k", "DELETE", f"/proposals/{one}")
    other = proposed(host)["id"]
    twice("r", "POST", f"/proposals/{other}/reject", {})
    assert len(listed(host)) == len(told_of(host, "proposal.created")) == 2
    assert len(told_of(host, "proposal.activated")) == 1
    again = replace(host, headers={"Idempotency-Key": "k"})
    assert refused(handed_in(again, {"a": 1})) == (409, "idempotency_key_mismatch")
    assert refused(revised(again, one, title="y")) == (409, "idempotency_key_mismatch")
    # The first answer comes again, also once the texts are others.
    assert ok(handed_in(again), 201)["state"] == "draft"
