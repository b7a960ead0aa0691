"""The key file and the audit file.

The key file is small, private, locked, replaced as a whole, and watched. The audit records who
changed anything an operator is responsible for, as append-only lines of JSON. It also shows whether
keys were made, and which keys and tenants were revoked or erased since a backup.
"""

import json
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from ...engine import files
from ...engine.files import Stamp, os_errors_as, stamp_of
from ...errors import Invalid, Unavailable
from ...light import OncePerTurn, dataclass, field
from ...memory import access
from ...memory.access import By, Caller, Key, KeyId, KeyRegistry, KeyRing, Put, Secret, TenantId
from ...memory.rows import rendered
from ...memory.space import Held, Kind
from ...record import Record

OF_KEYS = ("key.", "keys.")  # prefixes of actions that concern keys
AUDIT_RESTORED = "audit.restored"  # the audit was lost, and restored from an archive
VERSION = 1  # of the key file
LONGEST_PATH = 60  # characters of the path of a field in an error


def by_key(caller: Caller) -> By:
    return {"key": caller.key}


@dataclass(frozen=True, slots=True)
class AuditFile:
    """An AuditLog in a file; `by` identifies a caller in it."""

    path: Path
    clock: Callable[[], datetime]
    by: Callable[[Caller], By] = by_key

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        record(self.path, self.clock(), action, self.by(caller), **fields)

    def trim(self, until: datetime) -> int:
        """Remove the lines up to this time and return their number; Unavailable on an I/O error.

        Lines that are not ours stay. So does every line after the first newer one, whatever its
        time: from that line on the audit is complete.
        """
        path = self.path
        if not path.exists():
            return 0
        sentence = f"The audit file {path} cannot be trimmed"
        with (
            os_errors_as(Unavailable, sentence),
            files.locked(path, os.O_RDONLY) as file,
            os.fdopen(os.dup(file), "rb") as lines,
        ):
            old = sum(is_old for _, is_old in _with_age(lines, until))
            if old:
                lines.seek(0)
                with files.replaced(path) as draft, files.created(draft, like=path) as left:
                    os.fchmod(left.fileno(), os.fstat(file).st_mode & 0o777)
                    left.writelines(it for it, is_old in _with_age(lines, until) if not is_old)
            return old

    def measured(self, until: datetime | None) -> Held:
        are_old: list[bool] = []
        sentence = f"The audit file {self.path} cannot be read"
        with (
            os_errors_as(Unavailable, sentence),
            suppress(FileNotFoundError),
            self.path.open("rb") as lines,
        ):
            are_old += (is_old for _, is_old in _with_age(lines, until))
        return Held(kind=Kind.AUDIT, rows=len(are_old), past_retention=sum(are_old))


def record(path: Path, at: datetime, action: str, by: By, **fields: object) -> None:
    """Append a line and sync it to disk; values are JSON, so no value can look like another line.

    Fields must not contain secrets. Raises Unavailable, with a sentence for the operator, if the
    line cannot be written.
    """
    sentence = f"The audit file {path} cannot be written, so nothing was changed"
    with os_errors_as(Unavailable, sentence), files.locked(path, os.O_RDWR | os.O_APPEND) as file:
        data, size = line(at, action, by, **fields), os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            data = b"\n" + data  # a full disk or a crash cut the last line short
        if os.write(file, data) != len(data):
            raise OSError(0, "the disk is full")
        os.fsync(file)


def line(at: datetime, action: str, by: By, **fields: object) -> bytes:
    return json.dumps({"at": rendered(at), "action": action, "by": by, **fields}).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedChanges:
    """Changes since an archive was made, as far as the audit shows them."""

    is_known: bool = False  # the audit reaches back to the archive
    ended: frozenset[KeyId] = frozenset()  # keys revoked at any time, or rotated since the archive
    were_reset: bool = False  # all keys were revoked
    erased: frozenset[TenantId] = frozenset()

    def is_void(self, key: Key) -> bool:
        """Whether a key of the archive must not give access any more."""
        return self.were_reset or key.id in self.ended or key.tenant in self.erased


def changes_since(audit: Path, archived: Iterable[bytes]) -> AuditedChanges:
    """Read the changes in the audit that the archived lines lack, and all revocations of keys.

    Lines are compared, not times: a clock may have been set back.
    """
    if not audit.exists():
        return AuditedChanges()
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
            match entry_of(line):
                case {"action": "key.revoked", "key": str(key)}:
                    ended.add(KeyId(key))
                case {"action": "keys.revoked", "keys": [*keys]}:
                    ended.update(KeyId(str(key)) for key in keys)
                case {"action": "key.rotated", "key": str(key)} if is_new:
                    ended.add(KeyId(key))
                case {"action": action} if is_new and action == AUDIT_RESTORED:
                    has_gap = True
                case {"action": action} if is_new and action == access.KEYS_RESET:
                    were_reset = True
                case {"action": "tenant.erased", "tenant": str(tenant)} if is_new:
                    erased.add(TenantId(tenant))
    return AuditedChanges(
        is_known=is_known and not has_gap, were_reset=were_reset, ended=frozenset(ended),
        erased=frozenset(erased),
    )  # fmt: skip


def _with_age(lines: Iterable[bytes], until: datetime | None) -> Iterator[tuple[bytes, bool]]:
    """Yield each line, and whether it is past retention."""
    is_old = until is not None
    for line in lines:
        at = written_at(line) if is_old else None
        is_old = is_old and (at is None or (until is not None and at <= until))
        yield line, is_old and at is not None


def written_at(line: bytes) -> datetime | None:
    """Return the time of an audit line; None if the line was cut short or is not ours."""
    with suppress(ValueError, TypeError, LookupError):
        at = datetime.fromisoformat(entry_of(line)["at"])
        return at if at.tzinfo else None
    return None


def _digest(line: bytes) -> bytes:
    return blake2b(line.rstrip(b"\n"), digest_size=16).digest()


def entry_of(line: bytes) -> dict[str, Any]:
    """Return an audit line as a JSON object; empty if the line is damaged."""
    with suppress(ValueError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict):
            return entry
    return {}


Instant = Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))]
Names = Annotated[
    tuple[str, ...], Field(strict=False), BeforeValidator(lambda it: getattr(it, "names", it))
]


class SecretRecord(Record):
    model_config = ConfigDict(extra="forbid", ser_json_bytes="hex", from_attributes=True)

    salt: bytes = Field(min_length=access.SALT_BYTES, max_length=access.SALT_BYTES)
    digest: bytes = Field(min_length=access.DIGEST_BYTES, max_length=access.DIGEST_BYTES)
    until: Instant | None = None


class KeyRecord(Record):
    """A key as it is stored; fields that have their default are left out."""

    model_config = ConfigDict(extra="forbid", ser_json_bytes="hex", from_attributes=True)

    id: str
    name: str
    tenant: str
    role: access.Role
    projects: Names
    agents: Names = ()
    coordinates: bool = False
    created_at: Instant
    revoked_at: Instant | None = None
    secrets: tuple[SecretRecord, ...]


class KeyDocument(Record):
    """The content of a key file."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=VERSION, le=VERSION)
    keys: tuple[KeyRecord, ...]
    reset_at: Instant | None = None  # an empty list alone does not open the service


def written(ring: KeyRing, at: datetime) -> bytes:
    document: dict[str, object] = {
        "version": VERSION,
        "keys": [*map(record_of, ring.keys.values())],
    }
    if not ring.was_ever_used:
        document["reset_at"] = rendered(at)
    return json.dumps(document, indent=1).encode() + b"\n"


def record_of(key: Key) -> dict[str, object]:
    return KeyRecord.model_validate(key).model_dump(mode="json", exclude_defaults=True)


def read(data: bytes) -> KeyRing:
    """Parse a key file; a ValueError gives the reason, and quotes only ids of keys."""
    try:
        document = KeyDocument.model_validate_json(data)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
        label, location = "", first["loc"]
        with suppress(Invalid, ValueError, LookupError, TypeError):
            label = f"key {access.key_id(json.loads(data)['keys'][location[1]]['id'])}: "
            location = location[2:]
        path = ".".join(map(str, location))[:LONGEST_PATH]
        reason = f"its {path} cannot be used" if path else first["msg"]
        raise ValueError(f"{label}{reason}") from None
    keys = {}
    for number, it in enumerate(document.keys, 1):
        try:
            keys[it.id] = _key(it)
        except Invalid as refusal:
            raise ValueError(f"key number {number}: {str(refusal).removesuffix('.')}") from refusal
    if len(keys) < len(document.keys):
        raise ValueError("two of its keys have the same id")
    return KeyRing(
        keys={key.id: key for key in keys.values()},
        was_ever_used=bool(keys) or document.reset_at is None,
    )


def _key(it: KeyRecord) -> Key:
    if not it.secrets and it.revoked_at is None:
        raise Invalid("It has no secret.")
    return Key(
        id=access.key_id(it.id), name=access.key_name(it.name),
        tenant=access.tenant_id(it.tenant), role=it.role,
        projects=access.patterns(it.projects), agents=access.agent_patterns(it.agents),
        coordinates=it.coordinates, secrets=tuple(Secret(**dict(secret)) for secret in it.secrets),
        created_at=it.created_at, revoked_at=it.revoked_at,
    )  # fmt: skip


LARGEST = 16 * 1024 * 1024  # bytes; a key takes about 400
TIMEOUT = timedelta(seconds=10)  # longest wait for another process that changes the file

log = logging.getLogger(__name__)


class KeyFileRefused(Unavailable):
    """The key file cannot be used; the message gives the operator the reason and no secret."""


class KeysLost(KeyFileRefused):
    """Keys were made, but the file has none; the service must stay closed."""


class KeyFile(KeyRegistry):
    """A KeyRegistry in a file. Raises KeyFileRefused if the file cannot be read or changed.

    The fact that keys were made is stored outside the file, because its loss must not open the
    service. The audit shows the fact, but its lines expire, and keys made elsewhere may be mounted.
    So an empty marker file records it too, and only a reset removes the marker.
    """

    def __init__(self, path: Path, audit: Path) -> None:
        self._path = path
        self._audit = audit
        self._marker = audit.with_suffix(".closed")

    def ring(self) -> KeyRing:
        return self.read()[1]

    def settled(self) -> KeyRing:
        """Return the keys, with every change that the audit has recorded.

        If the lock file cannot be created, no process can change the keys.
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
        """Return the keys, and a stamp of the file that is not newer than the keys."""
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
        """Whether the marker or the audit shows that keys were made since the last reset."""
        if self._marker.exists() or not self._audit.exists():
            return self._marker.exists()
        were_made = False
        with self._audit.open("rb") as lines:
            for line in lines:
                if b'"key' in line:  # parsing all other lines as JSON would take long
                    action = str(entry_of(line).get("action"))
                    is_reset = action == access.KEYS_RESET
                    were_made = not is_reset and (were_made or action.startswith(OF_KEYS))
        return were_made

    def note_made(self) -> None:
        """Create the marker that keys were made. May raise an OSError."""
        if not self._marker.exists():
            with files.private_file(self._marker, os.O_WRONLY, like=self._marker.parent):
                pass
            files.sync(self._marker.parent)

    def are_lost(self) -> bool:
        # Checked again under the lock: the first key is audited before its file is in place.
        if not self._seem_lost():
            return False
        with suppress(KeyFileRefused), self._locked():
            return self._seem_lost()
        return True

    def stamp(self) -> Stamp:
        """Return a stamp that changes with the file, the links to it, and its mode."""
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

    def _seem_lost(self) -> bool:
        try:
            self.require_kept(self.ring())
        except KeyFileRefused as refusal:
            return isinstance(refusal, KeysLost)
        return False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Next to the real file, so that all processes use one lock, whatever link they follow.
        lock = Path(f"{os.path.realpath(self._path)}.lock")
        with os_errors_as(KeyFileRefused, f"The key file {self._path} cannot be changed"):
            busy = KeyFileRefused("Another process is changing the keys; try again.")
            with files.locked(lock, os.O_RDWR, TIMEOUT, busy):
                yield

    def _replace(self, ring: KeyRing, at: datetime, action: str, by: By, **fields: object) -> None:
        real = Path(os.path.realpath(self._path))
        with files.replaced(real) as draft:
            document = written(ring, at)
            with files.created(draft, like=real) as file:
                if os.write(file.fileno(), document) != len(document):
                    raise OSError(0, "the disk is full")
                # Newer than the old file: within a tick of the clock, the inode may be reused.
                now = time.time_ns()
                with suppress(FileNotFoundError):
                    now = max(now, real.stat().st_mtime_ns + 1)
                os.utime(file.fileno(), ns=(now, now))
            # An unaudited change is worse than an audit line about a change that then failed.
            record(self._audit, at, action, by, **fields)
            self.note_made() if ring.was_ever_used else self._marker.unlink(missing_ok=True)


@dataclass(slots=True, eq=False)
class WatchedKeys:
    """A KeyStore in a file; a change of the file takes effect with the next request.

    Once keys were seen, a missing or unreadable file never counts as a file without keys.
    """

    file: KeyFile
    _stamp: OncePerTurn[Stamp] = field(init=False)
    _known: tuple[Stamp, KeyRing] | None = None
    _may_have_keys: bool = False
    _complaint: str = ""

    def __post_init__(self) -> None:
        self._stamp = OncePerTurn(self.file.stamp)

    def ring(self) -> KeyRing:
        """Return the current keys; Unavailable if they cannot be read, with one log line."""
        try:
            if self._known is not None and self._stamp.get() == self._known[0]:
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
        """Return the current keys at startup; KeyFileRefused has a sentence for the operator."""
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
        with files.opened(path) as file:
            # The stamp is taken first, so that the next check notices a change during the read.
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                raise KeyFileRefused(f"The key file {path} cannot be used: it is not a key file.")
            return stamp_of(status), os.read(file, LARGEST)
    except FileNotFoundError:
        if path.is_symlink():
            raise
        return None, b""
