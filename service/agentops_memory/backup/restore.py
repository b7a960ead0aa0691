"""Restores: what an archive holds is put in its place, after all of it was found to be good."""

import errno
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ..domain.errors import Conflict, NotFound, Refusal, Unavailable
from ..domain.model.access import TenantId
from ..files.audit import line, owned_like, private_file, record
from ..files.audit_trail import AUDIT_RESTORED, Since, since
from ..files.drafts import drafts
from ..files.fsync import named, sync
from ..files.keys import By
from ..files.service_lock import InUse, served_alone
from ..storage.sqlite.engine.tenant_files import tenants_of
from ..storage.sqlite.engine.tenants import tenant_file
from ..storage.sqlite.maintenance.replacing import replaced, require_files
from .archive_files import Place
from .archive_reading import Archive
from .archive_writing import Meter
from .archives import Scope, Told, unheard
from .manifest import AUDIT, KEYS, REDACTION, Manifest, TenantPart
from .restore_plan import Plan, Replacement, replacement
from .restored_keys import KeysPlan, bring_back, planned_keys, read_ring
from .unpacking import Unpacking

UNPACKED_AND_EXAMINED = 2  # times that each byte is met


class NotInArchive(NotFound):
    """The archive does not have what was asked for."""


class RestoreRefused(Refusal):
    """Nothing was restored; the sentence says why."""

    code = "restore_refused"


class DatabaseThere(Conflict):
    """A database would be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """A restore that is ready."""

    plan: Plan
    place: Place
    files: Mapping[str, Path]  # what was taken from the archive beside databases

    def carry_out(self, *, at: datetime, by: By, is_forced: bool = False) -> list[Path]:
        """Do what is planned; the files that are kept of what was there.

        It can be repeated after a crash. DatabaseThere where a database would be
        replaced, unless it `is_forced`.
        """
        if self.plan.to_replace and not is_forced:
            names = ", ".join(str(it.path) for it in self.plan.to_replace)
            raise DatabaseThere(f"There is a database already: {names}.")
        with _explained(self.place.db_path.parent):
            self._put_back(AUDIT, self.place.audit_file, line(at, AUDIT_RESTORED, by))
            self._note(at, by)
            kept = [file for it in self.plan.replacements for file in _put(it, self.place.db_path)]
            self._put_back(REDACTION, self.place.redaction_file)
        if self.plan.keys:
            self._bring_back(self.plan.keys, at, by)
        return kept

    def _bring_back(self, keys: KeysPlan, at: datetime, by: By) -> None:
        try:
            bring_back(keys, self.place, at=at, by=by)
        except Unavailable as refusal:
            raise RestoreRefused(
                f"The databases are in their place, but the keys are not: {refusal}"
            ) from refusal

    def _note(self, at: datetime, by: By) -> None:
        record(
            self.place.audit_file,
            at,
            "archive.restored",
            by,
            archive=self.plan.archive.name,
            made_at=self.plan.manifest.made_at.isoformat(),
            tenants=[it.part.tenant for it in self.plan.replacements],
        )

    def _put_back(self, name: str, path: Path, end: bytes = b"") -> None:
        if not self.plan.files.get(name):
            return
        with drafts(path.parent) as own:
            with private_file(own / name, os.O_WRONLY | os.O_EXCL, like=path.parent) as file:
                with self.files[name].open("rb") as source, os.fdopen(os.dup(file), "wb") as into:
                    shutil.copyfileobj(source, into)
                    into.write(end)
                os.fsync(file)
            named(own / name, path)


@contextmanager
def prepared(
    place: Place, archive: Path, scope: Scope, *, told: Told = unheard, is_dry: bool = False
) -> Iterator[Restore]:
    """A restore of these tenants, or of all that the archive has, of which all was verified.

    Inside no service can begin on the database, unless it `is_dry`. Refused where a
    service has it, where the archive is not whole, and where it needs a newer program.
    """
    with ExitStack() as held:
        with _explained(place.db_path.parent):
            source = held.enter_context(Archive.opened(archive))
            if not is_dry:
                held.enter_context(_alone(place.db_path))
            restore = _restore(place, archive, source, Unpacking(source, held), scope, told)
        yield restore


def _restore(
    place: Place, path: Path, source: Archive, unpacking: Unpacking, scope: Scope, told: Told
) -> Restore:
    manifest = source.manifest
    files = unpacking.files(place.db_path)
    after = _since(place, files)
    parts = _wanted(manifest, scope, after)
    places = {it.tenant: _place_of(place, it.tenant) for it in parts}
    for database in places.values():
        require_files(database)
    meter = Meter(UNPACKED_AND_EXAMINED * sum(it.member.size for it in parts), told)
    found = unpacking.databases(parts, places, meter.add)
    tenants = set(places)
    plan = Plan(
        archive=path,
        manifest=manifest,
        replacements=tuple(replacement(it, places[it.tenant], found[it.tenant]) for it in parts),
        left_out=tuple(it.tenant for it in manifest.tenants if it.tenant in after.erased - tenants),
        staying=tuple(it for it in tenants_of(place.db_path) if it not in tenants),
        is_known=after.is_known,
        files=_to_put_back(place, files, is_whole=manifest.is_of_all and not scope.tenants),
        keys=_keys(place, files, scope.tenants, after) if scope.with_keys else None,
    )
    return Restore(plan=plan, place=place, files=files)


def _place_of(place: Place, tenant: TenantId) -> Path:
    """Where the tenant's database is to be, whatever links lead there."""
    return Path(os.path.realpath(tenant_file(place.db_path, tenant)))


def _since(place: Place, files: Mapping[str, Path]) -> Since:
    if AUDIT not in files:
        return since(place.audit_file, ())
    with files[AUDIT].open("rb") as lines:
        return since(place.audit_file, lines)


def _wanted(manifest: Manifest, scope: Scope, after: Since) -> list[TenantPart]:
    """The tenants that were named; else all but those that were erased since."""
    there = {part.tenant for part in manifest.tenants}
    for tenant in scope.tenants:
        if tenant not in there:
            raise NotInArchive(f"The archive does not have the tenant {tenant}.")
    return [
        part
        for part in manifest.tenants
        if part.tenant in scope.tenants or not (scope.tenants or part.tenant in after.erased)
    ]


def _to_put_back(place: Place, files: Mapping[str, Path], *, is_whole: bool) -> dict[str, bool]:
    where = {AUDIT: place.audit_file, REDACTION: place.redaction_file}
    return {
        name: is_whole and not os.path.lexists(path)
        for name, path in where.items()
        if name in files
    }


def _keys(
    place: Place, files: Mapping[str, Path], tenants: Collection[TenantId], after: Since
) -> KeysPlan:
    if KEYS not in files:
        raise RestoreRefused("The archive has no keys: it was made without --keys.")
    return planned_keys(place, read_ring(files[KEYS]), tenants, after)


def _put(it: Replacement, database: Path) -> tuple[Path, ...]:
    if it.is_done:
        return ()
    folder = it.path.parent
    if not folder.exists():
        folder.mkdir(parents=True)
        owned_like(folder, database if database.exists() else database.parent)
        sync(folder.parent)
    owned_like(it.draft, it.path)
    if it.is_there:
        shutil.copymode(it.path, it.draft)
    return replaced(it.path, it.draft)


@contextmanager
def _alone(database: Path) -> Iterator[None]:
    with ExitStack() as held:
        try:
            held.enter_context(served_alone(database))
        except InUse as refusal:
            raise RestoreRefused(str(refusal)) from refusal
        yield


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise RestoreRefused(f"The disk of {folder} is full.") from error
        named = f"{error.filename}: " if error.filename else ""
        raise RestoreRefused(f"It cannot be restored: {named}{error.strerror}.") from error
