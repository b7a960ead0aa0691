"""MEMORY_DELETE_ANSWER: a deletion says nothing, or JSON for a client that reads it anyway."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory_client import UnexpectedAnswer

from ..support.asking import KINDS, answering, asking
from ..support.callers import made_key
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving


@pytest.fixture(params=["", "empty", "json"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def service(mode: str, tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "memory.db", MEMORY_DELETE_ANSWER=mode) as running:
        yield running


def answered(mode: str, id_: object) -> tuple[int, str]:
    if mode == "json":
        return 200, f'{{"id":{id_},"status":"deleted"}}'
    return 204, ""


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.text


@pytest.mark.slow
@requirement("agentops:observations:delete-answer")
def test_a_deletion_is_answered_as_it_is_set(service: Service, mode: str) -> None:
    one, two = (service.save(content)["id"] for content in ("One.", "Two."))
    asked = [(one, ""), (one, ""), (one, "?hard=true"), (two, "?hard=true"), (99, ""), (-1, "")]
    for id_, how in asked:
        answer = service.http.delete(f"/observations/{id_}{how}")

        assert told(answer) == answered(mode, id_)
        assert ("x-erasure-id" in answer.headers) == bool(how)
        assert ("content-type" in answer.headers) == (mode == "json")
    assert service.http.get("/observations/recent").json() == []


@pytest.mark.slow
@requirement("agentops:observations:delete-answer")
def test_a_refusal_is_as_ever_and_the_description_that_of_the_running_service(
    service: Service, mode: str
) -> None:
    answers = service.http.get("/openapi.json").json()
    deletion = answers["paths"]["/observations/{id}"]["delete"]["responses"]
    assert [it for it in deletion if it < "300"] == ["200" if mode == "json" else "204"]
    assert ("Deleted" in answers["components"]["schemas"]) == (mode == "json")

    malformed, denied = (
        service.http.delete(path, headers={"x-api-key": made_key(service.path, role)})
        for path, role in (("/observations/x", "admin"), ("/observations/1", "reader"))
    )
    assert told(malformed) == (400, '{"error":"id must be a whole number."}')
    assert denied.status_code == 403


@pytest.mark.parametrize(("first", "then"), [("json", "empty"), ("empty", "json")])
@requirement("agentops:observations:delete-answer")
def test_a_repeated_deletion_is_answered_as_the_first_time(
    tmp_path: Path, first: str, then: str
) -> None:
    once, path = {"Idempotency-Key": "k"}, tmp_path / "memory.db"
    with serving(path, MEMORY_DELETE_ANSWER=first) as service:
        id_ = service.save("One.")["id"]
        done = service.http.delete(f"/observations/{id_}", headers=once)
        again = service.http.delete(f"/observations/{id_}", headers=once)
    with serving(path, MEMORY_DELETE_ANSWER=then) as service:
        later = service.http.delete(f"/observations/{id_}", headers=once)
        anew = service.http.delete(f"/observations/{id_}")

    assert told(done) == told(again) == told(later) == answered(first, id_)
    assert later.headers["idempotent-replayed"] == "true"
    assert told(anew) == answered(then, id_)


@pytest.mark.representative(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_takes_either_answer(service: Service, kind: str) -> None:
    with asking(kind, service.url) as memory:
        saved = memory.save(session_id="s", project="p", type="t", title="T", content="c")

        assert memory.delete(saved.id) is None
        assert memory.delete(saved.id, hard=True)
        assert memory.delete(saved.id, hard=True)
        assert memory.recent("p") == []


@for_each("kind", KINDS)
@for_each("said", [{"status": "ok"}, [], {"id": 1}, {"status": 7}])
def test_a_client_takes_no_other_answer_for_a_deletion(kind: str, said: Any) -> None:
    with (
        asking(kind, road=answering(content=json.dumps(said).encode())) as memory,
        pytest.raises(UnexpectedAnswer),
    ):
        memory.delete(1)
