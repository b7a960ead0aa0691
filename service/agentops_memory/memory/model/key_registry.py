"""The changes of keys: one that happened is whole, and audited; else nothing happened."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

from .access import KeyId, TenantId
from .agents import AgentId
from .keys import Key, KeyRing, revoked, rotated

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
