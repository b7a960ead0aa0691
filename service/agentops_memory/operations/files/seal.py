"""The seal file, which has the keys that seal confidential values. Keys are only ever added."""

import base64
import json
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from ...engine.engine import Sealed, Sealer
from ...engine.files import Stamp, created, locked, opened, os_errors_as, replaced, stamp_of
from ...errors import StartRefused, Unavailable
from ...light import dataclass, field
from ...memory.rows import rendered

LARGEST = 1024 * 1024  # bytes; a key that seals takes about 150

TIMEOUT = timedelta(seconds=10)  # longest wait for another process that changes the file
FORMAT = 1
SUFFIX = ".seal"  # of a seal file next to its database
BUSY = "Another process is changing the seal file; try again."
UNUSABLE = "The seal file cannot be used; nothing was stored."
UNSET = "The service has no seal file (MEMORY_SEAL_FILE), so it stores no confidential values."
KEY, NONCE = 32, 12  # bytes, of AES-256-GCM (NIST SP 800-38D)


class SealFileRefused(Unavailable):
    """The seal file cannot be used; the message gives the operator the reason and no key."""


class SealKey(NamedTuple):
    key: bytes
    made_at: str  # for people who read the file


SealKeys = Mapping[str, SealKey]
"""The keys by their ids, in the order in which they were made; the newest key seals."""


@dataclass(slots=True, eq=False)
class SealFile:
    """Keys in a file. Any number of processes may use and change it at once.

    Sealing the first value creates the file if `may_create`: with services on several machines,
    each would create a file with a key of its own.
    """

    path: Path
    clock: Callable[[], datetime]
    may_create: bool = True
    _lock: Lock = field(default_factory=Lock)
    _known: tuple[Stamp, SealKeys] = (None, {})

    @property
    def sealer(self) -> Sealer:
        return Sealer(self.seal, self.opened)

    def seal(self, text: str, bound_to: bytes) -> Sealed:
        try:
            keys = self.keys()
            if not keys and not self.may_create:
                raise Unavailable(UNSET)
            if not keys:
                keys = self._changed(lambda now: now or self._with_new(now))
        except SealFileRefused as refusal:
            raise Unavailable(UNUSABLE) from refusal  # a client need not know the path
        id_, nonce = [*keys][-1], os.urandom(NONCE)
        sealed = _aes(keys[id_].key).encrypt(nonce, text.encode(), bound_to)
        return Sealed(key=id_, nonce=nonce, text=sealed)

    def opened(self, sealed: Sealed, bound_to: bytes) -> str | None:
        try:
            key = self.keys()[sealed.key].key
        except (KeyError, SealFileRefused):
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - when first needed

        try:
            return str(_aes(key).decrypt(sealed.nonce, sealed.text, bound_to), "utf-8")
        except (InvalidTag, ValueError, TypeError, OverflowError):  # damaged, or moved elsewhere
            return None

    def keys(self) -> SealKeys:
        """Return the current keys; none while there is no file."""
        with os_errors_as(SealFileRefused, f"The seal file {self.path} cannot be read"):
            stamp: Stamp = None
            with suppress(FileNotFoundError):
                stamp = stamp_of(self.path.stat())
            with self._lock:
                if self._known[0] != stamp:
                    self._known = (stamp, self._read())
                return self._known[1]

    def rotate(self, audited: Callable[[str], None]) -> str:
        """Add a key that seals from now on and return its id. Older keys still open their values.

        `audited` is called with the id before the key exists; if it raises, no key is made.
        """
        return [*self._changed(self._with_new, lambda keys: audited([*keys][-1]))][-1]

    def add(self, keys: SealKeys) -> None:
        """Add the keys that are missing in the file, before its own, so that its newest stays."""
        if not keys.keys() <= self.keys().keys():  # a mounted file cannot be changed
            self._changed(lambda now: {**{it: keys[it] for it in keys if it not in now}, **now})

    def _with_new(self, keys: SealKeys) -> SealKeys:
        new = SealKey(secrets.token_bytes(KEY), rendered(self.clock()))
        return {**keys, secrets.token_hex(8): new}

    def _changed(
        self,
        change: Callable[[SealKeys], SealKeys],
        audited: Callable[[SealKeys], None] = lambda _: None,
    ) -> SealKeys:
        real = Path(os.path.realpath(self.path))
        with (
            os_errors_as(SealFileRefused, f"The seal file {self.path} cannot be changed"),
            locked(Path(f"{real}.lock"), os.O_RDWR, TIMEOUT, SealFileRefused(BUSY)),
        ):
            before = self._read()
            after = change(before)
            if len(written(after)) > LARGEST:
                raise SealFileRefused(f"The seal file {self.path} can hold no more keys.")
            if after != before:
                with replaced(real) as draft, created(draft, like=real) as file:
                    file.write(written(after))
                    audited(after)
        return after

    def _read(self) -> SealKeys:
        try:
            with opened(self.path) as descriptor:
                data = os.read(descriptor, LARGEST)
        except FileNotFoundError:
            return {}
        return read(data, str(self.path))


def require_seal_file(path: Path, db_path: Path) -> None:
    """Raise StartRefused if a configured seal file is missing.

    The default file, next to the database, is created when it is first needed.
    """
    if path != Path(f"{db_path}{SUFFIX}") and not path.exists():
        raise StartRefused(
            f"There is no seal file {path}: confidential values could not be read. Put it back, "
            "or create a new one with `agentops-memory seal rotate`."
        )


def read(data: bytes, name: str) -> SealKeys:
    """Parse a seal file; SealFileRefused, with this name of the file, if it is damaged."""
    try:
        records = json.loads(data)["keys"]
        keys = {
            str(it["id"]): SealKey(base64.b64decode(it["key"], validate=True), str(it["made_at"]))
            for it in records
        }
    except (ValueError, LookupError, TypeError, RecursionError) as fault:
        raise SealFileRefused(f"The seal file {name} cannot be used: it is damaged.") from fault
    if any(len(it.key) != KEY for it in keys.values()):
        raise SealFileRefused(f"The seal file {name} cannot be used: one of its keys is truncated.")
    return keys


def written(keys: SealKeys) -> bytes:
    records = [
        {"id": id_, "made_at": it.made_at, "key": base64.b64encode(it.key).decode()}
        for id_, it in keys.items()
    ]
    return json.dumps({"format": FORMAT, "keys": records}, indent=1).encode() + b"\n"


def _aes(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

    return AESGCM(key)
