"""The file of keys: how each field is read; small, private, locked, replaced whole, watched."""

import json
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ...engine.files import Stamp, created, locked, opened, os_errors_as, replaced, stamp_of
from ...errors import Invalid, Unavailable
from ...light import dataclass
from ...memory.access import Role, agent_patterns, patterns, tenant_id
from ...memory.keys import (
    DIGEST_BYTES,
    SALT_BYTES,
    By,
    Key,
    KeyRegistry,
    KeyRing,
    Put,
    Secret,
    key_id,
    key_name,
    public_fields,
)
from ...recall import instants
from .audit import KeysMade, record

VERSION = 1

Readers = Mapping[str, Callable[[Any], object]]


def written(ring: KeyRing, at: datetime) -> bytes:
    document: dict[str, object] = {
        "version": VERSION,
        "keys": [*map(record_of, ring.keys.values())],
    }
    if not ring.was_ever_used:
        document["reset_at"] = _rendered(at)  # an empty list alone opens nothing
    return json.dumps(document, indent=1).encode() + b"\n"


def record_of(key: Key) -> dict[str, object]:
    return {
        "id": key.id,
        **public_fields(key),
        "created_at": _rendered(key.created_at),
        "revoked_at": key.revoked_at and _rendered(key.revoked_at),
        "secrets": [
            {
                "salt": secret.salt.hex(),
                "digest": secret.digest.hex(),
                "until": secret.until and _rendered(secret.until),
            }
            for secret in key.secrets
        ],
    }


def _rendered(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def read(data: bytes) -> KeyRing:
    """The keys in the bytes; a ValueError says what is wrong, and shows only ids and names."""
    try:
        loaded = json.loads(data, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno} is no JSON") from error
    except UnicodeDecodeError as error:
        raise ValueError("it is no UTF-8") from error
    version = loaded.get("version") if isinstance(loaded, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError("it has no version")
    if version > VERSION:
        raise ValueError(f"it has version {version}, which a newer program wrote")
    document = _fields(loaded, _DOCUMENT)
    keys = [_key(number, record) for number, record in enumerate(document["keys"], 1)]
    by_id = {key.id: key for key in keys}
    if len(by_id) < len(keys):
        raise ValueError("two of its keys have the same id")
    return KeyRing(keys=by_id, was_ever_used=bool(keys) or document["reset_at"] is None)


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a field occurs twice in one place")
    return fields


def _key(number: int, record: object) -> Key:
    try:
        key = Key(**_fields(record, _KEY))
        if not key.secrets and key.revoked_at is None:
            raise ValueError("it has no secret")
    except ValueError as fault:
        raise ValueError(f"{_label(number, record)}: {fault}") from fault
    return key


def _label(number: int, record: object) -> str:
    label = f"key number {number}"
    if isinstance(record, dict):
        with suppress(*_FAULTS):
            label = f"key {key_id(record['id'])}"
        with suppress(*_FAULTS):
            label += f" ({key_name(record['name'])})"
    return label


def _fields(record: object, readers: Readers) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    for name in record.keys() - readers.keys():
        raise ValueError(f"{name[:20]!r} is not a field that belongs there")
    return {name: _field(name, reader, record.get(name)) for name, reader in readers.items()}


def _field(name: str, reader: Callable[[Any], object], value: object) -> object:
    try:
        return reader(value)
    except Invalid as refusal:
        raise ValueError(str(refusal).removesuffix(".")) from refusal
    except _FAULTS as fault:  # whose text may show the value
        raise ValueError(f"its {name} cannot be used") from fault


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _instant(text: str) -> datetime:
    if (at := instants.parsed(text)) is None:
        raise ValueError
    return at


def _bytes(count: int) -> Callable[[str], bytes]:
    def parse(text: str) -> bytes:
        if len(value := bytes.fromhex(text)) != count:
            raise ValueError
        return value

    return parse


def _yes(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _if_any(read: Callable[[Any], Any], none: object = None) -> Callable[[Any], Any]:
    return lambda value: none if value is None else read(value)


_FAULTS = (Invalid, ValueError, TypeError, AttributeError, KeyError)
_DOCUMENT: Readers = {"version": int, "keys": _list, "reset_at": _if_any(_instant)}
_KEY: Readers = {
    "id": key_id,
    "name": key_name,
    "tenant": tenant_id,
    "role": Role,
    "projects": lambda value: patterns(tuple(_list(value))),
    "agents": lambda value: agent_patterns(_if_any(_list, [])(value)),
    "coordinates": _if_any(_yes, none=False),
    "created_at": _instant,
    "revoked_at": _if_any(_instant),
    "secrets": lambda value: tuple(Secret(**_fields(it, _SECRET)) for it in _list(value)),
}
_SECRET: Readers = {
    "salt": _bytes(SALT_BYTES),
    "digest": _bytes(DIGEST_BYTES),
    "until": _if_any(_instant),
}


LARGEST = 16 * 1024 * 1024  # bytes; a key takes about 400
TIMEOUT = timedelta(seconds=10)  # with another process that changes the file
DRAFT = ".new"  # what follows the file's name while another is written in its place

log = logging.getLogger(__name__)


class KeyFileRefused(Unavailable):
    """The key file cannot be used; the sentence tells the operator why, and shows no secret."""


class KeysLost(KeyFileRefused):
    """Keys were made, and the file has none; to open the service for that would be wrong."""


class KeyFile(KeyRegistry):
    """The KeyRegistry of a file: what cannot be read or changed is KeyFileRefused."""

    def __init__(self, path: Path, audit: Path) -> None:
        self._path = path
        self._audit = audit
        self.made = KeysMade(audit)

    def ring(self) -> KeyRing:
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
            stamp, data = _contents(self._path)
        if stamp is None:
            return None, KeyRing()
        try:
            return stamp, read(data)
        except (ValueError, RecursionError) as fault:
            raise KeyFileRefused(f"The key file {self._path} cannot be used: {fault}.") from fault

    def require_kept(self, ring: KeyRing) -> None:
        if ring.was_ever_used:
            return
        with os_errors_as(KeyFileRefused, f"The audit file {self._audit} cannot be read"):
            if self.made.is_known():
                raise KeysLost(
                    f"Keys were created, but the key file {self._path} is missing or empty. Put it "
                    "back, or create a key with `agentops-memory keys create --name NAME --role "
                    "admin`; to give everyone access without a key, `agentops-memory keys reset "
                    "--open`."
                )

    def are_lost(self) -> bool:
        # Looked at again under the lock: the first key is audited before its file is in place.
        if not self._look_lost():
            return False
        with suppress(KeyFileRefused), self._locked():
            return self._look_lost()
        return True

    def stamp(self) -> Stamp:
        """Changes with every change of the file, of the links to it, or of its mode."""
        try:
            return stamp_of(os.stat(self._path))  # noqa: PTH116 - twice as fast, for each request
        except FileNotFoundError:
            return None
        except OSError as error:
            sentence = f"The key file {self._path} cannot be read: {error.strerror}."
            raise KeyFileRefused(sentence) from error

    @contextmanager
    def changing(self) -> Iterator[tuple[KeyRing, Put]]:
        with self._locked():
            yield self.ring(), self._replace

    def bring_back(self, keys: Iterable[Key], planned: Stamp, *, at: datetime, by: By) -> None:
        """Add those keys that the file does not know; the others stay as they are.

        KeyFileRefused for a file with another stamp than was planned with: all its keys may have
        been reset since.
        """
        with self._locked():
            stamp, ring = self.read()
            if stamp != planned:
                raise KeyFileRefused("The keys were changed meanwhile; restore them again.")
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
            busy = KeyFileRefused("Another process is changing the keys; try again.")
            with locked(lock, os.O_RDWR, TIMEOUT, busy):
                yield

    def _replace(self, ring: KeyRing, at: datetime, action: str, by: By, **fields: object) -> None:
        real = Path(os.path.realpath(self._path))
        with replaced(real, DRAFT) as draft:
            document = written(ring, at)
            with created(draft, like=real) as file:
                if os.write(file.fileno(), document) != len(document):
                    raise OSError(0, "the disk is full")
                # Later than the file's last change: its number may be used again within a tick.
                now = time.time_ns()
                with suppress(FileNotFoundError):
                    now = max(now, real.stat().st_mtime_ns + 1)
                os.utime(file.fileno(), ns=(now, now))
            # A change that is not audited is worse than a line about one that then failed.
            record(self._audit, at, action, by, **fields)
            self.made.note() if ring.was_ever_used else self.made.forget()


@dataclass(slots=True, eq=False)
class WatchedKeys:
    """The KeyStore of a file: a change of it holds from the next question on.

    Once keys were seen, a file that cannot be read or is gone is never taken
    for one without keys.
    """

    file: KeyFile
    _known: tuple[Stamp, KeyRing] | None = None
    _may_have_keys: bool = False
    _complaint: str = ""

    def ring(self) -> KeyRing:
        """The keys now. Unavailable when they cannot be known; the log has the reason once."""
        try:
            if self._known is not None and self.file.stamp() == self._known[0]:
                ring = self._known[1]
            else:
                ring = self.read()
                log.info("keys loaded", extra={"keys": len(ring.keys)})
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
            stamp, ring = self.file.read()
        except KeyFileRefused:
            self._known, self._may_have_keys = None, True
            raise
        if stamp is None and self._may_have_keys:
            raise KeyFileRefused("The key file is gone; put it back.")
        self.file.require_kept(ring)
        if ring.was_ever_used:
            try:
                self.file.made.note()
            except OSError as error:
                log.warning("cannot record that keys exist", extra={"reason": str(error)})
        self._known, self._may_have_keys = (stamp, ring), ring.was_ever_used
        return ring


def _contents(path: Path) -> tuple[Stamp, bytes]:
    try:
        with opened(path) as file:
            # The stamp first: a change while it is read shows at the next look.
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                raise KeyFileRefused(f"The key file {path} cannot be used: it is not a key file.")
            return stamp_of(status), os.read(file, LARGEST)
    except FileNotFoundError:
        if path.is_symlink():
            raise
        return None, b""
