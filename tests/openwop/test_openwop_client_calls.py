"""What the client of OpenWOP sends: every operation of the protocol, once, and how it is read."""

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import httpx
import pytest

from agentops_memory_client import (
    Conflict,
    Invalid,
    MemoryClient,
    MemoryServiceError,
    UnexpectedAnswer,
)

from ..docs.test_openapi import operations
from ..support.asking import Road, answering, asking, over
from ..support.openwop_clients import kind
from ..support.openwop_hosts import REF, Host, Json
from ..support.requirements import requirement
from ..support.service import Service

__all__ = ["kind"]

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
