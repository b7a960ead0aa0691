"""`keys`: the keys of callers, made and ended at the terminal. A secret is shown once."""

import json
import os
import pwd
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..domain.errors import Refusal, Unavailable
from ..setting_kinds import duration
from ..settings import VARIABLES, SettingRefused, Settings, settings

# The rest is imported by the commands that need it: the other commands would wait for it.
if TYPE_CHECKING:
    from ..domain.keys import Key
    from ..domain.model import TenantId
    from ..storage.key_file import KeyFile

ROLES = ("reader", "writer", "admin")
HEADINGS = ("ID", "NAME", "TENANT", "ROLE", "PROJECTS", "CREATED", "STATE")


@click.group(short_help="Make, list, replace and revoke the keys of callers.")
def keys() -> None:
    """Make, list, replace and revoke the keys of callers.

    With the first key the service is closed: every request needs one, and a
    change holds from the next request on, without a restart. The keys lie in a
    file beside the database; every change adds a line to the audit file there.
    """


def _of_the_file(command: Callable[..., Any]) -> Callable[..., Any]:
    for variable in reversed(VARIABLES):
        if variable.field in ("db_path", "keys_file"):
            command = click.option(
                variable.flag,
                variable.field,
                metavar=variable.kind,
                help=f"{variable.help} [{variable.name}, default: {variable.default or 'unset'}]",
            )(command)
    return command


def _read_duration(context: click.Context, option: click.Parameter, text: str) -> timedelta:
    try:
        return duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}.", context, option) from error


@keys.command(short_help="Make a key and print it, once.")
@_of_the_file
@click.option("--name", required=True, help="What or whom the key is for.")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it allows.")
@click.option("--tenant", default="default", show_default=True, help="Whose memories it opens.")
@click.option(
    "--project",
    "projects",
    metavar="PATTERN",
    multiple=True,
    default=("*",),
    help="A project that it acts on, such as billing or billing-*; may be repeated. [default: *]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the key with its record, as JSON.")
def create(
    name: str, role: str, tenant: str, projects: Sequence[str], as_json: bool, **files: str | None
) -> None:
    """Make a key and print it, once: only a digest is kept.

    \b
    Standard output is the key alone, so that it can be assigned:
    KEY=$(agentops-memory keys create --name ci --role writer)
    """
    from ..domain.access import Role, patterns  # noqa: PLC0415
    from ..domain.keys import issued  # noqa: PLC0415
    from ..domain.tenants import tenant_id  # noqa: PLC0415
    from ..domain.text import clean  # noqa: PLC0415

    with _refusals():
        chosen = patterns(tuple(map(clean, projects)))
        key, token = issued(name, tenant_id(tenant), Role(role), chosen, _now())
        place = _settings(files)
        _make(place.db_path.parent)
        is_first = _key_file(place).create(key, at=_now(), by=_user())
    _explain(key, place, is_first=is_first)
    click.echo(json.dumps({**_shown(key), "key": token}) if as_json else token)


@keys.command("list", short_help="Show the keys, without their secrets.")
@_of_the_file
@click.option("--all", "with_revoked", is_flag=True, help="Show the revoked ones, too.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_(with_revoked: bool, as_json: bool, **files: str | None) -> None:
    """Show the keys, without their secrets."""
    with _refusals():
        place = _settings(files)
        ring = _key_file(place).ring()
    if not ring.was_ever_used:
        _say(f"No key was ever made: there is none in {place.keys_file}.")
    every = ring.keys.values()
    shown = [_shown(key) for key in every if with_revoked or key.revoked_at is None]
    table = [json.dumps(shown)] if as_json else _table([HEADINGS, *map(_row, shown)])
    for line in table:
        click.echo(line)


@keys.command(short_help="Let a key open nothing any more.")
@_of_the_file
@click.argument("id")
def revoke(id: str, **files: str | None) -> None:  # noqa: A002 - named in the help
    """Let the key with this ID open nothing any more, from the next request on."""
    from ..domain.model import KeyId  # noqa: PLC0415

    with _refusals():
        key = _key_file(_settings(files)).revoke(KeyId(id), at=_now(), by=_user())
    click.echo(f"Key {key.id} ({key.name}) is revoked.")


@keys.command(short_help="Give a key a new secret and print it, once.")
@_of_the_file
@click.argument("id")
@click.option(
    "--keep-old",
    metavar="DURATION",
    default="0",
    callback=_read_duration,
    help="How long the old secret works on, such as 1h. [default: 0, not at all]",
)
def rotate(id: str, keep_old: timedelta, **files: str | None) -> None:  # noqa: A002 - as above
    """Give the key with this ID a new secret and print the new key, once."""
    from ..domain.model import KeyId  # noqa: PLC0415

    at = _now()
    with _refusals():
        file = _key_file(_settings(files))
        key, token = file.rotate(KeyId(id), keep_old, at=at, by=_user())
    end = f"until {_rendered(at + keep_old)}" if keep_old else "no more"
    _say(f"Key {key.id} ({key.name}) has a new secret, shown this once. The old one works {end}.")
    click.echo(token)


@keys.command(short_help="Forget all keys, and open the service again.")
@_of_the_file
@click.option("--open", "is_meant", is_flag=True, help="Say that the service shall be open.")
def reset(is_meant: bool, **files: str | None) -> None:
    """Forget all keys, revoked ones too, as if none had ever been made.

    The service is then open to everybody where that is allowed: on a loopback
    address, or with MEMORY_AUTH=none.
    """
    if not is_meant:
        raise click.UsageError(
            "This forgets all keys and opens the service to callers without one. "
            "Say --open if that is what you want."
        )
    with _refusals():
        count = _key_file(_settings(files)).reset(at=_now(), by=_user())
    click.echo(f"Forgot {count} {'key' if count == 1 else 'keys'}; none is there any more.")


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (Refusal, SettingRefused) as refusal:
        _say(f"agentops-memory: {refusal}")
        sys.exit(1)


def _settings(files: Mapping[str, str | None]) -> Settings:
    return settings(flags=files)


def _key_file(place: Settings) -> "KeyFile":
    from ..storage.key_file import KeyFile  # noqa: PLC0415

    return KeyFile(place.keys_file, place.audit_file)


def _now() -> datetime:
    return datetime.now(UTC)


def _user() -> dict[str, object]:
    """Who runs this, as the system knows it; a container may have a user without a name."""
    uid, name = os.getuid(), ""
    with suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
    return {"user": name, "uid": uid}


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"The folder {folder} cannot be made: {error.strerror}.") from error


def _explain(key: "Key", place: Settings, *, is_first: bool) -> None:
    _say(
        f"Key {key.id} ({key.name}): {key.role} in tenant {key.tenant}, "
        f"projects {_printable(', '.join(key.projects.names))}. It is shown this once."
    )
    if is_first:
        _say("It is the first key: from now on the service answers nobody without one.")
    if key.tenant != "default":
        _note_if_missing(key.tenant, place)


def _note_if_missing(tenant: "TenantId", place: Settings) -> None:
    from ..storage.sqlite.tenants import tenant_file  # noqa: PLC0415

    database = tenant_file(place.db_path, tenant)
    if not database.exists():
        _say(f"Note: the tenant {tenant} has no database yet; it would be {database}.")


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)


def _shown(key: "Key") -> dict[str, object]:
    ends = [secret.until for secret in key.secrets if secret.until is not None]
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "role": key.role,
        "projects": key.projects.names,
        "created_at": _rendered(key.created_at),
        "revoked_at": key.revoked_at and _rendered(key.revoked_at),
        "old_secret_until": _rendered(max(ends)) if ends and max(ends) > _now() else None,
    }


def _row(shown: Mapping[str, Any]) -> tuple[str, ...]:
    state = "works"
    if shown["revoked_at"]:
        state = f"revoked {shown['revoked_at']}"
    elif shown["old_secret_until"]:
        state = f"works, the old secret until {shown['old_secret_until']}"
    fields = (shown[name] for name in ("id", "name", "tenant", "role"))
    return (*fields, ",".join(shown["projects"]), shown["created_at"], state)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    cells = [[_printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(padded).rstrip()


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _rendered(at: datetime) -> str:
    from ..domain.instants import rendered  # noqa: PLC0415

    return rendered(at)
