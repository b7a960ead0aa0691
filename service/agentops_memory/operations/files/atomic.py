"""Files that change as a whole: locked, written as drafts, on disk before they have their place."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from errno import EEXIST
from pathlib import Path
from typing import BinaryIO

from ...errors import Unavailable

PAUSE = 0.002  # seconds between two tries to take a lock
PREFIX, SUFFIX = ".agentops-memory-", ".part"  # of the folders for drafts


class LockTimeout(Exception):
    """Another process keeps the lock."""


@contextmanager
def os_errors_as(refusal: type[Exception], sentence: str) -> Iterator[None]:
    """Raise what the system refuses as a refusal: the sentence, and the system's reason."""
    try:
        yield
    except OSError as error:
        raise refusal(f"{sentence}: {error.strerror}.") from error


@contextmanager
def opened(path: Path, flags: int = 0) -> Iterator[int]:
    """A descriptor to read the file; for a pipe, too, which does not wait for its other end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def private_file(path: Path, flags: int, *, like: Path | None = None) -> Iterator[int]:
    """A descriptor of the file, made if it is missing, for its owner alone to read.

    What root makes belongs to whom the file `like` or, without it, the folder
    belongs: the service, which is another user, must be able to use it.
    """
    owner = _owner(like or path) if os.geteuid() == 0 else None
    every = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags | every, 0o600)
    try:
        if owner is not None:
            os.fchown(descriptor, *owner)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def created(path: Path, *, like: Path | None = None) -> Iterator[BinaryIO]:
    """A new private file, as above, on disk at the end; FileExistsError if the name is taken."""
    with private_file(path, os.O_RDWR | os.O_EXCL, like=like) as descriptor:
        with os.fdopen(os.dup(descriptor), "w+b") as file:
            yield file
        os.fsync(descriptor)


@contextmanager
def replaced(path: Path, suffix: str) -> Iterator[Path]:
    """Where a draft is to be made, which takes the file's place at the end, on disk.

    If anything raises, the file stays as it was. One process at a time may do this.
    """
    draft = path.with_name(f"{path.name}{suffix}")
    draft.unlink(missing_ok=True)  # a process that was killed left it
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)


def placed(draft: Path, path: Path) -> None:
    """Move what is ready to a name, on disk when this returns; FileExistsError if that is taken."""
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        raise
    except OSError:  # a file system without such links
        if os.path.lexists(path):
            raise FileExistsError(EEXIST, os.strerror(EEXIST), str(path)) from None
        draft.rename(path)
    else:
        draft.unlink()
    sync(path.parent)


def owned_like(made: Path, like: Path) -> None:
    """Give what root has made to whom another file or folder belongs."""
    if os.geteuid() == 0:
        os.chown(made, *_owner(like))


def make_folder(folder: Path) -> None:
    """Make a folder, unless it is there, that belongs to whom the one above it belongs."""
    with os_errors_as(Unavailable, f"The folder {folder} cannot be made"):
        if not folder.is_dir():
            folder.mkdir(parents=True)
            owned_like(folder, folder.parent)


def sync(file_or_folder: Path) -> None:
    """Wait until the file's contents, or the folder's names, survive a power cut."""
    descriptor = os.open(file_or_folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, flags: int, timeout: timedelta | None = None) -> Iterator[int]:
    """A descriptor of the file at the path, made if it is missing, with an exclusive lock on it.

    LockTimeout if another process keeps the lock; without a timeout it is waited for.
    """
    while True:
        with private_file(path, flags) as file:
            if not has_locked(file, fcntl.LOCK_EX, timeout):
                raise LockTimeout
            if is_at(path, file):  # else it was replaced while the lock was waited for
                yield file
                return


def has_locked(file: int, kind: int, timeout: timedelta | None = timedelta(0)) -> bool:
    """Take the kernel's lock (`flock`) on an open file; whether that was possible in time."""
    if timeout is None:
        fcntl.flock(file, kind)
        return True
    end = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        else:
            return True
        time.sleep(PAUSE)


def is_at(path: Path, file: int) -> bool:
    """Whether the open file still is the one at the path."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


@contextmanager
def drafts(folder: Path) -> Iterator[Path]:
    """A private folder inside this one, gone at the end with all that is in it.

    It is locked while its process lives, which tells it from what a killed one left behind.
    """
    remove_leftovers(folder)
    made, lock = _made(folder)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def leftovers(folder: Path) -> list[Path]:
    """The folders for drafts whose processes live no more."""
    with _left_over(folder) as found:
        return found


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove those folders; which they were."""
    with _left_over(folder) as found:
        for left in found:
            shutil.rmtree(left, ignore_errors=True)
        return found


def _owner(path: Path) -> tuple[int, int]:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        status = path.parent.stat()
    return status.st_uid, status.st_gid


def _made(folder: Path) -> tuple[Path, int]:
    while True:
        made = Path(tempfile.mkdtemp(dir=folder, prefix=PREFIX, suffix=SUFFIX))
        lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Another that tidies up may have been there before the lock was.
        if _is_locked(lock) is not False and made.is_dir():
            return made, lock
        os.close(lock)


@contextmanager
def _left_over(folder: Path) -> Iterator[list[Path]]:
    """The folders that are left over, locked inside, so that each is of nobody else's use."""
    with ExitStack() as locks:
        found = []
        for left in sorted(folder.glob(f"{PREFIX}*{SUFFIX}")):
            with suppress(OSError):
                lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
                locks.callback(os.close, lock)
                if _is_locked(lock):
                    found.append(left)
        yield found


def _is_locked(file: int) -> bool | None:
    """Whether the lock is ours now; none where the file system has no locks."""
    try:
        return has_locked(file, fcntl.LOCK_EX)
    except OSError:
        return None
