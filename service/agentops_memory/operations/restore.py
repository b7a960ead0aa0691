"""Restores the contents of an archive, after all of it was verified."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime
from functools import reduce
from hashlib import file_digest
from pathlib import Path

from ..engine.engine import noop
from ..engine.files import created, drafts, os_errors_as, owned_like, placed, sync
from ..errors import Conflict, Unavailable
from ..light import dataclass
from ..memory.access import DEFAULT_TENANT, By, Key, KeyRing, TenantId
from ..memory.erasure import Erasure
from ..settings import Settings
from ..sqlite import snapshots
from ..sqlite.migrate import newest_format
from ..sqlite.tenants import files_of, size_of, tenant_file, tenants_of
from . import backup
from .files import keys, seal
from .files.keys import AUDIT_RESTORED, LARGEST, AuditedChanges, KeyFile, line, record
from .files.service_lock import service_lock

UNPACKED_AND_EXAMINED = 2  # number of times that each byte is read


class DatabaseThere(Conflict):
    """A database would be replaced, or damaged receipts hide which of its data was erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """An archived database of a tenant, and the existing database that it replaces."""

    part: backup.TenantPart
    path: Path
    draft: Path  # the unpacked database, fully verified
    is_there: bool  # whether a database exists at the path
    is_done: bool  # whether the existing database equals the archived one
    size: int  # bytes of the existing database
    now: snapshots.Contents | None  # of the existing database; None if it cannot be read
    erased: tuple[Erasure, ...]  # erasures in the existing database that the archive lacks
    is_all_erased: bool  # whether `erased` is complete: no receipt is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysPlan:
    """The plan for the keys of an archive. A key in the key file stays as it is."""

    new: tuple[Key, ...]  # keys to add, including revoked keys
    ended: tuple[Key, ...]  # keys not to add: they were revoked or rotated since
    present: KeyRing  # of the key file at the time of planning

    @property
    def opening(self) -> tuple[Key, ...]:
        return tuple(key for key in self.new if key.revoked_at is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """The plan for a restore of a verified archive; `carry_out` executes it."""

    settings: Settings
    archive: Path
    manifest: backup.Manifest
    files: Mapping[str, Path]  # the unpacked files other than databases
    replacements: tuple[Replacement, ...]
    left_out: tuple[TenantId, ...]  # tenants that were erased since
    staying: tuple[TenantId, ...]  # existing tenants that the archive does not have
    is_known: bool  # whether the audit shows all changes since the archive
    put_back: tuple[str, ...]  # the other files of the archive that are missing now
    keys: KeysPlan | None  # None if keys are not restored

    @property
    def unsure(self) -> tuple[TenantId, ...]:
        """Return the restored tenants that may have been erased since, unknown to the audit."""
        if self.is_known:
            return ()
        new = (it.part.tenant for it in self.replacements if not it.is_there)
        return tuple(tenant for tenant in new if tenant != DEFAULT_TENANT)

    def carry_out(
        self, *, at: datetime, by: By, is_forced: bool = False, without_receipts: bool = False
    ) -> list[Path]:
        """Execute the plan and return the files in which the replaced databases are kept.

        It can be repeated after a crash. Raises DatabaseThere if a database would be replaced,
        unless it `is_forced`; and if receipts in that database are damaged, unless it continues
        `without_receipts`: erased data must not come back unnoticed.
        """
        to_do = [it for it in self.replacements if not it.is_done]
        if not is_forced and (existing := [str(it.path) for it in to_do if it.is_there]):
            raise DatabaseThere(f"A database already exists: {', '.join(existing)}.")
        unknown = [it.part.tenant for it in to_do if it.now and not it.is_all_erased]
        if unknown and not without_receipts:
            raise DatabaseThere(
                f"Receipts of erasures of {', '.join(unknown)} are damaged: erased data may "
                "come back with the archive. --without-receipts restores it anyway."
            )
        with os_errors_as(snapshots.RestoreRefused, f"{self.archive} cannot be restored"):
            if backup.AUDIT in self.put_back:
                with self.files[backup.AUDIT].open("ab") as audit:
                    audit.write(line(at, AUDIT_RESTORED, by))
                _put_back(self.files[backup.AUDIT], self.settings.audit_file)
            record(
                self.settings.audit_file, at, "archive.restored", by, archive=self.archive.name,
                made_at=self.manifest.made_at.isoformat(),
                tenants=[it.part.tenant for it in self.replacements],
            )  # fmt: skip
            if backup.SEAL in self.files:
                archived = seal.read(self.files[backup.SEAL].read_bytes(), backup.SEAL)
                seal.SealFile(self.settings.seal_file, lambda: at).add(archived)
            kept = [file for it in to_do for file in _put(it, self.settings.db_path)]
            if backup.REDACTION in self.put_back:
                _put_back(self.files[backup.REDACTION], self.settings.redaction_file)
        if self.keys and self.keys.new:
            try:
                self._add_keys(self.keys, at, by)
            except Unavailable as refusal:
                sentence = f"The databases were restored, but the keys were not: {refusal}"
                raise snapshots.RestoreRefused(sentence) from refusal
        return kept

    def _add_keys(self, plan: KeysPlan, at: datetime, by: By) -> None:
        with KeyFile(self.settings.keys_file, self.settings.audit_file).changing() as (ring, put):
            if ring != plan.present:  # all keys may have been reset since
                raise Unavailable("The keys were changed meanwhile; restore them again.")
            added = [it.id for it in plan.new]
            put(reduce(KeyRing.with_key, plan.new, ring), at, "keys.restored", by, keys=added)


@contextmanager
def prepared(
    settings: Settings, archive: Path, *, with_keys: bool = False,
    progress: backup.Progress = noop, is_dry: bool = False,
) -> Iterator[Restore]:  # fmt: skip
    """Verify an archive and yield the plan for its restore.

    Within, no service can start on the database, unless it `is_dry`. Refused if a service uses
    the database, if the archive is incomplete, or if it needs a newer version of the program.
    """
    with ExitStack() as stack:
        with os_errors_as(snapshots.RestoreRefused, f"{archive} cannot be restored"):
            source = stack.enter_context(backup.Archive.opened(archive))
            if not is_dry:
                stack.enter_context(service_lock(settings.db_path))
            restore = _planned(settings, archive, source, with_keys, progress, stack)
        yield restore


def _planned(
    settings: Settings, path: Path, archive: backup.Archive, with_keys: bool,
    progress: backup.Progress, stack: ExitStack,
) -> Restore:  # fmt: skip
    manifest = archive.manifest
    total = sum(member.size for member in manifest.members)
    advance = backup.meter(UNPACKED_AND_EXAMINED * total, progress)
    folders: dict[Path, Path] = {}

    def unpacked(member: backup.Member, near: Path) -> Path:
        """Unpack a member into a draft on the disk of `near`, removed when the stack closes."""
        folder = next(it for it in near.absolute().parents if it.is_dir())
        if folder not in folders:
            backup.require_space(folder, total, snapshots.RestoreRefused)
            folders[folder] = stack.enter_context(drafts(folder))
        draft = folders[folder] / member.name.replace("/", "-")
        with created(draft) as into:
            archive.unpack(member, into, advance)
        return draft

    # Other files are restored only if they are missing. The audit and redaction files of an archive
    # of some tenants would lack the other tenants; seal keys are shared by all tenants.
    paths = {backup.SEAL: settings.seal_file}
    if manifest.is_of_all:
        paths |= {backup.AUDIT: settings.audit_file, backup.REDACTION: settings.redaction_file}
    put_back = {
        it.name: paths[it.name]
        for it in manifest.others
        if it.name in paths and not os.path.lexists(paths[it.name])
    }
    # Only files that are moved into place need a draft on the same disk.
    near = {**put_back, backup.SEAL: settings.db_path}
    files = {it.name: unpacked(it, near.get(it.name, settings.db_path)) for it in manifest.others}
    with files[backup.AUDIT].open("rb") if backup.AUDIT in files else nullcontext(()) as lines:
        changes = keys.changes_since(settings.audit_file, lines)
    replacements = []
    for part in manifest.tenants:
        if part.tenant in changes.erased:
            continue
        if part.format > newest_format():
            raise backup.ArchiveRefused(
                f"The database of the tenant {part.tenant} has format {part.format}, made by "
                f"agentops-memory {manifest.program}; this version reads formats up to "
                f"{newest_format()}."
            )
        database = Path(os.path.realpath(tenant_file(settings.db_path, part.tenant)))
        snapshots.require_files(database)
        draft = unpacked(part, database)
        try:
            contents = snapshots.verified(draft)
        except snapshots.SnapshotRefused as refusal:
            sentence = f"The database of the tenant {part.tenant} in the archive is damaged."
            raise backup.ArchiveRefused(sentence) from refusal
        if (contents.format, contents.counts) != (part.format, part.counts):
            raise backup.ArchiveRefused(
                f"The database of the tenant {part.tenant} does not match what the archive's "
                "manifest says."
            )
        advance(part.size)
        # Before the file is opened as a database: whether it equals the archived one byte for byte.
        is_done = files_of(database) == [database] and database.stat().st_size == part.size
        if is_done:
            with database.open("rb") as file:
                is_done = file_digest(file, "sha256").hexdigest() == part.sha256
        is_there = database.exists()
        archived_erasures, _ = snapshots.erasures_at(draft)
        erasures, is_all = snapshots.erasures_at(database) if is_there else ({}, True)
        replacements.append(Replacement(
            part=part, path=database, draft=draft, is_there=is_there, is_done=is_done,
            size=size_of(database), now=snapshots.contents_at(database) if is_there else None,
            erased=tuple(it for id_, it in erasures.items() if id_ not in archived_erasures),
            is_all_erased=is_all,
        ))  # fmt: skip
    archived = {it.tenant for it in manifest.tenants}
    return Restore(
        settings=settings, archive=path, manifest=manifest, files=files,
        replacements=tuple(replacements),
        left_out=tuple(it.tenant for it in manifest.tenants if it.tenant in changes.erased),
        staying=tuple(it for it in tenants_of(settings.db_path) if it not in archived),
        is_known=changes.is_known, put_back=tuple(put_back),
        keys=_keys_plan(settings, files, changes) if with_keys else None,
    )  # fmt: skip


def _keys_plan(settings: Settings, files: Mapping[str, Path], changes: AuditedChanges) -> KeysPlan:
    if backup.KEYS not in files:
        raise snapshots.RestoreRefused("The archive has no keys: it was made without --keys.")
    try:
        if files[backup.KEYS].stat().st_size > LARGEST:
            raise ValueError("they are too large")
        ring = keys.read(files[backup.KEYS].read_bytes())
    except (ValueError, RecursionError) as fault:
        raise backup.ArchiveRefused(f"The keys in the archive cannot be used: {fault}.") from fault
    present = KeyFile(settings.keys_file, settings.audit_file).ring()
    unknown = [key for key in ring.keys.values() if key.id not in present.keys]
    return KeysPlan(
        new=tuple(key for key in unknown if not changes.is_void(key)),
        ended=tuple(key for key in unknown if changes.is_void(key)),
        present=present,
    )


def _put_back(draft: Path, path: Path) -> None:
    owned_like(draft, path.parent)
    sync(draft)
    placed(draft, path)


def _put(it: Replacement, database: Path) -> tuple[Path, ...]:
    folder = it.path.parent
    if not folder.exists():
        folder.mkdir(parents=True)
        owned_like(folder, database if database.exists() else database.parent)
        sync(folder.parent)
    owned_like(it.draft, it.path)
    if it.is_there:
        shutil.copymode(it.path, it.draft)
    return snapshots.replace_database(it.path, it.draft)
