"""`keys`: the keys of callers, made and ended at the terminal. A secret is shown once."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from ...memory.model.access import (
    DEFAULT_TENANT,
    KeyId,
    Role,
    agent_patterns,
    new_patterns,
    tenant_id,
)
from ...memory.model.keys import Key, issued
from ...recall.text.instants import rendered
from ...recall.text.normalization import clean
from ...recall.text.visible import printable
from ...settings.parsing import duration
from ..catalog import group
from ..invocation import now, user
from ..options import Command, json_option, parsed_by, setting_options, tenant_option, without_route
from ..output import say
from ..place import Place, place_of
from ..print_results import cells, print_records

HEADINGS = ("ID", "NAME", "TENANT", "ROLE", "PROJECTS", "AGENTS", "CREATED", "STATE")
ROLES = tuple(role.value for role in Role)


def _files(command: Command) -> Command:
    return setting_options("db_path", "keys_file")(without_route(command))


@group()
def keys() -> None:
    """Make, list, replace and revoke the keys of callers.

    With the first key the service is closed: every request needs one, and a
    change holds from the next request on, without a restart. The keys lie in a
    file beside the database; every change adds a line to the audit file there.
    In PostgreSQL both are tables, and a change holds within a second.
    """


@keys.command(short_help="Make a key and print it, once.")
@_files
@click.option("--name", required=True, help="What or whom the key is for.")
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it allows.")
@tenant_option("Whose memories it opens.")
@click.option(
    "--project",
    "projects",
    metavar="PATTERN",
    multiple=True,
    default=("*",),
    help="A project that it acts on, such as billing or billing-*; may be repeated. [default: *]",
)
@click.option(
    "--agent",
    "agents",
    metavar="PATTERN",
    multiple=True,
    help="An agent that it speaks for, such as coder or team-*; may be repeated. [default: none]",
)
@click.option(
    "--coordinator",
    "coordinates",
    is_flag=True,
    help="It may make intents, and let agents coordinate them. An admin's key always may.",
)
@json_option("Print the key with its record, as JSON.")
def create(
    *,
    name: str,
    role: str,
    tenant: str,
    projects: Sequence[str],
    agents: Sequence[str],
    coordinates: bool,
    as_json: bool,
    **files: str | None,
) -> None:
    """Make a key and print it, once: only a digest is kept.

    \b
    Standard output is the key alone, so that it can be assigned:
    KEY=$(agentops-memory keys create --name ci --role writer)
    """
    patterns = new_patterns(tuple(map(clean, projects)))
    key, token = issued(
        name,
        tenant_id(tenant),
        Role(role),
        patterns,
        now(),
        agents=agent_patterns(agents),
        coordinates=coordinates,
    )
    place = place_of(files)
    place.prepare()
    if place.keys.are_lost():
        say("The keys that were made before are lost, and none of them works any more.")
    is_first = place.keys.create(key, at=now(), by=user())
    _explain(key, place, is_first=is_first)
    click.echo(json.dumps({**_shown(key), "key": token}) if as_json else token)


@keys.command("list", short_help="Show the keys, without their secrets.")
@_files
@click.option("--all", "with_revoked", is_flag=True, help="Show the revoked ones, too.")
@json_option("Print a JSON array.")
def list_(with_revoked: bool, as_json: bool, **files: str | None) -> None:
    """Show the keys, without their secrets."""
    place = place_of(files)
    ring = place.keys.ring()
    place.keys.require_kept(ring)
    if not ring.was_ever_used:
        say(f"No key was ever made: there is none in {place.called}.")
    every = ring.keys.values()
    shown = [_shown(key) for key in every if with_revoked or key.revoked_at is None]
    print_records(shown, HEADINGS, _row, as_json=as_json)


@keys.command(short_help="Let a key open nothing any more.")
@_files
@click.argument("id")
def revoke(id: str, **files: str | None) -> None:  # noqa: A002 - named in the help
    """Let the key with this ID open nothing any more, from the next request on."""
    key = place_of(files).keys.revoke(KeyId(id), at=now(), by=user())
    click.echo(f"Key {key.id} ({key.name}) is revoked.")


@keys.command(short_help="Give a key a new secret and print it, once.")
@_files
@click.argument("id")
@click.option(
    "--keep-old",
    metavar="DURATION",
    default="0",
    callback=parsed_by(duration),
    help="How long the old secret works on, such as 1h. [default: 0, not at all]",
)
def rotate(id: str, keep_old: timedelta, **files: str | None) -> None:  # noqa: A002 - as above
    """Give the key with this ID a new secret and print the new key, once."""
    at = now()
    key, token = place_of(files).keys.rotate(KeyId(id), keep_old, at=at, by=user())
    end = f"until {rendered(at + keep_old)}" if keep_old else "no more"
    say(f"Key {key.id} ({key.name}) has a new secret, shown this once. The old one works {end}.")
    click.echo(token)


@keys.command(short_help="Forget all keys, and open the service again.")
@_files
@click.option("--open", "is_meant", is_flag=True, help="Say that the service shall be open.")
def reset(is_meant: bool, **files: str | None) -> None:
    """Forget all keys, revoked and lost ones too, as if none had ever been made.

    The service is then open to everybody where that is allowed: on a loopback
    address, or with MEMORY_AUTH=none.
    """
    if not is_meant:
        raise click.UsageError(
            "This forgets all keys and opens the service to callers without one. "
            "Say --open if that is what you want."
        )
    count = place_of(files).keys.reset(at=now(), by=user())
    click.echo(f"Forgot {count} {'key' if count == 1 else 'keys'}; none is there any more.")


def _explain(key: Key, place: Place, *, is_first: bool) -> None:
    agents = f", agents {', '.join(key.agents.names)}" if key.agents.names else ""
    agents += ", coordinator" if key.coordinates else ""
    say(
        f"Key {key.id} ({key.name}): {key.role} in tenant {key.tenant}, "
        f"projects {printable(', '.join(key.projects.names))}{agents}. It is shown this once."
    )
    if is_first:
        say("It is the first key: from now on the service answers nobody without one.")
    if key.tenant != DEFAULT_TENANT and not place.has(key.tenant):
        name = place.name_of(key.tenant)
        say(f"Note: the tenant {key.tenant} has no database yet; it would be {name}.")


def _shown(key: Key) -> dict[str, object]:
    ends = [secret.until for secret in key.secrets if secret.until is not None]
    return {
        "id": key.id,
        "name": key.name,
        "tenant": key.tenant,
        "role": key.role,
        "projects": key.projects.names,
        "agents": key.agents.names,
        "coordinates": key.coordinates,
        "created_at": rendered(key.created_at),
        "revoked_at": key.revoked_at and rendered(key.revoked_at),
        "old_secret_until": rendered(max(ends)) if ends and max(ends) > now() else None,
    }


def _row(shown: Mapping[str, Any]) -> tuple[str, ...]:
    told = cells(shown)
    state = "works"
    if shown["revoked_at"]:
        state = f"revoked {told['revoked_at']}"
    elif shown["old_secret_until"]:
        state = f"works; the old secret ends {told['old_secret_until']}"
    fields = (shown[name] for name in ("id", "name", "tenant", "role"))
    projects, agents = (",".join(shown[name]) for name in ("projects", "agents"))
    if shown["coordinates"]:
        agents += " (coordinator)"
    return (*fields, projects, agents.strip(), str(told["created_at"]), state)
