"""Keys: what opens a closed service, and their changes: one that happened is whole, and audited."""

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from typing import Protocol

from ..errors import Conflict, Invalid, NotFound
from ..light import dataclass, field, replace
from .access import DEFAULT_TENANT, EVERYTHING, NOTHING, AgentId, KeyId, Patterns, Role, TenantId

ID_LENGTH = 12  # 62 bits: two keys of one service never share an id
ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
SECRET_BYTES = 32  # 43 characters in a token; too many to guess, so a fast digest is enough
SALT_BYTES = 16  # equal secrets in two files have different digests
DIGEST_BYTES = 32  # of SHA-256
MOST_SECRETS = 8  # of one key that work at a time; each is one more comparison a request
LONGEST_NAME = 100  # code points

NO_SUCH_KEY = "There is no key with this id."

_ID = re.compile(r"[a-z0-9]{12}")
_TOKEN = re.compile(r"amk_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """What is kept of a secret: enough to know it again, too little to use it."""

    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    until: datetime | None = None

    def works_at(self, now: datetime) -> bool:
        """Whether its time is not over; at the instant `until` it is."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The right to act in a tenant, for anyone who knows one of its secrets."""

    id: KeyId
    name: str
    tenant: TenantId
    role: Role
    projects: Patterns
    agents: Patterns = NOTHING
    coordinates: bool = False  # whether it may make intents
    secrets: tuple[Secret, ...]
    created_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """Every key that was made, revoked ones too.

    While none was ever made, the service may be open to callers without one.
    """

    keys: Mapping[KeyId, Key] = field(default_factory=dict)
    was_ever_used: bool = False

    def with_key(self, key: Key) -> "KeyRing":
        """The ring with this key, in place of the one with its id."""
        return replace(self, keys={**self.keys, key.id: key}, was_ever_used=True)

    def key(self, key_id: KeyId) -> Key:
        """The key with this id; NotFound if there is none."""
        if key_id not in self.keys:
            raise NotFound(NO_SUCH_KEY)
        return self.keys[key_id]

    def working(self, tenant: TenantId, agent: AgentId | None = None) -> tuple[Key, ...]:
        """The keys of a tenant that are not revoked; of an agent, those that speak for it alone."""
        own = (key for key in self.keys.values() if key.tenant == tenant)
        if agent is not None:
            own = (key for key in own if key.agents.names == (agent,))
        return tuple(key for key in own if key.revoked_at is None)

    def opened_by(self, token: str, now: datetime) -> Key | None:
        """The key whose token this is and that works now; None for any other text.

        An id that is unknown takes as long as one that is known, and a wrong secret as long as a
        right one: each of the key is compared.
        """
        parts = parsed(token)
        if parts is None:
            return None
        key_id, secret = parts
        key = self.keys.get(key_id, _NOBODY)
        own = key.secrets or _UNUSABLE
        matches = [it for it in own if compare_digest(_digest(it.salt, secret), it.digest)]
        works = any(it.works_at(now) for it in matches) and key.revoked_at is None
        return key if works else None


class KeyStore(Protocol):
    """The keys that open the service; a change of them holds from the next question on."""

    def ring(self) -> KeyRing:
        """The keys now; Unavailable when they cannot be known."""

    def read(self) -> KeyRing:
        """The keys now, for the start: a refusal has a sentence for the operator."""


def parsed(token: str) -> tuple[KeyId, str] | None:
    """The id and the secret in a token; None for any other text."""
    match = _TOKEN.fullmatch(token)
    return (KeyId(match[1]), match[2]) if match else None


def key_id(text: str) -> KeyId:
    """The text as a key's id; Invalid if it is none."""
    if not _ID.fullmatch(text):
        raise Invalid(f"A key's id has {ID_LENGTH} of the characters a-z and 0-9.")
    return KeyId(text)


def key_name(text: str) -> str:
    """The name, trimmed; Invalid if it is empty, too long, or cannot be printed in a line."""
    name = text.strip()
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise Invalid(f"A key's name has 1 to {LONGEST_NAME} characters that can be printed.")
    return name


def issued(
    name: str,
    tenant: TenantId,
    role: Role,
    projects: Patterns,
    now: datetime,
    *,
    agents: Patterns = NOTHING,
    coordinates: bool = False,
) -> tuple[Key, str]:
    """A new key, and the token that opens it: the only copy of its secret."""
    secret, kept = _new_secret()
    key = Key(
        id=KeyId("".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))),
        name=key_name(name), tenant=tenant, role=role, projects=projects, agents=agents,
        coordinates=coordinates, secrets=(kept,), created_at=now,
    )  # fmt: skip
    return key, _token(key, secret)


def rotated(key: Key, now: datetime, keep_old_for: timedelta) -> tuple[Key, str]:
    """The key with a new secret, and its token.

    The old secrets work on for so long, and none longer than it did before.
    Conflict for a revoked key, and for one with too many secrets that still work.
    """
    if key.revoked_at is not None:
        raise Conflict("The key is revoked; create another.")
    end = now + keep_old_for
    shortened = [replace(it, until=min(it.until or end, end)) for it in key.secrets]
    old = [it for it in shortened if it.works_at(now)]
    if len(old) >= MOST_SECRETS:
        raise Conflict(f"{len(old)} older secrets would still work; choose a shorter --keep-old.")
    secret, kept = _new_secret()
    return replace(key, secrets=(*old, kept)), _token(key, secret)


def revoked(key: Key, now: datetime) -> Key:
    """The key that opens nothing from now on, without its secrets; revoked once is revoked."""
    return key if key.revoked_at is not None else replace(key, secrets=(), revoked_at=now)


def _new_secret() -> tuple[str, Secret]:
    secret, salt = secrets.token_urlsafe(SECRET_BYTES), secrets.token_bytes(SALT_BYTES)
    return secret, Secret(salt=salt, digest=_digest(salt, secret))


def _token(key: Key, secret: str) -> str:
    return f"amk_{key.id}_{secret}"


def _digest(salt: bytes, secret: str) -> bytes:
    return sha256(salt + secret.encode()).digest()


# No text has this digest that anybody could find.
_UNUSABLE = (Secret(salt=bytes(SALT_BYTES), digest=bytes(DIGEST_BYTES)),)
_NOBODY = Key(
    id=KeyId(""), name="", tenant=DEFAULT_TENANT, role=Role.READER, projects=EVERYTHING,
    secrets=_UNUSABLE, created_at=datetime.min.replace(tzinfo=UTC),
)  # fmt: skip


KEYS_RESET = "keys.reset"

By = Mapping[str, object]
"""Who did it: `{"user": "ada", "uid": 1000}` or `{"key": "..."}`."""

Put = Callable[..., None]
"""Puts a ring in the place of the one that was read: `put(ring, at, action, by, **fields)`."""


class KeyRegistry(ABC):
    """The records of keys, with their audit.

    Any number of processes may change them at once. What cannot be read, changed or audited is
    Unavailable, with a sentence for the operator.
    """

    @abstractmethod
    def ring(self) -> KeyRing:
        """The keys; an unused ring while none was ever made."""

    @abstractmethod
    def require_kept(self, ring: KeyRing) -> None:
        """Refuse with Unavailable a ring without keys if some were made, and never reset."""

    @abstractmethod
    def are_lost(self) -> bool:
        """Whether `require_kept` refuses the keys that there are."""

    @abstractmethod
    def changing(self) -> AbstractContextManager[tuple[KeyRing, Put]]:
        """The keys, which nobody else changes inside, and what changes them."""

    def create(self, key: Key, *, at: datetime, by: By) -> bool:
        """Add a key; whether it is the first, which closes the service."""
        with self.changing() as (ring, put):
            put(ring.with_key(key), at, "key.created", by, **_of(key))
        return not ring.was_ever_used

    def revoke(self, which: KeyId, *, at: datetime, by: By) -> Key:
        """Let a key open nothing any more; NotFound if there is none."""
        self.ring().key(which)  # before a lock is made beside no file
        with self.changing() as (ring, put):
            key = ring.key(which)
            if key.revoked_at is None:
                key = revoked(key, at)
                put(ring.with_key(key), at, "key.revoked", by, **_of(key))
        return key

    def revoke_all(
        self, tenant: TenantId, agent: AgentId | None = None, *, at: datetime, by: By
    ) -> tuple[Key, ...]:
        """Let no key of a tenant, or of one agent, open anything any more; those that did."""
        if not self.ring().working(tenant, agent):
            return ()
        with self.changing() as (before, put):
            ring, keys = before, before.working(tenant, agent)
            for key in keys:
                ring = ring.with_key(revoked(key, at))
            put(ring, at, "keys.revoked", by, tenant=tenant, keys=[key.id for key in keys])
        return keys

    def rotate(
        self, which: KeyId, keep_old_for: timedelta, *, at: datetime, by: By
    ) -> tuple[Key, str]:
        """Give a key a new secret, and answer its token; NotFound, or Conflict if it is revoked."""
        self.ring().key(which)  # as above
        with self.changing() as (ring, put):
            key, token = rotated(ring.key(which), at, keep_old_for)
            put(ring.with_key(key), at, "key.rotated", by, **_of(key))
        return key, token

    def reset(self, *, at: datetime, by: By) -> int:
        """Forget all keys, those that are lost too, as if none had ever been made; how many."""
        if not (self.ring().was_ever_used or self.are_lost()):
            return 0
        with self.changing() as (ring, put):
            put(KeyRing(), at, KEYS_RESET, by, keys=len(ring.keys))
        return len(ring.keys)


def public_fields(key: Key) -> dict[str, object]:
    """What everybody who looks after a service may know of a key."""
    return {
        "name": key.name,
        "tenant": key.tenant,
        "role": key.role,
        "projects": key.projects.names,
        **({"agents": key.agents.names} if key.agents.names else {}),
        **({"coordinates": True} if key.coordinates else {}),
    }


def _of(key: Key) -> dict[str, object]:
    return {"key": key.id, **public_fields(key)}
