"""Restores: what an archive holds is put in its place, after all of it was found to be good."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import datetime
from hashlib import file_digest
from pathlib import Path

from ..engine.files import Stamp, created, drafts, os_errors_as, owned_like, placed, sync
from ..errors import Conflict, Unavailable
from ..light import dataclass
from ..memory.access import DEFAULT_TENANT, By, Key, TenantId
from ..memory.erasure import Erasure
from ..settings import Settings
from ..sqlite import snapshots
from ..sqlite.migrate import newest_format
from ..sqlite.tenants import files_of, size_of, tenant_file, tenants_of
from . import backup
from .files import keys, secrets
from .files.keys import AUDIT_RESTORED, LARGEST, KeyFile, Since, line, record, since
from .files.service_lock import service_lock

UNPACKED_AND_EXAMINED = 2  # times that each byte is read


class DatabaseThere(Conflict):
    """A database would be replaced, or one of which nobody can know all that was erased from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The database of a tenant, and what is in its place now."""

    part: backup.TenantPart
    path: Path
    draft: Path  # of which all was found to be good
    is_there: bool  # a database is in its place
    is_done: bool  # and it is this one
    size: int  # bytes of what is there
    now: snapshots.Contents | None  # what it holds; none if it cannot be read
    erased: tuple[Erasure, ...]  # in it, which the archive does not know of
    is_all_erased: bool  # which are all: none of its receipts is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysPlan:
    """What becomes of the keys in an archive. What is known of one now goes before that."""

    new: tuple[Key, ...]  # that are to be known again, revoked ones too
    known: tuple[Key, ...]  # that stay as they are now
    ended: tuple[Key, ...]  # that stay away, as they were revoked or changed since
    stamp: Stamp  # of the key file when this was planned

    @property
    def opening(self) -> tuple[Key, ...]:
        return tuple(key for key in self.new if key.revoked_at is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """What becomes of an archive, of which all was verified; `carry_out` does it."""

    settings: Settings
    archive: Path
    manifest: backup.Manifest
    files: Mapping[str, Path]  # unpacked, beside databases
    replacements: tuple[Replacement, ...]
    left_out: tuple[TenantId, ...]  # that were erased since
    staying: tuple[TenantId, ...]  # that are there, and that it does not concern
    is_known: bool  # whether the audit tells all that has happened since
    put_back: tuple[str, ...]  # the other files in it that are missing now
    keys: KeysPlan | None  # none if keys are not touched

    @property
    def unsure(self) -> tuple[TenantId, ...]:
        """Those that come back although nobody can know whether they were erased since."""
        if self.is_known:
            return ()
        new = (it.part.tenant for it in self.replacements if not it.is_there)
        return tuple(tenant for tenant in new if tenant != DEFAULT_TENANT)

    def carry_out(
        self, *, at: datetime, by: By, is_forced: bool = False, without_receipts: bool = False
    ) -> list[Path]:
        """Do what is planned; the files that are kept of what was there.

        It can be repeated after a crash. DatabaseThere where a database would be
        replaced, unless it `is_forced`; and where receipts in it are damaged, unless it continues
        `without_receipts`: what was erased must not come back unnoticed.
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
                archived = secrets.read(self.files[backup.SEAL].read_bytes(), backup.SEAL)
                secrets.SealFile(self.settings.seal_file, lambda: at).add(archived)
            kept = [file for it in to_do for file in _put(it, self.settings.db_path)]
            if backup.REDACTION in self.put_back:
                _put_back(self.files[backup.REDACTION], self.settings.redaction_file)
        if self.keys and self.keys.new:
            file = KeyFile(self.settings.keys_file, self.settings.audit_file)
            try:
                file.bring_back(self.keys.new, self.keys.stamp, at=at, by=by)
            except Unavailable as refusal:
                sentence = f"The databases are in their place, but the keys are not: {refusal}"
                raise snapshots.RestoreRefused(sentence) from refusal
        return kept


@contextmanager
def prepared(
    settings: Settings, archive: Path, *, with_keys: bool = False,
    progress: backup.Progress | None = None, is_dry: bool = False,
) -> Iterator[Restore]:  # fmt: skip
    """A restore of all that the archive has, which was verified.

    Inside no service can begin on the database, unless it `is_dry`. Refused where a
    service has it, where the archive is not whole, and where it needs a newer program.
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
    progress: backup.Progress | None, stack: ExitStack,
) -> Restore:  # fmt: skip
    manifest = archive.manifest
    total = sum(member.size for member in manifest.members)
    advance = backup.meter(UNPACKED_AND_EXAMINED * total, progress)
    folders: dict[Path, Path] = {}

    def unpacked(member: backup.Member, near: Path) -> Path:
        """The member in a draft on the disk of a path, gone when the stack ends."""
        folder = next(it for it in near.absolute().parents if it.is_dir())
        if folder not in folders:
            backup.require_space(folder, total, snapshots.RestoreRefused)
            folders[folder] = stack.enter_context(drafts(folder))
        draft = folders[folder] / member.name.replace("/", "-")
        with created(draft) as into:
            archive.unpack(member, into, advance)
        return draft

    # Of the files beside databases those that are missing now. Those of an archive of some tenants
    # would be of these alone; but seal keys are of all.
    paths = {backup.SEAL: settings.seal_file}
    if manifest.is_of_all:
        paths |= {backup.AUDIT: settings.audit_file, backup.REDACTION: settings.redaction_file}
    put_back = {
        it.name: paths[it.name]
        for it in manifest.others
        if it.name in paths and not os.path.lexists(paths[it.name])
    }
    # Only what is moved as it is needs the same disk.
    near = {**put_back, backup.SEAL: settings.db_path}
    files = {it.name: unpacked(it, near.get(it.name, settings.db_path)) for it in manifest.others}
    with files[backup.AUDIT].open("rb") if backup.AUDIT in files else nullcontext(()) as lines:
        after = since(settings.audit_file, lines)
    replacements = []
    for part in manifest.tenants:
        if part.tenant in after.erased:
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
        # Before anybody opens it: whether the file is the archive's, to the byte.
        is_done = files_of(database) == [database] and database.stat().st_size == part.size
        if is_done:
            with database.open("rb") as file:
                is_done = file_digest(file, "sha256").hexdigest() == part.sha256
        is_there = database.exists()
        known, _ = snapshots.erasures_at(draft)
        present, is_all = snapshots.erasures_at(database) if is_there else ({}, True)
        replacements.append(Replacement(
            part=part, path=database, draft=draft, is_there=is_there, is_done=is_done,
            size=size_of(database), now=snapshots.contents_at(database) if is_there else None,
            erased=tuple(erasure for id_, erasure in present.items() if id_ not in known),
            is_all_erased=is_all,
        ))  # fmt: skip
    archived = {it.tenant for it in manifest.tenants}
    return Restore(
        settings=settings, archive=path, manifest=manifest, files=files,
        replacements=tuple(replacements),
        left_out=tuple(it.tenant for it in manifest.tenants if it.tenant in after.erased),
        staying=tuple(it for it in tenants_of(settings.db_path) if it not in archived),
        is_known=after.is_known, put_back=tuple(put_back),
        keys=_keys_plan(settings, files, after) if with_keys else None,
    )  # fmt: skip


def _keys_plan(settings: Settings, files: Mapping[str, Path], after: Since) -> KeysPlan:
    if backup.KEYS not in files:
        raise snapshots.RestoreRefused("The archive has no keys: it was made without --keys.")
    try:
        if files[backup.KEYS].stat().st_size > LARGEST:
            raise ValueError("they are too large")
        ring = keys.read(files[backup.KEYS].read_bytes())
    except (ValueError, RecursionError) as fault:
        raise backup.ArchiveRefused(f"The keys in the archive cannot be used: {fault}.") from fault
    stamp, present = KeyFile(settings.keys_file, settings.audit_file).read()
    unknown = [key for key in ring.keys.values() if key.id not in present.keys]
    return KeysPlan(
        new=tuple(key for key in unknown if not after.has_ended(key)),
        known=tuple(present.keys[id_] for id_ in ring.keys if id_ in present.keys),
        ended=tuple(key for key in unknown if after.has_ended(key)),
        stamp=stamp,
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
