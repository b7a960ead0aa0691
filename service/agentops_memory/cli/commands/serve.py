"""`serve` and `health`: the service runs, and a container asks without curl whether it is well."""

import http.client
import logging
import os
import sys
from datetime import timedelta
from typing import Any

from ...settings.settings import settings
from ..catalog import command
from ..errors import fail
from ..options import service_options, setting_options
from ..target import Target

log = logging.getLogger(__name__)

TIMEOUT = 2.0  # seconds


@command()
@setting_options()
def serve(**flags: str | None) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Each option can also be set by the environment variable that is named
    after it. Options come before variables, variables before defaults, and an
    empty value is an unset one. MEMORY_DATABASE_URL, which may hold a password,
    has no option.
    """
    # Not at the top: the help would take five times as long.
    import asyncio  # noqa: PLC0415

    from ...server import serve as served  # noqa: PLC0415
    from ...settings.settings import unknown_variables  # noqa: PLC0415
    from ...sqlite.connection import without_memory_statistics  # noqa: PLC0415
    from ...telemetry import configure_logging  # noqa: PLC0415
    from ..place import chosen_settings  # noqa: PLC0415

    chosen = chosen_settings(flags)
    has_colors = not os.environ.get("NO_COLOR")
    configure_logging(chosen.log_level.upper(), form=chosen.log_format, has_colors=has_colors)
    for name, meant in unknown_variables(os.environ).items():
        if meant:
            fields = {"variable": name, "meant": meant}
            log.warning("a variable is no setting, and changes nothing", extra=fields)
    without_memory_statistics()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(served(chosen))


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415 - absent where it does not build
    except ImportError:
        return None
    return uvloop.Loop


@command()
@service_options
@setting_options()
def health(url: str | None, key_file: str | None, **flags: str | None) -> None:
    """Exit with 0 if a service is healthy, else with 1: that at URL, or that of these settings."""
    if target := Target.of_operator(url, key_file):
        _require_healthy(target)
        return
    address = settings(flags=flags).listen
    host = address.host or "127.0.0.1"
    connection = http.client.HTTPConnection(host, address.port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/health")
        is_healthy = connection.getresponse().status == 200
    except (OSError, UnicodeError, http.client.HTTPException):
        is_healthy = False
    finally:
        connection.close()
    sys.exit(0 if is_healthy else 1)


def _require_healthy(target: Target) -> None:
    from agentops_memory_client import MemoryClient, MemoryServiceError  # noqa: PLC0415 - as above

    try:
        with MemoryClient.from_environment(
            url=target.url, key=target.key, timeout=timedelta(seconds=TIMEOUT), retries=0
        ) as service:
            service.health()
    except MemoryServiceError as error:
        fail(error, has_hint=False)
