"""Creates and upgrades schemas: the one that tenants share, and one for each tenant."""

import logging
import re
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, cast

import psycopg
from psycopg import errors

from ..engine.engine import noop
from ..errors import StartRefused
from ..memory.access import DEFAULT_TENANT, TenantId

log = logging.getLogger(__name__)

CONTROL = 1  # the version of the schema `agentops` that this release creates
LONGEST_NAME = 63  # most bytes of an identifier
LOCK = 0x414D_454D  # "AMEM": held during a migration
MAX_ATTEMPTS = 10  # of a migration that collides with running services

_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")


def schema_of(tenant: TenantId) -> str:
    """Return the name of a tenant's schema; a long one is cut and ends with a digest."""
    name = f"t_{tenant}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = sha256(tenant.encode()).hexdigest()[:16]
    return f"{name[: LONGEST_NAME - len(digest) - 1]}_{digest}"


def newest() -> int:
    return _migrations()[-1][0]


def is_made(connection: psycopg.Connection[Any]) -> bool:
    return connection.execute("SELECT to_regclass('agentops.control')").fetchone() != (None,)


def prepare(connection: psycopg.Connection[Any]) -> None:
    """Create or upgrade the schema that tenants share, one process at a time."""
    if _is_prepared(connection):
        return
    with connection.transaction():
        _lock(connection)
        if not _is_prepared(connection):  # another process may have done it
            connection.execute((resources.files(__package__) / "control.sql").read_bytes())
            connection.execute("UPDATE agentops.control SET version = %s", (CONTROL,))


def brought_up_to_date(
    connection: psycopg.Connection[Any], tenant: TenantId, upgrading: Callable[[], object] = noop
) -> str:
    """Create or migrate a tenant's schema in one transaction, and return its name.

    Raises StartRefused if a newer release has migrated it further than this release can read.
    """
    if version_of(connection, tenant) == newest():
        return schema_of(tenant)
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return _migrate(connection, tenant, upgrading)
        except errors.DeadlockDetected:  # services lock tables in another order
            log.info("deadlock during the migration; starting it again", extra={"tenant": tenant})
    return _migrate(connection, tenant, upgrading)


def _migrate(
    connection: psycopg.Connection[Any], tenant: TenantId, upgrading: Callable[[], object]
) -> str:
    schema = schema_of(tenant)
    with connection.transaction():
        _lock(connection)
        version = version_of(connection, tenant)
        if version > newest() + 1:
            raise StartRefused(
                f"The schema of tenant {tenant} is of version {version}, and this release reads"
                f" {newest()} and the next one; install a newer release."
            )
        if 0 < version < newest():
            upgrading()
        if version == 0:
            connection.execute(cast(Any, f'CREATE SCHEMA "{schema}"'))
        connection.execute(cast(Any, f'SET LOCAL search_path TO "{schema}"'))
        for number, statements in _migrations():
            if number > version:
                connection.execute(statements)
        connection.execute(
            """INSERT INTO agentops.tenants (tenant, schema, version) VALUES (%s, %s, %s)
                   ON CONFLICT (tenant) DO UPDATE SET version = excluded.version
                WHERE tenants.version < excluded.version""",
            (tenant, schema, newest()),
        )
    return schema


def all_up_to_date(
    connection: psycopg.Connection[Any], upgrading: Callable[[], object] = noop
) -> list[TenantId]:
    """Migrate the schemas of all tenants as needed, and return the tenants.

    Raises StartRefused as `brought_up_to_date` does.
    """
    rows = connection.execute(
        "SELECT tenant, version FROM agentops.tenants ORDER BY tenant"
    ).fetchall()
    for tenant, version in rows:
        if version not in (newest(), newest() + 1):
            brought_up_to_date(connection, TenantId(tenant), upgrading)
    return [TenantId(tenant) for tenant, _ in rows]


def tenants(connection: psycopg.Connection[Any]) -> list[TenantId]:
    """Return the tenants that have a schema, the default one first."""
    if not is_made(connection):
        return []
    names = [tenant for (tenant,) in connection.execute("SELECT tenant FROM agentops.tenants")]
    return sorted(names, key=lambda it: (it != DEFAULT_TENANT, it))


def _is_prepared(connection: psycopg.Connection[Any]) -> bool:
    current = "SELECT FROM agentops.control WHERE version >= %s"
    return is_made(connection) and connection.execute(current, (CONTROL,)).rowcount > 0


def version_of(connection: psycopg.Connection[Any], tenant: TenantId) -> int:
    """Return the version of a tenant's schema; 0 if it has none."""
    row = connection.execute(
        "SELECT version FROM agentops.tenants WHERE tenant = %s", (tenant,)
    ).fetchone()
    return int(row[0]) if row else 0


def _lock(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))


@cache
def _migrations() -> list[tuple[int, bytes]]:
    folder = resources.files(__package__) / "migrations"
    files = ((_NUMBERED.fullmatch(it.name), it) for it in folder.iterdir())
    return sorted((int(name.group(1)), it.read_bytes()) for name, it in files if name)
