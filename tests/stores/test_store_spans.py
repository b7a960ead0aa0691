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
from agentops_memory.memory.sessions import close_session, digest_of
from agentops_memory.recall.features import ALL
from agentops_memory.recall.recall import Recall, totals
from agentops_memory.recall.summary import Message
from agentops_memory.secrets.redaction import DEFAULT_RULES
from agentops_memory.telemetry import Telemetry
from agentops_memory.telemetry.spans import MOST_STEPS

from ..support.database import put_in_index
from ..support.otlp import Attributes, Collector, ReceivedSpan
from ..support.traced import ADA, DEMO, collector, draft, saved, trace

__all__ = ["collector"]


def steps(collector: Collector, of: ReceivedSpan) -> list[tuple[str, Attributes]]:
    """The steps below a transaction's span, in order, with what they say."""
    return [(child.name, child.attributes) for child in collector.children(of)]


def test_each_tier_of_a_save_says_what_it_decided(collector: Collector, tmp_path: Path) -> None:
    async def work(_: Telemetry, engine: Engine) -> None:
        await saved(engine, draft("a fact", key="a/key"))
        await saved(engine, draft("a newer fact", key="a/key"))
        await saved(engine, draft("a thought"))
        await saved(engine, draft("a thought"))

    trace(collector, tmp_path, work)

    missed: Attributes = {"memory.dedup.matched": False}
    assert [steps(collector, saved) for saved in collector.all("store.add_observation")] == [
        [
            ("store.dedup.topic_key", missed),
            ("store.dedup.hash", missed),
            ("store.insert", {"memory.observation.id": 1}),
        ],
        [("store.dedup.topic_key", {"memory.dedup.matched": True, "memory.observation.id": 1})],
        [("store.dedup.hash", missed), ("store.insert", {"memory.observation.id": 2})],
        [("store.dedup.hash", {"memory.dedup.matched": True, "memory.observation.id": 2})],
    ]


def test_a_search_says_which_match_found_how_much(collector: Collector, tmp_path: Path) -> None:
    async def work(_: Telemetry, engine: Engine) -> None:
        await saved(engine, draft("blue whales", key="animals/whales"))
        await saved(engine, replace(draft("blue jays"), session=SessionId("s2")))
        put_in_index(tmp_path / "memory.db")
        await Recall(engine=engine).search(ADA, "animals/whales", Filter(project=DEMO), 10)

    trace(collector, tmp_path, work)

    looked = steps(collector, collector.one("store.search"))
    assert [name for name, _ in looked] == ["store.fts"] * 3
    assert [step["memory.fts.match"] for _, step in looked] == ["keyed", "every", "best"]
    assert [step["memory.search.result_count"] for _, step in looked] == [1, 0, 1]


def test_a_context_says_how_much_was_found_and_filled_up(
    collector: Collector, tmp_path: Path
) -> None:
    async def work(_: Telemetry, engine: Engine) -> None:
        for content in ("blue whales sing", "blue jays shout", "ants are quiet"):
            await saved(engine, replace(draft(content), session=SessionId(content)))
        await Recall(engine=engine).context(ADA, "blue whales", Filter(project=DEMO), 3)

    trace(collector, tmp_path, work)

    assert steps(collector, collector.one("store.fetch_context")) == [
        ("store.fts", {"memory.fts.match": "best", "memory.search.result_count": 2}),
        ("store.backfill", {"memory.search.result_count": 1}),
        ("store.pins", {"memory.search.result_count": 0}),
    ]


def test_a_look_for_what_is_alike_says_how_many_candidates_there_were(
    collector: Collector, tmp_path: Path
) -> None:
    async def work(_: Telemetry, engine: Engine) -> None:
        for content in ("blue whales sing at dawn", "blue whales sing at dusk", "ants are quiet"):
            one = await saved(engine, draft(content))
            put_in_index(tmp_path / "memory.db")
            await engine.read(ADA, lookalikes, one.memory.id, 3, ALL, timedelta(seconds=9))

    trace(collector, tmp_path, work)

    counts = [it.attributes for it in collector.spans if it.name == "store.similar"]
    assert counts == [{"memory.search.result_count": it} for it in (1, 2, 1)]


def test_the_end_of_a_session_says_how_long_its_summary_is(
    collector: Collector, tmp_path: Path
) -> None:
    said = [Message(role="user", content="hello")]
    told = "Session: 1 messages (1 user, 0 assistant). Started with: hello"

    async def work(_: Telemetry, engine: Engine) -> None:
        heard = await digest_of(DEFAULT_RULES, said)
        await engine.write(ADA, close_session, SessionId("s1"), heard, DEMO)

    trace(collector, tmp_path, work)

    assert collector.one("store.summarize").attributes == {
        "memory.session.message_count": 1,
        "memory.summary.length": len(told),
    }


def test_an_error_in_a_transaction_marks_every_span_on_its_way(
    collector: Collector, tmp_path: Path
) -> None:
    async def work(telemetry: Telemetry, engine: Engine) -> None:
        with telemetry.operation("get_observation", {}):
            await engine.read(ADA, get, MemoryId(7))

    with pytest.raises(NotFound):
        trace(collector, tmp_path, work)

    ended = [(s.name, s.failed, s.attributes["error.type"]) for s in collector.spans]
    assert ended == [
        ("store.get", True, "not_found"),
        ("memory.get_observation", True, "not_found"),
    ]


def test_an_error_in_a_step_marks_the_step_too(collector: Collector, tmp_path: Path) -> None:
    def again(tx: Transaction, memory: Memory) -> None:
        tx[MemoryTable].insert(memory)

    async def work(_: Telemetry, engine: Engine) -> None:
        one = await saved(engine, draft("a fact"))
        await engine.read(OPERATOR, again, one.memory)

    with pytest.raises(Unavailable):
        trace(collector, tmp_path, work)

    assert [span.name for span in collector.spans if span.failed] == ["store.insert", "store.again"]


def test_the_steps_of_a_long_transaction_are_bounded(collector: Collector, tmp_path: Path) -> None:
    def many(tx: Transaction) -> None:
        for number in range(MOST_STEPS + 1):
            save(tx, draft(f"fact {number}"), timedelta(0))

    async def work(_: Telemetry, engine: Engine) -> None:
        await engine.write(OPERATOR, many)
        assert (await engine.read(ADA, totals, DEMO)).memories == MOST_STEPS + 1

    trace(collector, tmp_path, work)

    assert len(collector.children(collector.one("store.many"))) == MOST_STEPS
