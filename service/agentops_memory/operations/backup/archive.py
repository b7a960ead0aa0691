"""The file of an archive: written one member after another, and read with distrust."""

import io
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from ...errors import Refusal
from ..files.atomic import created
from . import manifest as manifests
from .manifest import Manifest, Member

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
        """All is done; it may have been less than was thought."""
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
        data = manifests.written(manifest)
        self.add(manifests.NAME, io.BytesIO(data))
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
                manifest = manifests.read(_manifest(file))
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


def _manifest(file: zipfile.ZipFile) -> bytes:
    if not file.comment.startswith(COMMENT):
        raise ValueError("it is no archive of this program")
    if file.getinfo(manifests.NAME).file_size > LARGEST_MANIFEST:
        raise ValueError("its manifest is too large")
    _require_plain(file.getinfo(manifests.NAME))
    with file.open(manifests.NAME) as source:
        data = source.read(LARGEST_MANIFEST)
    if file.comment != COMMENT + sha256(data).hexdigest().encode():
        raise ValueError("its manifest is not what was written")
    return data


def _require_members(file: zipfile.ZipFile, manifest: Manifest) -> None:
    expected = {member.name: member.size for member in manifest.members}
    infos = [info for info in file.infolist() if info.filename != manifests.NAME]
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
