"""Spans of what happens in a transaction: one a function, one a step that decides something."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from opentelemetry.trace import Tracer

from ..engine.callbacks import TRACING, Attributes, Tracing, noop
from ..engine.engine import Engine, Transaction
from ..engine.maintenance import Maintenance
from ..memory import saves
from ..memory.model.access import Caller
from ..recall import recall
from .spans import Telemetry, annotate, span

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Transaction, P], T]

MOST_STEPS = 64  # spans of one transaction; an import would have several for each row

WORK: Mapping[Callable[..., object], str] = {
    saves.save: "store.add_observation",
    recall.search: "store.search",
    recall.context: "store.fetch_context",
}


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
        with span(self._tracer, _span_name(work)):
            return await self._engine.read(caller, self._carried(work), *args, **kwargs)

    async def write(self, caller: Caller, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with span(self._tracer, _span_name(work)):
            return await self._engine.write(caller, self._carried(work), *args, **kwargs)

    @property
    def maintenance(self) -> Maintenance:
        return self._engine.maintenance

    def _carried(self, work: Work[P, T]) -> Work[P, T]:
        context = copy_context()  # it travels along, onto the thread of the transaction

        @wraps(work)
        def carried(tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
            context.run(TRACING.set, _steps(self._tracer))
            return context.run(work, tx, *args, **kwargs)

        return carried


def _steps(tracer: Tracer) -> Tracing:
    """The spans of one transaction, until there are as many as it may have."""
    room = iter(range(MOST_STEPS))

    @contextmanager
    def step(name: str) -> Iterator[Callable[[Attributes], None]]:
        if next(room, None) is None:
            yield noop
        else:
            with span(tracer, name):
                yield annotate

    return step


def _span_name(work: Callable[..., object]) -> str:
    return WORK.get(inspect.unwrap(work)) or f"store.{getattr(work, '__name__', 'work')}"
