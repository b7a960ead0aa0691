"""A disk made slow, and caches made empty, as far as this machine allows it."""

import os
import shutil
from pathlib import Path

DELAY = 5000  # microseconds by which each sync is slowed
DROP = Path("/proc/sys/vm/drop_caches")
EVERYTHING = "3"  # pages, and what is known of files and folders

_SYNCS = "fdatasync,fsync"


class Unavailable(Exception):
    """What this machine does not allow, as a sentence."""


def slowed_syncs() -> list[str]:
    """A command that starts another one of which every sync takes 5 ms longer.

    It stops a process at its syncs alone; one that is attached to a running
    process stops it at every call of the system, which takes longer than the delay.
    """
    if shutil.which("strace") is None:
        raise Unavailable("strace is missing; it is what slows each sync.")
    only = ["--seccomp-bpf", "-e", f"trace={_SYNCS}"]
    slowed = ["-e", f"inject={_SYNCS}:delay_exit={DELAY}"]
    return ["strace", "-D", "-f", "-q", "-o", os.devnull, *only, *slowed]


def caches_dropped(path: Path) -> str:
    """Empty the page cache, or at least of the file; the answer says which."""
    os.sync()
    try:
        DROP.write_text(EVERYTHING, "ascii")
    except OSError as error:
        _forget(path)
        return f"only the database's pages were dropped, as {DROP} cannot be written: {error}"
    return "the page cache was dropped"


def _forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
