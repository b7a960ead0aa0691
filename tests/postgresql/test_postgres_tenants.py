"""Tenants of a PostgreSQL database that several services use: each is made, migrated and erased."""

from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from agentops_memory.errors import NotFound, StartRefused
from agentops_memory.jobs import schedule as gauges
from agentops_memory.memory.access import DEFAULT_TENANT, Caller, Role, TenantId, issued, patterns
from agentops_memory.postgresql.connection import brought_up_to_date, newest, tenants
from agentops_memory.postgresql.engine import PostgresEngine
from agentops_memory.postgresql.tenants import PostgresKeys

from ..support.callers import OPERATOR, calling
from ..support.measures import key, measured
from ..support.pods import Pods, two
from ..support.process import program, until
from ..support.service import START, Clock, Service, observation, serving
from ..support.terminal import Terminal
from .test_postgres_faults import NEWER

__all__ = ["two"]

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_migration_that_meets_a_service_in_a_deadlock_begins_anew(postgresql: str) -> None:
    make(postgresql, ACME)
    own = {"MEMORY_LISTEN": "127.0.0.1:0", "MEMORY_DATABASE_URL": postgresql}
    waits = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted"
    with (
        psycopg.connect(postgresql) as older,
        psycopg.connect(postgresql, autocommit=True) as looking,
    ):
        older.execute("SET deadlock_timeout = '1min'")  # so that the migration is what ends
        older.execute("SELECT count(*) FROM t_acme.sessions")
        with program("serve", variables=own, code=NEWER) as newer:
            until(lambda: looking.execute(waits).fetchone() == (1,))
            older.execute("SELECT count(*) FROM t_acme.memories")
            older.commit()

            newer.line('"serving on http')
            newer.line("deadlock during the migration; starting it again")
    assert versions(postgresql) == {newest() + 1}


@pytest.mark.slow
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
            pytest.raises(StartRefused, match="tenant acme has version"),
            serving(tmp_path / "postgresql", MEMORY_DATABASE_URL=postgresql),
        ):
            pass


def let_in(pods: Pods, tenant: TenantId) -> str:
    """A new key of a tenant, which all services know."""
    made, token = issued("ci", tenant, Role.ADMIN, patterns(("*",)), START)
    PostgresKeys(pods.url).create(made, at=START, by=OPERATOR)
    until(lambda: all(is_let_in(it, token) for it in pods.services))
    return token


def is_let_in(service: Service, token: str) -> bool:
    with calling(service, token) as http:
        return http.post("/sessions").status_code != 401


@pytest.mark.slow
def test_after_a_tenant_was_erased_rows_are_counted_and_each_service_makes_it_again(
    two: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "COUNTED_FOR", timedelta(0))
    monkeypatch.setattr(gauges, "COUNT_PAUSE", 0)  # they are counted whenever they are asked for
    token, ours = let_in(two, ACME), let_in(two, DEFAULT_TENANT)
    for service in two.services:
        with calling(service, token) as http:
            http.post("/observations", json=observation(service.url)).raise_for_status()
    until(lambda: [memories(it, ours) for it in two.services] == [2, 2])

    Terminal({"MEMORY_DATABASE_URL": two.url}).say("tenants", "erase", "acme", "--yes")
    with calling(two.services[0], ours) as http:
        http.post("/observations", json=observation("said after")).raise_for_status()

    until(lambda: [memories(it, ours) for it in two.services] == [1, 1])
    token = let_in(two, ACME)
    for service in two.services:  # one of them leads, and the other is told nothing
        with calling(service, token) as http:
            assert http.get("/observations/1").status_code == 404
    with calling(two.services[1], token) as http:
        assert http.post("/observations", json=observation("said after")).status_code == 201


def memories(service: Service, token: str) -> float:
    with calling(service, token) as http:
        return measured(service, http)[key("memory_rows", table="memories")]


async def test_a_tenant_that_no_key_opens_is_not_made(postgresql: str) -> None:
    async with PostgresEngine.opened(postgresql, clock=Clock(), has_key=lambda _: False) as engine:
        with pytest.raises(NotFound, match="There is no such tenant"):
            await engine.read(Caller(tenant=ACME), lambda tx: tx.now)
    with psycopg.connect(postgresql) as connection:
        assert ACME not in tenants(connection)
