"""What the audit tells: whether keys were made, and what was revoked and erased since a backup."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..domain.model.access import KeyId, TenantId
from ..domain.model.keys import Key
from .atomic import private_file, sync

OF_KEYS = ("key.", "keys.")  # how actions begin that concern keys
KEYS_RESET = "keys.reset"
AUDIT_RESTORED = "audit.restored"  # the audit was lost, and is what an archive had of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What has happened since, as far as it is known."""

    is_known: bool = False  # the audit reaches back to the archive
    ended: frozenset[KeyId] = frozenset()  # revoked, or with another secret since
    were_reset: bool = False  # all keys that there were
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
    for line in _lines(audit):
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
    """That a service has keys, known apart from their file: to lose that opens it to nobody.

    The audit tells, but its lines go with time, and keys may be made elsewhere and mounted. So
    it is noted by an empty file, too, which only a reset removes. Each method may raise an OSError.
    """

    def __init__(self, audit: Path) -> None:
        self._audit = audit
        self._note = audit.with_suffix(".closed")

    def is_known(self) -> bool:
        """Whether the note or the audit says that keys were made since the last reset."""
        return self._note.exists() or _were_keys_made(self._audit)

    def note(self) -> None:
        """Say so from now on; on disk when this returns."""
        if not self._note.exists():
            with private_file(self._note, os.O_WRONLY, like=self._note.parent):
                pass
            sync(self._note.parent)

    def forget(self) -> None:
        """They were reset, as the audit tells already."""
        self._note.unlink(missing_ok=True)


def _were_keys_made(audit: Path) -> bool:
    """Whether the audit tells of keys, and not of their reset after that."""
    if not audit.exists():
        return False
    are_there = False
    for line in _lines(audit):
        if b'"key' in line:  # to read all others as JSON would take long
            action = str(_entry(line).get("action"))
            are_there = action != KEYS_RESET and (are_there or action.startswith(OF_KEYS))
    return are_there


def _lines(audit: Path) -> Iterator[bytes]:
    with audit.open("rb") as file:
        yield from file


def _digest(line: bytes) -> bytes:
    return blake2b(line.rstrip(b"\n"), digest_size=16).digest()


def _entry(line: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict):
            return entry
    return {}
