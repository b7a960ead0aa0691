"""A disk made slow, and caches made empty, as far as this machine allows it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DELAY = 5000  # microseconds by which each sync is slowed
DROP = Path("/proc/sys/vm/drop_caches")
EVERYTHING = "3"  # pages, and what is known of files and folders

_SYNCS = "fdatasync,fsync"


class Unavailable(Exception):
    """What this machine does not allow, as a sentence."""


@contextmanager
def slowed_syncs(pid: int) -> Iterator[None]:
    """Every sync of the running process takes 5 ms longer."""
    if shutil.which("strace") is None:
        raise Unavailable("strace is missing; it is what slows each sync.")
    command = ["strace", "-f", "-p", str(pid), "-o", os.devnull, "-e", f"trace={_SYNCS}"]
    command += ["-e", f"inject={_SYNCS}:delay_exit={DELAY}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        try:
            _await_attached(tracer)
            yield
        finally:
            tracer.terminate()


def caches_dropped(path: Path) -> str:
    """Empty the page cache, or at least of the file; the answer says which."""
    os.sync()
    try:
        DROP.write_text(EVERYTHING, "ascii")
    except OSError as error:
        _forget(path)
        return f"only the database's pages were dropped, as {DROP} cannot be written: {error}"
    return "the page cache was dropped"


def _await_attached(tracer: "subprocess.Popen[str]") -> None:
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    if "attached" not in line:
        raise Unavailable(f"strace cannot attach to the service: {line.strip()}")


def _forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
