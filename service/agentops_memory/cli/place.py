"""Where a service keeps everything, as commands see it: in files, or in a database."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from ..backend import opened_engine
from ..engine.callbacks import AuditLog, Progress
from ..engine.engine import Engine
from ..memory.lifecycle.receipts import Erasures
from ..memory.model.access import DEFAULT_TENANT, Caller, TenantId, tenant_id
from ..memory.model.keys import KeyRegistry
from ..memory.model.retention import Counted, StorageStats
from ..settings.settings import OF_FILES, Settings, settings
from .errors import CommandRefused
from .invocation import now

T = TypeVar("T")
Flags = Mapping[str, str | None]


class Place(Protocol):
    """What there is of a service beside what its engine does. A service may be running."""

    @property
    def settings(self) -> Settings: ...
    @property
    def keys(self) -> KeyRegistry: ...
    @property
    def audit(self) -> AuditLog:
        """The audit, of the user who runs this."""

    @property
    def called(self) -> str:
        """What the place is called in a sentence."""

    def prepare(self) -> None:
        """Make what keys are kept in, if need be."""

    def name_of(self, tenant: TenantId) -> str:
        """What the storage of a tenant is called, whether it is there or not."""

    def tenants(self) -> Sequence[TenantId]:
        """The tenants that have storage, the default one first."""

    def has(self, tenant: TenantId) -> bool:
        """Whether the tenant has storage."""

    def require_usable(self, tenant: TenantId, *, may_make: bool = False) -> None:
        """Refuse storage that a start would change, or that is not there.

        It may be missing if it may be made, and is the default tenant's.
        """

    def counted(self, tenant: TenantId) -> Counted | None:
        """How much a tenant's storage holds; None if there is none."""

    def stats(self, tenant: TenantId, at: datetime) -> StorageStats:
        """What a tenant's storage is made of."""

    def create(self, tenant: TenantId) -> None:
        """Make a tenant's storage, audited; Conflict if it is there."""

    def parts_of(self, tenant: TenantId) -> list[str]:
        """What would be removed with the tenant; refused with Unavailable if it may not be."""

    def erase(self, tenant: TenantId, **counts: object) -> list[str]:
        """Remove a tenant's storage for good, audited; what was removed."""

    def rewrite(self, tenant: TenantId) -> None:
        """Write a tenant's storage anew, without what was erased; others wait meanwhile."""

    def still_there(self, tenant: TenantId) -> str | None:
        """Where bytes are that were erased, and until when; None if a command waits for them."""


def place_of(flags: Flags) -> Place:
    """The place that flags and environment name. SettingRefused or CommandRefused if none is."""
    chosen = chosen_settings(flags)
    if chosen.database_url:
        from .service_database import DatabasePlace  # noqa: PLC0415 - its driver is an extra

        return DatabasePlace(chosen)
    from .service_files import FilesPlace  # noqa: PLC0415 - nor is SQLite's engine needed there

    return FilesPlace(chosen)


def chosen_settings(flags: Flags) -> Settings:
    """The settings of a command, which name one place."""
    chosen = settings(flags=flags)
    require_one_place(chosen, flags)
    return chosen


def require_one_place(settings: Settings, flags: Flags) -> None:
    """Refuse a file that an option names beside a database."""
    if settings.database_url and flags.get("db_path"):
        raise CommandRefused(
            "--db names a file, and MEMORY_DATABASE_URL a database; unset one of them."
        )


def settings_of_files(flags: Flags) -> Settings:
    """The settings of a command on files, which is refused where a database has everything."""
    chosen = chosen_settings(flags)
    if chosen.database_url:
        raise CommandRefused(f"MEMORY_DATABASE_URL is set: {OF_FILES}")
    return chosen


def usable(flags: Flags, name: str | None, *, may_make: bool) -> tuple[Place, TenantId]:
    """The place, and the tenant of this name in it, whose storage a start would not change."""
    place, tenant = place_of(flags), tenant_id(name or DEFAULT_TENANT)
    place.require_usable(tenant, may_make=may_make)
    return place, tenant


async def finish(place: Place, engine: Engine, caller: Caller, progress: Progress) -> str | None:
    """Wait until erased bytes have left the storage; else answer where they still are."""
    if (still := place.still_there(caller.tenant)) is None:
        await Erasures(engine=engine).finish(caller, progress)
    return still


def on_tenant(place: Place, tenant: TenantId, work: Callable[[Engine, Caller], Awaitable[T]]) -> T:
    """What work answers on a tenant's storage, which is neither made nor brought up to date."""
    place.require_usable(tenant)

    async def worked() -> T:
        async with opened_engine(place.settings, tenant, now) as engine:
            return await work(engine, Caller(tenant=tenant))

    return asyncio.run(worked())
