"""When owners last read their entries, which decides what is evicted (RFC-0015 §2.2)."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import wraps
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from ...engine.engine import Engine, Transaction
from ...memory.model.access import Caller, TenantId
from ...memory.model.agent_memory import AgentEntry, Eyes, Tier
from ...memory.model.memory import MemoryId
from ..sql.entries import AgentTable

P = ParamSpec("P")
T = TypeVar("T")

Accessed = Mapping[MemoryId, datetime]


def own_episodic(entries: Iterable[AgentEntry], eyes: Eyes, at: datetime) -> Accessed:
    """Those of the entries whose reading is access: an agent's own episodic ones."""
    spaces = ((it.memory, it.place.space) for it in entries)
    own = [id_ for id_, it in spaces if it.tier is Tier.EPISODIC and it.agent == eyes.agent]
    return dict.fromkeys(own, at)


class Accesses:
    """When owners last read their entries, until it is written with the next change. Thread-safe.

    A crash loses what was not written yet.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._noted: dict[TenantId, dict[MemoryId, datetime]] = {}

    def note(self, tenant: TenantId, accessed: Accessed) -> None:
        if not accessed:
            return
        with self._lock:
            noted = self._noted.setdefault(tenant, {})
            for memory, at in accessed.items():
                noted[memory] = max(at, noted.get(memory, at))

    def given(self, tenant: TenantId, memories: Iterable[MemoryId], at: datetime) -> None:
        """Note that memories were given to their owner; of others nothing is kept."""
        self.note(tenant, dict.fromkeys(memories, at))

    def take(self, tenant: TenantId) -> Accessed:
        """What was noted since it was last taken."""
        with self._lock:
            return self._noted.pop(tenant, {})

    async def write(
        self,
        engine: Engine,
        caller: Caller,
        work: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What work answers, in whose transaction the accesses are written that were noted.

        They are taken when it is its turn: what is refused before it leaves them to it.
        """
        tenant, taken = caller.tenant, dict[MemoryId, datetime]()

        @wraps(work)
        def touching(tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
            taken.update(self.take(tenant))
            try:
                tx[AgentTable].touch(taken)
                return work(tx, *args, **kwargs)
            except BaseException:
                self.note(tenant, taken)
                raise

        try:
            return await engine.write(caller, touching, *args, **kwargs)
        except BaseException:
            self.note(tenant, taken)
            raise

    def tenants(self) -> list[TenantId]:
        """Those of which something is noted."""
        with self._lock:
            return list(self._noted)
