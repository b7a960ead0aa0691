"""SQL for the receipts of erasures."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ...engine.engine import Engine, Transaction
from ...errors import DamagedRow, NotFound
from ...recall.text.ids import first_uid
from ..model.access import Caller, Role
from ..model.erasure import UNKNOWN_COPIES, Erasure, ErasureId, Receipt
from ..model.kinds import ErasureKind
from ..model.memory import MemoryId
from ..model.space import NO_PROJECT, Project
from .rows import count, flag, instant, micros, optional_instant, reads
from .table import Connection, Table

MOST_NAMED = 1000  # memories that a receipt names
RECEIPT = """e.id, e.kind, e.project, e.observations, e.revisions, e.sessions, e.erased_at,
             e.bytes_gone_at, e.goes_on"""


@dataclass(eq=False)
class ReceiptTable(Table):
    """The receipts of erasures, of all projects; the domain checks who may see one."""

    _now: datetime
    _has_one_of_agents: bool = field(default=False, init=False)

    def add(self, erasure: Erasure) -> None:
        """Store a receipt, in the transaction that erases."""
        self._insert(
            "erasures",
            id=erasure.id,
            kind=erasure.kind.value,
            project=erasure.project or None,
            observations=erasure.observations,
            revisions=erasure.revisions,
            sessions=erasure.sessions,
            erased_at=micros(erasure.erased_at),
            goes_on=erasure.goes_on,
        )
        self._name(erasure.id, erasure.memories)

    def add_of_agents(self, erasure: ErasureId) -> None:
        """Store one for all that this transaction removes of agents; it goes once it is settled."""
        if not self._has_one_of_agents:
            self._has_one_of_agents = True
            kind = ErasureKind.AGENT
            self.add(Erasure(id=erasure, kind=kind, project=NO_PROJECT, erased_at=self._now))

    def extend(self, erasure: ErasureId, memories: Collection[MemoryId], revisions: int) -> None:
        """Add erased memories and a count of revisions to a receipt."""
        self._execute(
            """UPDATE erasures
                  SET observations = observations + :observations,
                      revisions = revisions + :revisions,
                      bytes_gone_at = NULL
                WHERE id = :id""",
            id=erasure,
            observations=len(memories),
            revisions=revisions,
        )
        self._name(erasure, memories)

    def complete(self, erasure: ErasureId, sessions: int) -> None:
        """Mark an erasure as complete, with the count of erased sessions."""
        self._execute(
            """UPDATE erasures
                  SET sessions = :sessions, erased_at = :now, goes_on = :goes_on
                WHERE id = :id""",
            id=erasure,
            goes_on=False,
            sessions=sessions,
            now=micros(self._now),
        )

    def newest_of(self, project: Project) -> Erasure | None:
        """The receipt of the newest erasure of a whole project with this name."""
        return self._newest("e.project = :value AND e.kind = 'project'", project)

    def get(self, erasure: ErasureId) -> Erasure | None:
        """The receipt."""
        return self._newest("e.id = :value", erasure)

    def of(self, memory: MemoryId) -> Erasure | None:
        """The receipt of the erasure that removed a memory; not one of a redaction."""
        return self._newest(
            """e.id IN (SELECT erasure_id FROM erased WHERE memory_id = :value)
               AND e.kind IN ('observation', 'project')""",
            memory,
        )

    def pending(self) -> list[ErasureId]:
        """Those that do not go on and whose bytes may still be in the file, oldest first."""
        rows = self._execute(
            "SELECT id FROM erasures WHERE bytes_gone_at IS NULL AND NOT goes_on ORDER BY id"
        )
        return list(self._intact(rows, _id))

    def settle(self, erasures: Collection[ErasureId]) -> None:
        """Note that the bytes are gone now; nobody asks for what was removed of agents."""
        self._connection.executemany(
            f"DELETE FROM erasures WHERE id = :id AND kind = '{ErasureKind.AGENT}'",
            [{"id": erasure} for erasure in erasures],
        )
        self._connection.executemany(
            "UPDATE erasures SET bytes_gone_at = :now WHERE id = :id AND bytes_gone_at IS NULL",
            [{"id": erasure, "now": micros(self._now)} for erasure in erasures],
        )

    def settled(self, until: datetime, most: int) -> list[ErasureId]:
        """The erasures settled by then, oldest first, at most `most`."""
        rows = self._execute(
            """SELECT id
                 FROM erasures
                WHERE id < :first AND bytes_gone_at <= :until AND NOT goes_on
             ORDER BY id
                LIMIT :most""",
            first=first_uid(until + timedelta(milliseconds=1)),
            until=micros(until),
            most=most,
        )
        return list(self._intact(rows, _id))

    def forget(self, erasure: ErasureId, most: int) -> int:
        """Remove a receipt, or at most `most` of its memories; how many rows were removed."""
        names = self._execute(
            """DELETE FROM erased
                WHERE (memory_id, erasure_id) IN (SELECT memory_id, erasure_id
                                                    FROM erased
                                                   WHERE erasure_id = :id
                                                   LIMIT :most)""",
            id=erasure,
            most=most,
        ).rowcount
        if names >= most:
            return names
        return names + self._execute("DELETE FROM erasures WHERE id = :id", id=erasure).rowcount

    def _name(self, erasure: ErasureId, memories: Collection[MemoryId]) -> None:
        self._connection.executemany(
            "INSERT INTO erased (memory_id, erasure_id) VALUES (:memory, :erasure)",
            [{"memory": memory, "erasure": erasure} for memory in memories],
        )

    def _newest(self, condition: str, value: object) -> Erasure | None:
        return self._first(
            lambda row: _receipt(self._connection, row),
            f"SELECT {RECEIPT} FROM erasures e WHERE {condition} ORDER BY e.id DESC LIMIT 1",
            value=value,
        )


async def receipt_of(engine: Engine, caller: Caller, erasure: ErasureId) -> Receipt:
    """The receipt; NotFound for one that is unknown or of another's project."""
    caller.require(Role.READER)
    found = await engine.read(caller, receipt, erasure)
    copies = engine.maintenance.copies(caller)
    return Receipt(erasure=found, copies_not_reached=(*copies, *UNKNOWN_COPIES))


def receipt(tx: Transaction, erasure: ErasureId) -> Erasure:
    found = tx[ReceiptTable].get(erasure)
    if found is None or not (found.has_project and tx.caller.projects.match(found.project)):
        raise NotFound("No such erasure.")
    return found


@reads("erasures")
def _id(id_: str) -> ErasureId:
    return ErasureId(id_)


def receipts(database: Connection) -> tuple[dict[ErasureId, Erasure], list[DamagedRow]]:
    """Every receipt that can be read, the oldest first, and what is damaged of the others."""
    rows = database.execute(f"SELECT {RECEIPT} FROM erasures e ORDER BY e.erased_at, e.id", {})
    found, damaged = {}, []
    for row in rows.fetchall():
        try:
            erasure = _receipt(database, row)
            found[erasure.id] = erasure
        except DamagedRow as damage:
            damaged.append(damage)
    return found, damaged


def _receipt(database: Connection, row: Any) -> Erasure:
    told = _told(row)
    return replace(told, memories=_memories(database, told.id))


@reads("erasures")
def _told(  # noqa: PLR0913, PLR0917 - its columns
    id_: str, kind: str, project: str | None, observations: int, revisions: int, sessions: int,
    erased_at: int, bytes_gone_at: int | None, goes_on: bool,
) -> Erasure:  # fmt: skip
    return Erasure(
        id=ErasureId(id_),
        kind=ErasureKind(kind),
        project=Project(project or NO_PROJECT),
        observations=count(observations),
        revisions=count(revisions),
        sessions=count(sessions),
        erased_at=instant(erased_at),
        bytes_gone_at=optional_instant(bytes_gone_at),
        goes_on=flag(goes_on),
    )


def _memories(database: Connection, erasure: ErasureId) -> tuple[MemoryId, ...]:
    rows = database.execute(
        f"""SELECT memory_id
              FROM erased
             WHERE erasure_id = :id
          ORDER BY memory_id
             LIMIT {MOST_NAMED}""",
        {"id": erasure},
    )
    return tuple(map(_memory, rows))


@reads("erased")
def _memory(id_: int) -> MemoryId:
    return MemoryId(count(id_))
