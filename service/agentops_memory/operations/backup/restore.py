"""Restores: what an archive holds is put in its place, after all of it was found to be good."""

import errno
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import file_digest
from pathlib import Path

from ...errors import Conflict, NotFound, Refusal, Unavailable
from ...memory.model.access import DEFAULT_TENANT, TenantId
from ...memory.model.erasure import Erasure
from ...memory.model.keys import By, Key, KeyRing
from ...settings.settings import Settings
from ...sqlite.engine.tenant_files import files_of, size_of, tenants_of
from ...sqlite.engine.tenants import tenant_file
from ...sqlite.maintenance.replacing import replace_database, require_files
from ...sqlite.maintenance.snapshots import SnapshotRefused, verified
from ...sqlite.schema.contents import Contents, contents_at, erasures_at
from ...sqlite.schema.migrate import newest_format
from ..files import keys, seals
from ..files.atomic import created, drafts, owned_like, placed, sync
from ..files.audit import AUDIT_RESTORED, Since, line, record, since
from ..files.keys import LARGEST, KeyFile, Stamp
from ..files.service_lock import InUse, service_lock
from .archive import (
    AUDIT,
    KEYS,
    REDACTION,
    SEAL,
    Archive,
    ArchiveRefused,
    Manifest,
    Member,
    Meter,
    OnRead,
    Progress,
    TenantPart,
)
from .backup import Scope


class NotInArchive(NotFound):
    """The archive does not have what was asked for."""


class RestoreRefused(Refusal):
    """Nothing was restored; the sentence says why."""

    code = "restore_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The database of a tenant, and what is in its place now."""

    part: TenantPart
    path: Path
    draft: Path  # of which all was found to be good
    is_there: bool  # a database is in its place
    is_done: bool  # and it is this one
    size: int  # bytes of what is there
    now: Contents | None  # what it holds; none if it cannot be read
    erased: tuple[Erasure, ...]  # in it, which the archive does not know of


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
class RestorePlan:
    archive: Path
    manifest: Manifest
    replacements: tuple[Replacement, ...]
    left_out: tuple[TenantId, ...]  # that were erased since
    staying: tuple[TenantId, ...]  # that are there, and that it does not concern
    is_known: bool  # whether the audit tells all that has happened since
    files: Mapping[str, bool]  # the others in it, and whether they are put back
    keys: KeysPlan | None  # none if keys are not touched

    @property
    def to_replace(self) -> tuple[Replacement, ...]:
        return tuple(it for it in self.replacements if it.is_there and not it.is_done)

    @property
    def unsure(self) -> tuple[TenantId, ...]:
        """Those that come back although nobody can know whether they were erased since."""
        others = (it for it in self.replacements if it.part.tenant != DEFAULT_TENANT)
        return tuple(it.part.tenant for it in others if not (it.is_there or self.is_known))


def tenants_to_restore(manifest: Manifest, scope: Scope, after: Since) -> list[TenantPart]:
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


def replacement(part: TenantPart, path: Path, draft: Path) -> Replacement:
    is_there = path.exists()
    is_done = is_there and _is_same(part, path)
    known = erasures_at(draft)
    present = erasures_at(path) if is_there else {}
    return Replacement(
        part=part,
        path=path,
        draft=draft,
        is_there=is_there,
        is_done=is_done,
        size=size_of(path),
        now=contents_at(path) if is_there else None,
        erased=tuple(erasure for id_, erasure in present.items() if id_ not in known),
    )


def files_to_put_back(
    paths: Settings, files: Mapping[str, Path], *, is_whole: bool
) -> dict[str, bool]:
    """The files beside databases, if the archive has them, and whether they are missing.

    Those of the seal file are needed by whatever comes back.
    """
    where = {AUDIT: paths.audit_file, REDACTION: paths.redaction_file}
    missing = {
        name: is_whole and not os.path.lexists(path)
        for name, path in where.items()
        if name in files
    }
    return missing | {SEAL: not os.path.lexists(paths.seal_file)} if SEAL in files else missing


def planned_keys(
    paths: Settings, files: Mapping[str, Path], tenants: Collection[TenantId], after: Since
) -> KeysPlan:
    """What would become of those keys in the archive that open these tenants; none means all."""
    if KEYS not in files:
        raise RestoreRefused("The archive has no keys: it was made without --keys.")
    ring = _ring(files[KEYS])
    stamp, present = KeyFile(paths.keys_file, paths.audit_file).read()
    own = [key for key in ring.keys.values() if not tenants or key.tenant in tenants]
    unknown = [key for key in own if key.id not in present.keys]
    return KeysPlan(
        new=tuple(key for key in unknown if not after.has_ended(key)),
        known=tuple(present.keys[key.id] for key in own if key.id in present.keys),
        ended=tuple(key for key in unknown if after.has_ended(key)),
        stamp=stamp,
    )


def _is_same(part: TenantPart, path: Path) -> bool:
    """Whether the file is the archive's, to the byte; looked at before anybody opens it."""
    if files_of(path) != [path] or path.stat().st_size != part.member.size:
        return False
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest() == part.member.sha256


def _ring(file: Path) -> KeyRing:
    if file.stat().st_size > LARGEST:
        raise ArchiveRefused("The keys in the archive cannot be used: they are too large.")
    try:
        return keys.read(file.read_bytes())
    except (ValueError, RecursionError) as fault:
        raise ArchiveRefused(f"The keys in the archive cannot be used: {fault}.") from fault


UNPACKED_AND_EXAMINED = 2  # times that each byte is met


class DatabaseThere(Conflict):
    """A database would be replaced."""


class NoRoom(Refusal):
    """The disk has too little space for what is to be unpacked."""

    code = "restore_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    plan: RestorePlan
    paths: Settings
    files: Mapping[str, Path]  # what was taken from the archive beside databases

    def carry_out(self, *, at: datetime, by: By, is_forced: bool = False) -> list[Path]:
        """Do what is planned; the files that are kept of what was there.

        It can be repeated after a crash. DatabaseThere where a database would be
        replaced, unless it `is_forced`.
        """
        if self.plan.to_replace and not is_forced:
            names = ", ".join(str(it.path) for it in self.plan.to_replace)
            raise DatabaseThere(f"There is a database already: {names}.")
        with _explained(self.paths.db_path.parent):
            self._put_back(AUDIT, self.paths.audit_file, line(at, AUDIT_RESTORED, by))
            self._note(at, by)
            if SEAL in self.files:
                archived = seals.read(self.files[SEAL].read_bytes(), SEAL)
                seals.SealFile(self.paths.seal_file, lambda: at).add(archived)
            kept = [file for it in self.plan.replacements for file in _put(it, self.paths.db_path)]
            self._put_back(REDACTION, self.paths.redaction_file)
        if self.plan.keys and self.plan.keys.new:
            self._bring_back(self.plan.keys, at, by)
        return kept

    def _bring_back(self, keys: KeysPlan, at: datetime, by: By) -> None:
        file = KeyFile(self.paths.keys_file, self.paths.audit_file)
        try:
            file.bring_back(keys.new, keys.stamp, at=at, by=by)
        except Unavailable as refusal:
            sentence = f"The databases are in their place, but the keys are not: {refusal}"
            raise RestoreRefused(sentence) from refusal

    def _note(self, at: datetime, by: By) -> None:
        record(
            self.paths.audit_file,
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
            with created(own / name, like=path.parent) as into:
                with self.files[name].open("rb") as source:
                    shutil.copyfileobj(source, into)
                into.write(end)
            placed(own / name, path)


@contextmanager
def prepared(
    paths: Settings,
    archive: Path,
    scope: Scope,
    *,
    progress: Progress | None = None,
    is_dry: bool = False,
) -> Iterator[Restore]:
    """A restore of these tenants, or of all that the archive has, of which all was verified.

    Inside no service can begin on the database, unless it `is_dry`. Refused where a
    service has it, where the archive is not whole, and where it needs a newer program.
    """
    with ExitStack() as held:
        with _explained(paths.db_path.parent):
            source = held.enter_context(Archive.opened(archive))
            if not is_dry:
                _lock(paths.db_path, held)
            restore = _restore(paths, archive, Unpacking(source, held), scope, progress)
        yield restore


def _lock(database: Path, held: ExitStack) -> None:
    try:
        held.enter_context(service_lock(database))
    except InUse as refusal:
        raise RestoreRefused(str(refusal)) from refusal


def _restore(
    paths: Settings, archive: Path, unpacking: "Unpacking", scope: Scope, progress: Progress | None
) -> Restore:
    manifest = unpacking.manifest
    files = unpacking.files(paths.db_path)
    after = _since(paths.audit_file, files)
    parts = tenants_to_restore(manifest, scope, after)
    places = {
        it.tenant: Path(os.path.realpath(tenant_file(paths.db_path, it.tenant))) for it in parts
    }
    for database in places.values():
        require_files(database)
    meter = Meter(UNPACKED_AND_EXAMINED * sum(it.member.size for it in parts), progress)
    found = unpacking.databases(parts, places, meter.add)
    tenants = set(places)
    plan = RestorePlan(
        archive=archive,
        manifest=manifest,
        replacements=tuple(replacement(it, places[it.tenant], found[it.tenant]) for it in parts),
        left_out=tuple(it.tenant for it in manifest.tenants if it.tenant in after.erased - tenants),
        staying=tuple(it for it in tenants_of(paths.db_path) if it not in tenants),
        is_known=after.is_known,
        files=files_to_put_back(paths, files, is_whole=manifest.is_of_all and not scope.tenants),
        keys=planned_keys(paths, files, scope.tenants, after) if scope.with_keys else None,
    )
    return Restore(plan=plan, paths=paths, files=files)


def _since(audit: Path, files: Mapping[str, Path]) -> Since:
    if AUDIT not in files:
        return since(audit, ())
    with files[AUDIT].open("rb") as lines:
        return since(audit, lines)


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
    return replace_database(it.path, it.draft)


class Unpacking:
    """An archive on its way into drafts beside the databases; they are gone when `held` ends."""

    def __init__(self, archive: Archive, held: ExitStack) -> None:
        self._archive = archive
        self.manifest = archive.manifest
        self._held = held
        self._folders: dict[Path, Path] = {}

    def files(self, near: Path) -> Mapping[str, Path]:
        members = self.manifest.others
        self._require_room(near, sum(member.size for member in members))
        return {member.name: self._unpacked(member, near) for member in members}

    def databases(
        self, parts: Collection[TenantPart], places: Mapping[TenantId, Path], on_read: OnRead
    ) -> Mapping[TenantId, Path]:
        """The databases of these tenants, each beside its place; ArchiveRefused if one is bad.

        That is one of a newer format, and one that does not hold what the manifest says.
        """
        for part in parts:
            if part.contents.format > newest_format():
                raise ArchiveRefused(
                    f"The database of the tenant {part.tenant} has format {part.contents.format}, "
                    f"made by agentops-memory {self.manifest.program}; this one knows formats up "
                    f"to {newest_format()}."
                )
        for part in parts:
            self._require_room(places[part.tenant], sum(it.member.size for it in parts))
        return {it.tenant: self._database(it, places[it.tenant], on_read) for it in parts}

    def _database(self, part: TenantPart, path: Path, on_read: OnRead) -> Path:
        draft = self._unpacked(part.member, path, on_read)
        try:
            found = verified(draft)
        except SnapshotRefused as refusal:
            sentence = f"The database of the tenant {part.tenant} in the archive is damaged."
            raise ArchiveRefused(sentence) from refusal
        expected = part.contents
        if (found.format, found.counts) != (expected.format, expected.counts):
            raise ArchiveRefused(
                f"The database of the tenant {part.tenant} holds something else than the archive's "
                "manifest says."
            )
        on_read(part.member.size)
        return draft

    def _unpacked(self, member: Member, near: Path, on_read: OnRead | None = None) -> Path:
        draft = self._folder(near) / member.name.replace("/", "-")
        with created(draft) as into:
            self._archive.copy(member, into, on_read)
        return draft

    def _folder(self, near: Path) -> Path:
        there = _there(near)
        if there not in self._folders:
            self._folders[there] = self._held.enter_context(drafts(there))
        return self._folders[there]

    def _require_room(self, near: Path, needed: int) -> None:
        free = shutil.disk_usage(_there(near)).free
        if free < needed:
            raise NoRoom(
                f"What is in the archive needs {needed:,} bytes free in {_there(near)}; there are "
                f"{free:,}."
            )


def _there(path: Path) -> Path:
    return next(folder for folder in path.absolute().parents if folder.is_dir())


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise RestoreRefused(f"The disk of {folder} is full.") from error
        named = f"{error.filename}: " if error.filename else ""
        raise RestoreRefused(f"It cannot be restored: {named}{error.strerror}.") from error
