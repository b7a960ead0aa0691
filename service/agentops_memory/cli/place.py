"""Where a service keeps everything, as commands see it: in files, or in a database."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ..backend import opened_engine
from ..engine.engine import Engine
from ..memory.model.access import DEFAULT_TENANT, Caller, TenantId, tenant_id
from ..settings.settings import OF_FILES, Settings, settings
from .errors import CommandRefused
from .invocation import now
from .output import is_terminal, say

if TYPE_CHECKING:
    from .service_database import DatabasePlace
    from .service_files import FilesPlace

T = TypeVar("T")
Place: TypeAlias = "FilesPlace | DatabasePlace"
Flags = Mapping[str, str | None]


def place_of(flags: Flags) -> Place:
    """The place that flags and environment name. SettingRefused or CommandRefused if none is."""
    chosen = chosen_settings(flags)
    if chosen.database_url:
        from .service_database import DatabasePlace  # noqa: PLC0415 - its driver is an extra

        return DatabasePlace(chosen)
    from .service_files import FilesPlace  # noqa: PLC0415 - nor is SQLite's engine needed there

    return FilesPlace(chosen)


def chosen_settings(flags: Flags) -> Settings:
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


async def finish(place: Place, engine: Engine, caller: Caller) -> str | None:
    """Wait until erased bytes have left the storage; else answer where they still are."""
    from ..jobs.scrubbing import scrub_all  # noqa: PLC0415 - what is needed to erase, and no other

    if (still := place.still_there(caller.tenant)) is None:
        is_watched = is_terminal(sys.stderr)
        await scrub_all(
            engine, caller, lambda step: say(f"Blanking {step}") if is_watched else None
        )
    return still


def on_tenant(place: Place, tenant: TenantId, work: Callable[[Engine, Caller], Awaitable[T]]) -> T:
    """What work answers on a tenant's storage, which is neither made nor brought up to date."""
    place.require_usable(tenant)

    async def worked() -> T:
        async with opened_engine(place.settings, tenant, now) as engine:
            return await work(engine, Caller(tenant=tenant))

    return asyncio.run(worked())
