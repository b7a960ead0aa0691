"""When owners last read their entries, which decides what is evicted (RFC-0015 §2.2)."""

from collections.abc import Mapping
from datetime import datetime
from threading import Lock

from ..model.access import TenantId
from ..model.memory import MemoryId

Accessed = Mapping[MemoryId, datetime]


class Accesses:
    """When owners last read their entries, until it is written with the next change. Thread-safe.

    A crash loses what was not written yet.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._noted: dict[TenantId, dict[MemoryId, datetime]] = {}

    def note(self, tenant: TenantId, accessed: Accessed) -> None:
        with self._lock:
            self._noted.setdefault(tenant, {}).update(accessed)

    def take(self, tenant: TenantId) -> Accessed:
        """What was noted since it was last taken."""
        with self._lock:
            return self._noted.pop(tenant, {})

    def tenants(self) -> list[TenantId]:
        """Those of which something is noted."""
        with self._lock:
            return list(self._noted)
