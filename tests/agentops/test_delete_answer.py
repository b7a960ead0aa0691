"""MEMORY_DELETE_ANSWER: a deletion says nothing, or JSON for a client that reads it anyway."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory_client import UnexpectedAnswer

from ..support.asking import KINDS, answering, asking
from ..support.callers import made_key
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import serving


def answered(mode: str, id_: object) -> tuple[int, str]:
    return (200, f'{{"id":{id_},"status":"deleted"}}') if mode == "json" else (204, "")


def shown(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["", "empty", "json"])
@requirement("agentops:observations:delete-answer")
def test_a_deletion_is_answered_as_it_is_set_and_a_client_takes_either_answer(
    path: Path, mode: str
) -> None:
    with serving(path, MEMORY_DELETE_ANSWER=mode) as service:
        one, two = (service.save(content)["id"] for content in ("One.", "Two."))
        for id_, how in (
            (one, ""), (one, ""), (one, "?hard=true"), (two, "?hard=true"), (99, ""), (-1, ""),
        ):  # fmt: skip
            answer = service.http.delete(f"/observations/{id_}{how}")

            assert shown(answer) == answered(mode, id_)
            assert ("x-erasure-id" in answer.headers) == bool(how)
            assert ("content-type" in answer.headers) == (mode == "json")
        assert service.http.get("/observations/recent").json() == []

        for kind in KINDS:
            with asking(kind, service.url) as memory:
                saved = memory.save(session_id="s", project="p", type="t", title="T", content="c")
                assert memory.delete(saved.id) is None
                assert memory.delete(saved.id, hard=True) == memory.delete(saved.id, hard=True)
                assert memory.recent("p") == []

        described = service.http.get("/openapi.json").json()
        deletion = described["paths"]["/observations/{id}"]["delete"]["responses"]
        assert [it for it in deletion if it < "300"] == ["200" if mode == "json" else "204"]
        assert ("Deleted" in described["components"]["schemas"]) == (mode == "json")

        malformed, denied = (
            service.http.delete(target, headers={"x-api-key": made_key(service.path, role)})
            for target, role in (("/observations/x", "admin"), ("/observations/1", "reader"))
        )
        assert shown(malformed) == (400, '{"error":"id must be a whole number."}')
        assert denied.status_code == 403


@pytest.mark.parametrize(("first", "then"), [("json", "empty"), ("empty", "json")])
@requirement("agentops:observations:delete-answer")
def test_a_repeated_deletion_is_answered_as_the_first_time(
    path: Path, first: str, then: str
) -> None:
    once = {"Idempotency-Key": "k"}
    with serving(path, MEMORY_DELETE_ANSWER=first) as service:
        target = f"/observations/{service.save('One.')['id']}"
        answers = [service.http.delete(target, headers=once) for _ in range(2)]
    with serving(path, MEMORY_DELETE_ANSWER=then) as service:
        answers.append(service.http.delete(target, headers=once))
        assert shown(service.http.delete(target)) == answered(then, 1)

    assert {shown(it) for it in answers} == {answered(first, 1)}
    assert answers[-1].headers["idempotent-replayed"] == "true"


@for_each("kind", KINDS)
@for_each("body", [{"status": "ok"}, [], {"id": 1}, {"status": 7}])
def test_a_client_takes_no_other_answer_for_a_deletion(kind: str, body: Any) -> None:
    with (
        asking(kind, road=answering(content=json.dumps(body).encode())) as memory,
        pytest.raises(UnexpectedAnswer),
    ):
        memory.delete(1)
