"""What a restore is going to do: what an archive holds, beside what is in its place now."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from ...errors import NotFound, Refusal
from ...memory.model.access import DEFAULT_TENANT, TenantId
from ...memory.model.erasure import Erasure
from ...memory.model.keys import Key, KeyRing
from ...sqlite.engine.tenant_files import files_of, size_of
from ...sqlite.schema.contents import Contents, contents_at, erasures_at
from ..files import key_records
from ..files.audit import Since
from ..files.keys import LARGEST, KeyFile, Stamp
from .archive import ArchiveRefused
from .backup import Scope, ServicePaths
from .manifest import AUDIT, KEYS, REDACTION, SEAL, Manifest, TenantPart


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
        """Those that open something again."""
        return tuple(key for key in self.new if key.revoked_at is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What a restore does."""

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
        """Those that another database gives way to."""
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
    """What it would be to put a draft at a path."""
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
    paths: ServicePaths, files: Mapping[str, Path], *, is_whole: bool
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
    paths: ServicePaths, files: Mapping[str, Path], tenants: Collection[TenantId], after: Since
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
    """The keys of an archive, in a file that was taken from it."""
    if file.stat().st_size > LARGEST:
        raise ArchiveRefused("The keys in the archive cannot be used: they are too large.")
    try:
        return key_records.read(file.read_bytes())
    except (ValueError, RecursionError) as fault:
        raise ArchiveRefused(f"The keys in the archive cannot be used: {fault}.") from fault
