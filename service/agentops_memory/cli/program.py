"""The program: the table of commands, their help, signals, and uncaught errors."""

import io
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import click

from agentops_memory_client.contract.models import MemoryServiceError

from .. import __version__
from ..errors import message_of, trace
from . import output as out
from .output import NAME


class Entry(NamedTuple):
    module: str  # in commands/
    help: str
    example: str = ""  # arguments of an example


GROUPS: Mapping[str, Mapping[str, Entry]] = {
    "Memories": {
        "save": Entry("memories", "Save a memory.", '"Orders go through a queue."'),
        "search": Entry("memories", "Find memories by words.", "where do orders go"),
        "context": Entry("memories", "Preview the context an agent would get.",
                         '"Why is the order late?"'),
        "list": Entry("memories", "List memories, newest first.", "--type decision"),
        "show": Entry("memories", "Show a memory in full.", "12"),
        "edit": Entry("memories", "Change a memory.", '12 --title "Two queues"'),
        "delete": Entry("memories", "Delete memories; `restore` brings them back.", "12"),
        "restore": Entry("backup", "Restore a deleted memory, or a whole archive.", "12"),
        "pin": Entry("memories", "Pin memories to the top of every context.", "12"),
        "unpin": Entry("memories", "Unpin memories.", "12"),
        "supersede": Entry("memories", "Replace a memory with another, and keep both.",
                           '12 "Orders go through two queues."'),
        "confirm": Entry("memories", "Confirm that memories are still true.", "12"),
        "review": Entry("memories", "Show which memories need a review."),
        "history": Entry("memories", "Show what changed in a memory.", "12"),
        "timeline": Entry("memories", "Show the memories saved before and after a memory.", "12"),
        "sessions": Entry("memories", "List sessions, newest first."),
        "stats": Entry("memories", "Count stored memories and sessions."),
    },
    "Agents": {
        "mcp": Entry("service", "Serve a project's memories to an agent over MCP."),
        "demo": Entry("service", "Try out a running service with sample memories."),
    },
    "Operations": {
        "serve": Entry("service", "Run the service (the default).", "--listen :7437"),
        "status": Entry("service", "Show whether the service is running and what it stores."),
        "open": Entry("service", "Open the API documentation in a browser."),
        "health": Entry("service", "Exit with 0 if the service is healthy."),
        "doctor": Entry("databases", "Check the data files, and fix what can be fixed safely.",
                        "--fix"),
        "backup": Entry("backup", "Back up all data to one archive.", "--to memory.zip"),
        "export": Entry("transfer", "Export all memories as JSON.", "memories.json"),
        "import": Entry("transfer", "Import memories from an export.", "memories.json"),
        "copy": Entry("databases", "Copy all data from SQLite to PostgreSQL, or back.",
                      "--to postgresql"),
        "migrate": Entry("databases", "Upgrade the databases to the current format.", "--dry-run"),
        "index": Entry("databases", "Check the full-text index of a file, and rebuild it.",
                       "--check"),
        "scan": Entry("databases", "Find secrets in stored data, and remove them.", "--redact"),
    },
    "Administration": {
        "keys": Entry("keys", "Create, list, rotate and revoke API keys.",
                      "create --name ci --role writer"),
        "projects": Entry("projects", "List, rename, merge and erase projects.", "list"),
        "tenants": Entry("keys", "Create, list and erase tenants.", "create acme"),
        "agents": Entry("projects", "List, limit, export and erase agents and their memory.",
                        "list"),
        "seal": Entry("keys", "Rotate the keys that encrypt confidential values.", "rotate"),
    },
}  # fmt: skip
COMMANDS: Mapping[str, Entry] = {
    name: entry for entries in GROUPS.values() for name, entry in entries.items()
}
OF_MEMORIES = (*GROUPS["Memories"], "export", "import")

SIMILAR = 0.75  # difflib ratio of a misspelling; `--content` is not `--tenant`
BASIC_SETTINGS = ("listen", "db_path")  # shown by --help, as a first start may need them
TARGET_OPTIONS = ("url", "key_file", "db_path", "tenant")


class SettingOption(click.Option):
    """An option that is also a setting of the service; only --help-all shows it."""


class Documented(click.Command):
    """A command whose help has an example, its own options, and then those of the target."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        if any(_section(it) == "Settings" for it in params):
            params.append(_HELP_ALL)
        return params

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            written = error.option_name
            options = [name for it in self.get_params(ctx) if isinstance(it, click.Option)
                       for name in it.opts if not it.hidden]  # fmt: skip
            sentence = f"No such option '{written}'.{did_you_mean(written, options)}"
            if written in ("--url", "--key-file") and "--db" in options:
                end = f"omit {written}, and run it on the machine that has the service's data."
                sentence = f"The service has no route for `{ctx.command_path}`: {end}"
            raise click.UsageError(sentence, ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        is_below_program = ctx.parent is not None and ctx.parent.parent is None
        if entry := COMMANDS.get(ctx.info_name or "") if is_below_program else None:
            with formatter.section("Example"):
                formatter.write_text(f"{NAME} {ctx.info_name} {entry.example}")
        is_all = bool(ctx.meta.get(NAME))
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Where": [], "Settings": []}
        for param in self.get_params(ctx):
            section = _section(param)
            record = param.get_help_record(ctx)
            if record and record[1] and (is_all or section != "Settings"):
                sections[section].append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


class DocumentedGroup(Documented, click.Group):
    """A group with a documented help, which suggests a command for a misspelled name."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            hint = did_you_mean(args[0], self.commands)
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


group = partial(click.group, cls=DocumentedGroup)


def command(
    *params: click.Parameter, of: click.Group | None = None, name: str = "", **attributes: Any
) -> Callable[[Callable[..., None]], click.Command]:
    """Turn a function into a command named after it up to an underscore; add it to group `of`."""

    def declared(run: Callable[..., None]) -> click.Command:
        command = Documented(
            name or run.__name__.partition("_")[0], callback=run, params=[*params],
            **{"help": run.__doc__, **attributes},
        )  # fmt: skip
        if of is not None:
            of.add_command(command)
        return command

    return declared


class LazyCommand(click.Command):
    """A command whose module is imported when it runs, not when it is listed."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Return the context of the real command, so that click invokes and completes that."""
        return loaded(str(self.name)).make_context(*args, **kwargs)


def loaded(name: str) -> click.Command:
    module = vars(import_module(f"{__package__}.commands.{COMMANDS[name].module}"))
    command: click.Command = module.get(f"{name}_") or module[name]  # `import` is a keyword
    return command


def is_id(text: str) -> bool:
    """Whether an argument is a memory id, 12 or #12; a file named 12 is `./12`."""
    return text.removeprefix("#").isascii() and text.removeprefix("#").isdigit()


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Suggest the most similar name with the same first letter, if there is one."""
    letter = word.lstrip("-")[:1]
    candidates = [name for name in names if name.lstrip("-").startswith(letter)]
    [name] = get_close_matches(word, candidates, n=1, cutoff=SIMILAR) or [""]
    return f" Did you mean {name!r}?" if name else ""


def _section(param: click.Parameter) -> str:
    if isinstance(param, SettingOption) and param.name not in BASIC_SETTINGS:
        return "Settings"
    return "Where" if param.name in TARGET_OPTIONS else "Options"


def _help_all(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
    if is_set and not ctx.resilient_parsing:
        ctx.meta[NAME] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_help_all,
    help="Show this help and the service's settings.",
)  # fmt: skip

TIMEOUT = 5  # seconds for cleanup after SIGTERM, which a blocked write could delay forever

log = logging.getLogger(__name__)


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


@contextmanager
def terminable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, but raise Terminated, and exit after TIMEOUT.

    If SIGTERM is ignored or has a handler, nothing changes.
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
    """Log uncaught exceptions and warnings, without their messages, which may quote data.

    Without a configured log, as in most commands, they are written to standard error.
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
    signal.signal(signal.SIGALRM, lambda *_: os._exit(out.TERMINATED))
    signal.alarm(TIMEOUT)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # while the exception propagates
    if callable(interrupt := signal.getsignal(signal.SIGINT)):
        interrupt(signal.SIGINT, frame)  # asyncio's handler cancels the task, which then cleans up
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
PROGRAM_OPTIONS = ("--help", "-h", "--version")

WITH_HINTS = (*OF_MEMORIES, "backup", "mcp", "open", "status")


class _Program(DocumentedGroup):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log_uncaught()
        return super().__call__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(map(PASSWORD.search, args)):
            out.fail(out.CommandRefused(NO_PASSWORDS), has_hint=False)
        # A shell that completes the first word has no command yet.
        if (args[:1] and args[0] in PROGRAM_OPTIONS) or (ctx.resilient_parsing and not args):
            return super().parse_args(ctx, args)
        at = 0  # the index of the command
        while at < len(args) and args[at].startswith("-"):
            at += 1 if "=" in args[at] or args[at] in PROGRAM_OPTIONS else 2
        args = [args[at], *args[:at], *args[at + 1 :]] if at < len(args) else ["serve", *args]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        for name, entries in GROUPS.items():
            with formatter.section(name):
                formatter.write_dl([(it, entry.help) for it, entry in entries.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; after a closed pipe or a signal exit with the code that shells use."""
        try:
            with terminable():
                try:
                    with out.file_errors():
                        return super().invoke(ctx)
                except out.FAILURES as error:
                    name = ctx.invoked_subcommand
                    has_hint = isinstance(error, MemoryServiceError) or name in WITH_HINTS
                    out.fail(error, has_hint=has_hint, is_start=name == "serve")
        except BrokenPipeError:
            sys.exit(out.READER_GONE)
        except Terminated:
            click.echo(f"{NAME}: Stopped.", err=True)
            sys.exit(out.TERMINATED)
        except (KeyboardInterrupt, click.Abort):
            click.echo(f"\n{NAME}: Stopped.", err=True)
            sys.exit(out.INTERRUPTED)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as NAME, no matter how the program was started."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
                stream.reconfigure(errors="backslashreplace")  # escape what the encoding lacks
        try:
            return super().main(*args, **{"prog_name": NAME, **kwargs})
        except OSError as error:  # standard output is full or closed
            out.fail(error, has_hint=False)
        finally:
            # Else Python's final flush fails with its own message and exit code.
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
