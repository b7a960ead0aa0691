"""The commands and their options, read from the one table of settings."""

import io
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from .. import __version__
from ..domain.errors import SettingRefused
from ..settings.settings import VARIABLES, Settings, settings
from .commands import demo as demonstration
from .commands import health as probe
from .commands.backup import backup
from .commands.completion import NAME, completion
from .commands.keys import keys
from .commands.memories import context, history, save, search, sessions, stats, timeline
from .commands.projects import projects
from .commands.restore import restore
from .commands.tenants import tenants
from .commands.transfer import export, import_
from .errors import INTERRUPTED, READER_GONE, TERMINATED, NoMcp, fail, failures
from .excepthook import log_uncaught
from .service_files import of_the_file, refusals
from .sigterm import Terminated, terminable
from .target import KEY, PROJECT, URL, Reach, of_a_service, of_a_tenant

ABOUT_ITSELF = ("--help", "-h", "--version")


class _ServeByDefault(click.Group):
    """A group that serves when no command is named; a command may follow its options."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Be the program of this process."""
        log_uncaught()
        return super().__call__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # A shell that completes asks for commands while none is named.
        is_asked = ctx.resilient_parsing and not args
        return super().parse_args(ctx, args if is_asked else _command_first(args))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader that has left and signals end it in the way of shells."""
        try:
            with terminable():
                return super().invoke(ctx)
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
        _take_any_letter()
        try:
            return super().main(*args, **{"prog_name": NAME, **kwargs})
        except OSError as error:  # standard output is full or closed
            _refuse(error)
        finally:
            _drop_unwritten_output()


@click.group(
    cls=_ServeByDefault,
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
    if args and args[0] in ABOUT_ITSELF:
        return args
    place = 0
    while place < len(args) and args[place].startswith("-"):
        has_value = "=" not in args[place] and args[place] not in ABOUT_ITSELF
        place += 2 if has_value else 1
    if place >= len(args):
        return ["serve", *args]
    return [args[place], *args[:place], *args[place + 1 :]]


def _take_any_letter() -> None:
    """Let an output that has no UTF-8 spell out what it cannot show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="backslashreplace")


def _drop_unwritten_output() -> None:
    """Leave nothing to Python's own last flush, whose failure has words and an exit code."""
    with suppress(OSError, ValueError, AttributeError):  # closed, replaced, or never open
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_options = of_the_file(*(variable.field for variable in VARIABLES))
_options_of_agents = of_the_file(
    "db_path", "allow_network_fs", "redaction_file", "tenant_quota", "dedupe_window",
    "recall_limit", "recall",
    "tools", "context_limit", "auto_summarize", "auto_save", "auto_search",
    "log_level", "otlp_endpoint", "otlp_protocol",
)  # fmt: skip


def _settings(flags: dict[str, str | None]) -> Settings:
    try:
        return settings(flags=flags)
    except SettingRefused as refusal:
        _refuse(refusal)


def _refuse(refusal: Exception) -> NoReturn:
    click.echo(f"{NAME}: {refusal}", err=True)
    sys.exit(1)


@main.command(short_help="Run the service (the default).")
@_options
def serve(**flags: str | None) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Each option can also be set by the environment variable that is named
    after it. Options come before variables, variables before defaults, and an
    empty value is an unset one.
    """
    # Not at the top: the other commands would take three times as long and 40 MiB more.
    from .commands import serve as service  # noqa: PLC0415

    try:
        service.run(_settings(flags))
    except service.REFUSALS as refusal:
        _refuse(refusal)


@main.command(short_help="Show a running service at work.")
@click.option(
    "--url",
    metavar="URL",
    envvar=URL,
    default="http://127.0.0.1:7437",
    show_default=True,
    help=f"Where the service is; its key is in {KEY}. [{URL}]",
)
def demo(url: str) -> None:
    """Save a small session through the running service, and show the context it gives."""
    try:
        demonstration.run(url)
    except demonstration.DemoFailed as failure:
        _refuse(failure)


@main.command(short_help="Give an agent the memories of a project, through MCP.")
@click.option(
    "--project",
    metavar="NAME",
    envvar=PROJECT,
    required=True,
    help=f"The project that the agent works on. [{PROJECT}]",
)
@of_a_service
@of_a_tenant
@_options_of_agents
def mcp(project: str, url: str | None, tenant: str | None, **flags: str | None) -> None:
    """Speak MCP through standard input and output, until the input ends.

    An agent's host starts it; nothing else is written to the output, and the
    log goes to standard error. Without a URL it works on the database file
    itself, which a service may be using meanwhile.
    """
    reach = Reach.of({"url": url, "tenant": tenant, "db_path": flags["db_path"]})
    # Not at the top, as above.
    try:
        from .commands import mcp as agents  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        fail(NoMcp("Speaking MCP needs the package mcp, version 2."))
    with failures():
        agents.run(settings(flags=flags), reach, project=project)


@main.command(short_help="Look at the full-text index of a file, and mend it.")
@_options
@click.option("--check", is_flag=True, help="Compare every word, not only the number of rows.")
@click.option(
    "--rebuild", is_flag=True, help="Build anew: all, or with --check what is found to be wrong."
)
def index(check: bool, rebuild: bool, **flags: str | None) -> None:
    """Look at each partition of the full-text index, while others use the file.

    Exits with 1 if one is out of line with the memories and stays so.
    """
    # Not at the top, as above.
    from .commands import index as upkeep  # noqa: PLC0415

    try:
        is_good = upkeep.run(_settings(flags), check=check, rebuild=rebuild)
    except upkeep.REFUSALS as refusal:
        _refuse(refusal)
    sys.exit(0 if is_good else 1)


@main.command(short_help="Say what is wrong with a service's files, and mend what is safe.")
@_options
@click.option("--tenant", metavar="NAME", help="Whose database; without, every tenant's.")
@click.option("--thorough", is_flag=True, help="Compare every index, row by row and word by word.")
@click.option("--fix", is_flag=True, help="Mend what is safe; without, nothing is changed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(
    tenant: str | None, thorough: bool, fix: bool, as_json: bool, **flags: str | None
) -> None:
    """Look at the settings, the files and the database of each tenant, and say what is wrong.

    A service may be running meanwhile. No row is ever changed. Exits with 1 if
    something failed, and with 0 if there are warnings alone.
    """
    # Not at the top, as above.
    from .commands import doctor as examination  # noqa: PLC0415

    wanted = examination.Wanted(
        tenant=tenant, is_thorough=thorough, is_to_mend=fix, as_json=as_json
    )
    with refusals():
        is_well = examination.run(flags, wanted)
    sys.exit(0 if is_well else 1)


@main.command(short_help="Bring the databases of all tenants up to date.")
@_options
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and try it on a copy.")
def migrate(dry_run: bool, **flags: str | None) -> None:
    """Bring the databases of all tenants up to date, without serving.

    Refused while a service has them. Exits with 1 if one cannot be brought up to date.
    """
    # Not at the top, as above.
    from .commands import migrate as migration  # noqa: PLC0415

    with refusals():
        is_done = migration.run(_settings(flags), dry_run=dry_run)
    sys.exit(0 if is_done else 1)


@main.command(short_help="Find secrets in what is stored, and take them out.")
@_options
@click.option("--tenant", default="default", show_default=True, help="Whose memories.")
@click.option("--redact", is_flag=True, help="Take them out; without, nothing is changed.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each place.")
def scan(tenant: str, redact: bool, as_json: bool, **flags: str | None) -> None:
    """Find secrets in what is stored: in live and deleted memories, revisions and summaries.

    It may run while a service uses the file. Exits with 1 if there are some and they stay.
    """
    # Not at the top, as above.
    from .commands import scan as scanning  # noqa: PLC0415

    try:
        is_clean = scanning.run(_settings(flags), tenant=tenant, redact=redact, as_json=as_json)
    except scanning.REFUSALS as refusal:
        _refuse(refusal)
    sys.exit(0 if is_clean else 1)


@main.command(short_help="Ask whether the service is healthy.")
@_options
def health(**flags: str | None) -> None:
    """Exit with 0 if the service that these settings describe is healthy, else with 1."""
    sys.exit(0 if probe.is_healthy(_settings(flags).listen) else 1)


OF_MEMORIES = (save, search, context, timeline, history, sessions, stats, export, import_)
for command in (*OF_MEMORIES, backup, restore, keys, projects, tenants, completion):
    main.add_command(command)
