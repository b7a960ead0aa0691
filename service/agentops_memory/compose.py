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
from .settings import Settings
from .storage.sqlite import SqliteEngine
from .telemetry import Telemetry


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


@asynccontextmanager
async def opened(
    settings: Settings, telemetry: Telemetry, *, clock: Callable[[], datetime] = utc_now
) -> AsyncIterator[Starlette]:
    """The application over its open database."""
    async with SqliteEngine.opened(settings.db_path, clock=clock) as sqlite:
        engine = telemetry.engine(sqlite)
        agentops = AgentOps(
            memories=Memories(engine=engine, dedupe_window=settings.dedupe_window),
            sessions=Sessions(engine=engine),
            recall=Recall(engine=engine),
            transfer=Transfer(engine=engine),
            clock=clock,
            max_upload=settings.max_upload,
            folder=settings.db_path.parent,
        )
        yield application(operations(agentops), routes(agentops, telemetry))
