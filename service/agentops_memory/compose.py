"""The wiring: settings in, a running application out, closed in reverse."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from starlette.applications import Starlette

from .api.agentops import AgentOps
from .api.agentops.routes import operations, routes
from .app import application
from .domain.memories import Memories
from .domain.recall import Recall
from .domain.sessions import Sessions
from .domain.transfer import Transfer
from .domain.upkeep import Upkeep
from .settings import Settings
from .storage.sqlite import SqliteEngine
from .sweep import sweeping
from .telemetry import Telemetry


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


@asynccontextmanager
async def opened(
    settings: Settings, telemetry: Telemetry, *, clock: Callable[[], datetime] = utc_now
) -> AsyncIterator[Starlette]:
    """The application over its open database."""
    async with SqliteEngine.opened(settings.db_path, clock=clock, using=settings.recall) as sqlite:
        engine = telemetry.engine(sqlite)
        agentops = AgentOps(
            memories=Memories(engine=engine, dedupe_window=settings.dedupe_window),
            sessions=Sessions(engine=engine),
            recall=Recall(engine=engine, using=settings.recall, patience=settings.recall_limit),
            transfer=Transfer(engine=engine),
            clock=clock,
            max_upload=settings.max_upload,
            folder=settings.db_path.parent,
        )
        upkeep = Upkeep(engine=sqlite)
        async with sweeping(upkeep, telemetry.metrics, settings.sweep_every):
            yield application(operations(agentops), routes(agentops, telemetry))
