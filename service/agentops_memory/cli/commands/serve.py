"""`serve`: the event loop, the log, and the service in it."""

import asyncio

import click

from ...settings.settings import settings
from ..options import setting_options


@click.command()
@setting_options()
def serve(**flags: str | None) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Each option can also be set by the environment variable that is named
    after it. Options come before variables, variables before defaults, and an
    empty value is an unset one.
    """
    chosen = settings(flags=flags)
    # Not at the top: the help would take five times as long.
    from ...server import serve as served  # noqa: PLC0415
    from ...storage.sqlite.base.library import without_memory_statistics  # noqa: PLC0415
    from ...telemetry import configure_logging  # noqa: PLC0415

    configure_logging(chosen.log_level.upper())
    without_memory_statistics()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(served(chosen))


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - absent where it does not build
    except ImportError:
        return None
    return uvloop.Loop
