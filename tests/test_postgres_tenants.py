"""Tenants of a PostgreSQL database that several services use: each is made, migrated and erased."""

from pathlib import Path

import psycopg
import pytest

from agentops_memory.domain.errors import StartRefused
from agentops_memory.domain.model.access import TenantId
from agentops_memory.storage.postgresql.schema.migrate import brought_up_to_date, newest

from .process import program, until
from .service import serving
from .test_postgres_faults import NEWER

ACME, EMCA = TenantId("acme"), TenantId("emca")


def make(url: str, *tenants: TenantId) -> None:
    """Make them as this release does."""
    with psycopg.connect(url, autocommit=True) as connection:
        for tenant in tenants:
            brought_up_to_date(connection, tenant)


def versions(url: str) -> set[int]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT version FROM agentops.tenants").fetchall()
    return {version for (version,) in rows}


def test_a_newer_release_migrates_all_tenants_and_what_an_older_one_makes_beside_it(
    postgresql: str,
) -> None:
    make(postgresql, ACME)
    own = {"MEMORY_LISTEN": "127.0.0.1:0", "MEMORY_DATABASE_URL": postgresql}
    with program("serve", variables=own, code=NEWER) as newer:
        newer.line('"serving on http')
        assert versions(postgresql) == {newest() + 1}

        make(postgresql, EMCA)

        until(lambda: versions(postgresql) == {newest() + 1})


def test_a_release_that_is_too_old_for_one_tenant_does_not_start(
    postgresql: str, tmp_path: Path
) -> None:
    make(postgresql, ACME)
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute("UPDATE agentops.tenants SET version = %s", (newest() + 1,))
        with serving(tmp_path / "postgresql", MEMORY_DATABASE_URL=postgresql):
            pass
        set_version = "UPDATE agentops.tenants SET version = %s WHERE tenant = %s"
        connection.execute(set_version, (newest() + 2, ACME))
        with (
            pytest.raises(StartRefused, match="tenant acme is of version"),
            serving(tmp_path / "postgresql", MEMORY_DATABASE_URL=postgresql),
        ):
            pass
