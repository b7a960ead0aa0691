"""All tenants of a service, or some, are copied from its files into a database, or back.

A tenant is copied whole or not at all: into a database in one transaction, into a file as a draft
that has its name at the end. So what was interrupted is gone on with: a tenant that is there with
the same rows is left alone, and one with others is refused before anything is copied.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from ...memory.model.access import TenantId
from ...memory.model.keys import By
from ...postgresql.keys import PostgresKeys
from ...postgresql.schema.migrate import is_made, tenants
from ...recall.text.features import Features
from ...sqlite.engine.tenant_files import tenants_of
from ...sqlite.engine.tenants import tenant_file
from ..files.atomic import make_folder
from ..files.keys import KeyFile
from ..files.service_lock import service_lock
from .database import filled, opened_database, prepared_database, stored
from .files import new_file, opened_file
from .registers import audit_to_database, audit_to_file, copy_keys
from .tables import CopyRefused, Tally, copied


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of a service."""

    path: Path  # of the default tenant's database
    keys: KeyFile
    audit: Path
    features: Features


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A tenant that is in both places."""

    tenant: TenantId
    tally: Tally
    was_there: bool


def to_database(
    files: Files, url: str, named: Sequence[TenantId], *, at: datetime, by: By
) -> Iterator[Copied]:
    """Copy the tenants of a service, all or those that are named, each with its keys.

    The audit goes with all of them. Each is compared, and kept, before the next begins.
    CopyRefused for a database that holds anything else, StartRefused or Unavailable for one
    that cannot be used. Refused, too, while a service runs on either.
    """
    path, features = files.path, files.features
    chosen = _chosen(tenants_of(path), named, f"at {path}")
    with service_lock(path), prepared_database(url) as connection:
        there = [it for it in tenants(connection) if it in chosen or not named]
        held = [it for it in there if _is_held(connection, it)]
        _require_none_but(chosen, held, named)
        done = {}
        for tenant in set(chosen) & set(held):
            with connection.transaction():
                done[tenant] = _same(connection, tenant, tenant_file(path, tenant), features)
        if not named:
            audit_to_database(files.audit, connection)
        copy_keys(files.keys, PostgresKeys(url), named, at=at, by=by)
        for tenant in chosen:
            tally, file = done.get(tenant), tenant_file(path, tenant)
            if tally is None:
                with opened_file(file, features) as source, filled(connection, tenant) as target:
                    tally = copied(source, target, target.tables, features)
                target.vacuum()
            yield Copied(tenant=tenant, tally=tally, was_there=tenant in done)


def to_files(
    url: str, files: Files, named: Sequence[TenantId], *, at: datetime, by: By
) -> Iterator[Copied]:
    """Copy the tenants of a database to the files of a service, as above."""
    path, features = files.path, files.features
    with opened_database(url) as connection, service_lock(path):
        there = tenants(connection) if is_made(connection) else []
        chosen = _chosen(there, named, "in the database")
        _require_none_but(chosen, tenants_of(path), named)
        done = {}
        for tenant in chosen:
            file = tenant_file(path, tenant)
            if file.exists():
                done[tenant] = _same(connection, tenant, file, features)
        make_folder(path.parent)
        if not named:
            audit_to_file(connection, files.audit)
        copy_keys(PostgresKeys(url), files.keys, named, at=at, by=by)
        for tenant in chosen:
            tally, file = done.get(tenant), tenant_file(path, tenant)
            if tally is None:
                source = stored(connection, tenant)
                with new_file(file, features) as target:
                    tally = copied(source, target, source.tables, features)
            yield Copied(tenant=tenant, tally=tally, was_there=tenant in done)


def _chosen(there: Sequence[TenantId], named: Sequence[TenantId], where: str) -> Sequence[TenantId]:
    if missing := [it for it in named if it not in there]:
        raise CopyRefused(f"There is no tenant {missing[0]} {where}.")
    if not there:
        raise CopyRefused(f"There is no tenant {where}.")
    return list(dict.fromkeys(named)) or there


def _require_none_but(
    chosen: Sequence[TenantId], held: Sequence[TenantId], named: Sequence[TenantId]
) -> None:
    """Refuse a target with tenants that are not copied, unless those that are were named."""
    if (others := [it for it in held if it not in chosen]) and not named:
        raise CopyRefused(
            f"The target holds the tenant {others[0]}, which the source has not; name another, or "
            "name those that are to be copied with --tenant."
        )


def _is_held(connection: psycopg.Connection[Any], tenant: TenantId) -> bool:
    """Whether a database holds something of a tenant."""
    with connection.transaction():
        return not stored(connection, tenant).is_empty()


def _same(
    connection: psycopg.Connection[Any], tenant: TenantId, file: Path, features: Features
) -> Tally:
    """What a tenant has in both places; CopyRefused if that differs."""
    with opened_file(file, features) as source:
        in_database = stored(connection, tenant)
        tally = Tally.of(in_database, in_database.tables)
        if Tally.of(source, in_database.tables) != tally:
            raise CopyRefused(
                f"The tenant {tenant} is in the target already, with other rows. Nothing was "
                "copied; erase it there, or name another target."
            )
    return tally
