"""Spans of what happens in a transaction: one a function, one a step that decides something."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sized
from contextvars import copy_context
from functools import partial
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

from opentelemetry.trace import Tracer

from ..engine.engine import Engine, Transaction
from ..engine.maintenance import Maintenance
from ..memory import memories
from ..memory.model.access import Caller
from ..memory.model.memory import Memory, Session
from ..memory.sql.memories import MemoryTable
from ..memory.sql.sessions import SessionTable
from ..openintent.sql.archives import ArchiveTable
from ..openintent.sql.entries import AgentTable
from ..recall import recall
from .spans import Attributes, Telemetry, annotate, span

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Transaction, P], T]

MOST_STEPS = 64  # spans of one transaction; an import would have several for each row


def traced(engine: Engine, telemetry: Telemetry) -> Engine:
    """The engine, with a span for each transaction and for its steps; itself when nothing is sent.

    A transaction's span lasts as long as its caller waits, so it shows the queue
    and the commit too.
    """
    return _TracedEngine(engine, telemetry.tracer) if telemetry.is_sent else engine


class _TracedEngine:
    def __init__(self, engine: Engine, tracer: Tracer) -> None:
        self._engine = engine
        self._tracer = tracer

    async def read(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with span(self._tracer, span_name(work)):
            return await self._engine.read(caller, self._carried(work), *args, **kwargs)

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with span(self._tracer, span_name(work)):
            return await self._engine.write(caller, self._carried(work), *args, **kwargs)

    @property
    def maintenance(self) -> Maintenance:
        return self._engine.maintenance

    def _carried(self, work: Work[P, T]) -> Work[P, T]:
        context = copy_context()  # it travels along, onto the thread of the transaction

        def carried(tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
            traced = cast("Transaction", _TracedTransaction(tx, self._tracer))
            return context.run(work, traced, *args, **kwargs)

        return carried


class _TracedTransaction:
    """Stands for a transaction: the tables in STEPS leave spans."""

    def __init__(self, tx: Transaction, tracer: Tracer) -> None:
        self._tx = tx
        self._tracer = tracer
        self._room = iter(range(MOST_STEPS))

    def __getitem__(self, table: type[T], /) -> T:
        return cast("T", self._traced(self._tx[table], STEPS.get(table)))

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._tx, name)
        return self._traced(part, SEARCHES) if name == "search" else part

    def _traced(self, table: object, steps: Mapping[str, "Step"] | None) -> object:
        return _TracedTable(table, steps, self._tracer, self._room) if steps else table


def span_name(work: Callable[..., object]) -> str:
    return WORK.get(inspect.unwrap(work)) or f"store.{getattr(work, '__name__', 'work')}"


class Step(NamedTuple):
    """A method that leaves a span; `decided` turns its answer and arguments into attributes."""

    span: str
    decided: Callable[..., Attributes]


class _TracedTable:
    def __init__(
        self, table: object, steps: Mapping[str, Step], tracer: Tracer, room: Iterator[int]
    ) -> None:
        self._table = table
        self._steps = steps
        self._tracer = tracer
        self._room = room

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._table, name)
        step = self._steps.get(name)
        return method if step is None else partial(self._run, step, method)

    def _run(self, step: Step, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        if next(self._room, None) is None:
            return method(*args, **kwargs)
        with span(self._tracer, step.span):
            answer = method(*args, **kwargs)
            annotate(step.decided(answer, *args, **kwargs))
            return answer


def _match(found: Memory | None, *_: object, **__: object) -> Attributes:
    return {
        "memory.dedup.matched": found is not None,
        "memory.observation.id": found.id if found else None,
    }


def _found(match: str | None = None) -> Callable[..., Attributes]:
    def found(hits: Sized, *_: object, **__: object) -> Attributes:
        return {"memory.fts.match": match, "memory.search.result_count": len(hits)}

    return found


def _summarized(_: None, session: Session) -> Attributes:
    return {
        "memory.session.message_count": session.message_count,
        "memory.summary.length": len(session.summary),
    }


WORK: Mapping[Callable[..., object], str] = {
    memories.save: "store.add_observation",
    recall.search: "store.search",
    recall.context: "store.fetch_context",
}

STEPS: Mapping[type, Mapping[str, Step]] = {
    AgentTable: {
        "victim": Step(
            "store.evict",
            lambda victim, *_, **__: {"memory.evicted_count": int(victim is not None)},
        )
    },
    ArchiveTable: {
        "add": Step("store.archive", lambda _, pending: {"memory.agent.id": pending.agent})
    },
    MemoryTable: {
        "at_key": Step("store.dedup.topic_key", _match),
        "twin": Step("store.dedup.hash", _match),
        "insert": Step("store.insert", lambda it, *_, **__: {"memory.observation.id": it.id}),
        "pinned": Step("store.pins", _found()),
    },
    SessionTable: {"close": Step("store.summarize", _summarized)},
}

SEARCHES: Mapping[str, Step] = {
    "keyed": Step("store.fts", _found("keyed")),
    "every": Step("store.fts", _found("every")),
    "best": Step("store.fts", _found("best")),
    "backfill": Step("store.backfill", _found()),
    "similar": Step("store.similar", _found()),
}
