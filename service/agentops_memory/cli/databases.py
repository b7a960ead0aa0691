"""A tenant's database, opened for one command while a service may be running on it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from ..domain.errors import NotFound
from ..domain.model import DEFAULT_TENANT, Caller, TenantId
from ..settings import Settings
from ..storage.sqlite import SqliteEngine
from ..storage.sqlite.migrate import require_current
from ..storage.sqlite.tenants import tenant_file
from .files import now

T = TypeVar("T")


def using(
    place: Settings, tenant: TenantId, work: Callable[[SqliteEngine, Caller], Awaitable[T]]
) -> T:
    """What work answers, on the database of a tenant, which is not made nor brought up to date."""

    async def used() -> T:
        async with _opened(place, tenant) as engine:
            return await work(engine, Caller(tenant=tenant))

    return asyncio.run(used())


def require_usable(place: Settings, tenant: TenantId) -> None:
    """Refuse a database that a start would change, and that of a tenant that there is not.

    The default tenant's may be missing: it is made then.
    """
    path = tenant_file(place.db_path, tenant)
    if not path.exists() and tenant == DEFAULT_TENANT:
        return
    _require_tenant(path, tenant)
    require_current(path, place.recall)


def _require_tenant(path: Path, tenant: TenantId) -> None:
    if tenant != DEFAULT_TENANT and not path.exists():
        raise NotFound(f"There is no tenant {tenant}: it would be {path}.")


@asynccontextmanager
async def _opened(place: Settings, tenant: TenantId) -> AsyncIterator[SqliteEngine]:
    path = tenant_file(place.db_path, tenant)
    _require_tenant(path, tenant)
    require_current(path, place.recall)
    async with SqliteEngine.opened(path, clock=now, using=place.recall) as engine:
        yield engine
