"""Where the commands find the data of a service: in files, or in a PostgreSQL database."""

import asyncio
import os
import pwd
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, TypeVar

from ..backend import audit_of, opened_engine, registry_of
from ..engine.engine import AuditLog, Engine
from ..engine.files import created, drafts, make_folder, os_errors_as, require_local
from ..errors import Unavailable
from ..light import Lazy
from ..memory.access import DEFAULT_TENANT, OPERATOR, Caller, TenantId, tenant_id
from ..memory.space import Counted, StorageStats
from ..settings import OF_FILES, Flags, Settings, settings
from .output import CommandRefused, FileRefused, NoDatabase

if TYPE_CHECKING:
    from ..memory.access import KeyRegistry
    from ..postgresql import connection as pg_connection, tenants as pg_tenants
    from ..sqlite import migrate as file_migrate, tenants as db_files
else:  # a command needs one engine only, and the driver of PostgreSQL is an extra
    pg_tenants = Lazy(__package__, "..postgresql.tenants")
    pg_connection = Lazy(__package__, "..postgresql.connection")
    db_files = Lazy(__package__, "..sqlite.tenants")
    file_migrate = Lazy(__package__, "..sqlite.migrate")

T = TypeVar("T")
Backend: TypeAlias = "FileBackend | DatabaseBackend"
REVOCATION_DELAY = timedelta(seconds=1)  # until every process refuses a revoked key


def now() -> datetime:
    return datetime.now(UTC)


def user() -> dict[str, object]:
    """Return the name and id of the system user; in a container the name may be empty."""
    uid, name = os.getuid(), ""
    with suppress(KeyError):
        name = pwd.getpwuid(uid).pw_name
    return {"user": name, "uid": uid}


def backend_of(flags: Flags) -> Backend:
    """Return the selected backend. SettingRefused or CommandRefused for invalid settings."""
    chosen = chosen_settings(flags)
    return DatabaseBackend(chosen) if chosen.database_url else FileBackend(chosen)


def chosen_settings(flags: Flags) -> Settings:
    chosen = settings(flags=flags)
    if chosen.database_url and flags.get("db_path"):
        raise CommandRefused(
            "--db selects a file, but MEMORY_DATABASE_URL selects PostgreSQL; use only one of them."
        )
    return chosen


def settings_of_files(flags: Flags) -> Settings:
    """Return the settings of a command for files only; CommandRefused if PostgreSQL is set."""
    chosen = chosen_settings(flags)
    if chosen.database_url:
        raise CommandRefused(f"MEMORY_DATABASE_URL is set: {OF_FILES}")
    return chosen


def usable(db: str | None, name: str | None, *, may_make: bool) -> tuple[Backend, TenantId]:
    """Return the backend and the tenant; refuse storage that a start of the service changes."""
    backend, tenant = backend_of({"db_path": db}), tenant_of(name)
    require_usable(backend, tenant, may_make=may_make)
    return backend, tenant


def tenant_of(name: str | None) -> TenantId:
    return tenant_id(name or DEFAULT_TENANT)


def require_usable(backend: Backend, tenant: TenantId, *, may_make: bool = False) -> None:
    """Refuse storage that a start would change, or that is missing and may not be made."""
    if backend.has(tenant):
        backend.require_current(tenant, may_be_new=may_make)
    elif tenant != DEFAULT_TENANT:
        sentence = f"There is no tenant {tenant}; it would be stored in {backend.name_of(tenant)}."
        raise CommandRefused(sentence, "NoTenant")
    elif not may_make:
        raise NoDatabase(f"There is no database: {backend.name_of(tenant)} does not exist.")


async def finish_scrub(backend: Backend, engine: Engine, caller: Caller) -> str | None:
    """Wait until erased bytes have left the storage, or return where they remain."""
    from ..jobs.jobs import scrub_all  # noqa: PLC0415 - only erasures need it

    if (remaining := backend.remaining_bytes(caller.tenant)) is None:
        await scrub_all(engine, caller)
    return remaining


def on_tenant(
    backend: Backend, tenant: TenantId, work: Callable[[Engine, Caller], Awaitable[T]]
) -> T:
    """Run `work` on a tenant's storage, which is neither created nor upgraded."""
    require_usable(backend, tenant)

    async def run() -> T:
        async with opened_engine(backend.settings, tenant, now) as engine:
            return await work(engine, Caller(tenant=tenant))

    return asyncio.run(run())


class _Backend:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def keys(self) -> "KeyRegistry":
        return registry_of(self.settings)

    @cached_property
    def audit(self) -> AuditLog:
        return audit_of(self.settings, now, lambda _: user())

    def prepare(self) -> None:
        """Create the storage of the keys if it does not exist."""


class FileBackend(_Backend):
    """Manages the tenants, keys and audit log of a service in files. It may be running."""

    def prepare(self) -> None:
        make_folder(self.settings.db_path.parent)

    def name_of(self, tenant: TenantId) -> str:
        return str(self._file(tenant))

    def tenants(self) -> Sequence[TenantId]:
        """The tenants that have storage, the default one first."""
        return db_files.tenants_of(self.settings.db_path)

    def has(self, tenant: TenantId) -> bool:
        path = self._local_file(tenant)
        with os_errors_as(FileRefused, f"The database {path} cannot be used"):
            return path.exists() and path.stat().st_size > 0

    def require_current(self, tenant: TenantId, *, may_be_new: bool) -> None:
        file_migrate.require_current(self._file(tenant), may_be_new=may_be_new)

    def counted(self, tenant: TenantId) -> Counted | None:
        return db_files.counted(self._file(tenant)) if self.has(tenant) else None

    def stats(self, tenant: TenantId, at: datetime) -> StorageStats:
        return db_files.storage_stats(self._file(tenant), self.settings.retention, at)

    def create(self, tenant: TenantId) -> None:
        """Create a tenant's storage, with an audit record; Conflict if it exists."""
        path = self.settings.db_path
        self._local_file(tenant)
        self.prepare()
        db_files.require_new(path, tenant)
        self.audit(OPERATOR, "tenant.created", tenant=tenant)
        db_files.make(path, tenant, now())

    def parts_of(self, tenant: TenantId) -> list[str]:
        """Return what an erasure would remove; Unavailable if the tenant cannot be erased."""
        file = self._file(tenant)
        if tenant == DEFAULT_TENANT:
            raise Unavailable(ERASE_DEFAULT.format(f"remove {file}"))
        if file.is_symlink():
            raise Unavailable(
                f"{file} is a symbolic link, and this program does not remove its target. "
                "Revoke the tenant's keys, and remove both by hand."
            )
        return [str(it) for it in db_files.files_of(file)]

    def erase(self, tenant: TenantId, **counts: object) -> list[str]:
        """Remove a tenant's storage, with an audit record; return what was removed."""
        self.audit(OPERATOR, "tenant.erased", tenant=tenant, **counts)
        return [str(file) for file in db_files.remove(self._file(tenant))]

    def rewrite(self, tenant: TenantId) -> None:
        """Rewrite a tenant's storage without erased data; requests wait meanwhile."""
        raise Unavailable(
            f"{self._file(tenant)} needs no rewriting: erased data there is overwritten at once."
        )

    def remaining_bytes(self, tenant: TenantId) -> None:
        """Return where erased bytes remain, and for how long; None if commands overwrite them."""

    def _file(self, tenant: TenantId) -> Path:
        return db_files.tenant_file(self.settings.db_path, tenant)

    def _local_file(self, tenant: TenantId) -> Path:
        require_local(self._file(tenant), is_network_allowed=self.settings.allow_network_fs)
        return self._file(tenant)


ERASE_DEFAULT = (
    "The default tenant is the service's own database. Erase its projects with "
    "`agentops-memory projects erase`, or stop the service and {}."
)


def require_local_files(settings: Settings) -> None:
    """Refuse databases on a network file system with StartRefused, unless that is allowed."""
    path, is_allowed = settings.db_path, settings.allow_network_fs
    files = (db_files.tenant_file(path, it) for it in db_files.tenants_of(path))
    for file in (path, db_files.tenants_folder(path), *files):
        require_local(file, is_network_allowed=is_allowed)


class DatabaseBackend(_Backend):
    """Manages the tenants, keys and audit log of a service in PostgreSQL."""

    def _in_database(
        self, work: Callable[..., T], *args: object, makes: bool = False, **more: object
    ) -> T:
        """Run `work` on a connection; `makes` creates the tables of keys and audit if missing."""
        assert self.settings.database_url  # else the backend is a FileBackend
        with pg_connection.control(self.settings.database_url, makes=makes) as connection:
            return work(connection, *args, **more)

    def name_of(self, tenant: TenantId) -> str:
        return f"the schema {pg_connection.schema_of(tenant)}"

    def tenants(self) -> Sequence[TenantId]:
        return self._in_database(pg_connection.tenants)

    def has(self, tenant: TenantId) -> bool:
        return tenant in self.tenants()

    def require_current(self, tenant: TenantId, *, may_be_new: bool) -> None:  # noqa: ARG002 - a schema appears when it is complete
        self._in_database(pg_tenants.require_current, tenant)

    def counted(self, tenant: TenantId) -> Counted | None:
        return self._in_database(pg_tenants.counted, tenant) if self.has(tenant) else None

    def stats(self, tenant: TenantId, at: datetime) -> StorageStats:
        return self._in_database(pg_tenants.storage_stats, tenant, self.settings.retention, at)

    def create(self, tenant: TenantId) -> None:
        self._in_database(pg_tenants.make, tenant, now(), user(), makes=True)

    def parts_of(self, tenant: TenantId) -> list[str]:
        if tenant == DEFAULT_TENANT:
            raise Unavailable(ERASE_DEFAULT.format("drop the database"))
        return [pg_connection.schema_of(tenant)] if self.has(tenant) else []

    def erase(self, tenant: TenantId, **counts: object) -> list[str]:
        parts = self.parts_of(tenant)
        time.sleep(REVOCATION_DELAY.total_seconds())  # or a request creates the schema again
        self._in_database(pg_tenants.drop, tenant, now(), user(), makes=True, **counts)
        return parts

    def rewrite(self, tenant: TenantId) -> None:
        self._in_database(pg_tenants.rewrite, tenant, now())

    def remaining_bytes(self, tenant: TenantId) -> str:
        kept = self.settings.database_retention
        days = f"for {kept.total_seconds() / 86400:g} days" if kept else ""
        until = days or "as long as those are kept"
        return (
            "The rows are gone. Their bytes stay in pages of the database until they are "
            f"overwritten (`agentops-memory tenants rewrite {tenant}` does that at once), and "
            f"{until} in its write-ahead log, replicas and backups."
        )


def refuse_own(to: str, settings: Settings) -> None:
    """Refuse to overwrite a file of the service itself."""
    target, database, *own = (
        Path(os.path.realpath(file))
        for file in (to, settings.db_path, settings.keys_file, settings.redaction_file,
                     settings.seal_file)
    )  # fmt: skip
    is_next_to = target.parent == database.parent and target.name.startswith(database.name)
    in_folder = Path(os.path.realpath(db_files.tenants_folder(settings.db_path))) in target.parents
    if to != "-" and (is_next_to or in_folder or target in own):
        raise FileRefused(f"{target} is one of the service's own files; choose another.")


@contextmanager
def output_file(to: str) -> Iterator[BinaryIO]:
    """Open a file that replaces `to` at the end; after an exception `to` is unchanged."""
    if to == "-":
        if sys.stdout is None:
            raise FileRefused("Standard output is closed.")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(os.path.realpath(to))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:  # a device or a pipe
            yield file
        return
    with os_errors_as(FileRefused, f"{target} cannot be written"), drafts(target.parent) as folder:
        with created(draft := folder / target.name) as file:
            yield file
        draft.replace(target)
