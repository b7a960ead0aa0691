"""Private folders for what is not ready yet; those that a killed process left are removed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PREFIX, SUFFIX = ".agentops-memory-", ".part"


@contextmanager
def drafts(folder: Path) -> Iterator[Path]:
    """A folder inside this one, for its owner alone; gone at the end with all that is in it.

    It is locked while its process lives, which tells it from what was left behind.
    """
    remove_leftovers(folder)
    made, lock = _made(folder)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _made(folder: Path) -> tuple[Path, int]:
    while True:
        made = Path(tempfile.mkdtemp(dir=folder, prefix=PREFIX, suffix=SUFFIX))
        lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Another that tidies up may have been there before the lock was.
        if _is_locked(lock) is not False and made.is_dir():
            return made, lock
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
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
