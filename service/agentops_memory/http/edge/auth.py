"""Authentication: who a request comes from; and the rate limit of a key, beyond it 429."""

import socket
import time
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address, ip_address

from ...errors import Invalid, SettingRefused, TooMany, Unauthenticated
from ...memory.model.access import Caller, KeyId
from ...memory.model.keys import KeyRing, KeyStore, parsed
from ...settings.parsing import NANOSECONDS, Rate

KEYS, NONE = "keys", "none"  # of MEMORY_AUTH; unset, the address decides

NOT_A_KEY = "This service needs a valid key: Authorization: Bearer amk_..."
TWO_KEYS = "The headers Authorization and X-API-Key contain different keys."
CREATE = "create one with `agentops-memory keys create --name NAME --role admin`"
ANYBODY = Caller()


@dataclass(frozen=True, slots=True)
class Identity:
    """Tells the callers of requests; a change of the keys holds from the next one on."""

    keys: KeyStore
    is_open_allowed: bool
    clock: Callable[[], datetime]
    used: dict[KeyId, datetime] = field(default_factory=dict)  # when each last opened the service

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """The owner of the key in the headers, whose names are in lower case.

        While the service is open, anybody, and a key that is sent is not looked at.
        Unauthenticated is the same for every text that is no working key; Invalid if there
        are two keys.
        """
        ring = self.keys.ring()
        if self.is_open_allowed and not ring.was_ever_used:
            return ANYBODY
        now = self.clock()
        key = ring.opened_by(_token(headers), now)
        if key is None:
            raise Unauthenticated(NOT_A_KEY)
        self.used[key.id] = now
        return Caller(
            tenant=key.tenant, role=key.role, projects=key.projects, agents=key.agents,
            coordinates=key.coordinates, key=key.id, key_name=key.name,
        )  # fmt: skip


def is_open_allowed(auth: str, host: str) -> bool:
    """Whether a service without keys may serve anyone: by its settings, or on loopback only."""
    return auth == NONE or (auth != KEYS and is_loopback(host))


def is_loopback(host: str) -> bool:
    """Whether the host is this machine and nothing else: localhost, 127.0.0.0/8 or ::1.

    No host is every interface, and any other name may lead anywhere.
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        try:  # as the resolver would take it: `127.1` is 127.0.0.1
            return IPv4Address(socket.inet_aton(host)).is_loopback
        except (OSError, ValueError):  # the latter for signs that no name has
            return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def must_have_keys(ring: KeyRing, auth: str, host: str) -> None:
    """The rule of the start: SettingRefused for a service that would serve nobody.

    It says how to make a key, or how to do without.
    """
    if ring.was_ever_used or is_open_allowed(auth, host):
        return
    if auth == KEYS:
        raise SettingRefused(f"MEMORY_AUTH: 'keys' requires a key, but none exists: {CREATE}.")
    raise SettingRefused(
        f"MEMORY_LISTEN: {host or 'every interface'} can be reached from other machines, which "
        f"requires a key, but none exists: {CREATE}, listen on 127.0.0.1, or admit everyone with "
        "MEMORY_AUTH=none."
    )


def _token(headers: Mapping[str, str]) -> str:
    authorized = _authorization(headers.get("authorization", ""))
    named = headers.get("x-api-key", "").strip()
    if not (authorized and named) or authorized == named:
        return authorized or named
    if parsed(authorized) and parsed(named):
        raise Invalid(TWO_KEYS)
    return authorized if parsed(authorized) else named


def _authorization(value: str) -> str:
    scheme, _, credentials = value.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return credentials.strip()
        case "basic":
            with suppress(ValueError):
                return b64decode(credentials.strip(), validate=True).partition(b":")[2].decode()
    return ""


MOST_KEYS = 10_000  # whose buckets are kept


@dataclass(slots=True, eq=False)
class RateLimiter:
    """Counts the requests of each key, and those without one together.

    It counts in this process alone, and exactly. A key without a request for a
    unit is evicted; beyond MOST_KEYS the least recently used are.
    """

    limit: Rate | None
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    _full_at: OrderedDict[str | None, int] = field(default_factory=OrderedDict)  # in ticks

    def __len__(self) -> int:
        return len(self._full_at)

    def require(self, key: str | None) -> None:
        limit = self.limit
        if limit is None:
            return
        # A tick is a count-th of a nanosecond: in ticks a request costs just a unit, so
        # nothing is ever rounded. A bucket is known by when it is full again.
        now, cost = self.monotonic_ns() * limit.count, limit.nanoseconds
        full_at = max(self._full_at.get(key, now), now) + cost
        over = full_at - now - limit.count * cost
        if over > 0:
            seconds = -(-over // (limit.count * NANOSECONDS))
            raise TooMany(_sentence(key, limit, seconds), seconds)
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        while next(iter(self._full_at.values())) <= now or len(self._full_at) > MOST_KEYS:
            self._full_at.popitem(last=False)


def _sentence(key: str | None, limit: Rate, seconds: int) -> str:
    subject = "This service is" if key is None else "This key is"
    return f"{subject} used more often than {limit}; try again in {seconds} s."
