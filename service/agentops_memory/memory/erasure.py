"""Erasures and their receipts; how many rows are subject to retention."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, NewType

from ..engine.engine import Engine, Transaction
from ..errors import DamagedRow, NotFound
from ..light import dataclass, field, replace
from . import space
from .access import Caller
from .agent_memory import OF_LOG, OF_MEMORY
from .memory import ENDED, REVISIONS_OF, MemoryId, deleted, live, seen_by_a_run, undeleted
from .rows import EARLIEST, UNSTORED, Column, RowMapper, Uids, columns, micros, reads
from .space import BY_CLOCK, NO_PROJECT, ErasureKind, Held, Kind, Project, Retentions, SpaceKind
from .table import Connection, Dialect, Sql, Table

ErasureId = NewType("ErasureId", str)

UNKNOWN_COPIES = (
    "backups, replicas and snapshots of the database file",
    "exports, and copies in agents, traces and logs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The receipt of an erasure; the bytes have left the file once `bytes_gone_at` is set.

    It names at most a thousand memories, counts the removed rows and contains none of their
    text. The erasure of a project is in progress until nothing of the project is left.
    """

    id: ErasureId
    kind: ErasureKind
    project: Annotated[Project, Column("coalesce(e.project, '')")]
    memories: Annotated[tuple[MemoryId, ...], UNSTORED] = ()
    observations: int = 0
    revisions: int = 0
    sessions: int = 0
    erased_at: datetime
    bytes_gone_at: datetime | None = None
    is_in_progress: Annotated[bool, Column("e.goes_on")] = False
    # Places where the erased data may still be.
    copies_not_reached: Annotated[tuple[str, ...], UNSTORED] = ()


MAX_ROWS = 200  # most memories and revisions removed in one step, during which saves wait
MAX_STEP = 1024 * 1024  # most characters of content that one step of a long change touches


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasable:
    """A deleted or expired memory past its retention; `is_long` if it exceeds one step."""

    memory: MemoryId
    project: Project
    kind: SpaceKind  # the kind of the memory's space
    is_long: bool


MAX_NAMED = 1000  # most memories that a receipt names
RECEIPT = RowMapper(Erasure, "erasures", "e.id", alias="e.")
_ID, _MEMORY = columns("erasures", ErasureId), columns("erased", MemoryId)


@dataclass(eq=False)
class ReceiptTable(Table):
    """The erasure receipts of all projects; the domain checks who may see a receipt."""

    _now: datetime
    _uids: Uids
    _has_agent_receipt: bool = field(default=False, init=False)

    def add(
        self, kind: ErasureKind, project: Project = NO_PROJECT, *, id_: ErasureId | None = None,
        **fields: Any,
    ) -> Erasure:  # fmt: skip
        """Store and return the receipt of an erasure at this instant; `fields` are the others."""
        erasure = Erasure(
            id=id_ or ErasureId(self._uids.make(self._now)), kind=kind, project=project,
            erased_at=self._now, **fields,
        )  # fmt: skip
        self._insert("erasures", project=project or None, **RECEIPT.values(erasure, "e."))
        self._name(erasure.id, erasure.memories)
        return erasure

    def add_of_agents(self) -> None:
        """Have the bytes of removed agent data leave the files, those of earlier removals too.

        Stores one receipt for all of this transaction; settling deletes it.
        """
        if not self._has_agent_receipt:
            self._has_agent_receipt = True
            self.add(ErasureKind.AGENT)

    def extend(self, erasure: ErasureId, memories: Collection[MemoryId], revisions: int) -> None:
        self._execute(
            """UPDATE erasures
                  SET observations = observations + :observations,
                      revisions = revisions + :revisions,
                      bytes_gone_at = NULL
                WHERE id = :id""",
            id=erasure, observations=len(memories), revisions=revisions,
        )  # fmt: skip
        self._name(erasure, memories)

    def complete(self, erasure: ErasureId, sessions: int) -> None:
        changes = {"sessions": sessions, "erased_at": micros(self._now), "goes_on": False}
        self._update("erasures", "id", {"id": erasure, **changes})

    def newest_of(self, project: Project) -> Erasure | None:
        """Return the receipt of the newest erasure of a whole project with this name."""
        return self._newest("e.project = :value AND e.kind = 'project'", project)

    def get(self, erasure: ErasureId) -> Erasure | None:
        return self._newest("e.id = :value", erasure)

    def of(self, memory: MemoryId) -> Erasure | None:
        """Return the receipt of the erasure that removed a memory; redactions do not count."""
        return self._newest(
            """e.id IN (SELECT erasure_id FROM erased WHERE memory_id = :value)
               AND e.kind IN ('observation', 'project')""",
            memory,
        )

    def newest(self, most: int) -> list[Erasure]:
        """Return the newest receipts of all projects, without damaged ones."""
        which = "TRUE ORDER BY e.erased_at DESC, e.id DESC LIMIT :most"
        return self._fetch_all(RECEIPT, which, most=most)

    def pending(self) -> list[ErasureId]:
        """Return completed erasures whose bytes may still be in the file, oldest first."""
        which = "bytes_gone_at IS NULL AND NOT goes_on ORDER BY id"
        rows = self._execute(f"SELECT id FROM erasures WHERE {which}")
        return [id_ for (id_,) in self._intact(rows, _ID)]

    def settle(self, erasures: Collection[ErasureId]) -> None:
        """Record that the bytes are gone; delete agent receipts, as nobody can ask for them."""
        self._connection.executemany(
            f"DELETE FROM erasures WHERE id = :id AND kind = '{ErasureKind.AGENT}'",
            [{"id": erasure} for erasure in erasures],
        )
        self._connection.executemany(
            "UPDATE erasures SET bytes_gone_at = :now WHERE id = :id AND bytes_gone_at IS NULL",
            [{"id": erasure, "now": micros(self._now)} for erasure in erasures],
        )

    def settled(self, until: datetime, most: int) -> list[ErasureId]:
        """Return at most `most` erasures that were settled at or before `until`, oldest first."""
        rows = self._execute(
            """SELECT id
                 FROM erasures
                WHERE id < :first AND bytes_gone_at <= :until AND NOT goes_on
             ORDER BY id
                LIMIT :most""",
            first=Uids.lowest(until + timedelta(milliseconds=1)), until=micros(until), most=most,
        )  # fmt: skip
        return [id_ for (id_,) in self._intact(rows, _ID)]

    def forget(self, erasure: ErasureId, most: int) -> int:
        """Remove a receipt, or `most` of its memory names first; return the number of rows."""
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
            f"{RECEIPT.selecting()} {condition} ORDER BY e.id DESC LIMIT 1",
            value=value,
        )


async def receipt_of(engine: Engine, caller: Caller, erasure: ErasureId) -> Erasure:
    """Return the receipt; NotFound if it is unknown or of a project the caller cannot access."""
    receipt = await engine.read(caller, lambda tx: tx[ReceiptTable].get(erasure))
    if receipt is None or not (receipt.project and caller.projects.match(receipt.project)):
        raise NotFound("No such erasure.")
    copies = engine.maintenance.copies(caller)
    return replace(receipt, copies_not_reached=(*copies, *UNKNOWN_COPIES))


def receipts(database: Connection) -> tuple[dict[ErasureId, Erasure], list[DamagedRow]]:
    """Return every readable receipt, oldest first, and the damage found in the rest."""
    rows = database.execute(f"SELECT {RECEIPT} FROM erasures e ORDER BY e.erased_at, e.id", {})
    intact, damaged = {}, []
    for row in rows.fetchall():
        try:
            erasure = _receipt(database, row)
            intact[erasure.id] = erasure
        except DamagedRow as damage:
            damaged.append(damage)
    return intact, damaged


def _receipt(database: Connection, row: Any) -> Erasure:
    receipt = RECEIPT(row)
    memories = database.execute(
        f"""SELECT memory_id
              FROM erased
             WHERE erasure_id = :id
          ORDER BY memory_id
             LIMIT {MAX_NAMED}""",
        {"id": receipt.id},
    )
    return replace(receipt, memories=tuple(id_ for (id_,) in map(_MEMORY, memories)))


# The memories of a store that is being erased are left to that erasure.
NOT_BEING_ERASED = "m.space_id NOT IN (SELECT space_id FROM stores WHERE erasure_id IS NOT NULL)"

# Conditions on a memory `m`. An instant out of range is damage, and erases nothing. A memory
# that was changed after its expiry is kept, as the expiry may have been a mistake. So is a memory
# that is still in the index, from which other memories may borrow context.
PAST = {
    Kind.DELETED: f"""m.deleted_at BETWEEN {EARLIEST} AND :until
                     AND NOT {seen_by_a_run("m")}""",
    Kind.EXPIRED: f"""m.updated_at <= :until
                      AND m.id IN (SELECT memory_id
                                     FROM lifecycles
                                    WHERE expires_at BETWEEN {EARLIEST} AND :until AND is_swept)""",
}


def past_memories(tx: Transaction, kind: Kind, until: datetime, most: int) -> list[MemoryId]:
    """Return memories deleted, or expired and unchanged, at `until`, outside erased stores."""
    # Only this index covers `deleted_at` of every memory without reading texts.
    hint = tx[Sql].dialect.hint("memories_in_session") if kind is Kind.DELETED else ""
    return tx[Sql].column(
        f"SELECT m.id FROM memories m {hint} WHERE {PAST[kind]} AND {NOT_BEING_ERASED} LIMIT :most",
        until=micros(until), most=most,
    )  # fmt: skip


def next_step(
    tx: Transaction, kind: Kind, memories: Sequence[MemoryId], until: datetime
) -> list[Erasable]:
    """Return the first memories that are still past retention, as many as one step may erase.

    A memory with a long history is returned alone, and ends the step before it.
    """
    # At most MAX_ROWS revisions are read, which is enough to see that a history is long.
    rows = tx[Sql].run(
        f"""SELECT s.id, s.kind, s.project, m.id, length(m.content),
                   (SELECT count(*)
                      FROM (SELECT 1
                              FROM revisions
                             WHERE memory_id = m.id
                             LIMIT {MAX_ROWS}) first),
                   (SELECT coalesce(sum(length(content)), 0)
                      FROM (SELECT content
                              FROM revisions
                             WHERE memory_id = m.id
                             LIMIT {MAX_ROWS}) first)
              FROM {tx[Sql].dialect.ids("listed")}
             {tx[Sql].dialect.leads} memories m ON m.id = listed.value
              JOIN spaces s ON s.id = m.space_id
             WHERE {PAST[kind]} AND {NOT_BEING_ERASED}
                   {tx[Sql].dialect.reordered("listed.key")}""",
        ids=json.dumps(memories),
        until=micros(until),
    )
    first: list[Erasable] = []
    room, size = MAX_ROWS, MAX_STEP
    for erasable, revisions, length in tx[Sql].intact(rows, _erasable):
        room -= 1 + max(1, revisions)
        size -= length
        if first and (erasable.is_long or room < 0 or size < 0):
            break
        first.append(erasable)
        if erasable.is_long:
            break
    return first


@reads("spaces")
def _erasable(
    _: int, kind: SpaceKind, project: Project | None, id_: MemoryId, length: int, revisions: int,
    lengths: int,
) -> tuple[Erasable, int, int]:  # fmt: skip
    """Return an erasable memory, its revisions and characters; none of a damaged space."""
    is_long = revisions > 1 and (revisions >= MAX_ROWS or lengths >= MAX_STEP)
    erasable = Erasable(memory=id_, project=project or NO_PROJECT, kind=kind, is_long=is_long)
    return erasable, revisions, length + lengths


def held(
    connection: Connection, sql: Dialect, retention: Retentions, now: datetime
) -> tuple[Held, ...]:
    """Count the stored rows of each kind, and those that the next sweep removes."""
    # Rows of a kind up to this instant are past its retention; none if the kind is kept forever.
    ends = {it: retention.until(it, now) for it in BY_CLOCK}
    until = {it: -(1 << 62) if end is None else micros(end) for it, end in ends.items()}
    values = {"keep": retention.revisions, "deleted": until[Kind.DELETED], "now": micros(now)}
    amounts = []
    for kind, rows in _rows_of(sql).items():
        ((stored, past),) = connection.execute(
            f"SELECT coalesce(sum(stored), 0), coalesce(sum(past), 0) FROM ({rows}) counted",
            {**values, "until": until.get(kind, 0)},
        )
        amounts.append(Held(kind=kind, rows=int(stored), past_retention=int(past)))
    return tuple(amounts)


@cache
def _rows_of(sql: Dialect) -> dict[Kind, str]:
    """Return a query per kind: numbers of rows, and how many of them are past retention.

    A sweep removes rows by the same conditions.
    """
    revisions = REVISIONS_OF.format(sql.greatest, "m.id")
    is_deleted = f"m.deleted_at <= :until AND NOT {seen_by_a_run('m')}"
    names = "1 + (SELECT count(*) FROM erased WHERE erasure_id = id)"
    # Past the retention of expired memories, but not of deleted ones.
    is_expired = f"""({sql.greatest}(l.expires_at, m.updated_at) <= :until
                      OR m.id IN (SELECT memory_id FROM agent_memories))
                     AND ({undeleted("m")} OR m.deleted_at > :deleted)"""
    return {
        Kind.DELETED: f"""
        SELECT {_counted(f"1 + {revisions}", is_deleted)}
          FROM memories m {sql.hint("memories_in_session")}
         WHERE {deleted("m")} AND {NOT_BEING_ERASED}""",
        # A deleted memory is stored as deleted, even if it is removed because it has expired.
        Kind.EXPIRED: f"""
        SELECT CASE WHEN {undeleted("m")} THEN 1 + {revisions} ELSE 0 END AS stored,
               CASE WHEN {is_expired} THEN 1 + {revisions} ELSE 0 END AS past
          FROM lifecycles l
          JOIN memories m ON m.id = l.memory_id
         WHERE l.{ENDED} AND {NOT_BEING_ERASED}""",
        # The revisions of live observations; a sweep also trims surplus revisions of others.
        Kind.REVISIONS: f"""
        SELECT CASE WHEN is_live THEN number ELSE 0 END AS stored,
               CASE WHEN number > :keep AND :keep > 0 THEN number - :keep ELSE 0 END AS past
          FROM (SELECT {live("m")} AS is_live, {revisions} AS number
                  FROM memories m
                 WHERE {space.in_a_session("m")}) m""",
        Kind.IDEMPOTENCY: f"SELECT {_counted('1', 'at <= :until')} FROM done",
        Kind.RECEIPTS: f"""
        SELECT {_counted(names, "bytes_gone_at <= :until")}
          FROM erasures
         WHERE bytes_gone_at IS NOT NULL AND NOT goes_on""",
        Kind.EVENTS: f"""
        SELECT {_counted("1", "at <= :until")} FROM events WHERE {OF_MEMORY}
         UNION ALL
        SELECT {_counted("1", "r.ended_at <= :until")}
          FROM runs r
          JOIN run_events v ON v.run = r.id
         WHERE r.ended_at IS NOT NULL""",
        Kind.LOG: f"""
        SELECT {_counted("1", "at <= :until")} FROM events WHERE {OF_LOG}
         UNION ALL
        SELECT {_counted("1", "completed_at <= :until")}
          FROM tasks
         WHERE completed_at IS NOT NULL""",
    }


def _counted(rows: str, condition: str) -> str:
    return f"{rows} AS stored, CASE WHEN {condition} THEN {rows} ELSE 0 END AS past"
