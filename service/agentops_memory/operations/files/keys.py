"""The files of keys and of the audit.

The keys: how each field is read; small, private, locked, replaced whole, watched. The audit: who
changed what an operator is responsible for; lines of JSON, append-only. It also shows whether keys
were made, and what was revoked and erased since a backup.
"""

import json
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from ...engine.files import (
    Stamp,
    created,
    locked,
    opened,
    os_errors_as,
    private_file,
    replaced,
    stamp_of,
    sync,
)
from ...errors import Invalid, Unavailable
from ...light import dataclass
from ...memory import rows as instants
from ...memory.access import (
    DIGEST_BYTES,
    KEYS_RESET,
    SALT_BYTES,
    By,
    Caller,
    Key,
    KeyId,
    KeyRegistry,
    KeyRing,
    Put,
    Role,
    Secret,
    TenantId,
    agent_patterns,
    key_id,
    key_name,
    patterns,
    public_fields,
    tenant_id,
)
from ...memory.rows import rendered
from ...memory.space import Held, Kind

AUDIT_DRAFT = ".part"  # the suffix of the file that is written to replace it
OF_KEYS = ("key.", "keys.")  # how actions begin that concern keys
AUDIT_RESTORED = "audit.restored"  # the audit was lost, and restored from an archive
VERSION = 1  # of the key file
Readers = Mapping[str, Callable[[Any], object]]
T = TypeVar("T")


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
                with replaced(path, AUDIT_DRAFT) as draft, created(draft, like=path) as left:
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
        is_known=is_known and not has_gap, were_reset=were_reset, ended=frozenset(ended),
        erased=frozenset(erased),
    )  # fmt: skip


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


def _only(type_: type[T]) -> Callable[[Any], T]:
    def read(value: Any) -> T:
        if not isinstance(value, type_):
            raise TypeError
        return value

    return read


def _if_any(read: Callable[[Any], Any], none: object = None) -> Callable[[Any], Any]:
    return lambda value: none if value is None else read(value)


_list = _only(list)
_FAULTS = (Invalid, ValueError, TypeError, AttributeError, KeyError)
_KEY: Readers = {
    "id": key_id,
    "name": key_name,
    "tenant": tenant_id,
    "role": Role,
    "projects": lambda value: patterns(tuple(_list(value))),
    "agents": lambda value: agent_patterns(_if_any(_list, [])(value)),
    "coordinates": _if_any(_only(bool), none=False),
    "created_at": _instant,
    "revoked_at": _if_any(_instant),
    "secrets": lambda value: tuple(Secret(**_fields(it, _SECRET)) for it in _list(value)),
}
_DOCUMENT: Readers = {"version": int, "keys": _list, "reset_at": _if_any(_instant)}
_SECRET: Readers = {
    "salt": _bytes(SALT_BYTES),
    "digest": _bytes(DIGEST_BYTES),
    "until": _if_any(_instant),
}

LARGEST = 16 * 1024 * 1024  # bytes; a key takes about 400
TIMEOUT = timedelta(seconds=10)  # with another process that changes the file

log = logging.getLogger(__name__)


class KeyFileRefused(Unavailable):
    """The key file cannot be used; the sentence tells the operator why, and shows no secret."""


class KeysLost(KeyFileRefused):
    """Keys were made, and the file has none; to open the service for that would be wrong."""


class KeyFile(KeyRegistry):
    """The KeyRegistry of a file: what cannot be read or changed is KeyFileRefused.

    That keys were made is noted apart from it: losing it must not open the service. The audit
    shows it, but its lines expire, and keys made elsewhere may be mounted. So an empty file notes
    it, too, which only a reset removes.
    """

    def __init__(self, path: Path, audit: Path) -> None:
        self._path = path
        self._audit = audit
        self._note = audit.with_suffix(".closed")

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
            if self._were_made():
                raise KeysLost(
                    f"Keys were created, but the key file {self._path} is missing or empty. Put it "
                    "back, or create a key with `agentops-memory keys create --name NAME --role "
                    "admin`; to give everyone access without a key, `agentops-memory keys reset "
                    "--open`."
                )

    def _were_made(self) -> bool:
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

    def note_made(self) -> None:
        """Note that keys were made. May raise an OSError."""
        if not self._note.exists():
            with private_file(self._note, os.O_WRONLY, like=self._note.parent):
                pass
            sync(self._note.parent)

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
        with replaced(real) as draft:
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
            self.note_made() if ring.was_ever_used else self._note.unlink(missing_ok=True)


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
                self.file.note_made()
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
