"""The audit: who changed what an operator is responsible for; lines of JSON, append-only.

It also shows whether keys were made, and what was revoked and erased since a backup.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ...engine.files import created, locked, os_errors_as, private_file, replaced, sync
from ...errors import Unavailable
from ...light import dataclass
from ...memory.access import Caller, KeyId, TenantId
from ...memory.keys import KEYS_RESET, By, Key
from ...memory.retention import Held, Kind
from ...recall.instants import rendered

DRAFT = ".part"  # the suffix of the file that is written to replace it
OF_KEYS = ("key.", "keys.")  # how actions begin that concern keys
AUDIT_RESTORED = "audit.restored"  # the audit was lost, and restored from an archive


def by_key(caller: Caller) -> By:
    return {"key": caller.key}


@dataclass(frozen=True, slots=True)
class AuditFile:
    """The AuditLog of a file; `by` says who a caller is."""

    path: Path
    clock: Callable[[], datetime]
    by: Callable[[Caller], By] = by_key

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        record(self.path, self.clock(), action, self.by(caller), **fields)

    def trim(self, until: datetime) -> int:
        """Remove the lines that are as old as that, or older; how many. Unavailable if it cannot.

        Lines that are not ours stay, and so does every line after the first that is too young,
        whatever its time: from that line on the audit is complete.
        """
        path = self.path
        if not path.exists():
            return 0
        sentence = f"The audit file {path} cannot be trimmed"
        with (
            os_errors_as(Unavailable, sentence),
            locked(path, os.O_RDONLY) as file,
            os.fdopen(os.dup(file), "rb") as lines,
        ):
            old = sum(is_over for _, is_over in _judged(lines, until))
            if old:
                lines.seek(0)
                with replaced(path, DRAFT) as draft, created(draft, like=path) as left:
                    os.fchmod(left.fileno(), os.fstat(file).st_mode & 0o777)
                    left.writelines(it for it, is_over in _judged(lines, until) if not is_over)
            return old

    def measured(self, until: datetime | None) -> Held:
        rows, size, oldest, over = 0, 0, None, 0
        sentence = f"The audit file {self.path} cannot be read"
        with (
            os_errors_as(Unavailable, sentence),
            suppress(FileNotFoundError),
            self.path.open("rb") as lines,
        ):
            for line, is_over in _judged(lines, until):
                rows, size, over = rows + 1, size + len(line), over + is_over
                oldest = min(filter(None, (oldest, written_at(line))), default=None)
        return Held(kind=Kind.AUDIT, rows=rows, size=size, oldest=oldest, past_retention=over)


def record(path: Path, at: datetime, action: str, by: By, **fields: object) -> None:
    """Add a line, on disk when this returns; values are JSON, so none can look like another line.

    Secrets have no place here. Unavailable, with a sentence for the operator, if it cannot be
    written.
    """
    sentence = f"The audit file {path} cannot be written, so nothing was changed"
    with os_errors_as(Unavailable, sentence), locked(path, os.O_RDWR | os.O_APPEND) as file:
        data, size = line(at, action, by, **fields), os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            data = b"\n" + data  # a full disk or a crash cut the last one short
        if os.write(file, data) != len(data):
            raise OSError(0, "the disk is full")
        os.fsync(file)


def line(at: datetime, action: str, by: By, **fields: object) -> bytes:
    return json.dumps({"at": rendered(at), "action": action, "by": by, **fields}).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What happened since the archive was made, as far as the audit shows."""

    is_known: bool = False  # the audit reaches back to the archive
    ended: frozenset[KeyId] = frozenset()  # revoked, or with another secret since
    were_reset: bool = False  # all keys were revoked
    erased: frozenset[TenantId] = frozenset()

    def has_ended(self, key: Key) -> bool:
        """Whether a key that the archive has is not to open anything any more."""
        return self.were_reset or key.id in self.ended or key.tenant in self.erased


def since(audit: Path, archived: Iterable[bytes]) -> Since:
    """What the audit has beyond the lines of the archive, and which keys were revoked at all.

    Lines are compared, not times: a clock may have been set back.
    """
    if not audit.exists():
        return Since()
    known, last = Counter[bytes](), b""
    for line in archived:
        known[last := _digest(line)] += 1
    is_known, has_gap, were_reset = False, False, False
    ended, erased = set[KeyId](), set[TenantId]()
    with audit.open("rb") as file:
        for line in file:
            digest = _digest(line)
            is_known = is_known or digest == last
            is_new = not known[digest]
            known[digest] -= not is_new
            match _entry(line):
                case {"action": "key.revoked", "key": str(key)}:
                    ended.add(KeyId(key))
                case {"action": "keys.revoked", "keys": [*keys]}:
                    ended.update(KeyId(str(key)) for key in keys)
                case {"action": "key.rotated", "key": str(key)} if is_new:
                    ended.add(KeyId(key))
                case {"action": action} if is_new and action == AUDIT_RESTORED:
                    has_gap = True
                case {"action": action} if is_new and action == KEYS_RESET:
                    were_reset = True
                case {"action": "tenant.erased", "tenant": str(tenant)} if is_new:
                    erased.add(TenantId(tenant))
    return Since(
        is_known=is_known and not has_gap,
        ended=frozenset(ended),
        were_reset=were_reset,
        erased=frozenset(erased),
    )


class KeysMade:
    """Whether keys were made, noted apart from their file: losing it must not open the service.

    The audit shows it, but its lines expire, and keys made elsewhere may be mounted. So an empty
    file notes it, too, which only a reset removes. Each method may raise an OSError.
    """

    def __init__(self, audit: Path) -> None:
        self._audit = audit
        self._note = audit.with_suffix(".closed")

    def is_known(self) -> bool:
        """Whether the note or the audit says that keys were made since the last reset."""
        if self._note.exists() or not self._audit.exists():
            return self._note.exists()
        were_made = False
        with self._audit.open("rb") as lines:
            for line in lines:
                if b'"key' in line:  # to read all others as JSON would take long
                    action = str(_entry(line).get("action"))
                    were_made = action != KEYS_RESET and (were_made or action.startswith(OF_KEYS))
        return were_made

    def note(self) -> None:
        if not self._note.exists():
            with private_file(self._note, os.O_WRONLY, like=self._note.parent):
                pass
            sync(self._note.parent)

    def forget(self) -> None:
        self._note.unlink(missing_ok=True)


def _judged(lines: Iterable[bytes], until: datetime | None) -> Iterator[tuple[bytes, bool]]:
    if until is None:
        yield from ((line, False) for line in lines)
        return
    may_go = True
    for line in lines:
        at = written_at(line) if may_go else None
        may_go = may_go and (at is None or at <= until)
        yield line, may_go and at is not None


def written_at(line: bytes) -> datetime | None:
    """When a line was written; None if it was cut short, or written by somebody else."""
    with suppress(ValueError, TypeError, LookupError):
        at = datetime.fromisoformat(_entry(line)["at"])
        return at if at.tzinfo else None
    return None


def _digest(line: bytes) -> bytes:
    return blake2b(line.rstrip(b"\n"), digest_size=16).digest()


def _entry(line: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict):
            return entry
    return {}
