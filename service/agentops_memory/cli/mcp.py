"""`mcp`: an agent's host starts it, and speaks to it through standard input and output."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..answers.port import MemoryService
from ..compose import opened_here
from ..domain.errors import Refusal
from ..domain.model import TenantId
from ..domain.text import clean, project_name
from ..mcp.stdio import speak
from ..settings import Settings
from ..telemetry import Telemetry, configure_logging

REFUSALS = (Refusal,)


def run(place: Settings, *, project: str, url: str | None, tenant: str) -> None:
    """Speak until the host ends it; raises one of REFUSALS when it cannot start."""
    configure_logging(place.log_level.upper(), sys.stderr)
    asyncio.run(_spoken(place, project_name(clean(project)), url, TenantId(tenant)))


async def _spoken(place: Settings, project: str, url: str | None, tenant: TenantId) -> None:
    telemetry = Telemetry.started(place.otlp_endpoint, place.otlp_protocol)
    try:
        async with _service(place, url, tenant, telemetry) as service:
            await speak(service, project, place.profile)
    finally:
        telemetry.stop()


@asynccontextmanager
async def _service(
    place: Settings, url: str | None, tenant: TenantId, telemetry: Telemetry
) -> AsyncIterator[MemoryService]:
    async with opened_here(place, telemetry, tenant) as service:
        yield service
