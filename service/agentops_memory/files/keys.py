"""The file of keys: small, private, changed under a lock, replaced atomically, watched."""

import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from ..domain.errors import Unavailable
from ..domain.model.access import KeyId, TenantId
from ..domain.model.agents import AgentId
from ..domain.model.keys import Key, KeyRing, revoked, rotated
from . import key_records
from .atomic import LockTimeout, created, locked, opened, os_errors_as, replaced
from .audit import KEYS_RESET, By, KeysMade, record

LARGEST = 16 * 1024 * 1024  # bytes; a key takes about 400
TIMEOUT = timedelta(seconds=10)  # with another process that changes the file
DRAFT = ".new"  # what follows the file's name while another is written in its place

Stamp = tuple[int, ...] | None
"""What tells one state of the file from another; None while there is no file."""

log = logging.getLogger(__name__)


class KeyFileRefused(Unavailable):
    """The key file cannot be used; the sentence tells the operator why, and shows no secret."""


class KeysLost(KeyFileRefused):
    """Keys were made, and the file has none; to open the service for that would be wrong."""


class KeyFile:
    """The records of keys, with their audit. A change happened whole and is audited, or did not.

    Any number of processes may change the file at once. Whatever cannot be
    read or changed is KeyFileRefused, and an audit that cannot be written Unavailable.
    """

    def __init__(self, path: Path, audit: Path) -> None:
        self._path = path
        self._audit = audit
        self.made = KeysMade(audit)

    def ring(self) -> KeyRing:
        """The keys; an unused ring while there is no file."""
        return self.read()[1]

    def settled(self) -> KeyRing:
        """The keys, with every change of which the audit tells by now.

        Where there can be no lock, nobody changes them.
        """
        if not self.ring().keys:
            return KeyRing()
        try:
            with self._locked():
                return self.ring()
        except KeyFileRefused as refusal:
            if not isinstance(refusal.__cause__, OSError):
                raise
            return self.ring()

    def read(self) -> tuple[Stamp, KeyRing]:
        """The keys, and the stamp of the file at the time or earlier."""
        with os_errors_as(KeyFileRefused, f"The key file {self._path} cannot be read"):
            if (found := _contents(self._path)) is None:
                return None, KeyRing()
        try:
            return found[0], key_records.read(found[1])
        except (ValueError, RecursionError) as fault:
            raise KeyFileRefused(f"The key file {self._path} cannot be used: {fault}.") from fault

    def require_kept(self, ring: KeyRing) -> None:
        """Refuse with KeysLost a ring without keys if some were made, and never reset."""
        if ring.was_ever_used:
            return
        with os_errors_as(KeyFileRefused, f"The audit file {self._audit} cannot be read"):
            if self.made.is_known():
                raise KeysLost(
                    f"Keys were made, but the key file {self._path} is gone, or has none. Put it "
                    "back, or make a key with `agentops-memory keys create --name NAME --role "
                    "admin`; to let everybody in without one, `agentops-memory keys reset --open`."
                )

    def are_lost(self) -> bool:
        """Whether `require_kept` refuses the keys; looked at again under the lock if it does.

        The first key is audited before its file is in place.
        """
        if not self._look_lost():
            return False
        with suppress(KeyFileRefused), self._locked():
            return self._look_lost()
        return True

    def stamp(self) -> Stamp:
        """Changes with every change of the file, of the links to it, or of its mode."""
        try:
            return _stamp(self._path.stat())
        except FileNotFoundError:
            return None
        except OSError as error:
            sentence = f"The key file {self._path} cannot be read: {error.strerror}."
            raise KeyFileRefused(sentence) from error

    def create(self, key: Key, *, at: datetime, by: By) -> bool:
        """Add a key; whether it is the first, which closes the service."""
        with self._locked():
            ring = self.ring()
            self._put(ring, key, at, "key.created", by)
        return not ring.was_ever_used

    def revoke(self, which: KeyId, *, at: datetime, by: By) -> Key:
        """Let a key open nothing any more; NotFound if there is none."""
        self.ring().key(which)  # before a lock is made beside no file
        with self._locked():
            ring = self.ring()
            key = ring.key(which)
            if key.revoked_at is None:
                key = revoked(key, at)
                self._put(ring, key, at, "key.revoked", by)
        return key

    def revoke_all(
        self, tenant: TenantId, agent: AgentId | None = None, *, at: datetime, by: By
    ) -> tuple[Key, ...]:
        """Let no key of a tenant, or of one agent, open anything any more; those that did."""
        if not self.ring().working(tenant, agent):
            return ()
        with self._locked():
            ring = self.ring()
            keys = ring.working(tenant, agent)
            for key in keys:
                ring = ring.with_key(revoked(key, at))
            ids = [key.id for key in keys]
            self._replace(ring, at, "keys.revoked", by, tenant=tenant, keys=ids)
        return keys

    def rotate(
        self, which: KeyId, keep_old_for: timedelta, *, at: datetime, by: By
    ) -> tuple[Key, str]:
        """Give a key a new secret, and answer its token; NotFound, or Conflict if it is revoked."""
        self.ring().key(which)  # as above
        with self._locked():
            ring = self.ring()
            key, token = rotated(ring.key(which), at, keep_old_for)
            self._put(ring, key, at, "key.rotated", by)
        return key, token

    def reset(self, *, at: datetime, by: By) -> int:
        """Forget all keys, those that are lost too, as if none had ever been made; how many."""
        if not (self.ring().was_ever_used or self.are_lost()):
            return 0
        with self._locked():
            count = len(self.ring().keys)
            self._replace(KeyRing(), at, KEYS_RESET, by, keys=count)
        return count

    def bring_back(self, keys: Iterable[Key], seen: Stamp, *, at: datetime, by: By) -> None:
        """Add those keys that the file does not know; the others stay as they are.

        KeyFileRefused for a file that is not the one that was seen: all its keys may have been
        reset since.
        """
        with self._locked():
            stamp, ring = self.read()
            if stamp != seen:
                raise KeyFileRefused("The keys were changed meanwhile; bring them back again.")
            unknown = [key for key in keys if key.id not in ring.keys]
            for key in unknown:
                ring = ring.with_key(key)
            if unknown:
                self._replace(ring, at, "keys.restored", by, keys=[key.id for key in unknown])

    def _look_lost(self) -> bool:
        try:
            self.require_kept(self.ring())
        except KeyFileRefused as refusal:
            return isinstance(refusal, KeysLost)
        return False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Beside the file itself, whatever link leads there: all must meet at one lock.
        lock = Path(f"{os.path.realpath(self._path)}.lock")
        with os_errors_as(KeyFileRefused, f"The key file {self._path} cannot be changed"):
            try:
                with locked(lock, os.O_RDWR, TIMEOUT):
                    yield
            except LockTimeout as timeout:
                sentence = "Another process is changing the keys; try again."
                raise KeyFileRefused(sentence) from timeout

    def _put(self, ring: KeyRing, key: Key, at: datetime, action: str, by: By) -> None:
        public = key_records.public_fields(key)
        self._replace(ring.with_key(key), at, action, by, key=key.id, **public)

    def _replace(self, ring: KeyRing, at: datetime, action: str, by: By, **fields: object) -> None:
        real = Path(os.path.realpath(self._path))
        with replaced(real, DRAFT) as draft:
            _write(draft, key_records.written(ring, at), like=real)
            # A change that is not audited is worse than a line about one that then failed.
            record(self._audit, at, action, by, **fields)
            self.made.note() if ring.was_ever_used else self.made.forget()


class WatchedKeys:
    """The KeyStore of a file: a change of it holds from the next question on.

    Once keys were seen, a file that cannot be read or is gone is never taken
    for one without keys.
    """

    def __init__(self, file: KeyFile) -> None:
        self._file = file
        self._known: tuple[Stamp, KeyRing] | None = None
        self._may_have_keys = False
        self._complaint = ""

    def ring(self) -> KeyRing:
        """The keys now. Unavailable when they cannot be known; the log has the reason once."""
        try:
            ring = self._ring()
        except KeyFileRefused as refusal:
            if self._complaint != str(refusal):
                self._complaint = str(refusal)
                log.error("the keys cannot be read", extra={"reason": self._complaint})
            sentence = "The keys cannot be read; the log of the service says why."
            raise Unavailable(sentence) from refusal
        self._complaint = ""
        return ring

    def read(self) -> KeyRing:
        """The keys now, for the start: KeyFileRefused has a sentence for the operator."""
        try:
            stamp, ring = self._file.read()
        except KeyFileRefused:
            self._known, self._may_have_keys = None, True
            raise
        if stamp is None and self._may_have_keys:
            raise KeyFileRefused("The key file is gone; put it back.")
        self._file.require_kept(ring)
        if ring.was_ever_used:
            self._note_keys()
        self._known, self._may_have_keys = (stamp, ring), ring.was_ever_used
        return ring

    def _ring(self) -> KeyRing:
        known = self._known
        if known is not None and self._file.stamp() == known[0]:
            return known[1]
        ring = self.read()
        log.info("keys read", extra={"keys": len(ring.keys)})
        return ring

    def _note_keys(self) -> None:
        try:
            self._file.made.note()
        except OSError as error:
            log.warning("it cannot be noted that there are keys", extra={"reason": str(error)})


def _contents(path: Path) -> tuple[Stamp, bytes] | None:
    """The stamp and the bytes of the file; None if there is none, nor a link to one."""
    try:
        with opened(path) as file:
            # The stamp first: a change while it is read shows at the next look.
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                raise KeyFileRefused(f"The key file {path} cannot be used: it is no file of keys.")
            return _stamp(status), os.read(file, LARGEST)
    except FileNotFoundError:
        if path.is_symlink():
            raise
        return None


def _stamp(status: os.stat_result) -> Stamp:
    times = status.st_mtime_ns, status.st_ctime_ns
    return *times, status.st_dev, status.st_ino, status.st_size


def _write(draft: Path, document: bytes, *, like: Path) -> None:
    with created(draft, like=like) as file:
        if os.write(file.fileno(), document) != len(document):
            raise OSError(0, "the disk is full")
        # Later than the file's last change: its number may be used again within a tick.
        now = time.time_ns()
        with suppress(FileNotFoundError):
            now = max(now, like.stat().st_mtime_ns + 1)
        os.utime(file.fileno(), ns=(now, now))
