"""The options that commands share, each declared once."""

from collections.abc import Callable
from typing import Any

import click

from ..settings.settings import VARIABLES

URL, KEY, PROJECT = "MEMORY_URL", "MEMORY_API_KEY", "MEMORY_PROJECT"

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
    return url_option(setting_options("db_path")(file_tenant_option(command)))


def json_option(help: str = "Print JSON.") -> Callable[[Command], Command]:  # noqa: A002 - click's
    return click.option("--json", "as_json", is_flag=True, help=help)


def tenant_option(help: str) -> Callable[[Command], Command]:  # noqa: A002 - click's
    """The tenant of a command on the service's files."""
    return click.option("--tenant", default="default", show_default=True, help=help)


url_option = click.option(
    "--url", metavar="URL", help=f"A running service; its key is in {KEY}. [{URL}]"
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
