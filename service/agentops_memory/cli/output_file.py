"""The file that a command writes: whole at the end, or as it was; or standard output."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..engine.files import os_errors_as
from ..settings.settings import Settings
from .errors import FileRefused


def refuse_own(to: str, settings: Settings) -> None:
    """Refuse to write over what the service itself lives on."""
    from ..sqlite.tenants import tenants_folder  # noqa: PLC0415

    target, database, *own = (
        Path(os.path.realpath(file))
        for file in (
            to,
            settings.db_path,
            settings.keys_file,
            settings.redaction_file,
            settings.seal_file,
        )
    )
    is_beside = target.parent == database.parent and target.name.startswith(database.name)
    in_folder = Path(os.path.realpath(tenants_folder(settings.db_path))) in target.parents
    if to != "-" and (is_beside or in_folder or target in own):
        raise FileRefused(f"{target} is a file of the service itself; name another.")


@contextmanager
def written(to: str) -> Iterator[BinaryIO]:
    """A file that is there at the end, whole; if anything raises, it is as it was."""
    if to == "-":
        if sys.stdout is None:
            raise FileRefused("Standard output is closed.")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(os.path.realpath(to))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:  # a device or a pipe
            yield file
        return
    with os_errors_as(FileRefused, f"{target} cannot be written"):
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".export-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
            Path(name).replace(target)
        finally:
            Path(name).unlink(missing_ok=True)
