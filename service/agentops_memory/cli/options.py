"""The parameters that commands share, each declared once."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ..settings.settings import VARIABLES
from .output import FileRefused, one_line
from .program import SettingOption, is_id
from .target import OPTIONS, URL, project_here, run_on_target

if TYPE_CHECKING:
    from agentops_memory_client.contract.service import MemoryService

KEY, PROJECT = "MEMORY_API_KEY", "MEMORY_PROJECT"
COMPLETED = 50  # memories among which a shell completes an id
SAMPLED = 500  # memories whose types are offered

T = TypeVar("T")


class MemoryId(click.ParamType[int]):
    """The id of a memory: 12, or #12 as lists show it."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(value.removeprefix("#")) if is_id(str(value)) else 0
        if number < 1:
            self.fail(f"{value!r} is not a memory id; an id is a number.", param, ctx)
        return number


def option(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, **attributes)


def argument(name: str, **attributes: Any) -> click.Argument:
    return click.Argument([name], **attributes)


flag = partial(option, is_flag=True)


def completing(
    work: Callable[["MemoryService", str | None], Awaitable[list[CompletionItem]]],
) -> Callable[..., list[CompletionItem]]:
    """What a shell offers, from the memories that the options name; nothing if they fail."""

    def complete(ctx: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
        params = {name: ctx.params.get(name) for name in (*OPTIONS, "project")}
        with suppress(Exception):
            items = run_on_target(params, lambda it: work(it, params["project"] or None))
            return [it for it in items if it.value.startswith(begun)]
        return []

    return complete


@completing
async def projects(memories: "MemoryService", _: str | None) -> list[CompletionItem]:
    return [CompletionItem(name) for name in (await memories.stats()).projects]


@completing
async def types(memories: "MemoryService", project: str | None) -> list[CompletionItem]:
    recent = await memories.recent(project, limit=SAMPLED)
    return [CompletionItem(name) for name in sorted({it.type for it in recent})]


@completing
async def ids(memories: "MemoryService", project: str | None) -> list[CompletionItem]:
    recent = await memories.recent(project, limit=COMPLETED)
    return [CompletionItem(str(it.id), help=one_line(it.title)) for it in recent]


def ids_or_files(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    return ids(ctx, param, begun) or [CompletionItem(begun, type="file")]


def setting_options(*fields: str) -> list[click.Option]:
    """The options of these settings, or of all; the command gets the text of each."""
    return [
        SettingOption(
            [it.flag, it.field], metavar=it.kind,
            help=f"{it.help} [{it.name}, default: {it.default or 'unset'}]",
        )
        for it in VARIABLES if it.flag and (it.field in fields or not fields)
    ]  # fmt: skip


def parsed_by(parse: Callable[[str], T]) -> Callable[..., T | None]:
    """The callback of an option whose text is read like that of a setting."""

    def read(context: click.Context, option: click.Parameter, text: str | None) -> T | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} {error}.", context, option) from error

    return read


def _refuse_route(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            f"The service has no route for `{context.command_path}`: omit {option.opts[0]}, "
            "and run it on the machine that has the service's data.",
            context,
        )


def _required_name(context: click.Context, _: click.Parameter, name: str) -> str:
    if not name:
        raise click.UsageError("--to needs a name.", context)
    return name


def _project_here() -> str | None:
    """The project of the folder; none while a shell completes where it cannot be read."""
    try:
        return project_here()
    except FileRefused:
        if click.get_current_context().resilient_parsing:
            return None
        raise


# How a command prints, and what it may do.
json_option = partial(flag, "--json", "as_json", help="Print JSON.")
DRY_RUN = flag("--dry-run", help="Show what would be done, and change nothing.")
CAREFUL = (DRY_RUN, flag("--yes", "is_confirmed", help="Do not ask."), json_option())
FORCE = flag("--force", help="Overwrite an existing file.")
to_option = partial(option, "--to", required=True, callback=_required_name)

# Where the memories are: at a service, or in the file of a tenant.
URL_OPTION = option(
    "--url", metavar="URL", help=f"Address of a running service; its key is in {KEY}. [{URL}]"
)
KEY_FILE = option(
    "--key-file", metavar="FILE", help=f"A file with the key for the service. [default: {KEY}]"
)
TENANT = option("--tenant", metavar="NAME", help="The tenant to use. [default: default]")
TARGET = (URL_OPTION, KEY_FILE, *setting_options("db_path"), TENANT)
# What a command on memories takes whose answer can be printed as it is.
ANSWER = (*TARGET, json_option(help="Print the JSON that the REST API returns."))
# What a command for operators takes that a running service has a route for, and any other.
SERVICE = (
    option("--url", metavar="URL", help="A running service to use instead of local files."),
    KEY_FILE,
)
NO_ROUTE = tuple(  # eager, or else a missing argument would be named first
    option(name, hidden=True, expose_value=False, is_eager=True, callback=_refuse_route)
    for name in ("--url", "--key-file")
)
tenant_option = partial(option, "--tenant", default="default", show_default=True)
TENANTS = option(
    "--tenant", "tenants", metavar="NAME", multiple=True, help="Only this one; may be repeated."
)

# Which memories.
PROJECT_OPTION = option(
    "--project", metavar="NAME", envvar=PROJECT, shell_complete=projects,
    help=f"Only this project. [{PROJECT}, default: all projects]",
)  # fmt: skip
HERE = option(
    "--project", metavar="NAME", envvar=PROJECT, default=_project_here, shell_complete=projects,
    help=f"The project; '' means all. [{PROJECT}, default: the current repository's]",
)  # fmt: skip
ID = argument("memory", metavar="ID", type=MemoryId(), shell_complete=ids)
IDS = argument(
    "memories", metavar="ID...", type=MemoryId(), nargs=-1, required=True, shell_complete=ids
)
TYPE = option("--type", metavar="TYPE", shell_complete=types, help="Only this type.")
FILTERS = (
    option(
        "--exclude-type", "exclude_types", multiple=True, metavar="TYPE", shell_complete=types,
        help="Not this type; may be repeated.",
    ),
    option("--tag", metavar="TAG", help="Only memories with this tag."),
    option(
        "--scope", metavar="NAME",
        help="Only this scope; global means the memories shared by all projects.",
    ),
)  # fmt: skip


def limit(rows: int) -> click.Option:
    return option(
        "--limit", type=click.IntRange(1, 1000), default=rows, show_default=True,
        help="Maximum number of rows.",
    )  # fmt: skip
