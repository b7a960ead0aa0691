"""A tenant's database, opened for one command while a service may be running on it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from ..domain.errors import NotFound
from ..domain.model.access import DEFAULT_TENANT, Caller, TenantId
from ..files.file_systems import require_local
from ..settings.settings import Settings
from ..storage.sqlite import SqliteEngine
from ..storage.sqlite.engine.tenants import tenant_file
from ..storage.sqlite.schema.migrate import require_current
from .service_files import now

T = TypeVar("T")


def features(
    place: Settings, tenant: TenantId, work: Callable[[SqliteEngine, Caller], Awaitable[T]]
) -> T:
    """What work answers, on the database of a tenant, which is not made nor brought up to date."""

    async def used() -> T:
        async with _opened(place, tenant) as engine:
            return await work(engine, Caller(tenant=tenant))

    return asyncio.run(used())


@asynccontextmanager
async def _opened(place: Settings, tenant: TenantId) -> AsyncIterator[SqliteEngine]:
    path = tenant_file(place.db_path, tenant)
    if tenant != DEFAULT_TENANT and not path.exists():
        raise NotFound(f"There is no tenant {tenant}: it would be {path}.")
    require_local(path, is_network_allowed=place.allow_network_fs)
    require_current(path, place.recall)
    async with SqliteEngine.opened(
        path, clock=now, features=place.recall, kept=place.kept
    ) as engine:
        yield engine
