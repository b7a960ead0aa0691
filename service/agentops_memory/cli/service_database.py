"""The place of a service whose databases are schemas of PostgreSQL, one for each tenant."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from ..backend import audit_of, registry_of
from ..errors import Unavailable
from ..memory.model.access import DEFAULT_TENANT, TenantId
from ..memory.model.retention import Counted, StorageStats
from ..postgresql import tenants
from ..postgresql.connection import control
from ..postgresql.schema.migrate import schema_of
from ..postgresql.tenants import storage_stats
from ..settings.settings import Settings
from .errors import NoDatabase, NoTenant
from .invocation import now, user

REVOKED = timedelta(seconds=1)  # until no pod lets a key in that was revoked


class DatabasePlace:
    """What FilesPlace is for files, for a database."""

    called = "the database"

    def __init__(self, settings: Settings) -> None:
        assert settings.database_url  # else it is none
        self.settings = settings
        self._url = settings.database_url
        self.keys = registry_of(settings)
        self.audit = audit_of(settings, now, lambda _: user())

    def prepare(self) -> None:
        pass

    def name_of(self, tenant: TenantId) -> str:
        return f"the schema {schema_of(tenant)}"

    def tenants(self) -> Sequence[TenantId]:
        with control(self._url) as connection:
            return tenants.tenants_of(connection)

    def has(self, tenant: TenantId) -> bool:
        return tenant in self.tenants()

    def require_usable(self, tenant: TenantId, *, may_make: bool = False) -> None:
        with control(self._url) as connection:
            if tenant in tenants.tenants_of(connection):
                tenants.require_current(connection, tenant)
            elif tenant != DEFAULT_TENANT:
                raise NoTenant(f"There is no tenant {tenant}: it would be {self.name_of(tenant)}.")
            elif not may_make:
                raise NoDatabase("The database has nothing of the service yet.")

    def counted(self, tenant: TenantId) -> Counted | None:
        with control(self._url) as connection:
            if tenant not in tenants.tenants_of(connection):
                return None
            return tenants.counted(connection, tenant)

    def stats(self, tenant: TenantId, at: datetime) -> StorageStats:
        with control(self._url) as connection:
            return storage_stats(connection, tenant, self.settings.retention, at)

    def create(self, tenant: TenantId) -> None:
        with control(self._url, makes=True) as connection:
            tenants.make(connection, tenant, now(), user())

    def parts_of(self, tenant: TenantId) -> list[str]:
        if tenant == DEFAULT_TENANT:
            raise Unavailable(
                "The default tenant is the service's own database. Erase its projects with "
                "`agentops-memory projects erase`, or stop the service and drop the database."
            )
        return [schema_of(tenant)] if self.has(tenant) else []

    def erase(self, tenant: TenantId, **counts: object) -> list[str]:
        parts = self.parts_of(tenant)
        time.sleep(REVOKED.total_seconds())  # else a request could make the schema again
        with control(self._url, makes=True) as connection:
            tenants.drop(connection, tenant, now(), user(), **counts)
        return parts

    def rewrite(self, tenant: TenantId) -> None:
        with control(self._url) as connection:
            tenants.rewrite(connection, tenant, now())

    def still_there(self, tenant: TenantId) -> str:
        kept = self.settings.database_retention
        until = (
            f"for {kept.total_seconds() / 86400:g} days" if kept else "as long as those are kept"
        )
        return (
            "The rows are gone. Their bytes stay in pages of the database until these are written "
            f"over (`agentops-memory tenants rewrite {tenant}` does that at once), and {until} in "
            "its write-ahead log, replicas and backups."
        )
