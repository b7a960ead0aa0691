"""`python -m tests.openwop.seams`: `serve`, with its options and variables, and the seams."""

import asyncio
import os

import click

from agentops_memory.cli.output import FAILURES, fail
from agentops_memory.cli.target import setting_options

from ... import MACHINE


@click.command(params=setting_options())
def main(**flags: str | None) -> None:
    """Run the service with the conformance seams of OpenWOP until SIGTERM or Ctrl-C."""
    os.environ.update(MACHINE)  # which tests do without; some libraries read it when imported
    from agentops_memory.cli.place import chosen_settings  # noqa: PLC0415
    from agentops_memory.server import serve  # noqa: PLC0415
    from agentops_memory.telemetry import configure_logging  # noqa: PLC0415

    from .application import with_seams  # noqa: PLC0415

    try:
        chosen = chosen_settings(flags)
        configure_logging(chosen.log_level.upper())
        asyncio.run(serve(chosen, with_seams(chosen)))
    except FAILURES as error:
        fail(error, has_hint=False)


if __name__ == "__main__":
    main()
