"""Each transaction is a span, and each step in it says what it decided."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Engine, Transaction
from agentops_memory.errors import NotFound, Unavailable
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memories import MemoryTable
from agentops_memory.memory.memory import Memory, MemoryId, SessionId
from agentops_memory.memory.saves import get, lookalikes, save
from agentops_memory.memory.search import Filter
from agentops_memory.memory.sessions import close_session
from agentops_memory.memory.space import Project
from agentops_memory.recall.recall import Recall, totals
from agentops_memory.recall.summary import Message, transcript
from agentops_memory.telemetry import Telemetry
from agentops_memory.telemetry.otlp import MOST_STEPS

from ..support.files import put_in_index
from ..support.otlp import ADA, DEMO, SPACE, Attributes, Collector, collector, draft, saved, trace

__all__ = ["collector"]

OTHER = Project("other")
MISSED: Attributes = {"memory.dedup.matched": False}


def met(number: int) -> Attributes:
    return {"memory.dedup.matched": True, "memory.observation.id": number}


def fts(match: str, count: int) -> tuple[str, Attributes]:
    return "store.fts", {"memory.fts.match": match, "memory.search.result_count": count}


def counted(step: str, count: int) -> tuple[str, Attributes]:
    return f"store.{step}", {"memory.search.result_count": count}


def inserted(number: int) -> tuple[str, Attributes]:
    return "store.insert", {"memory.observation.id": number}


KEY, HASH = "store.dedup.topic_key", "store.dedup.hash"
STEPS: dict[str, list[list[tuple[str, Attributes]]]] = {
    "store.add_observation": [
        [(KEY, MISSED), (HASH, MISSED), inserted(1)], [(KEY, met(1))],
        [(HASH, MISSED), inserted(2)], [(HASH, met(2))],
        *([(HASH, MISSED), inserted(number)] for number in range(3, 6)),
    ],
    "store.search": [[fts("keyed", 1), fts("every", 0), fts("best", 1)]],
    "store.fetch_context": [[fts("best", 2), counted("backfill", 1), counted("pins", 0)]],
    "store.close_session": [
        [("store.summarize", {"memory.session.message_count": 1, "memory.summary.length": 62})]
    ],
}  # fmt: skip


def test_each_step_of_a_transaction_says_what_it_decided(
    collector: Collector, tmp_path: Path
) -> None:
    async def work(_: Telemetry, engine: Engine) -> None:
        await saved(engine, draft("blue whales", key="animals/whales"))
        await saved(engine, draft("blue whales", key="animals/whales"))
        for _again in range(2):
            await saved(engine, replace(draft("blue jays"), session=SessionId("s2")))
        put_in_index(tmp_path / "memory.db")
        await Recall(engine=engine).search(ADA, "animals/whales", Filter(project=DEMO), 10)
        apart = replace(SPACE, project=OTHER)
        texts = ("blue whales sing at dawn", "blue whales sing at dusk", "ants are quiet")
        for content in texts:
            other = replace(draft(content), session=SessionId(content), space=apart)
            one = await saved(engine, other)
            put_in_index(tmp_path / "memory.db")
            await engine.read(ADA, lookalikes, one.memory.id, 3, timedelta(seconds=9))
        await Recall(engine=engine).context(ADA, "blue whales", Filter(project=OTHER), 3)
        heard = transcript([Message(role="user", content="hello")], str)
        await engine.write(ADA, close_session, SessionId("s1"), heard, DEMO)

    trace(collector, tmp_path, work)

    for name, due in STEPS.items():
        spans = collector.all(name)
        shown = [[(it.name, it.attributes) for it in collector.children(span)] for span in spans]
        assert shown == due, name
    counts = [it.attributes for it in collector.spans if it.name == "store.similar"]
    assert counts == [{"memory.search.result_count": it} for it in (1, 2, 1)]


def test_an_error_marks_every_span_on_its_way(collector: Collector, tmp_path: Path) -> None:
    def again(tx: Transaction, memory: Memory) -> None:
        tx[MemoryTable].insert(memory)

    async def work(telemetry: Telemetry, engine: Engine) -> None:
        with pytest.raises(NotFound), telemetry.operation("get_observation", {}):
            await engine.read(ADA, get, MemoryId(7))
        one = await saved(engine, draft("a fact"))
        with pytest.raises(Unavailable):
            await engine.read(OPERATOR, again, one.memory)

    trace(collector, tmp_path, work)

    failed = [(it.name, it.attributes["error.type"]) for it in collector.spans if it.failed]
    assert failed[:2] == [("store.get", "not_found"), ("memory.get_observation", "not_found")]
    assert [name for name, _ in failed[2:]] == ["store.insert", "store.again"]


def test_the_steps_of_a_long_transaction_are_bounded(collector: Collector, tmp_path: Path) -> None:
    def many(tx: Transaction) -> None:
        for number in range(MOST_STEPS + 1):
            save(tx, draft(f"fact {number}"), timedelta(0))

    async def work(_: Telemetry, engine: Engine) -> None:
        await engine.write(OPERATOR, many)
        assert (await engine.read(ADA, totals, DEMO)).memories == MOST_STEPS + 1

    trace(collector, tmp_path, work)

    assert len(collector.children(collector.one("store.many"))) == MOST_STEPS
