"""The audit: who changed what an operator answers for, one line of JSON each, only ever added."""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from ..domain.errors import Unavailable
from ..domain.model.retention import Held, Kind
from ..domain.text.instants import rendered
from .fsync import sync


def record(
    path: Path, at: datetime, action: str, by: Mapping[str, object], **fields: object
) -> None:
    """Add a line, on disk when this returns; values are JSON, so none can look like another line.

    `by` says who: `{"user": "ada", "uid": 1000}` or `{"key": "..."}`. Secrets have
    no place here. Unavailable, with a sentence for the operator, if it cannot be written.
    """
    try:
        _append(path, line(at, action, by, **fields))
    except OSError as error:
        raise Unavailable(
            f"The audit file {path} cannot be written, so nothing was changed: {error.strerror}."
        ) from error


def line(at: datetime, action: str, by: Mapping[str, object], **fields: object) -> bytes:
    """A line of an audit."""
    return json.dumps({"at": rendered(at), "action": action, "by": by, **fields}).encode() + b"\n"


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


def owned_like(made: Path, like: Path) -> None:
    """Give what root has made to whom another file or folder belongs, as above."""
    if os.geteuid() == 0:
        os.chown(made, *_owner(like))


def trim(path: Path, until: datetime) -> int:
    """Remove the lines that are as old as that, or older; how many. What is no line of ours stays.

    So does what was written after a line that stays, whatever the clock said then: what is
    left tells all that has happened since its first line.

    The file is another one then, put in the place of the old one whole. Unavailable, with
    a sentence for the operator, if that cannot be done.
    """
    if not path.exists():
        return 0
    try:
        with _locked(path, os.O_RDONLY) as file:
            return _trimmed(path, file, until)
    except OSError as error:
        raise Unavailable(f"The audit file {path} cannot be trimmed: {error.strerror}.") from error


def _append(path: Path, line: bytes) -> None:
    with _locked(path, os.O_RDWR | os.O_APPEND) as file:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line  # a full disk or a crash cut the last one short
        if os.write(file, line) != len(line):
            raise OSError(0, "the disk is full")
        os.fsync(file)


def measured(path: Path, until: datetime | None) -> Held:
    """How much there is, and how many lines are as old as that, or older."""
    rows, size, oldest, past_retention = 0, 0, None, 0
    try:
        with path.open("rb") as lines:
            for line, is_over in _judged(lines, until):
                at = _instant(line)
                rows, size = rows + 1, size + len(line)
                past_retention += is_over
                oldest = min(filter(None, (oldest, at)), default=None)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Unavailable(f"The audit file {path} cannot be read: {error.strerror}.") from error
    return Held(kind=Kind.AUDIT, rows=rows, size=size, oldest=oldest, past_retention=past_retention)


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[int]:
    """A descriptor of the file that is at the path, for nobody else to change inside.

    While it was waited for, another file may have been put in its place.
    """
    while True:
        with private_file(path, flags) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(path, file):
                yield file
                return


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _trimmed(path: Path, file: int, until: datetime) -> int:
    with os.fdopen(os.dup(file), "rb") as lines:
        old = sum(is_over for _, is_over in _judged(lines, until))
        if old:
            lines.seek(0)
            judged = _judged(lines, until)
            _replace(path, file, (line for line, is_over in judged if not is_over))
    return old


def _replace(path: Path, file: int, lines: Iterable[bytes]) -> None:
    draft = path.with_name(f"{path.name}.part")
    draft.unlink(missing_ok=True)  # a process that was killed left it
    try:
        with private_file(draft, os.O_WRONLY | os.O_EXCL, like=path) as target:
            os.fchmod(target, os.fstat(file).st_mode & 0o777)
            with os.fdopen(os.dup(target), "wb") as written:
                written.writelines(lines)
            os.fsync(target)
        draft.replace(path)
        sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _judged(lines: Iterable[bytes], until: datetime | None) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether it is over its time."""
    if until is None:
        yield from ((line, False) for line in lines)
        return
    may_go = True
    for line in lines:
        at = _instant(line) if may_go else None
        may_go = may_go and (at is None or at <= until)
        yield line, may_go and at is not None


def _instant(line: bytes) -> datetime | None:
    """When a line was written; None if it was cut short, or written by somebody else."""
    try:
        at = datetime.fromisoformat(json.loads(line)["at"])
    except (ValueError, TypeError, LookupError):
        return None
    return at if at.tzinfo else None


def _owner(path: Path) -> tuple[int, int]:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        status = path.parent.stat()
    return status.st_uid, status.st_gid
