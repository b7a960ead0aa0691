"""What the files of keys, of what is no secret, and of the audit are found to be."""

import json
import os
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from ...errors import Refusal
from ...memory.model.findings import Finding, failed, note, ok, warn
from ...memory.model.keys import KeyRegistry, KeyRing
from ..files.redaction import RedactionFile
from ..files.seals import SealFile
from .files import close_to_others

SOON = timedelta(days=7)  # in which an old secret of a key ends
LONGEST_AUDIT = 64 * 1024 * 1024  # bytes at the end of the audit file that are looked at


def check_key_file(path: Path, keys: KeyRegistry, now: datetime) -> Iterator[Finding]:
    """The file of keys, and whether any of them opens something now."""
    yield from _check_privacy("keys", path)
    yield from check_keys(keys, now)


def check_keys(keys: KeyRegistry, now: datetime) -> Iterator[Finding]:
    """Whether the keys can be read, and any of them opens something now."""
    try:
        ring = keys.ring()
        keys.require_kept(ring)
    except Refusal as refusal:
        remedy = "Put them back from a copy; until then nobody is let in."
        yield failed("keys", str(refusal), remedy)
        return
    yield _check_ring(ring)
    yield from _check_ending(ring, now)


def check_redaction(path: Path) -> Iterator[Finding]:
    """What is not taken for a secret; nobody need have written it."""
    try:
        RedactionFile(path).read()
    except Refusal as refusal:
        remedy = "Mend it or move it away: the next start would be refused."
        yield failed("redaction", str(refusal), remedy)
    else:
        yield ok("redaction", "It can be read, or there is none.")


def check_seal(path: Path, now: datetime) -> Iterator[Finding]:
    """The keys of confidential values, of which nobody need have stored one."""
    yield from _check_privacy("seal", path)
    try:
        count = len(SealFile(path, lambda: now).keys().keys)
    except Refusal as refusal:
        remedy = "Put back the file from a copy; until then confidential values cannot be read."
        yield failed("seal", str(refusal), remedy)
    else:
        yield ok("seal", f"It can be read, and has {count:,} keys." if count else "It has no key.")


def check_audit(path: Path) -> Iterator[Finding]:
    """Whether every line of the audit is whole."""
    yield from _check_privacy("audit", path)
    try:
        broken = _broken_lines(path)
    except OSError as error:
        yield failed(
            "audit",
            f"The audit file {path} cannot be read: {error.strerror}.",
            "Give it to the user of the service: keys cannot be changed without it.",
        )
        return
    if broken:
        yield warn(
            "audit",
            f"{broken:,} lines of {path} are not whole: a full disk or a crash cut them "
            "short, or somebody changed them.",
            "Leave them, as they are evidence; what follows is written on lines of its own.",
        )
    else:
        yield ok("audit", "Every line of it is whole.")


def _check_privacy(code: str, path: Path) -> Iterator[Finding]:
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if stat.S_ISREG(mode) and mode & stat.S_IRWXO:
        yield warn(
            code,
            f"Every user of this machine may read {path}.",
            "`agentops-memory doctor --fix` closes it, as `chmod o-rwx` does. A mounted "
            "secret gets its mode from `defaultMode`.",
            fix=None if path.is_symlink() else partial(close_to_others, [path]),
        )


def _check_ring(ring: KeyRing) -> Finding:
    if not ring.keys:
        return ok("keys", "No key was ever made, or all were reset.")
    working = [key for key in ring.keys.values() if key.revoked_at is None]
    if working:
        return ok("keys", f"{len(working)} of {len(ring.keys)} keys work.")
    return warn(
        "keys",
        "Every key is revoked, so nobody is let in.",
        "`agentops-memory keys create --name NAME --role admin` makes one.",
    )


def _check_ending(ring: KeyRing, now: datetime) -> Iterator[Finding]:
    for key in ring.keys.values():
        if not any(secret.works_at(now) for secret in key.secrets) and key.revoked_at is None:
            yield warn(
                "keys",
                f"No secret of the key {key.id} ({key.name}) works any more.",
                f"`agentops-memory keys rotate {key.id}` gives it a new one.",
            )
        elif ends := sorted(
            secret.until
            for secret in key.secrets
            if secret.until is not None and now < secret.until < now + SOON
        ):
            yield note(
                "keys",
                f"An older secret of the key {key.id} ({key.name}) ends at "
                f"{ends[0]:%Y-%m-%d %H:%M} (UTC).",
                "Whoever uses it needs the newer one by then.",
            )


def _broken_lines(path: Path) -> int:
    """How many lines are no JSON, of so many bytes at the end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    with os.fdopen(descriptor, "rb") as file:
        skipped = max(os.fstat(descriptor).st_size - LONGEST_AUDIT, 0)
        if skipped:
            file.seek(skipped)
            file.readline()
        return sum(not _is_whole(line) for line in file)


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
