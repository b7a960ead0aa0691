"""Accesses: when owners last read their episodic entries, which decides what is evicted (§2.2)."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import wraps
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from ..engine.engine import Engine, Transaction
from ..memory.model.access import Caller, TenantId
from ..memory.model.agent_memory import Eyes, Tier
from ..memory.model.memory import MemoryId
from ..memory.model.rows import micros
from ..memory.model.table import Sql
from .entries import AgentEntry

P = ParamSpec("P")
T = TypeVar("T")

Accessed = Mapping[MemoryId, datetime]


class Accesses:
    """When owners last read their entries, until it is written with the next change. Thread-safe.

    A crash loses what was not written yet.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._noted: dict[TenantId, dict[MemoryId, datetime]] = {}

    def note(self, caller: Caller, eyes: Eyes, at: datetime, *entries: AgentEntry) -> None:
        """Note that entries were shown; access is that of an owner to its episodic ones."""
        own = (
            it.memory
            for it in entries
            if it.memory_type is Tier.EPISODIC and it.agent_id == eyes.agent
        )
        self.given(caller.tenant, own, at)

    def given(self, tenant: TenantId, memories: Iterable[MemoryId], at: datetime) -> None:
        """Note that memories were given to their owner; of others nothing is kept."""
        self._put(tenant, dict.fromkeys(memories, at))

    def _put(self, tenant: TenantId, accessed: Accessed) -> None:
        if not accessed:
            return
        with self._lock:
            noted = self._noted.setdefault(tenant, {})
            for memory, at in accessed.items():
                noted[memory] = max(at, noted.get(memory, at))

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
                if taken:
                    tx[Sql].run_all(
                        """UPDATE agent_memories
                              SET accessed_at = :at
                            WHERE memory_id = :id AND accessed_at < :at""",
                        [{"id": id_, "at": micros(at)} for id_, at in taken.items()],
                    )
                return work(tx, *args, **kwargs)
            except BaseException:
                self._put(tenant, taken)
                raise

        try:
            return await engine.write(caller, touching, *args, **kwargs)
        except BaseException:
            self._put(tenant, taken)
            raise

    def tenants(self) -> list[TenantId]:
        """Those of which something is noted."""
        with self._lock:
            return list(self._noted)
