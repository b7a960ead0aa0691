"""The commands: what each is called, where it is, and what the help says of it."""

import os
import re
import sys
from importlib import import_module
from typing import Any

import click

from agentops_memory_client.contract.errors import MemoryServiceError

from .. import __version__
from .errors import FAILURES, INTERRUPTED, NAME, READER_GONE, TERMINATED, CommandRefused, fail
from .process import (
    Terminated,
    drop_unwritten_output,
    escape_what_cannot_be_encoded,
    log_uncaught,
    terminable,
)

PASSWORD = re.compile(r"postgres(ql)?://([^\s/@]*:[^\s/@]+@|\S*[?&](ssl)?password=)", re.IGNORECASE)
NO_PASSWORDS = (
    "An argument has the password of a database, and everybody on the machine sees arguments: "
    "change the password, and put the URL into MEMORY_DATABASE_URL."
)
OPTIONS_OF_PROGRAM = ("--help", "-h", "--version")

# name: where it is below commands/, and what the help says of it
COMMANDS = {
    "agents": ("agents:agents", "List, limit, export and erase agents with their memory."),
    "backup": ("backup:backup", "Write all that is kept into one archive."),
    "completion": ("completion:completion", "Print what makes a shell complete this program."),
    "confirm": ("reviews:confirm", "Say that a memory still holds."),
    "context": ("memories:context", "Show what an agent would be reminded of."),
    "copy": ("copy:copy", "Copy what is stored from SQLite to PostgreSQL, or back."),
    "demo": ("demo:demo", "Show a running service at work."),
    "doctor": ("doctor:doctor", "Say what is wrong with a service's files, and mend what is safe."),
    "export": ("transfer:export", "Write all that is stored, as JSON."),
    "health": ("serve:health", "Ask whether the service is healthy."),
    "history": ("memories:history", "Show what changed in a memory."),
    "import": ("transfer:import_", "Store what an export holds."),
    "index": ("maintenance:index", "Look at the full-text index of a file, and mend it."),
    "keys": ("keys:keys", "Make, list, replace and revoke the keys of callers."),
    "mcp": ("mcp:mcp", "Give an agent the memories of a project, through MCP."),
    "migrate": ("maintenance:migrate", "Bring the databases of all tenants up to date."),
    "projects": ("projects:projects", "List, rename, merge and erase projects."),
    "restore": ("restore:restore", "Put back what an archive holds."),
    "review": ("reviews:review", "Show which memories somebody should look at."),
    "save": ("memories:save", "Save a memory."),
    "scan": ("scan:scan", "Find secrets in what is stored, and take them out."),
    "seal": ("seal:seal", "Renew the keys that encrypt confidential values."),
    "search": ("memories:search", "Find memories by words."),
    "serve": ("serve:serve", "Run the service (the default)."),
    "sessions": ("memories:sessions", "Show sessions, newest first."),
    "stats": ("memories:stats", "Show how much is stored."),
    "tenants": ("tenants:tenants", "Make, list, export and erase tenants."),
    "timeline": ("memories:timeline", "Show a memory among its neighbours in time."),
}
OF_MEMORIES = (
    "save", "search", "context", "timeline", "history", "review", "confirm", "sessions",
    "stats", "export", "import",
)  # fmt: skip
WITH_HINTS = (*OF_MEMORIES, "backup", "mcp", "restore")


class LazyCommand(click.Command):
    """A command whose module is imported when it is used, and not when it is listed."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """That of the command itself, which click invokes and completes then."""
        return loaded(str(self.name)).make_context(*args, **kwargs)


def loaded(name: str) -> click.Command:
    """The command of this name, from its module."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    command: click.Command = getattr(import_module(f"{__package__}.commands.{module}"), attribute)
    return command


class _Program(click.Group):
    """A group that serves when no command is named; a command may follow its options."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Be the program of this process."""
        log_uncaught()
        return super().__call__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(map(PASSWORD.search, args)):
            fail(CommandRefused(NO_PASSWORDS), has_hint=False)
        # A shell that completes asks for commands while none is named.
        is_asked = ctx.resilient_parsing and not args
        return super().parse_args(ctx, args if is_asked else _command_first(args))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that has left and signals end it in the way of shells."""
        try:
            with terminable():
                return self._invoke(ctx)
        except BrokenPipeError:
            sys.exit(READER_GONE)
        except Terminated:
            click.echo(f"{NAME}: Stopped.", err=True)
            sys.exit(TERMINATED)
        except (KeyboardInterrupt, click.Abort):
            click.echo(f"\n{NAME}: Stopped.", err=True)
            sys.exit(INTERRUPTED)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FAILURES as error:
            is_of_service = isinstance(error, MemoryServiceError)
            fail(error, has_hint=is_of_service or ctx.invoked_subcommand in WITH_HINTS)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run under our own name, however the program was started."""
        escape_what_cannot_be_encoded()
        try:
            return super().main(*args, **{"prog_name": NAME, **kwargs})
        except OSError as error:  # standard output is full or closed
            fail(error, has_hint=False)
        finally:
            drop_unwritten_output()


@click.group(
    cls=_Program,
    commands=[LazyCommand(name, short_help=text) for name, (_, text) in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Serve's options and their variables: {NAME} serve --help",
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
    place = 0
    while place < len(args) and args[place].startswith("-"):
        has_value = "=" not in args[place] and args[place] not in OPTIONS_OF_PROGRAM
        place += 2 if has_value else 1
    if place >= len(args):
        return ["serve", *args]
    return [args[place], *args[:place], *args[place + 1 :]]
