"""The archive: a zip of databases and of the files beside them, with a manifest of digests."""

import json
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import AfterValidator, ConfigDict, Field, PlainSerializer, ValidationError

from ...errors import Invalid, Refusal
from ...memory.model.access import DEFAULT_TENANT, TenantId, tenant_id
from ...recall.text.instants import rendered
from ...record import Record
from ...sqlite.schema.contents import Contents
from ..files.atomic import created

FORMAT = 1
NAME = "manifest.json"
KEYS, REDACTION, AUDIT, SEAL = "keys.json", "redaction.json", "audit.jsonl", "seal.json"
COMMENT = b"agentops-memory sha256:"  # and the manifest's digest
LARGEST_MANIFEST = 16 * 1024 * 1024  # bytes; a tenant takes about 500
LEVEL = 3  # of deflate: nearly as small as by 6, in half the time
BLOCK = 1024 * 1024  # bytes that are in memory at a time
PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may take any amount of memory

Progress = Callable[[int, int], None]
"""Called with how many bytes of how many are done."""
Advance = Callable[[int], None]
"""Called with the number of bytes that were just read."""

_FAULTS = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, OverflowError,
    NotImplementedError, RuntimeError, RecursionError,
)  # fmt: skip


class ArchiveRefused(Refusal):
    """The archive cannot be used; the sentence says why."""

    code = "restore_refused"


class Member(Record):
    """A file in an archive."""

    model_config = ConfigDict(populate_by_name=True)

    name: str = Field(alias="member")
    size: int = Field(alias="bytes", ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class TenantPart(Contents, Member):
    """The database of a tenant, and what it holds."""

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
        """The values that are known to be damaged, each with its tenant."""
        return tuple(f"{it.tenant}, {value}" for it in self.tenants for value in it.damaged or ())

    @property
    def members(self) -> tuple[Member, ...]:
        return (*self.tenants, *self.others)

    def document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


def member_of(tenant: TenantId) -> str:
    return "default.db" if tenant == DEFAULT_TENANT else f"tenants/{tenant}.db"


def meter(total: int, progress: Progress | None) -> Advance:
    """Adds up what was read, and tells it on."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done = min(done + count, total)
        if progress is not None:
            progress(done, total)

    return advance


def require_space(folder: Path, needed: int, refusal: type[Refusal]) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise refusal(f"About {needed:,} bytes free in {folder} are needed; there are {free:,}.")


@contextmanager
def written(path: Path) -> Iterator[zipfile.ZipFile]:
    """A new archive at the path, for its owner alone to read; at the end it is on disk."""
    deflated = zipfile.ZIP_DEFLATED
    with created(path) as raw, zipfile.ZipFile(raw, "w", deflated, compresslevel=LEVEL) as file:
        yield file


def add(file: zipfile.ZipFile, name: str, source: BinaryIO, advance: Advance) -> Member:
    digest, size = sha256(), 0
    with file.open(name, "w", force_zip64=True) as target:
        while block := source.read(BLOCK):
            digest.update(block)
            size += len(block)
            target.write(block)
            advance(len(block))
    return Member(name=name, size=size, sha256=digest.hexdigest())


def finish(file: zipfile.ZipFile, manifest: Manifest) -> None:
    """Add the manifest, and its digest as the comment of the zip."""
    data = manifest.model_dump_json(by_alias=True, indent=1).encode() + b"\n"
    file.writestr(NAME, data)
    file.comment = COMMENT + sha256(data).hexdigest().encode()


class Archive:
    """An open archive. Make one with `opened`."""

    def __init__(self, path: Path, file: zipfile.ZipFile) -> None:
        self._path = path
        self._file = file
        self.manifest = _manifest_of(file)

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["Archive"]:
        """The archive at the path; ArchiveRefused if it is cut short, or no archive of ours.

        It has exactly the files that its manifest names, of the sizes there. Their content is
        checked by `unpack`.
        """
        with _explained(path):
            if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait
                raise ValueError("it is no file")
            file = zipfile.ZipFile(path)
        with file:
            with _explained(path):
                archive = cls(path, file)
            yield archive

    def unpack(self, member: Member, into: BinaryIO | None, advance: Advance) -> None:
        """Read a file of the archive; ArchiveRefused if its content is not what was written."""
        digest, left = sha256(), member.size
        with _explained(self._path), self._file.open(member.name) as source:
            while block := source.read(min(BLOCK, left + 1)):
                left -= len(block)
                if left < 0:
                    break
                digest.update(block)
                if into is not None:
                    into.write(block)
                advance(len(block))
            if left or digest.hexdigest() != member.sha256:
                raise ValueError(f"{member.name} in it is not what was written")

    def verify(self, advance: Advance = lambda _: None) -> None:
        """Read all of it; ArchiveRefused if anything is not what was written."""
        for member in self.manifest.members:
            self.unpack(member, None, advance)


def _manifest_of(file: zipfile.ZipFile) -> Manifest:
    if not file.comment.startswith(COMMENT):
        raise ValueError("it is no archive of this program")
    if file.getinfo(NAME).file_size > LARGEST_MANIFEST:
        raise ValueError("its manifest is too large")
    for info in file.infolist():
        if info.compress_type not in PLAIN or info.flag_bits & 1:
            raise ValueError(f"{info.filename} in it is packed as no archive of this program is")
    with file.open(NAME) as source:
        data = source.read(LARGEST_MANIFEST)
    if file.comment != COMMENT + sha256(data).hexdigest().encode():
        raise ValueError("its manifest is not what was written")
    manifest = _read(data)
    sizes = {member.name: member.size for member in manifest.members}
    if sorted(file.namelist()) != sorted([*(it.name for it in manifest.members), NAME]):
        raise ValueError("it has other files than its manifest names")
    for info in file.infolist():
        if info.file_size != sizes.get(info.filename, info.file_size):
            raise ValueError(f"{info.filename} in it has another size than its manifest says")
    return manifest


def _read(data: bytes) -> Manifest:
    found = json.loads(data)
    if isinstance(found, dict) and found.get("format", FORMAT) != FORMAT:
        raise ValueError(f"it has format {found['format']}, which another version of this made")
    try:
        manifest = Manifest.model_validate_json(data)
    except (ValidationError, Invalid) as fault:
        raise ValueError("a field of it is missing, or is something else") from fault
    if any(part.name != member_of(part.tenant) for part in manifest.tenants):
        raise ValueError("a database of it has another tenant's name")
    return manifest


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except _FAULTS as fault:
        reason = str(fault).strip("'\".") if isinstance(fault, ValueError) else "it is not whole"
        raise ArchiveRefused(f"The archive {path} cannot be used: {reason}.") from fault
