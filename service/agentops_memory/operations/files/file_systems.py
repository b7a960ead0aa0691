"""The file systems on which a database is not safe, and what lies on which.

SQLite's write-ahead log wants all programs that use a file to share memory, and so to be on one
machine: https://sqlite.org/wal.html. A file system that shows one file to several machines lets
each of them believe that it is alone.
"""

import logging
import os
import re
from contextlib import suppress
from pathlib import Path

from ...errors import StartRefused

log = logging.getLogger(__name__)

# https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
MOUNTS = Path("/proc/self/mountinfo")
MOUNT_POINT, LEAST_FIELDS, SEPARATOR = 4, 9, "-"

# Of servers, and of disks that several machines have mounted at once.
SHARED = frozenset(
    "nfs nfs3 nfs4 cifs smb2 smb3 smbfs ncpfs afs coda davfs ceph glusterfs lustre beegfs gpfs "
    "orangefs pvfs2 gfs gfs2 ocfs2 cvfs vxcfs".split()
)
# Folders of a host in its virtual machines: the two have no memory in common either. A sandbox
# such as gVisor shows its volumes as 9p, too, and cannot be told from those.
LENT = frozenset("9p virtiofs vboxsf vmhgfs prl_fs fakeowner".split())
# FUSE may be anything; these are on the machine's own disks.
LOCAL_FUSE = frozenset(
    "fuseblk fuse.ntfs-3g fuse.ntfs fuse.exfat fuse.ext4 fuse.fuse-ext2 fuse.fuse2fs fuse.apfs "
    "fuse.zfs-fuse fuse.bindfs fuse.mergerfs fuse.mhddfs fuse.unionfs fuse.fuse-overlayfs "
    "fuse.overlayfs fuse.encfs fuse.gocryptfs fuse.cryfs fuse.securefs fuse.lxcfs".split()
)

_ESCAPED = re.compile(r"\\([0-7]{3})")


def require_local(path: Path, *, is_network_allowed: bool) -> None:
    """Refuse a database on a file system of several machines with StartRefused.

    Where it is allowed, the log says what may come of it. What is unknown is let pass.
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
    """What the file is on that the path leads to, or its nearest folder that exists.

    Such as ext4, nfs4 or fuse.sshfs; None where nobody can tell.
    """
    path = _nearest(Path(os.path.realpath(path)))  # first: to look at it may mount it
    with suppress(OSError):
        return kind_at(path, MOUNTS.read_text("utf-8", "surrogateescape"))
    return None


def is_network(kind: str) -> bool:
    """Whether several machines may have a file there open at once.

    FUSE counts as such unless it is known to be on the machine's own disks: to refuse a good
    one costs a setting, to trust a bad one costs the data.
    """
    is_fuse = kind == "fuse" or kind.startswith(("fuse.", "fuseblk"))
    return kind in SHARED | LENT or (is_fuse and kind not in LOCAL_FUSE)


def kind_at(path: Path, mounts: str) -> str | None:
    """The kind of file system at a path, by the table of mounts; the latest covers others."""
    kind, depth, places = None, 0, {str(path), *map(str, path.parents)}
    for line in mounts.split("\n"):
        fields = line.split(" ")
        if len(fields) < LEAST_FIELDS or SEPARATOR not in fields:
            continue
        point = _unescaped(fields[MOUNT_POINT])
        if point in places and len(point) >= depth:
            kind, depth = _unescaped(fields[fields.index(SEPARATOR) + 1]), len(point)
    return kind


def _nearest(path: Path) -> Path:
    return next((it for it in (path, *path.parents) if os.path.exists(it)), path)  # noqa: PTH110


def _unescaped(field: str) -> str:
    return _ESCAPED.sub(_letter, field)


def _letter(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 8))
