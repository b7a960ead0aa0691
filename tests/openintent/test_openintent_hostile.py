"""What hostile and unlucky agents do: nothing is lost, leaked, or left behind."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from starlette.responses import StreamingResponse

from agentops_memory.engine.engine import Transaction
from agentops_memory.errors import Conflict, Unauthenticated
from agentops_memory.memory.access import OPERATOR, AgentId, Caller
from agentops_memory.memory.agent_memory import AgentEntryId, Tier, Viewer
from agentops_memory.memory.erasure import ErasureId, ReceiptTable
from agentops_memory.memory.space import Capacities
from agentops_memory.openintent import events, intents, tasks
from agentops_memory.openintent.changes import AgentEntryBody
from agentops_memory.openintent.entries import AgentFilter
from agentops_memory.openintent.routes import AgentEntries
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory.sqlite import SqliteEngine

from ..support.callers import audit
from ..support.erasing import remains
from ..support.openintent_agents import BATCH, MEMORY, NAMESPACES, Agent, faults, ok, refused
from ..support.requirements import requirement
from ..support.service import Clock, Service

TOKEN = "ghp_" + "a1B2" * 9
ADA, BOB = Viewer(agent=AgentId("ada")), Viewer(agent=AgentId("bob"))


def draft(key: str, agent: Viewer = ADA, text: str = "") -> AgentEntryBody:
    return AgentEntryBody(
        agent_id=agent.agent, namespace="notes", key=key, value={"text": text},
        memory_type=Tier.EPISODIC,
    )  # fmt: skip


@pytest.mark.slow
@requirement("OI-83", "OI-84")
async def test_what_is_removed_while_the_file_is_scrubbed_waits_for_the_next_scrub(
    path: Path,
) -> None:
    async with SqliteEngine.opened(path, clock=Clock()) as engine:
        entries, known = served(engine), list[ErasureId]()
        for key in "abc":
            made = await entries.create(OPERATOR, ADA, draft(key))
            await entries.delete(OPERATOR, ADA, AgentEntryId(made.value.id))
            known = known or await engine.read(OPERATOR, pending)
        await engine.write(OPERATOR, lambda tx: tx[ReceiptTable].settle(known))
        assert len(await engine.read(OPERATOR, pending)) == 2


def served(engine: SqliteEngine, episodic: int = 3) -> AgentEntries:
    return AgentEntries(
        engine=engine, audit=lambda *_, **__: None, rules=lambda _: DEFAULT_RULES,
        capacities=Capacities(episodic=episodic), timeout=timedelta(),
    )  # fmt: skip


def pending(tx: Transaction) -> list[ErasureId]:
    return list(tx[ReceiptTable].pending())


@pytest.mark.slow
@requirement("OI-46", "OI-45")
async def test_what_is_refused_takes_no_access_from_what_evicts(path: Path) -> None:
    clock = Clock()
    async with SqliteEngine.opened(path, clock=clock) as engine:
        entries = served(engine)
        await entries.create(OPERATOR, BOB, draft("taken", BOB))
        made = []
        for key in "abc":
            made.append(await entries.create(OPERATOR, ADA, draft(key)))
            clock.advance(seconds=1)
        await entries.get(OPERATOR, ADA, made[0].value.id)
        refusals = [entries.create(OPERATOR, BOB, draft("taken", BOB)) for _ in range(4)]
        done = await asyncio.gather(
            *refusals, entries.create(OPERATOR, ADA, draft("d")), return_exceptions=True
        )
        assert all(isinstance(it, Conflict) for it in done[:4])
        listing = await entries.page(lambda: (OPERATOR, ADA), AgentFilter(), 9, 0)
        kept = [it["key"] for it in json.loads(bytes(listing.body))]
        assert kept == ["d", "c", "a"]


def once(viewer: Viewer) -> Callable[[], tuple[Caller, Viewer]]:
    """Who asks by a key that is revoked once it was asked for."""
    left = [(OPERATOR, viewer)]

    def asking() -> tuple[Caller, Viewer]:
        if not left:
            raise Unauthenticated("It is revoked.")
        return left.pop()

    return asking


@pytest.mark.slow
@requirement("OI-5", "OI-63")
async def test_a_key_that_is_revoked_in_a_list_is_told_no_more_of_it(path: Path) -> None:
    async with SqliteEngine.opened(path, clock=Clock()) as engine:
        entries, lead = served(engine, episodic=30), replace(ADA, is_admin=True)
        work = intents.IntentBody(title="work")
        intent = (await entries.write(intents.CREATE, OPERATOR, lead, work)).value.id
        long = "x" * 60_000
        for number in range(30):
            await entries.create(OPERATOR, ADA, draft(str(number), text=long))
            body = tasks.TaskBody.model_validate(
                {"intent_id": intent, "name": "long", "input": {"text": long}}
            )
            await entries.write(tasks.CREATE, OPERATOR, lead, body)
            event = events.EventBody(event_type="comment", payload={"text": long})
            await entries.write(events.LOG, OPERATOR, lead, intent, event)
        for listing, count in (
            (await entries.page(once(ADA), AgentFilter(), 100, 0), 30),
            (await tasks.page(engine, once(lead), intent, 100, 0), 30),
            (await events.page(engine, once(lead), events.EventFilter(intent=intent), 100), 60),
        ):
            assert isinstance(listing, StreamingResponse)
            sent = list[object]()
            with pytest.raises(Unauthenticated):
                await listing.stream_response(AsyncMock(side_effect=sent.append))
            assert 2 < len(sent) <= count + 1


@requirement("OI-12", "OI-57")
def test_a_condition_has_a_hundred_tags_at_most(ada: Agent) -> None:
    ada.make(tags=["t7"])
    many = ",".join(f"t{number}" for number in range(100))
    assert ada.found(tags_any=many) == ["apple"]
    assert ada.found(tags=many) == []
    for name in ("tags", "tags_any"):
        asked = {name: many + ",more"}
        assert faults(ada.ask("GET", MEMORY, params=asked)) == [name]
        assert faults(ada.ask("DELETE", BATCH, params=asked)) == [name]


@requirement("OI-15")
def test_a_namespace_that_is_made_has_a_name_that_an_entry_could_have(ada: Agent) -> None:
    for name in ("a*b", "a%00b", "a" * 201):
        answer = ada.ask("PATCH", f"{NAMESPACES}/{name}", {"permissions": {}})
        assert faults(answer) == ["namespace"]
    assert ok(ada.ask("GET", NAMESPACES))["total"] == 0


@pytest.mark.slow
@requirement("OI-87")
def test_no_agents_id_with_a_secret_is_stored(service: Service, ada: Agent) -> None:
    entry = ada.make(memory_type="semantic")
    allow = {"permissions": {"allow": [{"agent": TOKEN, "access": "write"}]}}
    assert refused(ada.ask("PATCH", f"{NAMESPACES}/notes", allow)) == (400, "INVALID_REQUEST")
    telling = Agent(service.http, TOKEN)
    for answer in (
        telling.post(), telling.patch(entry), telling.delete(entry),
        telling.ask("DELETE", f"{BATCH}?namespace=notes"),
        telling.ask("POST", BATCH, {"entries": [ada.body(memory_type="semantic", agent_id=TOKEN)]}),
        telling.ask("PATCH", f"{NAMESPACES}/notes", {"permissions": {}}),
    ):  # fmt: skip
        assert refused(answer) == (400, "INVALID_REQUEST")
    assert ada.found() == ["apple"]
    assert not Path(f"{service.path}.audit").exists() or TOKEN not in str(audit(service.path))
    assert remains(service.path.parent, TOKEN) == set()


@requirement("OI-9", "OI-64")
def test_faults_are_named_by_item_and_field(ada: Agent) -> None:
    large = {"text": "x" * 70_000}
    assert faults(ada.post(key="", value=large)) == ["key", "value"]
    for fields, named in (
        ({"value": large}, "value"), ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at")
    ):  # fmt: skip
        batch = {"entries": [ada.body(), ada.body(key="b", **fields)]}
        assert faults(ada.ask("POST", BATCH, batch)) == [f"entries[1].{named}"]
    foreign = ada.ask("POST", BATCH, {"entries": [ada.body(), ada.body(agent_id="bob")]})
    assert refused(foreign) == (403, "ACCESS_DENIED")
    assert foreign.json()["message"].startswith("entries[1]: ")


@requirement("OI-16", "OI-28")
def test_a_lifetime_of_a_task_needs_the_task(ada: Agent) -> None:
    plain = ada.make()
    bound = ada.make(key="b", scope={"task_id": "t1"})
    assert faults(ada.patch(plain, ttl="task_lifetime")) == ["ttl"]
    item = ada.body(key="b", version=1, ttl="task_lifetime")
    assert ok(ada.ask("POST", BATCH, {"entries": [item]}))["entries"][0]["version"] == 2
    other = ada.body(key="b", version=2, scope={"task_id": "t2"})
    assert faults(ada.ask("POST", BATCH, {"entries": [other]})) == ["entries[0].scope"]
    assert faults(ada.patch(bound, 2, version=True)) == ["version"]


@pytest.mark.slow
@requirement("OI-88")
def test_another_version_is_another_request(service: Service, ada: Agent) -> None:
    once = Agent(service.http, "ada", {"Idempotency-Key": "k"})
    entry = ada.make()
    assert ok(once.patch(entry, pinned=True))["version"] == 2
    assert ok(ada.patch(entry, 2, pinned=False))["version"] == 3
    assert refused(once.patch(entry, 3, pinned=True)) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert ok(once.patch(entry, pinned=True))["pinned"] is True  # as it was answered
