"""`tenants`: the databases of tenants, made, listed, exported and erased at the terminal."""

import asyncio
import json
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, BinaryIO

import click

from ...agentops.transfer import Transfer
from ...engine.engine import Engine
from ...errors import NotFound, Refusal, Unavailable
from ...memory.model.access import Caller, TenantId, tenant_id
from ..catalog import group
from ..invocation import now, user
from ..options import (
    Command,
    dry_run_option,
    json_option,
    setting_options,
    without_route,
    yes_option,
)
from ..output import confirm, say
from ..output_file import refuse_own, written
from ..place import Place, on_tenant, place_of
from ..print_results import print_records

HEADINGS = ("TENANT", "BYTES", "OBSERVATIONS", "SESSIONS", "STORES", "KEYS")
COUNTS = ("observations", "sessions", "stores")


def _files(command: Command) -> Command:
    return setting_options("db_path", "keys_file")(without_route(command))


@group()
def tenants() -> None:
    """Make, list, export and erase tenants: each has a database of its own.

    A service may be running meanwhile. What is made and erased adds a line to
    the audit file.
    """


@tenants.command(short_help="Make a tenant's database.")
@_files
@click.argument("name")
def create(name: str, **files: str | None) -> None:
    """Make the database of the tenant NAME."""
    tenant, place = tenant_id(name), place_of(files)
    place.create(tenant)
    click.echo(f"The tenant {tenant} has its database: {place.name_of(tenant)}.")


@tenants.command("list", short_help="Show the tenants.")
@_files
@json_option()
def list_(as_json: bool, **files: str | None) -> None:
    """Show the tenants: what each holds, and the keys that open it.

    Exits with 1 if a database is there that cannot be read.
    """
    place = place_of(files)
    shown = [_shown(tenant, place) for tenant in _every(place)]
    print_records(shown, HEADINGS, _row, as_json=as_json)
    unread = [it["tenant"] for it in shown if it["bytes"] and it["observations"] is None]
    for tenant in unread:
        say(f"agentops-memory: the database of the tenant {tenant} cannot be read.")
    sys.exit(1 if unread else 0)


@tenants.command(short_help="Write all that a tenant has as JSON.")
@_files
@click.argument("name")
@click.option("--to", metavar="FILE", required=True, help="Where to; - is standard output.")
def export(name: str, to: str, **files: str | None) -> None:
    """Write the sessions and live observations of the tenant NAME, as GET /export does.

    The file is there whole or not at all, and for its owner alone to read.
    """
    place = place_of(files)
    if not to:
        raise click.UsageError("--to needs a name.")
    refuse_own(to, place.settings)
    with written(to) as file:
        on_tenant(place, tenant_id(name), partial(_export, file))


@tenants.command(short_help="Erase a tenant for good.")
@_files
@click.argument("name")
@dry_run_option
@yes_option
@json_option()
def erase(name: str, dry_run: bool, is_meant: bool, as_json: bool, **files: str | None) -> None:
    """Revoke every key of the tenant NAME, then remove its database for good.

    The files are removed, not written over: what the disk keeps of them, and
    backups, are beyond this program.
    """
    tenant, place = tenant_id(name), place_of(files)
    plan = _plan(tenant, place)
    if not dry_run:
        if not is_meant:
            confirm(f"Really erase the tenant {tenant}, {_counts(plan)}?")
        plan = _erased(tenant, place, plan)
    if as_json:
        click.echo(json.dumps({**plan, "dry_run": dry_run}))
    else:
        verb = "It would erase" if dry_run else "Erased"
        click.echo(f"{verb} the tenant {tenant}: {_counts(plan)}.")


@tenants.command(short_help="Write a tenant's tables anew.")
@_files
@click.argument("name")
def rewrite(name: str, **files: str | None) -> None:
    """Write the tables of the tenant NAME anew, without what was erased (VACUUM FULL).

    For PostgreSQL alone. Requests of the tenant wait meanwhile, and the disk
    needs room for a second copy of its largest table. Refused while an old
    transaction may still see what was erased.
    """
    place, tenant = place_of(files), tenant_id(name)
    place.require_usable(tenant)
    place.rewrite(tenant)
    click.echo(f"Nothing of what was erased is left in {place.name_of(tenant)}.")


def _every(place: Place) -> list[TenantId]:
    keys = place.keys.ring().keys.values()
    with_keys = {key.tenant for key in keys if not key.revoked_at}
    return list(dict.fromkeys([*place.tenants(), *sorted(with_keys)]))


def _shown(tenant: TenantId, place: Place) -> dict[str, Any]:
    counts = place.counted(tenant)
    keys = place.keys.ring().working(tenant)
    return {
        "tenant": tenant,
        "bytes": counts and counts.size,
        "observations": counts and counts.memories,
        "sessions": counts and counts.sessions,
        "stores": counts and counts.stores,
        "keys": [{"id": key.id, "name": key.name} for key in keys],
    }


def _row(shown: Mapping[str, Any]) -> list[str]:
    numbers = (shown[name] for name in ("bytes", *COUNTS))
    keys = ", ".join(f"{key['name']} ({key['id']})" for key in shown["keys"])
    return [shown["tenant"], *("-" if it is None else str(it) for it in numbers), keys]


def _plan(tenant: TenantId, place: Place) -> dict[str, Any]:
    files = place.parts_of(tenant)
    shown = _shown(tenant, place)
    if not files and not shown["keys"]:
        raise NotFound(f"There is no tenant {tenant}.")
    return {**shown, "files": files}


def _erased(tenant: TenantId, place: Place, plan: Mapping[str, Any]) -> dict[str, Any]:
    try:
        keys = place.keys.revoke_all(tenant, at=now(), by=user())
    except Refusal as refusal:
        names = ", ".join(f"{key['name']} ({key['id']})" for key in plan["keys"])
        raise Unavailable(
            f"These keys open the tenant {tenant} and cannot be revoked, so nothing was changed: "
            f"{names}. {refusal}"
        ) from refusal
    counts = {name: plan[name] for name in (*COUNTS, "bytes")}
    files = place.erase(tenant, **counts)
    return {**plan, "keys": [{"id": key.id, "name": key.name} for key in keys], "files": files}


def _counts(plan: Mapping[str, Any]) -> str:
    held = [f"{'?' if plan[name] is None else plan[name]} {name}" for name in COUNTS]
    return ", ".join([*held, f"{len(plan['keys'])} keys", f"{len(plan['files'])} files"])


async def _export(file: BinaryIO, engine: Engine, caller: Caller) -> None:
    async for piece in Transfer(engine=engine).export(caller, None, now()):
        await asyncio.to_thread(file.write, piece)
