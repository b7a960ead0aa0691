"""What the commands on a service's files share: where these lie, who changes them, and when."""

import asyncio
import os
import pwd
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from ..domain.errors import NotFound, Unavailable
from ..domain.model.access import DEFAULT_TENANT, Caller, TenantId, tenant_id
from ..files.atomic import os_errors_as
from ..files.file_systems import require_local
from ..files.keys import KeyFile
from ..files.seals import SealFile
from ..settings.settings import Settings
from ..storage.sqlite import SqliteEngine
from ..storage.sqlite.engine.tenant_files import tenants_of
from ..storage.sqlite.engine.tenants import tenant_file, tenants_folder
from ..storage.sqlite.schema.migrate import require_current
from .errors import FileRefused, NoDatabase, NoTenant

T = TypeVar("T")


def usable_file(settings: Settings, name: str | None, *, may_make: bool) -> tuple[TenantId, Path]:
    """The tenant of this name, and its file, which a start would not change.

    It may be missing, or empty, if it may be made; missing only if it is the default tenant's.
    """
    tenant = tenant_id(name or DEFAULT_TENANT)
    path = tenant_file(settings.db_path, tenant)
    require_local(path, is_network_allowed=settings.allow_network_fs)
    if _is_there(path):
        require_current(path, settings.recall, may_be_new=may_make)
    elif tenant != DEFAULT_TENANT:
        raise NoTenant(f"There is no tenant {tenant}: it would be {path}.")
    elif not may_make:
        raise NoDatabase(f"There is no database at {path}.")
    return tenant, path


def on_database(
    settings: Settings, tenant: TenantId, work: Callable[[SqliteEngine, Caller], Awaitable[T]]
) -> T:
    """What work answers on a tenant's database, which is neither made nor brought up to date.

    A service may be running on it meanwhile.
    """
    path = tenant_file(settings.db_path, tenant)
    if tenant != DEFAULT_TENANT and not path.exists():
        raise NotFound(f"There is no tenant {tenant}: it would be {path}.")
    return on_file(settings, path, lambda engine: work(engine, Caller(tenant=tenant)))


def on_file(settings: Settings, path: Path, work: Callable[[SqliteEngine], Awaitable[T]]) -> T:
    """What work answers on a database file, as above."""
    require_local(path, is_network_allowed=settings.allow_network_fs)
    require_current(path, settings.recall)

    async def worked() -> T:
        async with SqliteEngine.opened(
            path,
            clock=now,
            features=settings.recall,
            retention=settings.retention,
            sealer=SealFile(settings.seal_file, now),
        ) as engine:
            return await work(engine)

    return asyncio.run(worked())


def require_local_files(settings: Settings) -> None:
    """Refuse databases on a file system of several machines with StartRefused."""
    path = settings.db_path
    for file in (path, tenants_folder(path), *(tenant_file(path, it) for it in tenants_of(path))):
        require_local(file, is_network_allowed=settings.allow_network_fs)


def key_file(settings: Settings) -> KeyFile:
    return KeyFile(settings.keys_file, settings.audit_file)


def now() -> datetime:
    return datetime.now(UTC)


def user() -> dict[str, object]:
    """Who runs this, as the system knows it; a container may have a user without a name."""
    uid, name = os.getuid(), ""
    with suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
    return {"user": name, "uid": uid}


def make_folder(folder: Path) -> None:
    with os_errors_as(Unavailable, f"The folder {folder} cannot be made"):
        folder.mkdir(parents=True, exist_ok=True)


def _is_there(path: Path) -> bool:
    with os_errors_as(FileRefused, f"The database {path} cannot be used"):
        if path.is_dir():
            raise FileRefused(f"{path} is a folder; a database is a file.")
        return path.exists()
