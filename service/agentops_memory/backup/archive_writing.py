"""An archive while it is written: files are added one by one, and then the manifest."""

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from ..files.audit import private_file
from . import manifest as manifests
from .archive_reading import BLOCK, COMMENT
from .manifest import Manifest, Member

LEVEL = 3  # of deflate: nearly as small as by 6, in half the time


class Meter:
    """How many bytes of how many are done."""

    def __init__(self, whole: int, told: Callable[[int, int], None]) -> None:
        self._whole = whole
        self._told = told
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
        self._tell(self._whole)

    def _tell(self, done: int) -> None:
        self._told(min(done, self._whole), self._whole)


class Packing:
    """An archive that is written. Make one with `opened`."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator["Packing"]:
        """A new archive at the path, for its owner alone to read; at the end it is on disk."""
        with private_file(path, os.O_RDWR | os.O_EXCL) as descriptor:
            with (
                os.fdopen(os.dup(descriptor), "w+b") as raw,
                zipfile.ZipFile(
                    raw, "w", zipfile.ZIP_DEFLATED, allowZip64=True, compresslevel=LEVEL
                ) as file,
            ):
                yield cls(file)
            os.fsync(descriptor)

    def add(
        self, name: str, source: BinaryIO, heard: Callable[[int], object] = lambda _: None
    ) -> Member:
        """A file of this name, with what the source gives."""
        digest, size = sha256(), 0
        with self._file.open(name, "w", force_zip64=True) as target:
            while block := source.read(BLOCK):
                digest.update(block)
                size += len(block)
                target.write(block)
                heard(len(block))
        return Member(name=name, size=size, sha256=digest.hexdigest())

    def finish(self, manifest: Manifest) -> None:
        """Add the manifest, and what tells whether that is whole."""
        data = manifests.written(manifest)
        self.add(manifests.NAME, io.BytesIO(data))
        self._file.comment = COMMENT + sha256(data).hexdigest().encode()
