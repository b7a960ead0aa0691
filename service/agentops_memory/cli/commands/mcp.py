"""`mcp`: an agent's host starts it, and speaks to it through standard input and output."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agentops_memory_client.contract.port import MemoryService

from ...compose import opened_here
from ...domain.errors import Invalid
from ...domain.model.space import project_name
from ...domain.text.normalization import clean
from ...mcp.stdio import speak
from ...settings.settings import Settings
from ...telemetry import Telemetry, configure_logging
from ..target import Reach, service_at, usable_file


def run(place: Settings, reach: Reach, *, project: str) -> None:
    """Speak until the host ends it; raises a refusal with a sentence when it cannot start."""
    name = project_name(clean(project))
    if not name:
        raise Invalid("validation failed: project is required")
    # Python would wait for a line of the input first; what is not answered is not promised.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    configure_logging(place.log_level.upper(), sys.stderr)
    asyncio.run(_spoken(place, reach, name))


async def _spoken(place: Settings, reach: Reach, project: str) -> None:
    telemetry = Telemetry.started(place.otlp_endpoint, place.otlp_protocol)
    try:
        async with _reached(place, reach, telemetry) as service:
            await speak(service, project, place.profile)
    finally:
        telemetry.stop()


@asynccontextmanager
async def _reached(
    place: Settings, reach: Reach, telemetry: Telemetry
) -> AsyncIterator[MemoryService]:
    """As any command reaches memories; but logged and traced, and the file may be made."""
    if reach.url is not None:
        async with service_at(reach.url) as there:
            yield there
    else:
        tenant, _ = usable_file(place, reach.tenant, may_make=True)
        async with opened_here(place, telemetry, tenant) as here:
            yield here
