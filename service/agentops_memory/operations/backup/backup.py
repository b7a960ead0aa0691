"""Archives: all that a service keeps, in one file that was checked before it has its name."""

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from zipfile import ZipFile

from ... import __version__
from ...errors import Conflict, NotFound, Refusal
from ...memory.model.access import TenantId
from ...settings.settings import Settings
from ...sqlite.engine.tenant_files import size_of, tenants_of
from ...sqlite.engine.tenants import tenant_file
from ...sqlite.maintenance.snapshots import snapshot
from ..files import keys
from ..files.atomic import created, drafts, os_errors_as, owned_like, placed, sync
from ..files.keys import KeyFile
from ..files.redaction import LARGEST, RedactionFileRefused
from .archive import (
    AUDIT,
    KEYS,
    REDACTION,
    SEAL,
    Advance,
    Archive,
    ArchiveRefused,
    Manifest,
    Progress,
    TenantPart,
    add,
    finish,
    member_of,
    meter,
    require_space,
    written,
)

STAMP = "memory-%Y%m%dT%H%M%SZ.zip"
DRAFT = "archive.zip"
COPIED_PACKED_READ = 3  # times that each byte is read
SHRINKS_TO = 0.5  # at most, of ordinary texts with their index


class BackupRefused(Refusal):
    """No archive was made; the sentence says why."""

    code = "backup_refused"


class NoTenant(NotFound):
    """There is no tenant of this name."""


class ArchiveThere(Conflict):
    """There is a file where the archive was to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    tenants: Sequence[TenantId] = ()  # none means all
    with_keys: bool = False
    without_seal: bool = False  # the keys of confidential values, of all tenants

    def has(self, tenant: object) -> bool:
        return not self.tenants or tenant in self.tenants


EVERYTHING_BUT_KEYS = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """An archive that was made, and found to be whole."""

    manifest: Manifest
    path: Path
    size: int  # bytes


def make_archive(
    settings: Settings,
    to: Path,
    scope: Scope = EVERYTHING_BUT_KEYS,
    *,
    now: datetime,
    is_forced: bool = False,
    progress: Progress | None = None,
) -> Archived:
    """Make an archive at a path, or in a folder under a name with the time.

    It may run in any thread, and a service may be running: no write waits for it. The
    archive is there at the end, on disk and read over once, or not at all: then it is
    refused, with ArchiveThere for a file that is there, unless it `is_forced`.
    """
    target = _target(to, now)
    if target.exists() and not is_forced:
        raise ArchiveThere(f"{target} is there already.")
    folder = target.parent
    with os_errors_as(BackupRefused, f"No archive can be made in {folder}"):
        databases = _databases(settings.db_path, scope)
        sizes = [*map(size_of, databases.values())]
        require_space(folder, int(max(sizes) + sum(sizes) * SHRINKS_TO), BackupRefused)
        total = COPIED_PACKED_READ * sum(sizes)
        advance = meter(total, progress)
        with drafts(folder) as own:
            draft = own / DRAFT
            manifest = _packed(draft, settings, databases, scope, now, advance)
            with Archive.opened(draft) as archive:
                archive.verify(advance)
            advance(total)
            size = draft.stat().st_size
            owned_like(draft, folder)
            if is_forced:
                draft.replace(target)
                sync(folder)
            else:
                placed(draft, target)
    return Archived(manifest=manifest, path=target, size=size)


def _target(to: Path, now: datetime) -> Path:
    target = Path(os.path.realpath(to))
    if target.is_dir():
        return path_in(target, now)
    if target.exists() and not target.is_file():
        raise BackupRefused(f"{target} is neither a file nor a folder.")
    if not target.parent.is_dir():
        raise BackupRefused(f"There is no folder {target.parent}.")
    return target


def _databases(path: Path, scope: Scope) -> Mapping[TenantId, Path]:
    every = {tenant: tenant_file(path, tenant) for tenant in tenants_of(path)}
    for tenant in scope.tenants:
        if tenant not in every:
            raise NoTenant(f"There is no tenant {tenant}: it would be {tenant_file(path, tenant)}.")
    if not every:
        raise BackupRefused(f"There is no database at {path}.")
    return {tenant: file for tenant, file in every.items() if scope.has(tenant)}


def _packed(
    draft: Path,
    settings: Settings,
    databases: Mapping[TenantId, Path],
    scope: Scope,
    now: datetime,
    advance: Advance,
) -> Manifest:
    with written(draft) as file:
        files = _other_files(settings, scope, now, draft.parent)
        others = [add(file, name, source, lambda _: None) for name, source in files]
        parts = [
            _part(file, draft.with_name("snapshot.db"), tenant, path, advance)
            for tenant, path in databases.items()
            if path.exists() or scope.tenants  # else it was erased meanwhile
        ]
        manifest = Manifest(
            made_at=now,
            program=__version__,
            is_of_all=not scope.tenants,
            tenants=tuple(parts),
            others=tuple(others),
        )
        finish(file, manifest)
    return manifest


def _part(file: ZipFile, draft: Path, tenant: TenantId, path: Path, advance: Advance) -> TenantPart:
    found = snapshot(path, draft, lambda: advance(0))
    advance(draft.stat().st_size)
    with draft.open("rb") as source:
        member = add(file, member_of(tenant), source, advance)
    draft.unlink()
    return TenantPart(tenant=tenant, **dict(member), **dict(found))


def _other_files(
    settings: Settings, scope: Scope, now: datetime, own: Path
) -> Iterator[tuple[str, BinaryIO]]:
    """The files by their names in an archive, each to be read before the next.

    The audit comes first: what it does not tell has happened after the archive was begun.
    """
    if settings.audit_file.exists():
        with settings.audit_file.open("rb") as file, created(own / AUDIT) as copy:
            copy.writelines(line for line in file if _is_of(line, scope))
            copy.seek(0)
            yield AUDIT, copy
    if scope.with_keys:
        ring = KeyFile(settings.keys_file, settings.audit_file).settled()
        own_keys = {id_: key for id_, key in ring.keys.items() if scope.has(key.tenant)}
        if own_keys:
            yield KEYS, io.BytesIO(keys.written(replace(ring, keys=own_keys), now))
    if settings.redaction_file.exists():
        yield REDACTION, io.BytesIO(_rules(settings.redaction_file, scope))
    if not scope.without_seal and settings.seal_file.exists():
        yield SEAL, io.BytesIO(settings.seal_file.read_bytes())


def _is_of(line: bytes, scope: Scope) -> bool:
    """Whether the archive has a line of the audit; one without an end is being written."""
    if not scope.tenants or not line.endswith(b"\n"):
        return line.endswith(b"\n")
    with suppress(ValueError, AttributeError):
        return (tenant := json.loads(line).get("tenant")) is None or scope.has(tenant)
    return False


def _rules(file: Path, scope: Scope) -> bytes:
    with file.open("rb") as source:
        data = source.read(LARGEST)
    if not scope.tenants:
        return data
    try:
        rules = json.loads(data).items()
        return json.dumps({name: rule for name, rule in rules if scope.has(name)}).encode()
    except (ValueError, AttributeError, RecursionError) as fault:
        raise RedactionFileRefused(f"The redaction file {file} cannot be used.") from fault


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptArchive:
    """A file with the name of an archive, unless it is of some tenants only."""

    made_at: datetime
    path: Path
    size: int  # bytes
    is_whole: bool
    is_damaged: bool  # of values in it that is known


def path_in(folder: Path, now: datetime) -> Path:
    return folder / now.strftime(STAMP)


def newest(folder: Path, now: datetime) -> KeptArchive | None:
    """The newest archive until now; an OSError if the folder cannot be looked at.

    One that is not whole, or of some tenants only, does not count. Nor does one with a
    time that is yet to come: after a clock that was wrong, none would be made for long.
    """
    return next((kept for kept in _kept(folder, now) if kept.is_whole), None)


def prune(folder: Path, keep: int, now: datetime) -> list[Path]:
    """Remove what is older than the newest archives, of which so many stay; what is gone then.

    The newest without damaged values stays, too, however old it is. Archives that are not whole
    go once they are older. Whatever has another name than ours stays, and so does what cannot be
    read, or is of some tenants only.
    """
    every = list(_kept(folder, now))
    whole = [kept for kept in every if kept.is_whole]
    if len(whole) < keep:
        return []
    oldest = whole[keep - 1].made_at
    sound = next((kept for kept in whole if not kept.is_damaged), None)
    gone = [kept.path for kept in every if kept.made_at < oldest and kept is not sound]
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def _kept(folder: Path, now: datetime) -> Iterator[KeptArchive]:
    """The newest first."""
    dated = ((_stamp(path.name), path) for path in folder.iterdir())
    for made_at, path in sorted(((at, path) for at, path in dated if at), reverse=True):
        with suppress(OSError):  # nobody knows whether one that cannot be read is ours
            if made_at > now or not path.is_file() or path.is_symlink():
                continue
            manifest = _manifest_at(path)
            if manifest is None or manifest.is_of_all:
                yield KeptArchive(
                    made_at=made_at,
                    path=path,
                    size=path.stat().st_size,
                    is_whole=manifest is not None,
                    is_damaged=bool(manifest and manifest.damaged),
                )


def _manifest_at(path: Path) -> Manifest | None:
    try:
        with Archive.opened(path) as archive:
            return archive.manifest
    except ArchiveRefused:
        return None


def _stamp(name: str) -> datetime | None:
    with suppress(ValueError):
        made_at = datetime.strptime(name, STAMP).replace(tzinfo=UTC)
        if made_at.strftime(STAMP) == name:
            return made_at
    return None
