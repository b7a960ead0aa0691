"""`serve`: the event loop, the log, and the service in it."""

import asyncio

from ...domain.errors import SettingRefused
from ...files.keys import KeyFileRefused
from ...files.redaction import RedactionFileRefused
from ...server import serve
from ...settings.settings import Settings
from ...storage.sqlite.base.library import without_memory_statistics
from ...storage.sqlite.schema.migrate import StartRefused
from ...telemetry import configure_logging

REFUSALS = (SettingRefused, StartRefused, KeyFileRefused, RedactionFileRefused)


def run(settings: Settings) -> None:
    """Serve until told to stop; raises one of REFUSALS when it cannot start."""
    configure_logging(settings.log_level.upper())
    without_memory_statistics()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings))


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - absent where it does not build
    except ImportError:
        return None
    return uvloop.Loop
