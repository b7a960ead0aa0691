"""Work under tracing: a traced engine over a file, and a collector that has every span after."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentops_memory.engine.engine import Engine
from agentops_memory.memory.access import Caller
from agentops_memory.memory.memory import Draft, SessionId, Text
from agentops_memory.memory.saves import SAVE, Saved
from agentops_memory.memory.space import Project, Space
from agentops_memory.telemetry import Telemetry, traced

from .engine import opened
from .otlp import COLLECTORS, Collector, grpc_collector

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ADA = Caller()
DEMO = Project("demo")
SPACE = Space(project=DEMO)

TRACE, AGENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{AGENT}-01"

Work = Callable[[Telemetry, Engine], Awaitable[object]]


@pytest.fixture(params=COLLECTORS)
def each_collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    with COLLECTORS[request.param]() as running:
        yield running


@pytest.fixture
def collector() -> Iterator[Collector]:
    with grpc_collector() as running:
        yield running


def trace(collector: Collector, folder: Path, work: Work) -> None:
    """Do the work; when it is done or has failed, the collector has its spans."""

    async def main() -> None:
        async with opened(folder / "memory.db", clock=lambda: NOW) as engine:
            await work(telemetry, traced(engine, telemetry))

    telemetry = Telemetry.started(collector.endpoint, collector.protocol)
    try:
        asyncio.run(main())
    finally:
        telemetry.stop()


async def saved(engine: Engine, draft: Draft) -> Saved:
    return await engine.write(ADA, SAVE, draft, timedelta(minutes=15))


def draft(content: str, key: str | None = None) -> Draft:
    text = Text(type="discovery", title=content, content=content)
    return Draft(session=SessionId("s1"), space=SPACE, text=text, key=key)
