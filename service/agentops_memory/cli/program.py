"""The program: its command line, its signals, and what it does with uncaught errors."""

import io
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

import click

from agentops_memory_client.contract.errors import MemoryServiceError

from .. import __version__
from ..secrets.sanitizing import message_of, trace
from .catalog import COMMANDS, GROUPS, OF_MEMORIES, SUGGESTED, LazyCommand, SuggestingGroup
from .output import FAILURES, INTERRUPTED, NAME, READER_GONE, TERMINATED, CommandRefused, fail

TIMEOUT = 5  # seconds for the cleanup after SIGTERM, which a blocked write could delay forever

log = logging.getLogger(__name__)


class Terminated(KeyboardInterrupt):
    """SIGTERM has come."""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM acts as Ctrl-C but raises Terminated, and after TIMEOUT ends the process.

    If SIGTERM is ignored, or already handled, nothing changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt as error:
        if signal.getsignal(signal.SIGTERM) is not _terminate:
            raise Terminated from error
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def log_uncaught() -> None:
    """Log uncaught exceptions and warnings, without what their messages quote.

    Where no log is set up, as in most commands, it is on standard error.
    """

    def raised(
        kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not issubclass(kind, Exception):
            sys.__excepthook__(kind, error or kind(), traceback)
        else:
            log.critical("uncaught exception", exc_info=error)

    sys.excepthook = raised
    threading.excepthook = lambda it: raised(it.exc_type, it.exc_value, it.exc_traceback)
    sys.unraisablehook = lambda it: log.critical("exception ignored", exc_info=it.exc_value)
    warnings.showwarning = lambda message, category, filename, lineno, *_: log.warning(  # noqa: ARG005 - it may quote anything
        "%s in %s:%d", category.__name__, filename, lineno
    )
    if logging.lastResort:
        logging.lastResort.setFormatter(_PlainFormatter())


def _terminate(_: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGALRM, lambda *_: os._exit(TERMINATED))
    signal.alarm(TIMEOUT)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until what this raises has passed
    if callable(interrupt := signal.getsignal(signal.SIGINT)):
        interrupt(signal.SIGINT, frame)  # asyncio's cancels what runs, so that it is undone
        return
    raise Terminated


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        return message_of(record) + (f"\n{trace(error).rstrip()}" if error else "")


PASSWORD = re.compile(r"postgres(ql)?://([^\s/@]*:[^\s/@]+@|\S*[?&](ssl)?password=)", re.IGNORECASE)
NO_PASSWORDS = (
    "An argument contains a database password, and every user of the machine can see arguments: "
    "change the password, and put the URL into MEMORY_DATABASE_URL."
)
OPTIONS_OF_PROGRAM = ("--help", "-h", "--version")

WITH_HINTS = (*OF_MEMORIES, "backup", "mcp", "open", "status")


class _Program(SuggestingGroup):
    suggested = SUGGESTED

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log_uncaught()
        return super().__call__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(map(PASSWORD.search, args)):
            fail(CommandRefused(NO_PASSWORDS), has_hint=False)
        # A shell that completes asks for commands while none is named.
        is_completion = ctx.resilient_parsing and not args
        return super().parse_args(ctx, args if is_completion else _command_first(args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        for name, entries in GROUPS.items():
            with formatter.section(name):
                formatter.write_dl([(it, entry.help) for it, entry in entries.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe or a signal ends it with the exit code that shells use."""
        try:
            with terminable():
                try:
                    return super().invoke(ctx)
                except FAILURES as error:
                    name = ctx.invoked_subcommand
                    has_hint = isinstance(error, MemoryServiceError) or name in WITH_HINTS
                    fail(error, has_hint=has_hint, is_start=name == "serve")
        except BrokenPipeError:
            sys.exit(READER_GONE)
        except Terminated:
            click.echo(f"{NAME}: Stopped.", err=True)
            sys.exit(TERMINATED)
        except (KeyboardInterrupt, click.Abort):
            click.echo(f"\n{NAME}: Stopped.", err=True)
            sys.exit(INTERRUPTED)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run under our own name, however the program was started."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
                stream.reconfigure(errors="backslashreplace")  # what it cannot encode is escaped
        try:
            return super().main(*args, **{"prog_name": NAME, **kwargs})
        except OSError as error:  # standard output is full or closed
            fail(error, has_hint=False)
        finally:
            # Python's last flush would fail with a message and an exit code of its own.
            with suppress(OSError, ValueError, AttributeError):  # closed, replaced, or never open
                try:
                    sys.stdout.flush()
                except OSError:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=_Program,
    commands=[LazyCommand(name, short_help=it.help) for name, it in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"All settings: {NAME} serve --help-all. To get started, try {NAME} save.",
)
@click.version_option(__version__, message=f"{NAME} %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """A deterministic full-text memory service for agents.

    Without a command it serves, with serve's options.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False


def _command_first(args: list[str]) -> list[str]:
    if args and args[0] in OPTIONS_OF_PROGRAM:
        return args
    at = 0
    while at < len(args) and args[at].startswith("-"):
        at += 1 if "=" in args[at] or args[at] in OPTIONS_OF_PROGRAM else 2
    if at >= len(args):
        return ["serve", *args]
    return [args[at], *args[:at], *args[at + 1 :]]
