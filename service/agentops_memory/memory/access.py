"""Access control: callers, their tenants, roles and patterns, and the agents they speak for; and
API keys.

Each change of keys is atomic and audited.
"""

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from hmac import compare_digest
from typing import NewType, Protocol

from ..errors import Conflict, Denied, Invalid, required
from ..light import dataclass, field, replace
from ..recall.text import invisible
from .space import Project, Space, project_name

TenantId = NewType("TenantId", str)
KeyId = NewType("KeyId", str)
DEFAULT_TENANT = TenantId("default")
NOT_YOUR_STORES = "Memory stores are for keys that act on every project."
NOT_YOUR_REFS = "Memory refs and runs are for keys that act on every project."
NOT_YOUR_PROJECT = "Your key does not act on this project, or not on this session's."

AgentId = NewType("AgentId", str)
NOT_YOUR_AGENT = "Your key does not speak for this agent."

ANY = "*"  # the wildcard of a pattern: any characters, or none
MOST_ANY = 8  # most wildcards of one pattern
MOST_PATTERNS = 100  # most patterns of one key
LONGEST_PATTERN = 200  # code points


class Role(StrEnum):
    """What a caller may do; each role includes those before it."""

    READER = "reader"  # may read, but not export
    WRITER = "writer"  # may save, end, amend and soft-delete
    ADMIN = "admin"  # may erase, export, import and redact, and manage keys and tenants

    def includes(self, other: "Role") -> bool:
        return _RANKS[self] >= _RANKS[other]


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True)
class Patterns:
    """Names of what a caller may access; `*` matches any characters."""

    names: tuple[str, ...] = (ANY,)

    @cached_property
    def are_everything(self) -> bool:
        """Whether every name matches; to change a global memory, a caller needs all projects."""
        return ANY in self.names

    @cached_property
    def _expressions(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(_expression, self.names))

    def match(self, name: str) -> bool:
        return self.are_everything or any(it.fullmatch(name) for it in self._expressions)


EVERYTHING = Patterns()
NOTHING = Patterns(())


def patterns(names: tuple[str, ...]) -> Patterns:
    """Return patterns normalized like project names; Invalid unless they are a few valid names."""
    folded = tuple(dict.fromkeys(project_name(name) for name in names))
    if not folded or not all(folded):
        raise Invalid("A project pattern must be a name such as billing, or billing-*, or *.")
    if len(folded) > MOST_PATTERNS:
        raise Invalid(f"A key can have at most {MOST_PATTERNS} project patterns.")
    if any(len(name) > LONGEST_PATTERN or name.count(ANY) > MOST_ANY for name in folded):
        raise Invalid(
            f"A project pattern must have at most {LONGEST_PATTERN} characters and {MOST_ANY} *."
        )
    if chars := ", ".join(filter(None, map(invisible, folded))):
        raise Invalid(f"A project pattern must not contain invisible characters, such as {chars}.")
    return Patterns(folded)


@dataclass(slots=True, kw_only=True)
class IdempotentRequest:
    """The digests of a request and of its idempotency key; used for one write."""

    key: bytes
    request: bytes
    status: int  # of the response; a replay gets the status of the first response
    is_replay: bool = False  # set by the write: whether the request was executed before


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The identity of a request: tenant, role, what it may access, and the key that grants it.

    A caller without a key is trusted by the operator: the command line, or any client of an
    open service.
    """

    tenant: TenantId = DEFAULT_TENANT
    role: Role = Role.ADMIN
    projects: Patterns = EVERYTHING
    agents: Patterns = EVERYTHING  # the agents it speaks for
    coordinates: bool = True  # whether it may create intents
    key: KeyId | None = None
    key_name: str = field(default="", compare=False)
    request: IdempotentRequest | None = field(default=None, compare=False, repr=False)

    @property
    def is_replay(self) -> bool:
        """Whether the request was executed before, under the same idempotency key."""
        return self.request is not None and self.request.is_replay

    def require(self, role: Role, scope: str | None = None) -> None:
        """Raise Denied unless the caller has this role, which a protocol may call `scope`."""
        if not self.role.includes(role):
            raise Denied(f"This needs a key with the role {role}.", scope or role)

    def require_project(self, project: Project) -> None:
        """Raise Denied for a project outside the patterns, whether it exists or not."""
        if not self.projects.match(project):
            raise Denied(NOT_YOUR_PROJECT)

    def require_stores(self) -> None:
        if not self.projects.are_everything:
            raise Denied(NOT_YOUR_STORES)

    def require_refs(self) -> None:
        """Raise Denied unless the patterns match every project: refs belong to the tenant."""
        if not self.projects.are_everything:
            raise Denied(NOT_YOUR_REFS, ANY)

    def require_space(self, space: Space) -> None:
        """Raise Denied unless the caller may change memories of this space."""
        self.require_project(space.project)
        if not self.projects.are_everything and space.is_global:
            raise Denied("Changing a global memory needs a key for every project.")


OPERATOR = Caller()


def tenant_id(text: str) -> TenantId:
    """Check and return a tenant id, which is safe as a file name; Invalid otherwise."""
    if not _NAME.fullmatch(text):
        raise Invalid(
            "A tenant's name must have 1 to 63 of the characters a-z, 0-9 and -, and must not "
            "begin with -."
        )
    return TenantId(text)


def _expression(pattern: str) -> re.Pattern[str]:
    """Compile a pattern; its parts match where they first occur, which takes linear time."""
    first, *parts = map(re.escape, pattern.split(ANY))
    middle = "".join(f"(?>.*?{part})" for part in parts[:-1])
    return re.compile(first + middle + (f".*{parts[-1]}" if parts else ""), re.DOTALL)


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

LONGEST_AGENT = 128  # characters

# Visible ASCII except delimiters of paths, lists and headers, as clients send ids unescaped.
_CHAR = r'(?![/?#%*,"])[!-~]'
_AGENT = re.compile(rf"(?:{_CHAR}){{1,{LONGEST_AGENT}}}")
_PATTERN = re.compile(rf"(?:\*|{_CHAR})+")


def agent_id(text: str) -> AgentId:
    """Check and return an agent's id; Invalid otherwise."""
    if not _AGENT.fullmatch(text) or text in (".", ".."):  # clients normalize these in a path
        raise Invalid(
            f"An agent's id must have 1 to {LONGEST_AGENT} visible ASCII characters, "
            'none of them / ? # % * , or ".'
        )
    return AgentId(text)


def agent_patterns(names: Iterable[str]) -> Patterns:
    """Return the agents a key speaks for; Invalid for too many, too long or malformed patterns."""
    distinct = tuple(dict.fromkeys(names))
    if len(distinct) > MOST_PATTERNS:
        raise Invalid(f"A key speaks for at most {MOST_PATTERNS} patterns of agents.")
    for it in distinct:
        if len(it) > LONGEST_PATTERN or it.count(ANY) > MOST_ANY or not _PATTERN.fullmatch(it):
            raise Invalid("An agent pattern must be a name such as coder, or team-*, or *.")
    return Patterns(distinct)


def asking(caller: Caller, named: str) -> AgentId:
    """Return the calling agent: the named one, or the only one that the key speaks for.

    Denied if the key does not speak for it, or for no agent; Invalid if no agent is named
    and the key speaks for several.
    """
    allowed = caller.agents.names
    if not allowed:
        raise Denied(
            "Your key speaks for no agent; `keys create --agent PATTERN` creates one that does."
        )
    if not named:
        if len(allowed) > 1 or ANY in allowed[0]:
            raise Invalid("The header X-Agent-ID must name the calling agent.")
        return AgentId(allowed[0])
    if not caller.agents.match(agent := agent_id(named)):
        raise Denied(NOT_YOUR_AGENT)
    return agent


ID_LENGTH = 12  # 62 bits: two keys of one service never share an id
ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
SECRET_BYTES = 32  # 43 characters in a token; too many to guess, so a fast digest is enough
SALT_BYTES = 16  # equal secrets in two files have different digests
DIGEST_BYTES = 32  # the length of a SHA-256
MOST_SECRETS = 8  # secrets of one key valid at once; each costs a request one more comparison
LONGEST_NAME = 100  # code points

_ID = re.compile(r"[a-z0-9]{12}")
_TOKEN = re.compile(r"amk_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """The stored digest of a secret: enough to verify the secret, too little to use it."""

    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    until: datetime | None = None

    def is_valid_at(self, now: datetime) -> bool:
        """Whether it is still valid; `until` is exclusive."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The right to act in a tenant, for any client that knows one of its secrets."""

    id: KeyId
    name: str
    tenant: TenantId
    role: Role
    projects: Patterns
    agents: Patterns = NOTHING
    coordinates: bool = False  # whether it may create intents
    secrets: tuple[Secret, ...]
    created_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """Every key that was ever created, including revoked ones.

    Until the first key is created, the service may be open to callers without a key.
    """

    keys: Mapping[KeyId, Key] = field(default_factory=dict)
    was_ever_used: bool = False

    def with_key(self, key: Key) -> "KeyRing":
        """Return the ring with this key, which replaces any with the same id."""
        return replace(self, keys={**self.keys, key.id: key}, was_ever_used=True)

    def key(self, key_id: KeyId) -> Key:
        """Return the key with this id; NotFound if there is none."""
        return required(self.keys.get(key_id), "There is no key with this id.")

    def working(self, tenant: TenantId, agent: AgentId | None = None) -> tuple[Key, ...]:
        """Return a tenant's unrevoked keys; with `agent`, only keys that speak for it alone."""
        own = (key for key in self.keys.values() if key.tenant == tenant)
        if agent is not None:
            own = (key for key in own if key.agents.names == (agent,))
        return tuple(key for key in own if key.revoked_at is None)

    def opened_by(self, token: str, now: datetime) -> Key | None:
        """Return the key of a token, if it is valid now; None for any other text.

        An unknown id takes as long as a known one, and a wrong secret as long as a right one, as
        all secrets of a key are compared.
        """
        parts = parsed(token)
        if parts is None:
            return None
        key_id, secret = parts
        key = self.keys.get(key_id, _UNKNOWN_KEY)
        own = key.secrets or _UNUSABLE
        matches = [it for it in own if compare_digest(_digest(it.salt, secret), it.digest)]
        is_valid = any(it.is_valid_at(now) for it in matches) and key.revoked_at is None
        return key if is_valid else None


class KeyStore(Protocol):
    """The keys of the service; a change takes effect with the next request."""

    def ring(self) -> KeyRing:
        """Return the current keys; Unavailable if they cannot be read."""

    def read(self) -> KeyRing:
        """Return the keys at the start; a refusal has a message for the operator."""


def parsed(token: str) -> tuple[KeyId, str] | None:
    """Return the id and the secret in a token; None for any other text."""
    match = _TOKEN.fullmatch(token)
    return (KeyId(match[1]), match[2]) if match else None


def key_id(text: str) -> KeyId:
    """Check and return a key's id; Invalid otherwise."""
    if not _ID.fullmatch(text):
        raise Invalid(f"A key's id must have {ID_LENGTH} of the characters a-z and 0-9.")
    return KeyId(text)


def key_name(text: str) -> str:
    """Return the name, trimmed; Invalid if it is empty, too long or not printable."""
    name = text.strip()
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise Invalid(f"A key's name must have 1 to {LONGEST_NAME} printable characters.")
    return name


def issued(
    name: str, tenant: TenantId, role: Role, projects: Patterns, now: datetime, *,
    agents: Patterns = NOTHING, coordinates: bool = False,
) -> tuple[Key, str]:  # fmt: skip
    """Create a key; return it and its token, which is the only copy of the secret."""
    secret, kept = _new_secret()
    key = Key(
        id=KeyId("".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))),
        name=key_name(name), tenant=tenant, role=role, projects=projects, agents=agents,
        coordinates=coordinates, secrets=(kept,), created_at=now,
    )  # fmt: skip
    return key, _token(key, secret)


def rotated(key: Key, now: datetime, keep_old_for: timedelta) -> tuple[Key, str]:
    """Return the key with a new secret, and its token.

    The old secrets stay valid for `keep_old_for`, but none longer than before. Conflict for a
    revoked key, and for a key with too many secrets that are still valid.
    """
    if key.revoked_at is not None:
        raise Conflict("The key is revoked; create another.")
    end = now + keep_old_for
    shortened = [replace(it, until=min(it.until or end, end)) for it in key.secrets]
    old = [it for it in shortened if it.is_valid_at(now)]
    if len(old) >= MOST_SECRETS:
        raise Conflict(f"{len(old)} older secrets would still work; choose a shorter --keep-old.")
    secret, kept = _new_secret()
    return replace(key, secrets=(*old, kept)), _token(key, secret)


def revoked(key: Key, now: datetime) -> Key:
    """Return the key, revoked and without secrets; idempotent."""
    return key if key.revoked_at is not None else replace(key, secrets=(), revoked_at=now)


def _new_secret() -> tuple[str, Secret]:
    secret, salt = secrets.token_urlsafe(SECRET_BYTES), secrets.token_bytes(SALT_BYTES)
    return secret, Secret(salt=salt, digest=_digest(salt, secret))


def _token(key: Key, secret: str) -> str:
    return f"amk_{key.id}_{secret}"


def _digest(salt: bytes, secret: str) -> bytes:
    return sha256(salt + secret.encode()).digest()


# A digest without a known preimage.
_UNUSABLE = (Secret(salt=bytes(SALT_BYTES), digest=bytes(DIGEST_BYTES)),)
_UNKNOWN_KEY = Key(
    id=KeyId(""), name="", tenant=DEFAULT_TENANT, role=Role.READER, projects=EVERYTHING,
    secrets=_UNUSABLE, created_at=datetime.min.replace(tzinfo=UTC),
)  # fmt: skip

KEYS_RESET = "keys.reset"

By = Mapping[str, object]
"""The author of a change: `{"user": "ada", "uid": 1000}` or `{"key": "..."}`."""

Put = Callable[..., None]
"""Replaces the stored ring, as in `put(ring, at, action, by, **fields)`."""


class KeyRegistry(ABC):
    """The stored keys, with their audit log.

    Several processes may change keys at once. Raises Unavailable, with a message for the
    operator, if keys cannot be read, changed or audited.
    """

    @abstractmethod
    def ring(self) -> KeyRing:
        """Return the keys; an unused ring if no key was ever created."""

    @abstractmethod
    def require_kept(self, ring: KeyRing) -> None:
        """Raise Unavailable for an empty ring if keys were created and never reset."""

    @abstractmethod
    def are_lost(self) -> bool:
        """Whether `require_kept` refuses the stored keys."""

    @abstractmethod
    def changing(self) -> AbstractContextManager[tuple[KeyRing, Put]]:
        """Lock the keys for the body; yield the ring and a function that replaces it."""

    def create(self, key: Key, *, at: datetime, by: By) -> bool:
        """Add a key; return whether it is the first, which closes the service."""
        with self.changing() as (ring, put):
            put(ring.with_key(key), at, "key.created", by, **_of(key))
        return not ring.was_ever_used

    def revoke(self, which: KeyId, *, at: datetime, by: By) -> Key:
        """Revoke a key and return it; NotFound if there is none."""
        self.ring().key(which)  # first, so that no lock file is created without a key file
        with self.changing() as (ring, put):
            key = ring.key(which)
            if key.revoked_at is None:
                key = revoked(key, at)
                put(ring.with_key(key), at, "key.revoked", by, **_of(key))
        return key

    def revoke_all(
        self, tenant: TenantId, agent: AgentId | None = None, *, at: datetime, by: By
    ) -> tuple[Key, ...]:
        """Revoke the keys of a tenant, or of one agent only; return those that were valid."""
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
        """Return a key with a new secret, and its token; NotFound, or Conflict if it is revoked."""
        self.ring().key(which)  # as above
        with self.changing() as (ring, put):
            key, token = rotated(ring.key(which), at, keep_old_for)
            put(ring.with_key(key), at, "key.rotated", by, **_of(key))
        return key, token

    def reset(self, *, at: datetime, by: By) -> int:
        """Forget all keys, even lost ones, as if none was ever created; return their number."""
        if not (self.ring().was_ever_used or self.are_lost()):
            return 0
        with self.changing() as (ring, put):
            put(KeyRing(), at, KEYS_RESET, by, keys=len(ring.keys))
        return len(ring.keys)


def public_fields(key: Key) -> dict[str, object]:
    """Return the fields of a key that operators may see."""
    return {
        "name": key.name, "tenant": key.tenant, "role": key.role, "projects": key.projects.names,
        **({"agents": key.agents.names} if key.agents.names else {}),
        **({"coordinates": True} if key.coordinates else {}),
    }  # fmt: skip


def _of(key: Key) -> dict[str, object]:
    return {"key": key.id, **public_fields(key)}
