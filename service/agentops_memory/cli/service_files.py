"""The place of a service whose databases are files: one for each tenant, with others beside."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from ..backend import audit_of, registry_of
from ..engine.files import make_folder, os_errors_as, require_local
from ..errors import Unavailable
from ..memory.model.access import DEFAULT_TENANT, OPERATOR, TenantId
from ..memory.model.retention import Counted, StorageStats
from ..settings.settings import Settings
from ..sqlite import tenants
from ..sqlite.schema.migrate import require_current
from ..sqlite.tenants import storage_stats, tenant_file, tenants_folder
from .errors import FileRefused, NoDatabase, NoTenant
from .invocation import now, user


class FilesPlace:
    """What there is of a service beside what its engine does. A service may be running."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = registry_of(settings)
        self.audit = audit_of(settings, now, lambda _: user())

    @property
    def called(self) -> str:
        return str(self.settings.keys_file)

    def prepare(self) -> None:
        """Make what keys are kept in, if need be."""
        make_folder(self.settings.db_path.parent)

    def name_of(self, tenant: TenantId) -> str:
        return str(self._file(tenant))

    def tenants(self) -> Sequence[TenantId]:
        """The tenants that have storage, the default one first."""
        return tenants.tenants_of(self.settings.db_path)

    def has(self, tenant: TenantId) -> bool:
        return self._file(tenant).exists()

    def require_usable(self, tenant: TenantId, *, may_make: bool = False) -> None:
        """Refuse storage that a start would change, or that is missing and may not be made."""
        path = self._file(tenant)
        self._require_local(path)
        if _is_there(path):
            require_current(path, self.settings.recall, may_be_new=may_make)
        elif tenant != DEFAULT_TENANT:
            raise NoTenant(f"There is no tenant {tenant}: it would be {path}.")
        elif not may_make:
            raise NoDatabase(f"There is no database at {path}.")

    def counted(self, tenant: TenantId) -> Counted | None:
        path = self._file(tenant)
        self._require_local(path)
        return tenants.counted(path) if path.exists() else None

    def stats(self, tenant: TenantId, at: datetime) -> StorageStats:
        return storage_stats(self._file(tenant), self.settings.retention, at)

    def create(self, tenant: TenantId) -> None:
        """Make a tenant's storage, audited; Conflict if it is there."""
        path = self.settings.db_path
        self._require_local(self._file(tenant))
        self.prepare()
        tenants.require_new(path, tenant)
        self.audit(OPERATOR, "tenant.created", tenant=tenant)
        tenants.make(path, tenant, now(), self.settings.recall)

    def parts_of(self, tenant: TenantId) -> list[str]:
        """What would be removed with the tenant; refused with Unavailable if it may not be."""
        file = self._file(tenant)
        if tenant == DEFAULT_TENANT:
            raise Unavailable(
                "The default tenant is the service's own database. Erase its projects with "
                f"`agentops-memory projects erase`, or stop the service and remove {file}."
            )
        if file.is_symlink():
            raise Unavailable(
                f"{file} is a link, and what it leads to is not this program's to remove. Revoke "
                "the tenant's keys, and remove both by hand."
            )
        return [str(it) for it in tenants.files_of(file)]

    def erase(self, tenant: TenantId, **counts: object) -> list[str]:
        """Remove a tenant's storage for good, audited; what was removed."""
        self.audit(OPERATOR, "tenant.erased", tenant=tenant, **counts)
        return [str(file) for file in tenants.remove(self._file(tenant))]

    def rewrite(self, tenant: TenantId) -> None:
        """Write a tenant's storage anew, without what was erased; others wait meanwhile."""
        raise Unavailable(
            f"{self._file(tenant)} needs no rewriting: what is erased there is written over."
        )

    def still_there(self, tenant: TenantId) -> None:
        """Where bytes are that were erased, and until when; None if a command waits for them."""

    def _file(self, tenant: TenantId) -> Path:
        return tenant_file(self.settings.db_path, tenant)

    def _require_local(self, path: Path) -> None:
        require_local(path, is_network_allowed=self.settings.allow_network_fs)


def require_local_files(settings: Settings) -> None:
    """Refuse databases on a file system of several machines with StartRefused."""
    path, is_allowed = settings.db_path, settings.allow_network_fs
    there = tenants.tenants_of(path)
    for file in (path, tenants_folder(path), *(tenant_file(path, it) for it in there)):
        require_local(file, is_network_allowed=is_allowed)


def _is_there(path: Path) -> bool:
    with os_errors_as(FileRefused, f"The database {path} cannot be used"):
        if path.is_dir():
            raise FileRefused(f"{path} is a folder; a database is a file.")
        return path.exists()
