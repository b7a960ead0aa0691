"""The audit: who changed what an operator answers for, one line of JSON each, only ever added."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ..domain.errors import Unavailable
from ..domain.model.access import Caller
from ..domain.model.retention import Held, Kind
from ..domain.text.instants import rendered
from .atomic import created, locked, os_errors_as, replaced

DRAFT = ".part"  # what follows the file's name while another is written in its place


@dataclass(frozen=True, slots=True)
class AuditFile:
    """The Audit of a file; `by` says who a caller is, by default the key."""

    path: Path
    clock: Callable[[], datetime]
    by: Callable[[Caller], Mapping[str, object]] = lambda caller: {"key": caller.key}

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        record(self.path, self.clock(), action, self.by(caller), **fields)


def record(
    path: Path, at: datetime, action: str, by: Mapping[str, object], **fields: object
) -> None:
    """Add a line, on disk when this returns; values are JSON, so none can look like another line.

    `by` says who: `{"user": "ada", "uid": 1000}` or `{"key": "..."}`. Secrets have
    no place here. Unavailable, with a sentence for the operator, if it cannot be written.
    """
    sentence = f"The audit file {path} cannot be written, so nothing was changed"
    with os_errors_as(Unavailable, sentence), locked(path, os.O_RDWR | os.O_APPEND) as file:
        _append(file, line(at, action, by, **fields))


def line(at: datetime, action: str, by: Mapping[str, object], **fields: object) -> bytes:
    """A line of an audit."""
    return json.dumps({"at": rendered(at), "action": action, "by": by, **fields}).encode() + b"\n"


def trim(path: Path, until: datetime) -> int:
    """Remove the lines that are as old as that, or older; how many. What is no line of ours stays.

    So does what was written after a line that stays, whatever the clock said then: what is
    left tells all that has happened since its first line.

    The file is another one then, put in the place of the old one whole. Unavailable, with
    a sentence for the operator, if that cannot be done.
    """
    if not path.exists():
        return 0
    sentence = f"The audit file {path} cannot be trimmed"
    with os_errors_as(Unavailable, sentence), locked(path, os.O_RDONLY) as file:
        return _trimmed(path, file, until)


def measured(path: Path, until: datetime | None) -> Held:
    """How much there is, and how many lines are as old as that, or older."""
    rows, size, oldest, past_retention = 0, 0, None, 0
    sentence = f"The audit file {path} cannot be read"
    with os_errors_as(Unavailable, sentence), suppress(FileNotFoundError), path.open("rb") as lines:
        for line, is_over in _judged(lines, until):
            at = _instant(line)
            rows, size = rows + 1, size + len(line)
            past_retention += is_over
            oldest = min(filter(None, (oldest, at)), default=None)
    return Held(kind=Kind.AUDIT, rows=rows, size=size, oldest=oldest, past_retention=past_retention)


def _append(file: int, line: bytes) -> None:
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        line = b"\n" + line  # a full disk or a crash cut the last one short
    if os.write(file, line) != len(line):
        raise OSError(0, "the disk is full")
    os.fsync(file)


def _trimmed(path: Path, file: int, until: datetime) -> int:
    with os.fdopen(os.dup(file), "rb") as lines:
        old = sum(is_over for _, is_over in _judged(lines, until))
        if old:
            lines.seek(0)
            with replaced(path, DRAFT) as draft, created(draft, like=path) as left:
                os.fchmod(left.fileno(), os.fstat(file).st_mode & 0o777)
                left.writelines(it for it, is_over in _judged(lines, until) if not is_over)
    return old


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
