"""The programs of the guide to agents' memory run, and the package's agents remember by them."""

import ast
import asyncio
from collections.abc import Awaitable, Callable
from textwrap import dedent
from typing import Any

import pytest
from openintent import OpenIntentError, agents as theirs
from openintent.llm import ProtocolToolExecutor

from ..docs.test_docs import ROOT, blocks
from ..support.openintent_agents import Agent
from ..support.requirements import requirement
from ..support.service import Service

GUIDE = ROOT / "docs" / "openintent.md"
EXAMPLES = ROOT / "docs" / "examples"
(PROGRAM,) = blocks(GUIDE, "python")
ADAPTER = (EXAMPLES / "openintent_memory.py").read_text("utf-8")
HANDOVER = (EXAMPLES / "openintent_handover.py").read_text("utf-8")


def run(program: str) -> None:
    exec(compile(program, GUIDE.name, "exec"), {})  # noqa: S102 - that is what it is for


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's adapter, for one test."""
    monkeypatch.setattr(theirs, "_MemoryProxy", None)  # so that the package's is put back
    run(ADAPTER)


def remembering(
    service: Service, work: Callable[[Any], Awaitable[None]], decorator: Any = None
) -> None:
    """What an agent of the package does with its memory."""

    class Plain:
        pass

    agent = (decorator or theirs.Agent("ada"))(Plain)(service.url, "any")

    async def whole() -> None:
        async with agent.async_client:
            await work(agent)

    asyncio.run(whole())


@pytest.mark.slow
@requirement("OI-1", "OI-96")
def test_the_program_of_the_five_minutes_runs(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "http://localhost:7437" in PROGRAM

    run(PROGRAM.replace("http://localhost:7437", service.url))

    assert "value={'ids': [9]}" in capsys.readouterr().out
    told = Agent(service.http, "coder").told()
    assert told == [("created", "open"), ("updated", "open"), ("deleted", "open")]


@pytest.mark.slow
@requirement("OI-1", "OI-34", "OI-36", "OI-40", "OI-43", "OI-96")
def test_the_story_of_a_task_that_another_agent_takes_over_prints_what_the_guide_says(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "http://localhost:7437" in HANDOVER

    run(HANDOVER.replace("http://localhost:7437", service.url))

    said = ast.get_docstring(ast.parse(HANDOVER)) or ""
    printed = dedent(said.partition("It prints:\n\n")[2]).strip()
    assert capsys.readouterr().out.strip() == printed != ""


def test_the_guide_names_the_examples() -> None:
    text = GUIDE.read_text("utf-8")

    assert [it.name for it in EXAMPLES.glob("openintent_*.py") if it.name not in text] == []


@pytest.mark.slow
@pytest.mark.usefixtures("adapter")
@requirement("OI-1")
def test_an_agent_of_the_package_stores_recalls_pins_and_forgets(service: Service) -> None:
    async def work(agent: Any) -> None:
        memory = agent.memory
        made = await memory.store("whales", {"they": "sing"}, tags=["sea", "song"])
        await memory.store("herons", "stand", tags=["shore"])

        assert (made.version, made.namespace, made.agent_id) == (1, "default", "ada")
        assert [it["value"] for it in await memory.recall("whales")] == [{"they": "sing"}]
        assert [it["value"] for it in await memory.recall(key="herons")] == [{"value": "stand"}]
        assert keys(await memory.recall()) == ["herons", "whales"]
        assert keys(await memory.recall(tags=["song", "sea"])) == ["whales"]
        assert keys(await memory.recall(tags=["song", "shore"])) == []
        assert keys(await memory.query(limit=1)) == ["herons"]
        assert keys(await memory.query(query="who sings?")) == ["whales"]

        after = await memory.store("whales", {"they": "dive"})
        assert (after.id, after.version, after.tags) == (made.id, 2, ["sea", "song"])
        await memory.pin("whales")
        assert [it["pinned"] for it in await memory.recall("whales")] == [True]
        await memory.pin("nothing")
        await memory.forget("whales")
        await memory.forget("whales")
        await memory.delete("nothing")
        assert keys(await memory.recall()) == ["herons"]

    remembering(service, work)
    assert Agent(service.http).query(memory_type="episodic")["total"] == 1


@pytest.mark.usefixtures("adapter")
@requirement("OI-1", "OI-10")
def test_a_taken_key_is_replaced_whatever_is_stored_there_and_other_refusals_are_raised(
    service: Service,
) -> None:
    async def work(agent: Any) -> None:
        await agent.memory.store("flat", "a lease")  # a word that the package looks for
        after = await agent.memory.store("flat", "bought")
        assert (after.version, after.value) == (2, {"value": "bought"})
        with pytest.raises(OpenIntentError, match="key must not be empty"):
            await agent.memory.store("", {})

    remembering(service, work)


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.usefixtures("adapter")
@pytest.mark.parametrize("tier", ["working", "episodic", "semantic"])
@requirement("OI-29", "OI-50")
def test_a_memory_is_one_tier_and_one_namespace(service: Service, tier: str) -> None:
    Agent(service.http, "lead").permit("team", "none", ada="write", bob="write")
    Agent(service.http).make(key="a", namespace="other", memory_type=tier)
    Agent(service.http).make(key="a", namespace="default", memory_type="episodic")
    Agent(service.http, "bob").make(key="b", namespace="team", memory_type=tier)
    config = theirs.AgentConfig(memory=tier, memory_namespace="team")

    async def work(agent: Any) -> None:
        made = await agent.memory.store("a", "mine")
        assert (made.memory_type.value, made.namespace) == (tier, "team")
        shared = ["a", "b"] if tier == "semantic" else ["a"]
        assert sorted(keys(await agent.memory.recall())) == shared
        found = await agent.memory.recall(query="mine")
        assert keys(found) == ["a"]
        await agent.memory.forget("a")
        assert keys(await agent.memory.recall()) == shared[1:]

    remembering(service, work, theirs.Coordinator("ada", config=config))
    left = Agent(service.http).query(agent_id="ada")["entries"]
    assert {it["namespace"] for it in left} == {"other", "default"}


@pytest.mark.usefixtures("adapter")
@requirement("OI-1")
def test_the_tools_of_a_language_model_remember_and_recall(service: Service) -> None:
    async def work(agent: Any) -> None:
        tools = ProtocolToolExecutor(agent)
        said = {"key": "tide", "value": "at noon", "tags": ["sea"]}
        assert (await tools.execute("remember", said))["status"] == "stored"
        (found,) = (await tools.execute("recall", {"query": "tide", "limit": 5}))["memories"]
        assert (found["key"], found["value"]) == ("tide", {"value": "at noon"})

    remembering(service, work)


def keys(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["key"] for entry in entries]
