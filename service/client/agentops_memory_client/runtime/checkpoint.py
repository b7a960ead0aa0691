"""Checkpoint files, which are replaced atomically."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

LOCK_TIMEOUT = timedelta(seconds=10)  # for the lock of another writer
PAUSE = 0.01  # seconds between two attempts to lock


class CheckpointError(ValueError):
    """A state that cannot be stored, or a file that holds none; its text is a sentence."""


def write(path: str | os.PathLike[str], document: bytes) -> None:
    """Put these bytes at the path; they are on disk when this returns.

    Whatever happens until then, even a kill or a full disk, what was there
    stays whole. The folder must exist. Where the path is a link, the file that
    it leads to is replaced. The owner alone may read the file. Writers of one
    path take turns: the last one to begin may not be the last to write, so
    begin when the one before is done.

    OSError if it cannot be written, or is a folder, a device or a pipe; then
    nothing is left behind. TimeoutError if another has been writing it for ten
    seconds.
    """
    real = Path(os.path.realpath(path))
    _refuse_other_than_file(real)
    draft = real.with_name(f".{real.name}.new")
    with _made(draft) as file:
        with os.fdopen(file, "wb", closefd=False) as stream:
            stream.write(document)
        os.fsync(file)
        draft.replace(real)
    folder = os.open(real.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: str | os.PathLike[str]) -> bytes:
    """What was written last. FileNotFoundError if nothing was; OSError if it cannot be read."""
    _refuse_other_than_file(Path(path))
    return Path(path).read_bytes()


def _refuse_other_than_file(path: Path) -> None:
    """A device would be replaced, and a pipe be waited for."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "A checkpoint is a file, not a folder", str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "A checkpoint is an ordinary file", str(path))


@contextmanager
def _made(draft: Path) -> Iterator[int]:
    """A new file, which is gone at the end if it has got no other name."""
    file = _ours(draft)
    try:
        yield file
    finally:
        # While we hold its lock nobody else removes it, nor makes another.
        if _is_at(draft, file):
            draft.unlink()
        os.close(file)


def _ours(draft: Path) -> int:
    """A new file at the path, locked: any process that finds it there waits for us."""
    end = time.monotonic() + LOCK_TIMEOUT.total_seconds()
    while True:
        try:
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            _remove(draft, end)
            continue
        with ExitStack() as unless_ours:
            unless_ours.callback(os.close, file)
            # Until it is locked, another may take it for that of a killed process.
            if _is_locked_at(draft, file, end):
                unless_ours.pop_all()
                return file


def _remove(draft: Path, end: float) -> None:
    """Away with what a killed process left; with that of a living one when it is done."""
    if draft.is_symlink():
        return draft.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        file = os.open(draft, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if _is_locked_at(draft, file, end):
                draft.unlink()
        finally:
            os.close(file)


def _is_locked_at(draft: Path, file: int, end: float) -> bool:
    """Lock the file, and say whether it is still the one at the path."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _is_at(draft, file)
        if time.monotonic() > end:
            raise TimeoutError(errno.ETIMEDOUT, "Another process keeps writing it", str(draft))
        time.sleep(PAUSE)


def _is_at(path: Path, file: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), path.lstat())
    return False
