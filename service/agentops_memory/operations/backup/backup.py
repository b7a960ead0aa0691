"""Archives: all that a service keeps, in one file that was checked before it has its name."""

import errno
import io
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from ... import __version__
from ...errors import Conflict, NotFound, Refusal
from ...memory.model.access import TenantId
from ...settings.settings import Settings
from ...sqlite.engine.tenant_files import size_of, tenants_of
from ...sqlite.engine.tenants import tenant_file
from ...sqlite.maintenance.snapshots import snapshot
from ..files import keys
from ..files.atomic import drafts, owned_like, placed, sync
from ..files.keys import KeyFile
from ..files.redaction import LARGEST, RedactionFileRefused
from .archive import (
    AUDIT,
    KEYS,
    REDACTION,
    SEAL,
    Archive,
    ArchiveRefused,
    ArchiveWriter,
    Manifest,
    Meter,
    Progress,
    TenantPart,
    member_of,
)

STAMP = "memory-%Y%m%dT%H%M%SZ.zip"
DRAFT = "archive.zip"
COPIED_PACKED_READ = 3  # times that each byte is met
SHRINKS_TO = 0.5  # at most, of ordinary texts with their index


Tenants = Collection[TenantId] | None
"""Whose lines, keys and rules; none for everybody's."""


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


EVERYTHING_BUT_KEYS = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """An archive that was made, and found to be whole."""

    manifest: Manifest
    path: Path
    size: int  # bytes


def make_archive(
    paths: Settings,
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
    target = target_of(to, now)
    if target.exists() and not is_forced:
        raise ArchiveThere(f"{target} is there already.")
    folder = target.parent
    with archive_draft(paths, folder, scope, now=now, progress=progress) as (manifest, draft):
        size = draft.stat().st_size
        with _explained(folder):
            owned_like(draft, folder)
            _put(draft, target, is_forced=is_forced)
    return Archived(manifest=manifest, path=target, size=size)


def target_of(to: Path, now: datetime) -> Path:
    target = Path(os.path.realpath(to))
    if target.is_dir():
        return target / now.strftime(STAMP)
    if target.exists() and not target.is_file():
        raise BackupRefused(f"{target} is neither a file nor a folder.")
    if not target.parent.is_dir():
        raise BackupRefused(f"There is no folder {target.parent}.")
    return target


@contextmanager
def archive_draft(
    paths: Settings, folder: Path, scope: Scope, *, now: datetime, progress: Progress | None = None
) -> Iterator[tuple[Manifest, Path]]:
    """An archive in the folder, whole, without a name; gone at the end unless it was moved."""
    with ExitStack() as held:
        with _explained(folder):
            databases = _databases(paths.db_path, scope)
            sizes = [*map(size_of, databases.values())]
            own = held.enter_context(drafts(folder))
            _require_space(folder, sizes)
            meter = Meter(COPIED_PACKED_READ * sum(sizes), progress)
            manifest = _packed(own, paths, databases, scope, now, meter)
            with Archive.opened(own / DRAFT) as archive:
                archive.verify(meter.add)
            meter.end()
        yield manifest, own / DRAFT


def _databases(path: Path, scope: Scope) -> Mapping[TenantId, Path]:
    there = tenants_of(path)
    for tenant in scope.tenants:
        if tenant not in there:
            raise NoTenant(f"There is no tenant {tenant}: it would be {tenant_file(path, tenant)}.")
    if not there:
        raise BackupRefused(f"There is no database at {path}.")
    return {it: tenant_file(path, it) for it in there if it in (scope.tenants or there)}


def _require_space(folder: Path, sizes: Collection[int]) -> None:
    needed = int(max(sizes) + sum(sizes) * SHRINKS_TO)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BackupRefused(
            f"An archive needs about {needed:,} bytes free in {folder}; there are {free:,}."
        )


def _packed(
    own: Path,
    paths: Settings,
    databases: Mapping[TenantId, Path],
    scope: Scope,
    now: datetime,
    meter: Meter,
) -> Manifest:
    tenants = databases if scope.tenants else None
    with ArchiveWriter.opened(own / DRAFT) as writer:
        others = [
            writer.add(name, source)
            for name, source in _other_files(paths, tenants, now, own, scope)
        ]
        parts = [
            _part(writer, own / "snapshot.db", tenant, path, meter)
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
        writer.finish(manifest)
    return manifest


def _part(
    writer: ArchiveWriter, draft: Path, tenant: TenantId, path: Path, meter: Meter
) -> TenantPart:
    size = size_of(path)
    found = snapshot(path, draft, meter.within(size))
    meter.add(size)
    try:
        with draft.open("rb") as source:
            member = writer.add(member_of(tenant), source, meter.add)
    finally:
        draft.unlink()
    return TenantPart(tenant=tenant, member=member, contents=found)


def _put(draft: Path, target: Path, *, is_forced: bool) -> None:
    if is_forced:
        draft.replace(target)
        return sync(target.parent)
    try:
        placed(draft, target)
    except FileExistsError as error:
        raise ArchiveThere(f"{target} is there already.") from error


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise BackupRefused(f"The disk of {folder} is full; no archive was made.") from error
        raise BackupRefused(f"No archive can be made in {folder}: {error.strerror}.") from error


def _other_files(
    paths: Settings, tenants: Tenants, now: datetime, folder: Path, scope: Scope
) -> Iterator[tuple[str, BinaryIO]]:
    """The files by their names in an archive, each to be read before the next.

    The audit comes first: what it does not tell has happened after the archive was begun.
    """
    if paths.audit_file.exists():
        with TemporaryFile(dir=folder) as copy:
            copy.writelines(_lines(paths.audit_file, tenants))
            copy.seek(0)
            yield AUDIT, copy
    if scope.with_keys and (keys := _keys(paths, tenants, now)):
        yield KEYS, io.BytesIO(keys)
    if paths.redaction_file.exists():
        yield REDACTION, io.BytesIO(_rules(paths.redaction_file, tenants))
    if not scope.without_seal and paths.seal_file.exists():
        yield SEAL, io.BytesIO(paths.seal_file.read_bytes())


def _lines(audit: Path, tenants: Tenants) -> Iterator[bytes]:
    with audit.open("rb") as file:
        for line in file:
            if line.endswith(b"\n") and (tenants is None or _is_of(line, tenants)):
                yield line  # one without an end is being written


def _is_of(line: bytes, tenants: Collection[TenantId]) -> bool:
    with suppress(ValueError, AttributeError, TypeError):
        tenant = json.loads(line).get("tenant")
        return tenant is None or tenant in tenants
    return False


def _keys(paths: Settings, tenants: Tenants, now: datetime) -> bytes:
    ring = KeyFile(paths.keys_file, paths.audit_file).settled()
    every = ring.keys.items()
    own = {id_: key for id_, key in every if tenants is None or key.tenant in tenants}
    return keys.written(replace(ring, keys=own), now) if own else b""


def _rules(file: Path, tenants: Tenants) -> bytes:
    with file.open("rb") as source:
        data = source.read(LARGEST)
    if tenants is None:
        return data
    try:
        given = json.loads(data)
        return json.dumps({name: given[name] for name in given if name in tenants}).encode()
    except (ValueError, TypeError, RecursionError) as fault:
        raise RedactionFileRefused(f"The redaction file {file} cannot be used.") from fault


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptArchive:
    """An archive of all tenants that can be opened."""

    made_at: datetime
    path: Path
    size: int  # bytes
    is_damaged: bool  # of values in it that is known


def path_in(folder: Path, now: datetime) -> Path:
    return folder / now.strftime(STAMP)


def newest(folder: Path, now: datetime) -> KeptArchive | None:
    """The newest archive until now; an OSError if the folder cannot be looked at.

    One that is damaged, or of some tenants only, does not count. Nor does one with a
    time that is yet to come: after a clock that was wrong, none would be made for long.
    """
    return next(_kept(folder, now), None)


def prune(folder: Path, keep: int, now: datetime) -> list[Path]:
    """Remove what is older than the newest archives, of which so many stay; what is gone then.

    The newest without damaged values stays, too, however old it is. Archives that are not whole
    go once they are older. Whatever has another name than ours stays, and so does what cannot be
    read, or is of some tenants only.
    """
    staying = list(islice(_kept(folder, now), keep))
    if len(staying) < keep:
        return []
    oldest = staying[-1].made_at
    sound = next((kept.path for kept in _kept(folder, now) if not kept.is_damaged), None)
    older = (path for made_at, path in _dated(folder, now) if made_at < oldest and path != sound)
    gone = [path for path in older if _may_go(path)]
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def _kept(folder: Path, now: datetime) -> Iterator[KeptArchive]:
    for made_at, path in _dated(folder, now):
        with suppress(ArchiveRefused, OSError), Archive.opened(path) as archive:
            manifest = archive.manifest
            if manifest.is_of_all:
                size, is_damaged = path.stat().st_size, bool(manifest.damaged)
                yield KeptArchive(made_at=made_at, path=path, size=size, is_damaged=is_damaged)


def _may_go(path: Path) -> bool:
    try:
        with Archive.opened(path) as archive:
            return archive.manifest.is_of_all
    except ArchiveRefused:
        return True
    except OSError:
        return False


def _dated(folder: Path, now: datetime) -> list[tuple[datetime, Path]]:
    files = (path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    dated = ((_stamp(path.name), path) for path in files)
    return sorted(((at, path) for at, path in dated if at and at <= now), reverse=True)


def _stamp(name: str) -> datetime | None:
    with suppress(ValueError):
        made_at = datetime.strptime(name, STAMP).replace(tzinfo=UTC)
        if made_at.strftime(STAMP) == name:
            return made_at
    return None
