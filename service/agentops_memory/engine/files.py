"""Atomic replacement of files: locks, drafts, and syncing to disk before the final rename."""

import fcntl
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from errno import EEXIST
from pathlib import Path
from typing import BinaryIO

from ..errors import StartRefused, Unavailable

PAUSE = 0.002  # seconds between two attempts to take a lock
PREFIX, SUFFIX = ".agentops-memory-", ".part"  # how the names of folders for drafts begin and end


@contextmanager
def os_errors_as(refusal: type[Exception], sentence: str) -> Iterator[None]:
    """Raise `refusal` for an OSError, with the sentence and the system's reason."""
    try:
        yield
    except OSError as error:
        raise refusal(f"{sentence}: {error.strerror}.") from error


Stamp = tuple[int, ...] | None
"""Identifies one state of a file; None while there is no file."""


def stamp_of(status: os.stat_result) -> Stamp:
    times = status.st_mtime_ns, status.st_ctime_ns
    return *times, status.st_dev, status.st_ino, status.st_size


@contextmanager
def opened(path: Path, flags: int = 0) -> Iterator[int]:
    """Open a file for reading, without waiting if it is a pipe; yield the descriptor."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def private_file(path: Path, flags: int, *, like: Path | None = None) -> Iterator[int]:
    """Open a file, created if missing with access for its owner only; yield the descriptor.

    A file created by root gets the owner of `like` or of the folder, because the service, which
    runs as another user, must be able to use it.
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
    """Yield a new private file, synced to disk at the end; FileExistsError if the name is taken."""
    with private_file(path, os.O_RDWR | os.O_EXCL, like=like) as descriptor:
        with os.fdopen(os.dup(descriptor), "w+b") as file:
            yield file
        os.fsync(descriptor)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield the path for a draft, which replaces the file at the end, synced to disk.

    If the body raises, the file stays unchanged. Only one process at a time may do this.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)  # a process that was killed left it
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)


def placed(draft: Path, path: Path) -> None:
    """Move a finished draft to a new name, synced to disk; FileExistsError if it is taken."""
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(EEXIST, os.strerror(EEXIST), str(path)) from None
        draft.rename(path)
    else:
        draft.unlink()
    sync(path.parent)


def owned_like(made: Path, like: Path) -> None:
    """Give a file or folder created by root the owner of another one."""
    if os.geteuid() == 0:
        os.chown(made, *_owner(like))


def make_folder(folder: Path) -> None:
    """Create a folder, unless it exists, with the owner of its parent."""
    with os_errors_as(Unavailable, f"The folder {folder} cannot be created"):
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            owned_like(folder, folder.parent)


def sync(file_or_folder: Path) -> None:
    """Sync a file's contents, or a folder's names, to disk."""
    with opened(file_or_folder) as descriptor:
        os.fsync(descriptor)


@contextmanager
def locked(
    path: Path, flags: int, timeout: timedelta | None = None, busy: Exception | None = None
) -> Iterator[int]:
    """Lock a file exclusively, created if missing; yield the descriptor.

    Raises `busy` if another process keeps the lock; without a timeout, waits for the lock.
    """
    while True:
        with private_file(path, flags) as file:
            if not has_locked(file, fcntl.LOCK_EX, timeout):
                raise busy or TimeoutError
            if is_at(path, file):  # else the file was replaced while waiting for its lock
                yield file
                return


def has_locked(file: int, kind: int, timeout: timedelta | None = timedelta(0)) -> bool:
    """Take the kernel's lock (`flock`) on an open file; return whether this succeeded in time."""
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
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


@contextmanager
def drafts(folder: Path) -> Iterator[Path]:
    """Yield a private folder inside `folder`, removed at the end with its contents.

    It is locked while its process lives, unlike the folders that killed processes left behind.
    """
    from tempfile import mkdtemp  # noqa: PLC0415 - seldom needed

    leftovers(folder, remove=True)
    while True:
        made = Path(mkdtemp(dir=folder, prefix=PREFIX, suffix=SUFFIX))
        lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Another process may have removed the folder as a leftover before it was locked.
        if _is_locked(lock) is not False and made.is_dir():
            break
        os.close(lock)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def leftovers(folder: Path, *, remove: bool = False) -> list[Path]:
    """Return the folders for drafts whose processes have ended; with `remove`, delete them.

    Each is locked meanwhile, so that no other process uses it.
    """
    with ExitStack() as locks:
        folders = []
        for left in sorted(folder.glob(f"{PREFIX}*{SUFFIX}")):
            with suppress(OSError):
                lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
                locks.callback(os.close, lock)
                if _is_locked(lock):
                    folders.append(left)
                    if remove:
                        shutil.rmtree(left, ignore_errors=True)
        return folders


def _owner(path: Path) -> tuple[int, int]:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        status = path.parent.stat()
    return status.st_uid, status.st_gid


def _is_locked(file: int) -> bool | None:
    try:
        return has_locked(file, fcntl.LOCK_EX)
    except OSError:
        return None


# SQLite's write-ahead log needs shared memory between all programs that use a file, so they must
# be on one machine: https://sqlite.org/wal.html. On a file system that several machines share, each
# machine would act as if it were alone.
log = logging.getLogger(__name__)

# https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
MOUNTS = Path("/proc/self/mountinfo")
MOUNT_POINT, LEAST_FIELDS, SEPARATOR = 4, 9, "-"

# File systems of servers, and of disks that several machines mount at once.
SHARED = frozenset(
    "nfs nfs3 nfs4 cifs smb2 smb3 smbfs ncpfs afs coda davfs ceph glusterfs lustre beegfs gpfs "
    "orangefs pvfs2 gfs gfs2 ocfs2 cvfs vxcfs".split()
)
# Folders of a host in its virtual machines, which do not share memory with it either. A sandbox
# such as gVisor shows its volumes as 9p, too, and cannot be distinguished.
HOST_FOLDERS = frozenset("9p virtiofs vboxsf vmhgfs prl_fs fakeowner".split())
# FUSE may be anything; these file systems are on the machine's own disks.
LOCAL_FUSE = frozenset(
    "fuseblk fuse.ntfs-3g fuse.ntfs fuse.exfat fuse.ext4 fuse.fuse-ext2 fuse.fuse2fs fuse.apfs "
    "fuse.zfs-fuse fuse.bindfs fuse.mergerfs fuse.mhddfs fuse.unionfs fuse.fuse-overlayfs "
    "fuse.overlayfs fuse.encfs fuse.gocryptfs fuse.cryfs fuse.securefs fuse.lxcfs".split()
)

_ESCAPED = re.compile(r"\\([0-7]{3})")


def require_local(path: Path, *, is_network_allowed: bool) -> None:
    """Raise StartRefused for a database on a file system that several machines share.

    If that is allowed, log the risk instead. An unknown file system is accepted.
    """
    kind = file_system(path)
    if kind is None or not is_network(kind):
        return
    if not is_network_allowed:
        raise StartRefused(
            f"{path} is on a file system of the kind {kind}, which several machines can use at "
            "once. SQLite needs one whose programs share memory, or the database may be damaged "
            "without a word. Put it on a disk of this machine; or, if no other machine ever opens "
            "it, set MEMORY_ALLOW_NETWORK_FS=1."
        )
    log.warning(
        "the database is on a network file system, and may be damaged if another machine opens it",
        extra={"path": str(path), "file_system": kind},
    )


def file_system(path: Path) -> str | None:
    """Return the kind of file system of a path, or of its nearest existing folder.

    For example ext4, nfs4 or fuse.sshfs; None if it is unknown.
    """
    real = Path(os.path.realpath(path))
    # First, because looking at the path may mount its file system.
    path = next((it for it in (real, *real.parents) if os.path.exists(it)), real)  # noqa: PTH110
    with suppress(OSError):
        return kind_at(path, MOUNTS.read_text("utf-8", "surrogateescape"))
    return None


def is_network(kind: str) -> bool:
    """Whether several machines may open a file there at once.

    FUSE counts as shared unless it is known to be on the machine's own disks: refusing a local
    one by mistake costs a setting, trusting a shared one costs the data.
    """
    is_fuse = kind == "fuse" or kind.startswith(("fuse.", "fuseblk"))
    return kind in SHARED | HOST_FOLDERS or (is_fuse and kind not in LOCAL_FUSE)


def kind_at(path: Path, mounts: str) -> str | None:
    """Return the kind of file system at a path, by the mount table; later mounts cover others."""
    kind, depth, folders = None, 0, {str(path), *map(str, path.parents)}
    for line in mounts.split("\n"):
        fields = line.split(" ")
        if len(fields) < LEAST_FIELDS or SEPARATOR not in fields:
            continue
        point = _unescaped(fields[MOUNT_POINT])
        if point in folders and len(point) >= depth:
            kind, depth = _unescaped(fields[fields.index(SEPARATOR) + 1]), len(point)
    return kind


def _unescaped(field: str) -> str:
    return _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 8)), field)
