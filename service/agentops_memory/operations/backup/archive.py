"""The archive file and its manifest: written, read, and checked."""

import io
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import Invalid, Refusal
from ...memory.model.access import DEFAULT_TENANT, TenantId, tenant_id
from ...recall.text.instants import parsed, rendered
from ...sqlite.schema.contents import Contents, Counts
from ..files.atomic import created

FORMAT = 1
NAME = "manifest.json"
KEYS, REDACTION, AUDIT, SEAL = "keys.json", "redaction.json", "audit.jsonl", "seal.json"

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    name: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPart:
    tenant: TenantId
    member: Member
    contents: Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    made_at: datetime
    program: str  # its version
    is_of_all: bool  # tenants that there were
    tenants: tuple[TenantPart, ...]
    others: tuple[Member, ...]

    @property
    def damaged(self) -> tuple[str, ...]:
        """The values that are known to be damaged, each with its tenant."""
        parts = ((part.tenant, part.contents.damaged or ()) for part in self.tenants)
        return tuple(f"{tenant}, {value}" for tenant, values in parts for value in values)

    @property
    def members(self) -> Iterator[Member]:
        yield from (part.member for part in self.tenants)
        yield from self.others

    def other(self, name: str) -> Member | None:
        """A file that is no database; none if the archive has none of this name."""
        return next((member for member in self.others if member.name == name), None)


def member_of(tenant: TenantId) -> str:
    return "default.db" if tenant == DEFAULT_TENANT else f"tenants/{tenant}.db"


def written(manifest: Manifest) -> bytes:
    return json.dumps(document(manifest), indent=1).encode() + b"\n"


def document(manifest: Manifest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "program": manifest.program,
        "made_at": rendered(manifest.made_at),
        "all_tenants": manifest.is_of_all,
        "tenants": [_of_part(part) for part in manifest.tenants],
        "members": [_of_member(member) for member in manifest.others],
    }


def _of_part(part: TenantPart) -> dict[str, Any]:
    changed_at = part.contents.changed_at
    return {
        "tenant": part.tenant,
        **_of_member(part.member),
        "format": part.contents.format,
        "counts": asdict(part.contents.counts),
        "changed_at": changed_at and rendered(changed_at),
        "damaged": part.contents.damaged,
    }


def _of_member(member: Member) -> dict[str, Any]:
    return {"member": member.name, "bytes": member.size, "sha256": member.sha256}


def read(data: bytes) -> Manifest:
    """The manifest in the bytes. A ValueError says what is wrong."""
    found = json.loads(data)
    if not isinstance(found, dict) or type(found.get("format")) is not int:
        raise ValueError("it is no manifest")
    if found["format"] != FORMAT:
        raise ValueError(f"it has format {found['format']}, which another version of this made")
    try:
        return _manifest(found)
    except (KeyError, TypeError, AttributeError, Invalid) as fault:
        raise ValueError("a field of it is missing, or is something else") from fault


def _manifest(found: dict[str, Any]) -> Manifest:
    manifest = Manifest(
        made_at=_instant(found["made_at"]),
        program=_line(found["program"]),
        is_of_all=found["all_tenants"] is True,
        tenants=tuple(_part(part) for part in found["tenants"]),
        others=tuple(_member(member) for member in found["members"]),
    )
    if {member.name for member in manifest.others} - {KEYS, REDACTION, AUDIT, SEAL}:
        raise ValueError("it names a file that no archive has")
    names = [member.name for member in manifest.members]
    if len(set(names)) < len(names):
        raise ValueError("it names a file twice")
    return manifest


def _part(found: dict[str, Any]) -> TenantPart:
    damaged = found.get("damaged")  # missing if it was made before anybody looked
    part = TenantPart(
        tenant=tenant_id(found["tenant"]),
        member=_member(found),
        contents=Contents(
            format=_number(found["format"]),
            counts=Counts(**{it.name: _number(found["counts"][it.name]) for it in fields(Counts)}),
            changed_at=found["changed_at"] and _instant(found["changed_at"]),
            damaged=None if damaged is None else tuple(map(_line, damaged)),
        ),
    )
    if part.member.name != member_of(part.tenant):
        raise ValueError("a database of it has another tenant's name")
    return part


def _member(found: dict[str, Any]) -> Member:
    if not _DIGEST.fullmatch(found["sha256"]):
        raise ValueError("a digest of it is none")
    return Member(name=found["member"], size=_number(found["bytes"]), sha256=found["sha256"])


def _number(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise ValueError("a number of it is none")
    return found


def _instant(found: str) -> datetime:
    if (at := parsed(found)) is None:
        raise ValueError("a time of it is none")
    return at


def _line(found: str) -> str:
    if not found.isprintable():
        raise ValueError("a text of it cannot be shown")
    return found


COMMENT = b"agentops-memory sha256:"  # and the manifest's digest
LARGEST_MANIFEST = 16 * 1024 * 1024  # bytes; a tenant takes about 500
LEVEL = 3  # of deflate: nearly as small as by 6, in half the time
BLOCK = 1024 * 1024  # bytes that are held at a time
PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may take any amount of memory

Progress = Callable[[int, int], None]
"""Is told how many bytes of how many are done."""

OnRead = Callable[[int], None]
"""Is told of bytes that were read."""

_FAULTS = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, OverflowError,
    NotImplementedError, RuntimeError, RecursionError,
)  # fmt: skip


class ArchiveRefused(Refusal):
    """The archive cannot be used; the sentence says why."""

    code = "restore_refused"


class Meter:
    """How many bytes of how many are done."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def add(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        self._tell(self._done)

    def within(self, count: int) -> Callable[[float], None]:
        """Hears which part of the next so many is done; they are to be added at the end."""
        return lambda part: self._tell(self._done + int(count * part))

    def end(self) -> None:
        self._tell(self._total)

    def _tell(self, done: int) -> None:
        if self._progress is not None:
            self._progress(min(done, self._total), self._total)


class ArchiveWriter:
    """An archive that is written. Make one with `opened`."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["ArchiveWriter"]:
        """A new archive at the path, for its owner alone to read; at the end it is on disk."""
        with (
            created(path) as raw,
            zipfile.ZipFile(
                raw, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=LEVEL
            ) as file,
        ):
            yield cls(file)

    def add(self, name: str, source: BinaryIO, on_read: OnRead | None = None) -> Member:
        """A file of this name, with what the source gives."""
        digest, size = sha256(), 0
        with self._file.open(name, "w", force_zip64=True) as target:
            while block := source.read(BLOCK):
                digest.update(block)
                size += len(block)
                target.write(block)
                if on_read is not None:
                    on_read(len(block))
        return Member(name=name, size=size, sha256=digest.hexdigest())

    def finish(self, manifest: Manifest) -> None:
        """Add the manifest, and what tells whether that is whole."""
        data = written(manifest)
        self.add(NAME, io.BytesIO(data))
        self._file.comment = COMMENT + sha256(data).hexdigest().encode()


class Archive:
    """An archive that is open. Make one with `opened`."""

    def __init__(self, path: Path, file: zipfile.ZipFile, manifest: Manifest) -> None:
        self._path = path
        self._file = file
        self.manifest = manifest

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["Archive"]:
        """The archive at the path; ArchiveRefused if it is cut short, or no archive of ours.

        It has just the files that its manifest names, and these claim the sizes
        that stand there. What is in them is looked at by `copy`.
        """
        with ExitStack() as held:
            with _explained(path):
                if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait
                    raise ValueError("it is no file")
                file = held.enter_context(zipfile.ZipFile(path))
                manifest = read(_manifest_of(file))
                _require_members(file, manifest)
            yield cls(path, file, manifest)

    def copy(self, member: Member, into: BinaryIO, on_read: OnRead | None = None) -> None:
        """Write what is in a file of the archive; ArchiveRefused if that is not what it was."""
        digest, left = sha256(), member.size
        with _explained(self._path), self._file.open(member.name) as source:
            while block := source.read(BLOCK):
                left -= len(block)
                if left < 0:
                    break
                digest.update(block)
                into.write(block)
                if on_read is not None:
                    on_read(len(block))
            if left or digest.hexdigest() != member.sha256:
                raise ValueError(f"{member.name} in it is not what was written")

    def verify(self, on_read: OnRead | None = None) -> None:
        """Read all of it; ArchiveRefused if anything is not what it was."""
        with Path(os.devnull).open("wb") as nowhere:
            for member in self.manifest.members:
                self.copy(member, nowhere, on_read)


def _manifest_of(file: zipfile.ZipFile) -> bytes:
    if not file.comment.startswith(COMMENT):
        raise ValueError("it is no archive of this program")
    if file.getinfo(NAME).file_size > LARGEST_MANIFEST:
        raise ValueError("its manifest is too large")
    _require_plain(file.getinfo(NAME))
    with file.open(NAME) as source:
        data = source.read(LARGEST_MANIFEST)
    if file.comment != COMMENT + sha256(data).hexdigest().encode():
        raise ValueError("its manifest is not what was written")
    return data


def _require_members(file: zipfile.ZipFile, manifest: Manifest) -> None:
    expected = {member.name: member.size for member in manifest.members}
    infos = [info for info in file.infolist() if info.filename != NAME]
    if len(file.infolist()) != len(expected) + 1 or {it.filename for it in infos} != set(expected):
        raise ValueError("it has other files than its manifest names")
    for info in infos:
        _require_plain(info)
        if info.file_size != expected[info.filename]:
            raise ValueError(f"{info.filename} in it has another size than its manifest says")


def _require_plain(info: zipfile.ZipInfo) -> None:
    if info.compress_type not in PLAIN or info.flag_bits & 1:
        raise ValueError(f"{info.filename} in it is packed as no archive of this program is")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except _FAULTS as fault:
        reason = str(fault).strip("'\".") if isinstance(fault, ValueError) else "it is not whole"
        raise ArchiveRefused(f"The archive {path} cannot be used: {reason}.") from fault
