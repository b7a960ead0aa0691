"""`mcp`: an agent's host starts it, and speaks to it through standard input and output."""

import asyncio
import signal
import sys
from contextlib import AbstractAsyncContextManager

from agentops_memory_client.contract.service import MemoryService

from ...errors import Invalid
from ...local import opened_here
from ...mcp.stdio import speak
from ...memory.model.space import project_name
from ...recall.text.normalization import clean
from ...settings.settings import Settings
from ...telemetry import Telemetry, configure_logging
from ..catalog import command
from ..errors import file_errors
from ..options import file_tenant_option, here_option, key_file_option, setting_options, url_option
from ..place import chosen_settings, usable
from ..target import Target, service_at


@command()
@here_option
@url_option
@key_file_option
@file_tenant_option
@setting_options(
    "db_path", "allow_network_fs", "redaction_file", "tenant_quota", "dedupe_window",
    "recall_limit", "recall",
    "tools", "context_limit", "auto_summarize", "auto_save", "auto_search",
    "log_level", "log_format", "otlp_endpoint", "otlp_protocol",
)  # fmt: skip
def mcp(
    project: str, url: str | None, key_file: str | None, tenant: str | None, **flags: str | None
) -> None:
    """Speak MCP through standard input and output, until the input ends.

    An agent's host starts it in the folder that the agent works in, whose
    repository is the project. The log goes to standard error. Without a URL it
    works on the database file itself, which a service may be using meanwhile.
    """
    where = {"url": url, "key_file": key_file, "tenant": tenant, "db_path": flags["db_path"]}
    target = Target.of(where)
    with file_errors():
        chosen = chosen_settings(flags)
        name = project_name(clean(project))
        if not name:
            raise Invalid("validation failed: project is required; --project names it.")
        # Python would wait for a line of the input first; what is not answered is not promised.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        configure_logging(chosen.log_level.upper(), sys.stderr, chosen.log_format or "json")
        asyncio.run(_speak(chosen, target, name))


async def _speak(settings: Settings, target: Target, project: str) -> None:
    telemetry = Telemetry.started(settings.otlp_endpoint, settings.otlp_protocol)
    try:
        async with _opened(settings, target, telemetry) as service:
            await speak(service, project, settings.profile)
    finally:
        telemetry.stop()


def _opened(
    settings: Settings, target: Target, telemetry: Telemetry
) -> AbstractAsyncContextManager[MemoryService]:
    """As any command opens memories; but logged and traced, and the file may be made."""
    if target.url is not None:
        return service_at(target)
    _, tenant = usable(target.flags, target.tenant, may_make=True)
    return opened_here(settings, telemetry, tenant)
