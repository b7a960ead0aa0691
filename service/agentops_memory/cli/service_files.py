"""What the commands on a service's files share: where these lie, who runs them, what is refused."""

import os
import pwd
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..domain.errors import Refusal, SettingRefused, Unavailable
from ..domain.text.visible import printable
from ..settings.settings import VARIABLES, Settings, settings

# Imported where it is needed: the other commands would wait for it.
if TYPE_CHECKING:
    from ..files.keys import KeyFile


class CommandRefused(Exception):
    """A command cannot do its work; its text is a sentence."""


def of_the_file(*fields: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of a command that say where the files lie, or any other settings."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for variable in reversed(VARIABLES):
            if variable.field in fields:
                default = variable.default or "unset"
                command = click.option(
                    variable.flag,
                    variable.field,
                    metavar=variable.kind,
                    help=f"{variable.help} [{variable.name}, default: {default}]",
                )(command)
        return command

    return decorated


@contextmanager
def refusals() -> Iterator[None]:
    """Inside, what is refused ends the program with one sentence."""
    try:
        yield
    except (Refusal, SettingRefused, CommandRefused) as refusal:
        say(f"agentops-memory: {refusal}")
        sys.exit(1)


def place_of(files: Mapping[str, str | None]) -> Settings:
    """The settings, with what the options say."""
    return settings(flags=files)


def key_file(place: Settings) -> "KeyFile":
    from ..files.keys import KeyFile  # noqa: PLC0415

    return KeyFile(place.keys_file, place.audit_file)


def require_local_files(place: Settings) -> None:
    """Refuse databases on a file system of several machines with StartRefused."""
    from ..files.file_systems import require_local  # noqa: PLC0415
    from ..storage.sqlite.engine.tenant_files import tenants_of  # noqa: PLC0415
    from ..storage.sqlite.engine.tenants import tenant_file, tenants_folder  # noqa: PLC0415

    path = place.db_path
    for file in (path, tenants_folder(path), *(tenant_file(path, it) for it in tenants_of(path))):
        require_local(file, is_network_allowed=place.allow_network_fs)


def now() -> datetime:
    return datetime.now(UTC)


def user() -> dict[str, object]:
    """Who runs this, as the system knows it; a container may have a user without a name."""
    uid, name = os.getuid(), ""
    with suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
    return {"user": name, "uid": uid}


def make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"The folder {folder} cannot be made: {error.strerror}.") from error


def confirm(question: str) -> None:
    """Go on if that is answered with yes, at a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here; say --yes if that is what you want.")
    if not click.confirm(question, err=True):
        say("Nothing was changed.")
        sys.exit(1)


def say(sentence: str) -> None:
    click.echo(sentence, err=True)


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()
