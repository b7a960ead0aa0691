"""Archives: all data of a service in one file, which is verified before it gets its name."""

import io
import json
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from zipfile import ZipFile

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, ValidationError

from .. import __version__
from ..engine.engine import noop
from ..engine.files import created, drafts, os_errors_as, owned_like, placed, sync
from ..errors import Conflict, Invalid, NotFound, Refusal
from ..light import dataclass, replace
from ..memory.access import DEFAULT_TENANT, TenantId, tenant_id
from ..memory.damage import GARBAGE
from ..memory.rows import rendered
from ..record import Record
from ..settings import Settings
from ..sqlite.snapshots import Contents, snapshot
from ..sqlite.tenants import size_of, tenant_file, tenants_of
from .files import keys
from .files.keys import KeyFile

FORMAT = 1
NAME = "manifest.json"
KEYS, REDACTION, AUDIT, SEAL = "keys.json", "redaction.json", "audit.jsonl", "seal.json"
COMMENT = b"agentops-memory sha256:"  # precedes the manifest's digest
LARGEST_MANIFEST = 16 * 1024 * 1024  # bytes; a tenant takes about 500
LEVEL = 3  # of deflate: nearly as small as with 6, in half the time
BLOCK = 1024 * 1024  # bytes in memory at a time
PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other methods may take any amount of memory

Progress = Callable[[int, int], None]
"""Called with the number of bytes that are done, and of all bytes."""
Advance = Callable[[int], None]
"""Called with the number of bytes that were just read."""

_FAULTS = (*GARBAGE, zipfile.BadZipFile, zlib.error, EOFError, KeyError)
DAMAGED = "Values in the newest backup are damaged; the newest undamaged backup is kept."
LATE = 2  # intervals after which the newest archive is too old
STAMP = "memory-%Y%m%dT%H%M%SZ.zip"
DRAFT = "archive.zip"
COPIED_PACKED_READ = 3  # number of times that each byte is read
SHRINKS_TO = 0.5  # highest ratio of compression of ordinary texts with their index


class ArchiveRefused(Refusal):
    """The archive cannot be used; the message gives the reason."""

    code = "restore_refused"


class Member(Record):
    """A file in an archive."""

    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(alias="member")
    size: int = Field(alias="bytes", ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class TenantPart(Contents, Member):
    """The database of a tenant, with its contents."""

    tenant: Annotated[TenantId, AfterValidator(tenant_id)]


class Manifest(Record):
    model_config = ConfigDict(populate_by_name=True)

    format: int = FORMAT
    program: str  # its version
    made_at: Annotated[datetime, PlainSerializer(rendered)]
    is_of_all: bool = Field(alias="all_tenants")
    tenants: tuple[TenantPart, ...]
    others: tuple[Member, ...] = Field(alias="members")

    @property
    def damaged(self) -> tuple[str, ...]:
        """Return the values that are known to be damaged, each with its tenant."""
        return tuple(f"{it.tenant}, {value}" for it in self.tenants for value in it.damaged or ())

    @property
    def members(self) -> tuple[Member, ...]:
        return (*self.tenants, *self.others)

    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


def member_of(tenant: TenantId) -> str:
    return "default.db" if tenant == DEFAULT_TENANT else f"tenants/{tenant}.db"


def meter(total: int, progress: Progress) -> Advance:
    """Return a function that adds up the bytes read and reports the sum."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done = min(done + count, total)
        progress(done, total)

    return advance


def require_space(folder: Path, needed: int, refusal: type[Refusal]) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise refusal(f"About {needed:,} bytes free in {folder} are needed; there are {free:,}.")


def _add(file: ZipFile, name: str, source: BinaryIO, advance: Advance) -> Member:
    digest, size = sha256(), 0
    with file.open(name, "w", force_zip64=True) as target:
        while block := source.read(BLOCK):
            digest.update(block)
            size += len(block)
            target.write(block)
            advance(len(block))
    return Member(name=name, size=size, sha256=digest.hexdigest())


class Archive:
    """An open archive, created by `opened`."""

    def __init__(self, path: Path, file: ZipFile) -> None:
        self._path = path
        self._file = file
        self.manifest = _manifest_of(file)

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["Archive"]:
        """Open an archive; ArchiveRefused if it is truncated, or not an archive of ours.

        It has exactly the files that its manifest names, with the sizes given there. `unpack`
        checks their content.
        """
        with _refusing_damage(path):
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block
                raise ValueError("it is not a file")
            file = ZipFile(path)
        with file:
            with _refusing_damage(path):
                archive = cls(path, file)
            yield archive

    def unpack(self, member: Member, into: BinaryIO | None, advance: Advance) -> None:
        """Read a file of the archive; ArchiveRefused if its content was changed."""
        digest, left = sha256(), member.size
        with _refusing_damage(self._path), self._file.open(member.name) as source:
            while block := source.read(min(BLOCK, left + 1)):
                left -= len(block)
                if left < 0:
                    break
                digest.update(block)
                if into is not None:
                    into.write(block)
                advance(len(block))
            if left or digest.hexdigest() != member.sha256:
                raise ValueError(f"{member.name} in it was changed")

    def verify(self, advance: Advance = noop) -> None:
        """Read the whole archive; ArchiveRefused if any content was changed."""
        for member in self.manifest.members:
            self.unpack(member, None, advance)


def _manifest_of(file: ZipFile) -> Manifest:
    if not file.comment.startswith(COMMENT):
        raise ValueError("it is not an archive of this program")
    if file.getinfo(NAME).file_size > LARGEST_MANIFEST:
        raise ValueError("its manifest is too large")
    for info in file.infolist():
        if info.compress_type not in PLAIN or info.flag_bits & 1:
            raise ValueError(f"{info.filename} in it has a compression this program never uses")
    with file.open(NAME) as source:
        data = source.read(LARGEST_MANIFEST)
    if file.comment != COMMENT + sha256(data).hexdigest().encode():
        raise ValueError("its manifest was changed")
    manifest = _read(data)
    sizes = {member.name: member.size for member in manifest.members}
    if sorted(file.namelist()) != sorted([*(it.name for it in manifest.members), NAME]):
        raise ValueError("its files are not those that its manifest names")
    for info in file.infolist():
        if info.file_size != sizes.get(info.filename, info.file_size):
            raise ValueError(f"{info.filename} in it does not have the size its manifest gives")
    return manifest


def _read(data: bytes) -> Manifest:
    fields = json.loads(data)
    if isinstance(fields, dict) and fields.get("format", FORMAT) != FORMAT:
        raise ValueError(f"it has format {fields['format']}, from another version of this program")
    try:
        manifest = Manifest.model_validate_json(data)
    except (ValidationError, Invalid) as fault:
        raise ValueError("a field of it is missing or invalid") from fault
    if any(part.name != member_of(part.tenant) for part in manifest.tenants):
        raise ValueError("a database of it has another tenant's name")
    return manifest


@contextmanager
def _refusing_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except _FAULTS as fault:
        reason = str(fault).strip("'\".") if isinstance(fault, ValueError) else "it is incomplete"
        raise ArchiveRefused(f"The archive {path} cannot be used: {reason}.") from fault


class BackupRefused(Refusal):
    """No archive was made; the message gives the reason."""

    code = "backup_refused"


class NoTenant(NotFound):
    """There is no tenant of this name."""


class ArchiveThere(Conflict):
    """A file already exists at the path of the archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    tenants: Sequence[TenantId] = ()  # empty for all tenants
    with_keys: bool = False
    without_seal: bool = False  # omits the keys of all tenants' confidential values

    def has(self, tenant: object) -> bool:
        return not self.tenants or tenant in self.tenants


EVERYTHING_BUT_KEYS = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """An archive that was made and verified."""

    manifest: Manifest
    path: Path
    size: int  # bytes


def make_archive(
    settings: Settings, to: Path, scope: Scope = EVERYTHING_BUT_KEYS, *, now: datetime,
    is_forced: bool = False, progress: Progress = noop,
) -> Archived:  # fmt: skip
    """Make an archive at a path, or in a folder under a name with the time.

    It may run in any thread, and next to a service: no write waits for it. The archive appears at
    the end, synced and verified, or not at all. Raises BackupRefused on failure, and ArchiveThere
    if the file exists, unless it `is_forced`.
    """
    target = Path(os.path.realpath(to))
    if target.is_dir():
        target = path_in(target, now)
    elif target.exists() and not target.is_file():
        raise BackupRefused(f"{target} is neither a file nor a folder.")
    elif not target.parent.is_dir():
        raise BackupRefused(f"There is no folder {target.parent}.")
    if target.exists() and not is_forced:
        raise ArchiveThere(f"{target} already exists.")
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


def _databases(path: Path, scope: Scope) -> Mapping[TenantId, Path]:
    every = {tenant: tenant_file(path, tenant) for tenant in tenants_of(path)}
    for tenant in scope.tenants:
        if tenant not in every:
            raise NoTenant(
                f"There is no tenant {tenant}; its file would be {tenant_file(path, tenant)}."
            )
    if not every:
        raise BackupRefused(f"There is no database at {path}.")
    return {tenant: file for tenant, file in every.items() if scope.has(tenant)}


def _packed(
    draft: Path, settings: Settings, databases: Mapping[TenantId, Path], scope: Scope,
    now: datetime, advance: Advance,
) -> Manifest:  # fmt: skip
    deflated = zipfile.ZIP_DEFLATED
    with created(draft) as raw, ZipFile(raw, "w", deflated, compresslevel=LEVEL) as file:
        files = _other_files(settings, scope, now, draft.parent)
        others = [_add(file, name, source, noop) for name, source in files]
        parts, copy = [], draft.with_name("snapshot.db")
        for tenant, path in databases.items():
            if not (path.exists() or scope.tenants):
                continue  # the tenant was erased meanwhile
            contents = snapshot(path, copy, lambda: advance(0))
            advance(copy.stat().st_size)
            with copy.open("rb") as source:
                member = _add(file, member_of(tenant), source, advance)
            copy.unlink()
            parts.append(TenantPart(tenant=tenant, **dict(member), **dict(contents)))
        manifest = Manifest(
            made_at=now, program=__version__, is_of_all=not scope.tenants, tenants=tuple(parts),
            others=tuple(others),
        )  # fmt: skip
        data = manifest.model_dump_json(by_alias=True, indent=1).encode() + b"\n"
        file.writestr(NAME, data)
        file.comment = COMMENT + sha256(data).hexdigest().encode()
    return manifest


def _other_files(
    settings: Settings, scope: Scope, now: datetime, folder: Path
) -> Iterator[tuple[str, BinaryIO]]:
    """Yield (name in the archive, file); each file must be read before the next.

    The audit comes first: changes that it lacks happened after the archive was begun.
    """
    if settings.audit_file.exists():
        with settings.audit_file.open("rb") as file, created(folder / AUDIT) as copy:
            copy.writelines(line for line in file if _is_in_scope(line, scope))
            copy.seek(0)
            yield AUDIT, copy
    if scope.with_keys:
        ring = KeyFile(settings.keys_file, settings.audit_file).settled()
        own_keys = {id_: key for id_, key in ring.keys.items() if scope.has(key.tenant)}
        if own_keys:
            yield KEYS, io.BytesIO(keys.written(replace(ring, keys=own_keys), now))
    if not scope.tenants and settings.redaction_file.exists():
        yield REDACTION, io.BytesIO(settings.redaction_file.read_bytes())
    if not scope.without_seal and settings.seal_file.exists():
        yield SEAL, io.BytesIO(settings.seal_file.read_bytes())


def _is_in_scope(line: bytes, scope: Scope) -> bool:
    """Whether a line of the audit belongs in the archive; a partial line is being written."""
    if not scope.tenants or not line.endswith(b"\n"):
        return line.endswith(b"\n")
    entry = keys.entry_of(line)
    return bool(entry) and (entry.get("tenant") is None or scope.has(entry["tenant"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptArchive:
    """A file with the name of an archive of all tenants."""

    made_at: datetime
    path: Path
    size: int  # bytes
    is_whole: bool
    is_damaged: bool  # whether it contains values that are known to be damaged


def are_on_one_disk(folder: Path, database: Path) -> bool:
    return folder.stat().st_dev == database.stat().st_dev


def trouble_of(archive: KeptArchive | None, every: timedelta, now: datetime) -> str | None:
    """Return a sentence if the newest archive does not suffice; None if it does."""
    if archive is None:
        return "There is no backup yet."
    if now - archive.made_at > LATE * every:
        return "The newest backup is too old."
    return DAMAGED if archive.is_damaged else None


def path_in(folder: Path, now: datetime) -> Path:
    return folder / now.strftime(STAMP)


def newest(folder: Path, now: datetime) -> KeptArchive | None:
    """Return the newest archive up to `now`; an OSError if the folder cannot be read.

    Archives that are incomplete, or of some tenants only, do not count. Neither do archives from
    the future: after a clock error, no backup would be made for a long time.
    """
    return next((kept for kept in _kept(folder, now) if kept.is_whole), None)


def prune(folder: Path, keep: int, now: datetime) -> list[Path]:
    """Remove all but the newest `keep` archives; return the removed paths.

    The newest archive without damaged values also stays, however old it is. Incomplete archives are
    removed once they are older. Files with other names, unreadable files, and archives of some
    tenants only always stay.
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
    """Yield the archives, newest first."""
    dated = ((_made_at(path.name), path) for path in folder.iterdir())
    for made_at, path in sorted(((at, path) for at, path in dated if at), reverse=True):
        with suppress(OSError):  # an unreadable file may not be ours
            if made_at > now or not path.is_file() or path.is_symlink():
                continue
            manifest = None
            with suppress(ArchiveRefused), Archive.opened(path) as archive:
                manifest = archive.manifest
            if manifest is None or manifest.is_of_all:
                yield KeptArchive(
                    made_at=made_at, path=path, size=path.stat().st_size,
                    is_whole=manifest is not None, is_damaged=bool(manifest and manifest.damaged),
                )  # fmt: skip


def _made_at(name: str) -> datetime | None:
    with suppress(ValueError):
        made_at = datetime.strptime(name, STAMP).replace(tzinfo=UTC)
        if made_at.strftime(STAMP) == name:
            return made_at
    return None
