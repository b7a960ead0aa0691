"""The options that commands share, each declared once."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..settings.settings import VARIABLES

URL, KEY, PROJECT = "MEMORY_URL", "MEMORY_API_KEY", "MEMORY_PROJECT"

T = TypeVar("T")
Command = Callable[..., Any]


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
                )(command)
        return command

    return decorated


def target_options(command: Command) -> Command:
    """The options that say where the memories are: at a service, or in the file of a tenant."""
    return url_option(key_file_option(setting_options("db_path")(file_tenant_option(command))))


def service_options(command: Command) -> Command:
    """The options of a command for operators that a running service has a route for."""
    url = click.option("--url", metavar="URL", help="A running service, instead of its files here.")
    return url(key_file_option(command))


def without_route(command: Command) -> Command:
    """Refuse the options of a service for a command that it has no route for."""

    def refuse(context: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(
                f"The service has no route for `{context.command_path}`: leave out "
                f"{option.opts[0]}, and run it where the service keeps its data.",
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
    return click.option("--json", "as_json", is_flag=True, help=help)


def tenant_option(help: str) -> Callable[[Command], Command]:  # noqa: A002 - click's
    return click.option("--tenant", default="default", show_default=True, help=help)


url_option = click.option(
    "--url", metavar="URL", help=f"A running service; its key is in {KEY}. [{URL}]"
)
key_file_option = click.option(
    "--key-file", metavar="FILE", help=f"The file with the key of the service. [default: {KEY}]"
)
file_tenant_option = click.option("--tenant", metavar="NAME", help="Whose file. [default: default]")
project_option = click.option(
    "--project", metavar="NAME", envvar=PROJECT, help=f"Which project. [{PROJECT}]"
)
scope_option = click.option(
    "--tenant", "tenants", metavar="NAME", multiple=True, help="Only this one; repeatable."
)
force_option = click.option("--force", is_flag=True, help="Write over a file that is there.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Tell what would be done, and do nothing."
)
yes_option = click.option("--yes", "is_meant", is_flag=True, help="Do not ask.")
