"""Memory refs and runs through the Python client, blocking and awaited."""

import asyncio
import inspect
import re
from datetime import datetime, timedelta

import httpx
import pytest

from agentops_memory_client import AsyncMemoryClient, Conflict, Denied, Invalid, MemoryClient
from agentops_memory_client.openwop import (
    AsyncCommitments,
    AsyncEntries,
    AsyncMemoryAdapter,
    AsyncOpenWopMemory,
    AsyncProposals,
    AsyncRun,
    Commitments,
    Entries,
    MemoryAdapter,
    MemoryEntry,
    OpenWopMemory,
    Proposals,
    RefExtent,
    Run,
    RunEvent,
    WrittenBy,
)

from ..docs.test_docs import ROOT
from ..support.asking import Answering, Road, asking, over
from ..support.openwop_hosts import REF, Host, Json, ok
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import START, Service

VALUE, MARK = "zanzibar-hunter2-quokka", "[REDACTED:stripe-key]"
UNKNOWN, FOREIGN = "mem://nobody", "tenants/acme/notes"
MALFORMED = ("", "a/../b", "..", "a\\..", "\x01", "\x7f", "\0", "\ud800", "x" * 257, "x" * 70_000)


def contents(memory: MemoryAdapter, ref: str = REF) -> list[str]:
    """What a node reads."""
    return [entry.content for entry in memory.list(ref)]


@requirement("OW-104")
def test_what_is_put_is_listed_and_got(memory: OpenWopMemory, service: Service) -> None:
    ends = START + timedelta(hours=1, milliseconds=5)
    first = memory.put(REF, "green apples", tags=["fruit", "green"], expires_at=ends)
    second = memory.put(REF, "red apples", ttl_seconds=60, id="apples/red")
    third = memory.put(REF, "blue plums")

    assert first == MemoryEntry(
        id=first.id, content="green apples", tags=("fruit", "green"), created_at=START,
        expires_at=ends,
    )  # fmt: skip
    assert (second.id, second.expires_at) == ("apples/red", START + timedelta(minutes=1))
    assert (third.tags, third.expires_at) == ((), None)
    assert memory.list(REF) == (third, second, first)
    assert memory.list(REF, limit=1) == (third,)
    assert memory.list(REF, tag="fruit") == (first,)
    assert memory.list(REF, token_budget=20) == (third, second)
    assert memory.list(REF, before=third.id) == (second, first)
    assert [memory.get(REF, it.id) for it in (first, second, third)] == [first, second, third]
    assert [it["id"] for it in Host(service.http).entries()] == [third.id, second.id, first.id]
    assert {it.created_at.utcoffset() for it in memory.list(REF)} == {timedelta()}
    with pytest.raises(AttributeError):
        first.content = "x"  # type: ignore[misc]


@requirement("OW-104")
def test_what_cannot_be_written_is_refused_with_a_class(memory: OpenWopMemory) -> None:
    for ref in MALFORMED:
        with pytest.raises(Invalid) as refusal:
            memory.put(ref, "text")
        assert refusal.value.code in ("validation_error", None)
    with pytest.raises(Denied) as denied:
        memory.put(FOREIGN, "text")
    assert denied.value.code == "forbidden"
    with pytest.raises(Invalid) as invalid:
        memory.put(REF, " ", tags=["archive"], ttl_seconds=0)
    for name in ("content", "tags", "ttlSeconds"):
        assert name in str(invalid.value)
    with pytest.raises(Invalid, match="expiresAt"):
        memory.put(REF, "text", expires_at=datetime(2031, 1, 1))  # noqa: DTZ001
    with pytest.raises(Invalid, match="key"):
        memory.put(REF, "text", idempotency_key="ä")
    for asked in ({"tag": "\ud800"}, {"before": "\ud800"}, {"tag": "\0"}, {"limit": -1}):
        with pytest.raises(Invalid):
            memory.list(REF, **asked)
    assert memory.list(REF) == ()


@requirement("OW-104")
def test_what_supersedes_and_whence_it_comes_is_told(client: MemoryClient) -> None:
    memory = client.openwop
    older = memory.put(REF, "the door is red")
    with memory.run("r1", agent_id="ada") as run:
        newer = run.put(REF, "the door is green", supersedes=[older.id], node_id="paint")
        other = run.put(REF, "the roof is flat", node_id="build", agent_id="bob")

    assert memory.list(REF) == (other, newer)
    assert memory.get(REF, older.id) == older
    with pytest.raises(Conflict) as refusal:
        memory.put(REF, "text", supersedes=["nothing"])
    assert refusal.value.code == "memory_changed"
    found = memory.provenance(REF, older.id)
    assert found is not None
    assert (found.written_by, found.superseded_by) == (WrittenBy(), (newer.id,))
    found = memory.provenance(REF, newer.id)
    assert found is not None
    assert found.written_by == WrittenBy(run_id="r1", node_id="paint", agent_id="ada")
    assert (found.memory_ref, found.memory_id, found.method) == (REF, newer.id, "put")
    assert (found.derived_from, found.seen, found.last_seen_at) == ((older.id,), 1, START)
    by_bob = WrittenBy(run_id="r1", node_id="build", agent_id="bob")
    assert getattr(memory.provenance(REF, other.id), "written_by", None) == by_bob


@requirement("OW-104")
def test_a_search_finds_by_words_best_first(memory: OpenWopMemory) -> None:
    short = memory.put(REF, "apples", tags=["a"])
    long = memory.put(REF, "apples, and much else that is told at length", tags=["b"])
    memory.put("mem://elsewhere", "apples")

    found = memory.search(REF, "apples")

    assert [it.entry for it in found] == [short, long]
    assert found[0].rank < found[1].rank < 0
    assert [it.entry for it in memory.search(REF, "apples", tag="b")] == [long]
    assert [it.entry for it in memory.search(REF, "apples", limit=1)] == [short]
    assert [it.entry for it in memory.search(REF, "apples", token_budget=10)] == [short]
    assert memory.search(REF, "apples " + "x" * 100_000)[0].entry == short
    assert memory.search(REF, "pears") == ()
    with pytest.raises(Invalid, match="q is required"):
        memory.search(REF, "")


@pytest.mark.slow
@requirement("OW-104")
def test_refs_are_listed_in_pages(memory: OpenWopMemory) -> None:
    for ref in ("c", "a", "b"):
        memory.put(ref, f"of {ref}")

    page = memory.refs(limit=2)
    rest = memory.refs(limit=2, after=page.next)

    assert page.refs + rest.refs == tuple(
        RefExtent(memory_ref=ref, entries=1, bytes=4) for ref in "abc"
    )
    assert (page.next, rest.next) == ("b", None)


@requirement("OW-104")
def test_events_of_all_runs_are_followed_by_a_cursor(client: MemoryClient) -> None:
    memory = client.openwop
    with memory.run("r1", agent_id="ada") as first, memory.run("r2"):
        entry = first.put(REF, "text", tags=["a"], node_id="n1")
        seen: list[RunEvent] = []
        cursor: str | None = None
        while (page := memory.events(cursor, limit=2)).events:
            seen += page.events
            cursor = page.next
        assert memory.events(cursor).next == cursor
        first.delete(REF, entry.id)
    later = memory.events(cursor).events

    assert [(it.run_id, it.type, it.sequence) for it in seen] == [
        ("r1", "run.started", 0), ("r2", "run.started", 0), ("r1", "memory.written", 1),
    ]  # fmt: skip
    assert seen[-1].payload == {
        "memoryRef": REF, "memoryId": entry.id, "nodeId": "n1", "agentId": "ada", "tags": ["a"]
    }  # fmt: skip
    assert (seen[-1].node_id, seen[-1].timestamp) == ("n1", START)
    assert [it.type for it in later] == [
        "agentops-memory.memory.deleted", "run.completed", "run.completed"
    ]  # fmt: skip
    assert {it.run_id for it in memory.events(type="memory.written").events} == {"r1"}


@requirement("OW-104")
def test_either_is_an_adapter_that_cannot_write(service: Service) -> None:
    async def read(node: AsyncMemoryAdapter) -> int:
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
    [
        (OpenWopMemory, AsyncOpenWopMemory), (Run, AsyncRun), (Entries, AsyncEntries),
        (Commitments, AsyncCommitments), (Proposals, AsyncProposals),
    ],
)  # fmt: skip
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

    parts = {
        "openwop": OpenWopMemory, "openwop.commitments": Commitments,
        "openwop.proposals": Proposals, "run": Run,
    }  # fmt: skip
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


def cut_once(service: Service) -> tuple[Road, Answering]:
    """A way on which every answer is lost the first time that its request is sent."""
    seen: set[bytes] = set()
    lost, whole = over(service, lost=True), over(service)

    def way(request: httpx.Request) -> httpx.Response:
        sent = f"{request.method} {request.url}".encode() + request.read()
        is_first = sent not in seen
        seen.add(sent)
        return (lost if is_first else whole)(request)

    road = Road([way])
    return road, road


@requirement("OW-104")
def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_done_twice(
    kind: str, service: Service, host: Host
) -> None:
    road, way = cut_once(service)
    with asking(kind, road=way) as client:
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
