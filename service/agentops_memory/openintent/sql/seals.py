"""SQL for the values that are stored encrypted, each beside its entry."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...engine.engine import Sealer
from ...errors import Unavailable
from ...memory.model.access import TenantId
from ...memory.model.agent_memory import SEALED, AgentEntry, Place, Sealed
from ...memory.model.memory import MemoryId
from ...memory.sql.table import Table
from .rows import ENTRIES, ENTRY, entry_of

_SEALED = tuple(sorted(map(str, SEALED)))


@dataclass(eq=False)
class SealTable(Table):
    """The sealed values of one transaction, each bound to its tenant and its place."""

    _sealer: Sealer | None
    _tenant: TenantId

    def put(self, memory: MemoryId, place: Place, value: str) -> None:
        """Seal the value of an entry; Unavailable where there are no keys."""
        if self._sealer is None:
            raise Unavailable("There is no seal file, so that nothing confidential can be stored.")
        sealed = self._sealer.seal(value, self._bound_to(place))
        self.remove(memory)
        self._insert(
            "seals", memory_id=memory, key=sealed.key, nonce=sealed.nonce, sealed=sealed.text
        )

    def remove(self, memory: MemoryId) -> None:
        self._execute("DELETE FROM seals WHERE memory_id = :id", id=memory)

    def page(self, after: MemoryId, limit: int) -> list[AgentEntry]:
        """Sealed entries of all agents behind one, opened where that can be done."""
        rows = self._execute(
            f"""SELECT {ENTRY}
                  FROM {ENTRIES}
                 WHERE a.sensitivity IN {_SEALED} AND a.memory_id > :after
              ORDER BY a.memory_id
                 LIMIT :limit""",
            after=after,
            limit=limit,
        )
        return self.opened(self._intact(rows, entry_of))

    def opened(self, entries: Iterable[AgentEntry]) -> list[AgentEntry]:
        """The entries with their values; whose stored one is no object is sealed."""
        found = list(entries)
        ids = [entry.memory for entry in found if entry.is_lost]
        if not ids:
            return found
        rows = self._execute(
            f"""SELECT memory_id, key, nonce, sealed
                  FROM seals
                 WHERE memory_id IN (SELECT value FROM {self._sql.ids("given")})""",
            ids=json.dumps(ids),
        )
        sealed = {id_: Sealed(key=key, nonce=nonce, text=text) for id_, key, nonce, text in rows}
        return [
            self._opened(entry, sealed[entry.memory]) if entry.memory in sealed else entry
            for entry in found
        ]

    def _opened(self, entry: AgentEntry, sealed: Sealed) -> AgentEntry:
        if self._sealer is None:
            return entry
        value = self._sealer.opened(sealed, self._bound_to(entry.place))
        return entry if value is None else replace(entry, value=value)

    def _bound_to(self, place: Place) -> bytes:
        space = place.space
        names = [self._tenant, space.tier.value, space.agent, space.namespace, place.key]
        return json.dumps(names).encode()
