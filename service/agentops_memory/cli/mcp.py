"""`mcp`: an agent's host starts it, and speaks to it through standard input and output."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..answers.errors import MemoryServiceError, Misconfigured
from ..answers.port import MemoryService
from ..compose import opened_here
from ..domain.errors import Invalid, Refusal
from ..domain.model import DEFAULT_TENANT, TenantId
from ..domain.tenants import tenant_id
from ..domain.text import clean, project_name
from ..mcp.stdio import speak
from ..settings import Settings
from ..storage.redaction_file import RedactionFileRefused
from ..storage.sqlite.migrate import StartRefused
from ..telemetry import Telemetry, configure_logging
from .databases import require_usable
from .reach import Reach

REFUSALS = (Refusal, MemoryServiceError, RedactionFileRefused, StartRefused)


def run(place: Settings, reach: Reach, *, project: str) -> None:
    """Speak until the host ends it; raises one of REFUSALS when it cannot start."""
    name, tenant = project_name(clean(project)), tenant_id(reach.tenant or DEFAULT_TENANT)
    if not name:
        raise Invalid("validation failed: project is required")
    # Python would wait for a line of the input first; what is not answered is not promised.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    configure_logging(place.log_level.upper(), sys.stderr)
    asyncio.run(_spoken(place, name, reach.url, tenant))


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
    """A running service at the URL; the database file itself if there is none."""
    if url is None:
        require_usable(place, tenant)
        async with opened_here(place, telemetry, tenant) as here:
            yield here
    else:
        # Not at the top: a file needs no HTTP.
        try:
            from ..client import AsyncMemoryClient  # noqa: PLC0415
        except ImportError as error:
            raise Misconfigured(str(error)) from error

        async with AsyncMemoryClient.from_environment(url=url) as there:
            yield there
