"""What the client sends, sends again, and makes of refusals, cuts and odd answers."""

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from agentops_memory_client import (
    Conflict,
    Invalid,
    MemoryClient,
    MemoryServiceError,
    NotFound,
    Unavailable,
    UnexpectedAnswer,
)
from agentops_memory_client.openwop import MemoryEntry

from ..docs.test_openapi import operations
from ..support.asking import Road, answering, asking, over
from ..support.openwop_hosts import REF, Host, Json
from ..support.requirements import requirement
from ..support.service import Service


@requirement("OW-104")
def test_no_error_holds_the_text_of_an_entry(kind: str) -> None:
    text = "what is stored"
    entry = {"id": "a", "content": text, "tags": [text], "createdAt": "2030-01-01T00:00:00.000Z"}
    naive = entry | {"createdAt": "2030-01-01T00:00:00"}
    for wrong in (entry | {"tags": text}, entry | {"createdAt": text}, naive, text, [entry]):
        road = Road([answering(200, {"entries": [wrong], "ranks": [1.0], "entry": wrong})])
        with asking(kind, road=road) as client:
            memory = client.openwop
            asks: tuple[tuple[Callable[..., object], str], ...] = (
                (memory.list, ""), (memory.get, "a"), (memory.search, "q"), (memory.put, text),
            )  # fmt: skip
            for ask, word in asks:
                with pytest.raises(UnexpectedAnswer) as failure:
                    ask(*(it for it in (REF, word) if it))
                error = failure.value
                assert text not in "".join(traceback.format_exception_only(error))
                assert (error.__cause__, error.__context__) == (None, None)


@requirement("OW-104")
def test_only_an_entry_that_is_not_there_is_none(kind: str, client: MemoryClient) -> None:
    unknown = client.openwop.run("never-opened")
    asks: tuple[Callable[[], object], ...] = (
        lambda: unknown.memory.list(REF), lambda: unknown.memory.get(REF, "a"),
        lambda: unknown.delete(REF, "a"), lambda: unknown.put(REF, "text"), unknown.end,
    )  # fmt: skip
    for ask in asks:
        with pytest.raises(NotFound, match=r"^run not found$") as refusal:
            ask()
        assert refusal.value.code == "not_found"
    other = answering(404, {"error": "No such path."})  # of a service without this protocol
    with asking(kind, road=Road([other])) as elsewhere, pytest.raises(NotFound):
        elsewhere.openwop.get(REF, "a")


@requirement("OW-104")
def test_answers_that_do_not_fit_are_unexpected(kind: str) -> None:
    entry = {"id": "a", "content": "c", "tags": [], "createdAt": "2030-01-01T00:00:00.000Z"}
    wrong: tuple[object, ...] = ({"entries": [entry], "ranks": []}, {"entries": [entry]}, {}, [])
    for said in wrong:
        road = Road([answering(200, said)])
        with asking(kind, road=road) as client, pytest.raises(UnexpectedAnswer):
            client.openwop.search(REF, "q")
    with (
        asking(kind, road=Road([answering(200, {"runId": "r2", "status": "running"})])) as client,
        pytest.raises(UnexpectedAnswer, match="another run"),
    ):
        client.openwop.run("r1").open()


@requirement("OW-104")
def test_a_refusal_has_a_code_and_a_sentence(kind: str) -> None:
    fields = [{"field": "tag", "problem": "is long"}, {"field": "limit", "problem": "is odd"}]
    details: Json = {"details": {"fields": fields}}
    cases: tuple[tuple[Json, str], ...] = (
        ({}, "No."), (details, "No. tag is long; limit is odd."), ({"details": None}, "No."),
        ({"details": {"correlationId": "x"}}, "No."),
    )  # fmt: skip
    for more, sentence in cases:
        said = {"error": "a_code", "message": "No.", **more}
        road = Road([answering(503, said, headers={"retry-after": "1"})])
        with asking(kind, road=road, retries=0) as client, pytest.raises(Unavailable) as refusal:
            client.openwop.list(REF)
        assert (str(refusal.value), refusal.value.code) == (sentence, "a_code")
        assert refusal.value.retry_after == timedelta(seconds=1)


@requirement("OW-104")
def test_times_are_read_as_they_are_meant(kind: str) -> None:
    entry = {
        "id": "a", "content": "c", "tags": ["t"], "createdAt": "2030-01-01T02:00:00.125+02:00",
        "expiresAt": "2030-01-02T00:00:00.000Z", "added": "by a newer service",
    }  # fmt: skip
    with asking(kind, road=Road([answering(200, {"entry": entry})])) as client:
        found = client.openwop.get(REF, "a")

    assert found == MemoryEntry(
        id="a", content="c", tags=("t",),
        created_at=datetime(2030, 1, 1, 0, 0, 0, 125_000, tzinfo=UTC),
        expires_at=datetime(2030, 1, 2, tzinfo=UTC),
    )  # fmt: skip


Method = Callable[..., object]
# What a host asks without this client, or a console does.
WITHOUT = {
    "openwop_discover", "openwop_openapi", "openwop_get_run", "openwop_run_events",
    "openwop_fork_run",
}  # fmt: skip


def methods(client: MemoryClient) -> Iterator[tuple[Method, inspect.Signature]]:
    """Each method that asks, of every part."""
    memory, run = client.openwop, client.openwop.run("r1")
    for part in (memory, memory.commitments, memory.proposals, run, run.memory):
        for name, of_class in inspect.getmembers(type(part), inspect.isfunction):
            if not name.startswith("_") and (name, part) != ("run", memory):
                yield getattr(part, name), inspect.signature(of_class)


def asked(method: Method, signature: inspect.Signature, **options: object) -> None:
    """Ask with something for each parameter; what is answered says nothing."""
    by_name = {"artifact": {}, "source_run_ids": ["r1"]}
    needed = [
        name for name, it in list(signature.parameters.items())[1:]
        if it.default is it.empty or (name == "tag" and "due_at" in signature.parameters)
    ]  # fmt: skip
    with suppress(MemoryServiceError):
        method(**{name: by_name.get(name, "x") for name in needed} | options)


@pytest.mark.slow
@requirement("OW-104")
def test_each_operation_is_a_method_which_sends_a_key_where_one_is_taken(service: Service) -> None:
    described = operations(service.http.get("/v1/openapi.json").json())
    takes_key: dict[str, bool] = {}
    road = Road([answering(200, {})])
    with asking("blocking", road=road) as client:
        for method, signature in methods(client):
            road.requests.clear()
            asked(method, signature)
            (request,) = road.requests
            (found,) = [
                it for (verb, path), it in described.items()
                if verb == request.method and _fits(path, request.url.path)
            ]  # fmt: skip
            names = {it["name"] for it in found.get("parameters", ())}
            takes_key[found["operationId"]] = "Idempotency-Key" in names
            assert ("idempotency-key" in request.headers) is ("Idempotency-Key" in names)
            sent = set(dict(request.url.params))
            assert sent <= names

    assert takes_key.keys() | WITHOUT == {it["operationId"] for it in described.values()}
    assert not takes_key.keys() & WITHOUT


def _fits(path: str, asked: str) -> bool:
    return bool(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), asked))


@requirement("OW-104")
def test_a_key_of_the_callers_is_sent() -> None:
    road = Road([answering(200, {})])
    with asking("blocking", road=road) as client:
        takers = [it for it in methods(client) if "idempotency_key" in it[1].parameters]
        for method, signature in takers:
            asked(method, signature, idempotency_key="k1")

    assert road.keys == ["k1"] * len(takers)
    assert len(takers) == 16


@requirement("OW-13")
def test_a_pass_whose_answer_is_lost_is_done_once(kind: str, service: Service) -> None:
    host = Host(service.http)
    host.put("Checkout is slow.")
    host.put("The proxy has 5 s.")
    road = Road([over(service, lost=True), over(service)])
    with asking(kind, road=road) as client:
        done = client.openwop.compact(REF)

    assert [it.url.path for it in road.requests] == ["/v1/host/agentops-memory/compact"] * 2
    assert len(set(road.keys)) == 1
    assert [it["id"] for it in host.entries()] == [done.output_id]
    assert [it["type"] for it in host.told(done.run_id)] == [
        "run.started", "memory.compacted", "run.completed"
    ]  # fmt: skip


@requirement("OW-104")
def test_a_pass_may_take_longer_to_be_answered(kind: str) -> None:
    seconds: list[float] = []

    def read(request: httpx.Request) -> httpx.Response:
        seconds.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json={})

    with asking(kind, road=Road([read]), timeout=timedelta(seconds=5), retries=0) as client:
        memory = client.openwop
        for ask in (
            memory.compact, memory.distill, memory.consolidate, memory.undo, memory.forget,
            memory.index,
        ):  # fmt: skip
            with suppress(MemoryServiceError):
                ask("x")

    assert seconds == [120, 120, 120, 120, 120, 5]


@requirement("OW-104")
def test_a_refusal_has_the_details_of_its_code(kind: str) -> None:
    details = {"budget": 1, "minimumRequired": 40}
    said = {"error": "a_code", "message": "No.", "details": details}
    with (
        asking(kind, road=Road([answering(422, said)])) as client,
        pytest.raises(Invalid) as refusal,
    ):
        client.openwop.distill(REF, token_budget=1)
    assert (str(refusal.value), refusal.value.code) == ("No.", "a_code")
    assert refusal.value.details == details
    assert refusal.value.status == 422
    others: tuple[Json, ...] = ({}, {"details": None}, {"details": [1]})
    for more in others:
        road = Road([answering(409, {"error": "a_code", "message": "No.", **more})])
        with asking(kind, road=road) as client, pytest.raises(Conflict) as conflict:
            client.openwop.compact(REF)
        assert conflict.value.details == {}


@requirement("OW-104")
def test_answers_that_do_not_fit_a_pass_are_unexpected(kind: str) -> None:
    text = "what is stored"
    payload = {"memoryRef": REF, "outputId": "a", "sourceCount": 2, "trigger": "t", "byteSize": 1}
    for event in (None, text, {}, {"payload": text}, {"payload": payload | {"byteSize": text}}):
        with asking(kind, road=Road([answering(200, {"runId": "r", "event": event})])) as client:
            for ask in (client.openwop.compact, client.openwop.consolidate, client.openwop.distill):
                with pytest.raises(UnexpectedAnswer) as failure:
                    ask(REF)
                assert text not in "".join(traceback.format_exception_only(failure.value))
