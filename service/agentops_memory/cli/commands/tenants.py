"""`tenants`: the databases of tenants, made, listed, exported and erased at the terminal."""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ...domain.errors import NotFound, Refusal, Unavailable
from ..output_file import refuse_own, written
from ..service_files import (
    confirm,
    key_file,
    make,
    now,
    of_the_file,
    place_of,
    refusals,
    say,
    table,
    user,
)

# The rest is imported by the commands that need it: the other commands would wait for it.
if TYPE_CHECKING:
    from ...domain.model.access import Caller, TenantId
    from ...domain.model.keys import Key
    from ...settings.settings import Settings
    from ...storage.sqlite import SqliteEngine

HEADINGS = ("TENANT", "BYTES", "OBSERVATIONS", "SESSIONS", "STORES", "KEYS")
COUNTS = ("observations", "sessions", "stores")

_files = of_the_file("db_path", "keys_file")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(short_help="Make, list, export and erase tenants.")
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
    from ...domain.model.access import tenant_id  # noqa: PLC0415
    from ...files.audit import record  # noqa: PLC0415
    from ...storage.sqlite.engine import tenant_files  # noqa: PLC0415

    with refusals():
        tenant, place = tenant_id(name), place_of(files)
        _require_local(tenant, place)
        make(place.db_path.parent)
        tenant_files.require_new(place.db_path, tenant)
        record(place.audit_file, now(), "tenant.created", user(), tenant=tenant)
        database = tenant_files.make(place.db_path, tenant, now(), place.recall)
    click.echo(f"The tenant {tenant} has its database: {database}.")


@tenants.command("list", short_help="Show the tenants.")
@_files
@_json
def list_(as_json: bool, **files: str | None) -> None:
    """Show the tenants: what each holds, and the keys that open it.

    Exits with 1 if a database is there that cannot be read.
    """
    with refusals():
        shown = [_shown(tenant, place_of(files)) for tenant in _every(place_of(files))]
    if as_json:
        click.echo(json.dumps(shown))
    else:
        for line in table([HEADINGS, *map(_row, shown)]):
            click.echo(line)
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
    from ...domain.model.access import tenant_id  # noqa: PLC0415
    from ..database import features  # noqa: PLC0415

    with refusals():
        place = place_of(files)
        if not to:
            raise click.UsageError("--to needs a name.")
        refuse_own(to, place)
        with written(to) as file:
            features(place, tenant_id(name), partial(_export, file))


@tenants.command(short_help="Erase a tenant for good.")
@_files
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option("--yes", "is_meant", is_flag=True, help="Do not ask.")
@_json
def erase(name: str, dry_run: bool, is_meant: bool, as_json: bool, **files: str | None) -> None:
    """Revoke every key of the tenant NAME, then remove its database for good.

    The files are removed, not written over: what the disk keeps of them, and
    backups, are beyond this program.
    """
    from ...domain.model.access import tenant_id  # noqa: PLC0415

    with refusals():
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


def _every(place: "Settings") -> list["TenantId"]:
    from ...storage.sqlite.engine.tenant_files import tenants_of  # noqa: PLC0415

    with_keys = (key.tenant for key in key_file(place).ring().keys.values() if not key.revoked_at)
    return list(dict.fromkeys([*tenants_of(place.db_path), *sorted(with_keys)]))


def _shown(tenant: "TenantId", place: "Settings") -> dict[str, Any]:
    from ...storage.sqlite.engine.tenant_files import counted  # noqa: PLC0415
    from ...storage.sqlite.engine.tenants import tenant_file  # noqa: PLC0415

    file = tenant_file(place.db_path, tenant)
    _require_local(tenant, place)
    counts = counted(file) if file.exists() else None
    return {
        "tenant": tenant,
        "bytes": counts and counts.size,
        "observations": counts and counts.memories,
        "sessions": counts and counts.sessions,
        "stores": counts and counts.stores,
        "keys": [{"id": key.id, "name": key.name} for key in _keys(tenant, place)],
    }


def _require_local(tenant: "TenantId", place: "Settings") -> None:
    from ...files.file_systems import require_local  # noqa: PLC0415
    from ...storage.sqlite.engine.tenants import tenant_file  # noqa: PLC0415

    file = tenant_file(place.db_path, tenant)
    require_local(file, is_network_allowed=place.allow_network_fs)


def _row(shown: Mapping[str, Any]) -> list[str]:
    numbers = (shown[name] for name in ("bytes", *COUNTS))
    keys = ", ".join(f"{key['name']} ({key['id']})" for key in shown["keys"])
    return [shown["tenant"], *("-" if it is None else str(it) for it in numbers), keys]


def _keys(tenant: "TenantId", place: "Settings") -> tuple["Key", ...]:
    return key_file(place).ring().working(tenant)


def _plan(tenant: "TenantId", place: "Settings") -> dict[str, Any]:
    from ...domain.model.access import DEFAULT_TENANT  # noqa: PLC0415
    from ...storage.sqlite.engine.tenant_files import files_of  # noqa: PLC0415
    from ...storage.sqlite.engine.tenants import tenant_file  # noqa: PLC0415

    if tenant == DEFAULT_TENANT:
        raise Unavailable(
            "The default tenant is the service's own database. Erase its projects with "
            f"`agentops-memory projects erase`, or stop the service and remove {place.db_path}."
        )
    if tenant_file(place.db_path, tenant).is_symlink():
        raise Unavailable(
            f"{tenant_file(place.db_path, tenant)} is a link, and what it leads to is not this "
            "program's to remove. Revoke the tenant's keys, and remove both by hand."
        )
    shown = _shown(tenant, place)
    files = [str(file) for file in files_of(tenant_file(place.db_path, tenant))]
    if not files and not shown["keys"]:
        raise NotFound(f"There is no tenant {tenant}.")
    return {**shown, "files": files}


def _erased(tenant: "TenantId", place: "Settings", plan: Mapping[str, Any]) -> dict[str, Any]:
    from ...files.audit import record  # noqa: PLC0415
    from ...storage.sqlite.engine.tenant_files import remove  # noqa: PLC0415
    from ...storage.sqlite.engine.tenants import tenant_file  # noqa: PLC0415

    try:
        keys = key_file(place).revoke_all(tenant, at=now(), by=user())
    except Refusal as refusal:
        names = ", ".join(f"{key['name']} ({key['id']})" for key in plan["keys"])
        raise Unavailable(
            f"These keys open the tenant {tenant} and cannot be revoked, so nothing was changed: "
            f"{names}. {refusal}"
        ) from refusal
    counts = {name: plan[name] for name in (*COUNTS, "bytes")}
    record(place.audit_file, now(), "tenant.erased", user(), tenant=tenant, **counts)
    files = [str(file) for file in remove(tenant_file(place.db_path, tenant))]
    return {**plan, "keys": [{"id": key.id, "name": key.name} for key in keys], "files": files}


def _counts(plan: Mapping[str, Any]) -> str:
    held = [f"{'?' if plan[name] is None else plan[name]} {name}" for name in COUNTS]
    return ", ".join([*held, f"{len(plan['keys'])} keys", f"{len(plan['files'])} files"])


async def _export(file: BinaryIO, engine: "SqliteEngine", caller: "Caller") -> None:
    import asyncio  # noqa: PLC0415

    from ...api.agentops.exports import document  # noqa: PLC0415
    from ...domain.transfer.transfer import Transfer  # noqa: PLC0415

    pieces: AsyncIterator[bytes] = document(Transfer(engine=engine), caller, None, now())
    async for piece in pieces:
        await asyncio.to_thread(file.write, piece)
