"""What the client sends, sends again, and makes of refusals, cuts and odd answers."""

import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
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
from agentops_memory_client.contract.models import Refused
from agentops_memory_client.openwop import MemoryEntry

from ..docs.test_openapi import operations
from ..support.asking import Road, answering, asking, over
from ..support.openwop_hosts import REF, Host
from ..support.requirements import requirement
from ..support.service import Service


@requirement("OW-104")
def test_an_answer_that_does_not_fit_is_unexpected_and_not_quoted(kind: str) -> None:
    text = "what is stored"
    entry = {"id": "a", "content": text, "tags": [text], "createdAt": "2030-01-01T00:00:00.000Z"}
    naive = entry | {"createdAt": "2030-01-01T00:00:00"}
    payload = {"memoryRef": REF, "outputId": "a", "sourceCount": 2, "trigger": "t", "byteSize": 1}
    of_entries = [
        {"entries": [it], "ranks": [1.0], "entry": it}
        for it in (entry | {"tags": text}, entry | {"createdAt": text}, naive, text, [entry])
    ]
    of_passes = [
        {"runId": "r", "event": it}
        for it in (None, text, {}, {"payload": text}, {"payload": payload | {"byteSize": text}})
    ]
    of_searches: list[object] = [{"entries": [entry], "ranks": []}, {"entries": [entry]}, {}, []]
    asks: tuple[tuple[str, tuple[str, ...], Sequence[object]], ...] = (
        ("list", (REF,), of_entries), ("get", (REF, "a"), of_entries),
        ("search", (REF, "q"), [*of_entries, *of_searches]), ("put", (REF, text), of_entries),
        ("compact", (REF,), of_passes), ("consolidate", (REF,), of_passes),
        ("distill", (REF,), of_passes),
    )  # fmt: skip
    for name, arguments, answers in asks:
        for answer in answers:
            with (
                asking(kind, road=Road([answering(200, answer)])) as client,
                pytest.raises(UnexpectedAnswer) as failure,
            ):
                getattr(client.openwop, name)(*arguments)
            assert text not in "".join(traceback.format_exception_only(failure.value))
            assert (failure.value.__cause__, failure.value.__context__) == (None, None)
    with (
        asking(kind, road=Road([answering(200, {"runId": "r2", "status": "running"})])) as client,
        pytest.raises(UnexpectedAnswer, match="another run"),
    ):
        client.openwop.run("r1").open()


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
def test_a_refusal_has_a_code_a_sentence_and_details(kind: str) -> None:
    fields = [{"field": "tag", "problem": "is long"}, {"field": "limit", "problem": "is odd"}]
    budget = {"budget": 1, "minimumRequired": 40}
    cases: tuple[tuple[int, type[Refused], object, str], ...] = (
        (422, Invalid, budget, "No."), (503, Unavailable, {}, "No."),
        (422, Invalid, {"fields": fields}, "No. tag is long; limit is odd."),
        (409, Conflict, None, "No."), (409, Conflict, [1], "No."),
        (503, Unavailable, {"correlationId": "x"}, "No."),
    )  # fmt: skip
    for status, error, details, sentence in cases:
        said = {"error": "a_code", "message": "No.", "details": details}
        road = Road([answering(status, said, headers={"retry-after": "1"})])
        with asking(kind, road=road, retries=0) as client, pytest.raises(error) as refusal:
            client.openwop.distill(REF, token_budget=1)
        shown = refusal.value
        assert (str(shown), shown.code, shown.status) == (sentence, "a_code", status)
        assert getattr(shown, "details", {}) == (details if isinstance(details, dict) else {})
        if isinstance(shown, Unavailable):
            assert shown.retry_after == timedelta(seconds=1)


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
    f"openwop_{it}"
    for it in """discover openapi get_run run_events fork_run refs index get_erasure
                 create_commitment list_commitments get_commitment cancel_commitment
                 create_proposal list_proposals get_proposal revise_proposal apply_proposal
                 reject_proposal archive_proposal list_artifacts get_artifact""".split()
}


def methods(client: MemoryClient) -> Iterator[tuple[Method, inspect.Signature]]:
    """Each method that asks, of every part."""
    memory, run = client.openwop, client.openwop.run("r1")
    for part in (memory, run, run.memory):
        for name, of_class in inspect.getmembers(type(part), inspect.isfunction):
            if not name.startswith("_") and (name, part) != ("run", memory):
                yield getattr(part, name), inspect.signature(of_class)


def asked(method: Method, signature: inspect.Signature, **options: object) -> None:
    """Ask with something for each parameter; what is answered says nothing."""
    parameters = list(signature.parameters.items())[1:]
    with suppress(MemoryServiceError):
        method(**{name: "x" for name, it in parameters if it.default is it.empty} | options)


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
                if verb == request.method
                and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), request.url.path)
            ]  # fmt: skip
            names = {it["name"] for it in found.get("parameters", ())}
            takes_key[found["operationId"]] = "Idempotency-Key" in names
            assert ("idempotency-key" in request.headers) is ("Idempotency-Key" in names)
            sent = set(dict(request.url.params))
            assert sent <= names

    assert takes_key.keys() | WITHOUT == {it["operationId"] for it in described.values()}
    assert not takes_key.keys() & WITHOUT


@requirement("OW-104")
def test_a_key_of_the_callers_is_sent() -> None:
    road = Road([answering(200, {})])
    with asking("blocking", road=road) as client:
        takers = [it for it in methods(client) if "idempotency_key" in it[1].parameters]
        for method, signature in takers:
            asked(method, signature, idempotency_key="k1")

    assert road.keys == ["k1"] * len(takers)
    assert len(takers) == 9


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
            memory.list,
        ):  # fmt: skip
            with suppress(MemoryServiceError):
                ask("x")

    assert seconds == [120, 120, 120, 120, 120, 5]
