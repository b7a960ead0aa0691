"""The storage that the settings select: SQLite with other files, or PostgreSQL."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .engine.engine import AuditLog, Engine
from .light import Lazy
from .memory.access import Caller, TenantId
from .recall.cache import IndexCache
from .settings import Settings

if TYPE_CHECKING:
    from .memory.access import By, KeyRegistry, KeyStore
    from .operations.files import keys, seal
else:  # a command that only reads needs neither
    keys, seal = (Lazy(__package__, f".operations.files.{it}") for it in ("keys", "seal"))


@asynccontextmanager
async def opened_engine(
    settings: Settings, tenant: TenantId, clock: Callable[[], datetime], *, is_limited: bool = False
) -> AsyncIterator[Engine]:
    """Open a tenant's engine for one command; `is_limited` applies a service's quota and cache."""
    options: dict[str, Any] = {
        "clock": clock, "retention": settings.retention,
        "sealer": sealer_of(settings, clock).sealer,
        "quota": settings.tenant_quota if is_limited else None,
        "index_cache": IndexCache(settings.index_cache) if is_limited else None,
    }  # fmt: skip
    opened: AbstractAsyncContextManager[Engine]
    if settings.database_url:
        from .postgresql.engine import PostgresEngine  # noqa: PLC0415 - needs an extra

        opened = PostgresEngine.opened(
            settings.database_url, size=settings.database_pool,
            copies_kept=settings.database_retention, tenant=tenant, **options,
        )  # fmt: skip
    else:
        from .sqlite.engine import SqliteEngine  # noqa: PLC0415
        from .sqlite.tenants import tenant_file  # noqa: PLC0415

        opened = SqliteEngine.opened(tenant_file(settings.db_path, tenant), **options)
    async with opened as engine:
        yield engine


def sealer_of(settings: Settings, clock: Callable[[], datetime]) -> "seal.SealFile":
    """The keys of confidential values; those that several machines share must already exist."""
    return seal.SealFile(settings.seal_file, clock, may_create=not settings.database_url)


def audit_of(
    settings: Settings, clock: Callable[[], datetime], by: "Callable[[Caller], By] | None" = None
) -> AuditLog:
    """Return the audit log; `by` identifies a caller, by default by the key's owner."""
    by = by or keys.by_key
    if settings.database_url:
        from .postgresql.tenants import PostgresAudit  # noqa: PLC0415

        return PostgresAudit(settings.database_url, clock, by)
    return keys.AuditFile(settings.audit_file, clock, by)


def registry_of(settings: Settings) -> "KeyRegistry":
    if settings.database_url:
        from .postgresql.tenants import PostgresKeys  # noqa: PLC0415

        return PostgresKeys(settings.database_url)
    return keys.KeyFile(settings.keys_file, settings.audit_file)


@asynccontextmanager
async def watched_keys(settings: Settings) -> "AsyncIterator[KeyStore]":
    """Yield the current keys of a service, which follow every change."""
    if settings.database_url:
        from .postgresql.tenants import WatchedPostgresKeys  # noqa: PLC0415

        watched = WatchedPostgresKeys(settings.database_url)
        with watched.watching():
            yield watched
        return
    yield keys.WatchedKeys(keys.KeyFile(settings.keys_file, settings.audit_file))
