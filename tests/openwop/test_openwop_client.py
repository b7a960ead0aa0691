"""Memory refs and runs through the Python client, blocking and awaited."""

import asyncio
import inspect
import re

import httpx
import pytest

from agentops_memory_client import AsyncMemoryClient, Conflict, MemoryClient
from agentops_memory_client.openwop import (
    AsyncEntries,
    AsyncOpenWopMemory,
    AsyncRun,
    Entries,
    MemoryAdapter,
    OpenWopMemory,
    Run,
)

from ..docs.test_docs import ROOT
from ..support.asking import Road, asking, over
from ..support.openwop_hosts import REF, Host, Json, ok
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service

VALUE, MARK = "zanzibar-hunter2-quokka", "[REDACTED:stripe-key]"


def contents(memory: MemoryAdapter, ref: str = REF) -> list[str]:
    """What a node reads."""
    return [entry.content for entry in memory.list(ref)]


@requirement("OW-104")
def test_either_is_an_adapter_that_cannot_write(service: Service) -> None:
    async def read(node: AsyncEntries) -> int:
        return len(await node.list(REF, limit=1, tag="a", token_budget=9)) + bool(
            await node.get(REF, "a")
        )

    async def main() -> int:
        async with (
            AsyncMemoryClient(service.url) as client,
            client.openwop.run("r1", agent_id="ada") as run,
        ):
            await run.put(REF, "text")
            return await read(run.memory) + await read(client.openwop)

    with MemoryClient(service.url) as client, client.openwop.run("r2") as run:
        node: MemoryAdapter = run.memory
        assert contents(node) == contents(client.openwop) == []
        assert {it for it in dir(node) if not it.startswith("_")} == {"list", "get"}
    assert asyncio.run(main()) == 0
    assert {it for it in dir(AsyncEntries) if not it.startswith("_")} == {"list", "get"}


@requirement("OW-104")
@for_each(
    "blocking, awaited",
    [(OpenWopMemory, AsyncOpenWopMemory), (Run, AsyncRun), (Entries, AsyncEntries)],
)
def test_the_blocking_ones_have_the_methods_of_the_awaited_ones(
    blocking: type, awaited: type
) -> None:
    def methods(of: type) -> dict[str, inspect.Signature]:
        found = inspect.getmembers(of, inspect.isfunction)
        return {name: inspect.signature(it) for name, it in found if not name.startswith("_")}

    told, whole = methods(blocking), methods(awaited)
    assert told.keys() == whole.keys()
    for name, signature in whole.items():
        assert list(told[name].parameters.values())[1:] == list(signature.parameters.values())[1:]
        assert getattr(blocking, name).__doc__
        if name != "run":
            assert getattr(blocking, name).__doc__ == getattr(awaited, name).__doc__
            assert told[name].return_annotation == signature.return_annotation


@requirement("OW-104")
def test_every_method_and_parameter_is_in_the_guide() -> None:
    guide = (ROOT / "docs" / "client.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `((?:openwop|run)(?:\.\w+)+)\((.*?)\)`", guide, re.MULTILINE))

    def shown(method: object) -> str:
        signature = inspect.signature(method)  # type: ignore[arg-type]
        kept = [it for it in signature.parameters.values() if it.name != "idempotency_key"]
        plain = [it.replace(annotation=it.empty) for it in kept[1:]]
        return str(inspect.Signature(plain))[1:-1].replace("'", '"')

    parts = {"openwop": OpenWopMemory, "run": Run}
    public = {
        f"{name}.{method}": shown(it)
        for name, kind in parts.items()
        for method, it in inspect.getmembers(kind, inspect.isfunction)
        if not method.startswith("_")
    }
    assert rows == public


def status(host: Host, run: str = "r1") -> str:
    found: Json = ok(host.ask("GET", f"/runs/{run}"))
    return str(found["status"])


def types(host: Host, run: str = "r1") -> list[str]:
    """What a run tells of, by the last words of the types."""
    return [event["type"].rpartition(".")[2] for event in host.told(run)]


@requirement("OW-104")
def test_inside_a_run_memory_is_as_it_was_at_its_start(client: MemoryClient) -> None:
    memory = client.openwop
    before = memory.put(REF, "before")
    gone = memory.put(REF, "gone soon")
    brief = memory.put(REF, "brief")
    with memory.run("r1") as run:
        other = memory.put(REF, "by another")
        own = run.put(REF, "by the run")
        assert run.delete(REF, gone.id) is True

        assert run.memory.list(REF) == (brief, gone, before)
        assert run.memory.get(REF, gone.id) == gone
        assert run.memory.get(REF, own.id) is None
        assert run.memory.list(REF, limit=1) == (brief,)
        assert memory.list(REF) == (own, other, brief, before)
    assert contents(run.memory) == ["brief", "gone soon", "before"]


@requirement("OW-104")
def test_a_run_ends_completed_or_failed(client: MemoryClient, host: Host) -> None:
    with client.openwop.run("r1", workflow_id="triage", memory_refs=[REF]):
        assert status(host) == "running"
    assert (status(host), types(host)) == ("completed", ["started", "completed"])

    for number, fault in enumerate(
        (ValueError("no"), KeyboardInterrupt(), asyncio.CancelledError())
    ):
        with pytest.raises(type(fault)) as raised, client.openwop.run(f"f{number}"):
            raise fault
        assert raised.value is fault
        assert status(host, f"f{number}") == "failed"

    with client.openwop.run("r3") as run:
        run.end("cancelled")
        with pytest.raises(Conflict) as refusal:
            run.put(REF, "late")
        assert refusal.value.code == "run_terminal"
    assert types(host, "r3") == ["started", "cancelled"]


@requirement("OW-104")
def test_an_end_that_fails_hides_no_exception(client: MemoryClient, host: Host) -> None:
    def ended_by_another(run: str, fault: Exception | None) -> None:
        with client.openwop.run(run):
            Host(host.http, run=run).end("cancelled")
            if fault is not None:
                raise fault

    with pytest.raises(ValueError, match="mine") as raised:
        ended_by_another("r1", ValueError("mine"))
    assert raised.value.__notes__ == ["The run could not be ended: The run has ended."]

    with pytest.raises(Conflict) as refusal:
        ended_by_another("r2", None)
    assert refusal.value.code == "run_terminal"


@requirement("OW-104")
def test_a_run_without_an_end_is_opened_again_and_goes_on(
    kind: str, client: MemoryClient, service: Service, host: Host
) -> None:
    before = client.openwop.put(REF, "before")
    fields = {"agent_id": "ada", "workflow_id": "triage", "memory_refs": [REF]}
    killed = client.openwop.run("r1", **fields)  # type: ignore[arg-type]
    killed.open()
    killed.put(REF, "step 1", id="r1/1", node_id="one")
    with asking(kind, service.url) as anew:
        with anew.openwop.run("r1", **fields) as run:  # type: ignore[arg-type]
            assert run.memory.list(REF) == (before,)
            assert anew.openwop.get(REF, "r1/1") is not None
            run.put(REF, "step 1", id="r1/1", node_id="one")
            run.put(REF, "step 2", id="r1/2", node_id="two")
        for other in ({}, fields):
            with pytest.raises(Conflict) as refusal, anew.openwop.run("r1", **other):  # type: ignore[arg-type]
                raise AssertionError("Its body must not begin.")
            assert refusal.value.code == "run_conflict"

    assert types(host) == ["started", "written", "written", "completed"]
    assert contents(client.openwop) == ["step 2", "step 1", "before"]


@requirement("OW-104")
def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_done_twice(
    kind: str, service: Service, host: Host
) -> None:
    seen = set[bytes]()
    lost, whole = over(service, lost=True), over(service)

    def cut_once(request: httpx.Request) -> httpx.Response:
        """Every answer is lost the first time that its request is sent."""
        sent = f"{request.method} {request.url}".encode() + request.read()
        is_first = sent not in seen
        seen.add(sent)
        return (lost if is_first else whole)(request)

    road = Road([cut_once])
    with asking(kind, road=road) as client:
        with client.openwop.run("r1", agent_id="ada") as run:
            assert run.secret("stripe-key", VALUE) is True
            entry = run.put(REF, f"It is {VALUE}.", node_id="n1")
            gone = run.put(REF, "gone", node_id="n2")
            assert run.delete(REF, gone.id) is True
            assert client.openwop.list(REF) == (entry,)
        assert client.openwop.put(REF, "later").content == "later"

    assert len(road.requests) == 16
    pairs = zip(road.keys[::2], road.keys[1::2], strict=True)
    assert all(first == second for first, second in pairs)
    assert types(host) == ["started", "written", "written", "deleted", "completed"]
    assert host.contents() == ["later", f"It is {MARK}."]
