"""The options that commands share, each declared once."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ..settings.settings import VARIABLES
from .catalog import SettingOption, is_id
from .output import FileRefused, one_line
from .target import OPTIONS, URL, project_here, run_on_target

if TYPE_CHECKING:
    from agentops_memory_client.contract.service import MemoryService

KEY, PROJECT = "MEMORY_API_KEY", "MEMORY_PROJECT"

T = TypeVar("T")
Command = Callable[..., Any]
flag = partial(click.option, is_flag=True)
SHOWN = 50  # memories among which a shell completes an id
SEEN = 500  # memories whose types are offered


class MemoryId(click.ParamType[int]):
    """The id of a memory: 12, or #12 as lists show it."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(value.removeprefix("#")) if is_id(str(value)) else 0
        if number < 1:
            self.fail(f"{value!r} is not a memory id; an id is a number.", param, ctx)
        return number


def completing(
    work: Callable[["MemoryService", str | None], Awaitable[list[CompletionItem]]],
) -> Callable[..., list[CompletionItem]]:
    """What a shell offers, from the memories that the options name; nothing if they fail."""

    def complete(ctx: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
        where = {name: ctx.params.get(name) for name in OPTIONS}
        project = ctx.params.get("project") or None
        with suppress(Exception):
            items = run_on_target(where, lambda memories: work(memories, project))
            return [it for it in items if it.value.startswith(begun)]
        return []

    return complete


@completing
async def projects(memories: "MemoryService", _: str | None) -> list[CompletionItem]:
    return [CompletionItem(name) for name in (await memories.stats()).projects]


@completing
async def types(memories: "MemoryService", project: str | None) -> list[CompletionItem]:
    recent = await memories.recent(project, limit=SEEN)
    return [CompletionItem(name) for name in sorted({it.type for it in recent})]


@completing
async def ids(memories: "MemoryService", project: str | None) -> list[CompletionItem]:
    recent = await memories.recent(project, limit=SHOWN)
    return [CompletionItem(str(it.id), help=one_line(it.title)) for it in recent]


def setting_options(*fields: str) -> Callable[[Command], Command]:
    """The options of these settings, or of all; the command gets the text of each."""

    def decorated(command: Command) -> Command:
        for variable in reversed(VARIABLES):
            if variable.flag and (variable.field in fields or not fields):
                default = variable.default or "unset"
                command = click.option(
                    variable.flag,
                    variable.field,
                    metavar=variable.kind,
                    help=f"{variable.help} [{variable.name}, default: {default}]",
                    cls=SettingOption,
                )(command)
        return command

    return decorated


def target_options(command: Command) -> Command:
    """The options that say where the memories are: at a service, or in the file of a tenant."""
    return url_option(key_file_option(setting_options("db_path")(file_tenant_option(command))))


def service_options(command: Command) -> Command:
    """The options of a command for operators that a running service has a route for."""
    url = click.option(
        "--url", metavar="URL", help="A running service to use instead of local files."
    )
    return url(key_file_option(command))


def without_route(command: Command) -> Command:
    """Refuse the options of a service for a command that it has no route for."""

    def refuse(context: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(
                f"The service has no route for `{context.command_path}`: omit {option.opts[0]}, "
                "and run it on the machine that has the service's data.",
                context,
            )

    for name in ("--url", "--key-file"):
        # Eager, or else a missing argument would be named first.
        command = click.option(
            name, hidden=True, expose_value=False, is_eager=True, callback=refuse
        )(command)
    return command


def parsed_by(parse: Callable[[str], T]) -> Callable[..., T | None]:
    """The callback of an option whose text is read like that of a setting."""

    def read(context: click.Context, option: click.Parameter, text: str | None) -> T | None:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} {error}.", context, option) from error

    return read


def json_option(help: str = "Print JSON.") -> Callable[[Command], Command]:  # noqa: A002 - click's
    return flag("--json", "as_json", help=help)


def tenant_option(help: str) -> Callable[[Command], Command]:  # noqa: A002 - click's
    return click.option("--tenant", default="default", show_default=True, help=help)


def answer_options(command: Command) -> Command:
    """The options of a command on memories whose answer can be printed as it is."""
    return target_options(json_option("Print the JSON that the REST API returns.")(command))


url_option = click.option(
    "--url", metavar="URL", help=f"Address of a running service; its key is in {KEY}. [{URL}]"
)
key_file_option = click.option(
    "--key-file", metavar="FILE", help=f"A file with the key for the service. [default: {KEY}]"
)
file_tenant_option = click.option(
    "--tenant", metavar="NAME", help="The tenant to use. [default: default]"
)


def to_option(metavar: str, help: str) -> Callable[[Command], Command]:  # noqa: A002 - click's
    """Where something is written, which must have a name."""

    def named(context: click.Context, _: click.Parameter, to: str) -> str:
        if not to:
            raise click.UsageError("--to needs a name.", context)
        return to

    return click.option("--to", metavar=metavar, required=True, help=help, callback=named)


def ids_or_files(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
    return ids(ctx, param, begun) or [CompletionItem(begun, type="file")]


def _project_here() -> str | None:
    """The project of the folder; none while a shell completes where it cannot be read."""
    try:
        return project_here()
    except FileRefused:
        if click.get_current_context().resilient_parsing:
            return None
        raise


project_option = click.option(
    "--project", metavar="NAME", envvar=PROJECT, shell_complete=projects,
    help=f"Only this project. [{PROJECT}, default: all projects]",
)  # fmt: skip
here_option = click.option(
    "--project", metavar="NAME", envvar=PROJECT, default=_project_here, shell_complete=projects,
    help=f"The project; '' means all. [{PROJECT}, default: the current repository's]",
)  # fmt: skip
type_option = click.option("--type", metavar="TYPE", shell_complete=types, help="Only this type.")
id_argument = click.argument("memory", metavar="ID", type=MemoryId(), shell_complete=ids)
ids_argument = click.argument(
    "memories", metavar="ID...", type=MemoryId(), nargs=-1, required=True, shell_complete=ids
)
limit_option = partial(
    click.option, "--limit", type=click.IntRange(1, 1000), show_default=True,
    help="Maximum number of rows.",
)  # fmt: skip
excluded_option = click.option(
    "--exclude-type", "exclude_types", multiple=True, metavar="TYPE", shell_complete=types,
    help="Not this type; may be repeated.",
)  # fmt: skip
tag_option = click.option("--tag", metavar="TAG", help="Only memories with this tag.")
scope_name_option = click.option(
    "--scope", metavar="NAME",
    help="Only this scope; global means the memories shared by all projects.",
)  # fmt: skip
scope_option = click.option(
    "--tenant", "tenants", metavar="NAME", multiple=True, help="Only this one; may be repeated."
)
force_option = flag("--force", help="Overwrite an existing file.")
dry_run_option = flag("--dry-run", help="Show what would be done, and change nothing.")
yes_option = flag("--yes", "is_meant", help="Do not ask.")


def careful_options(command: Command) -> Command:
    """The options of a command that cannot be undone."""
    return dry_run_option(yes_option(json_option()(command)))
