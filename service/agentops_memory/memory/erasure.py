"""Erasures and their receipts; how much stored data is subject to retention."""

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
from .memory import ENDED, MemoryId, deleted, live, seen_by_a_run, undeleted
from .rows import EARLIEST, UNSTORED, Column, RowMapper, Uids, columns, instant, micros, reads
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


# The bytes of a row without its texts but with its index entries, as measured by SQLite's dbstat in
# files with thousands of rows. PostgreSQL needs more, 650 for a memory and 130 for a revision, so
# sizes reported for that engine are too low by the difference.
MEMORY_BYTES, REVISION_BYTES, RECORD_BYTES = 400, 60, 165
RECEIPT_BYTES, NAME_BYTES, EVENT_BYTES = 100, 100, 200

# Excludes memories that the retention of deleted memories removes.
UNDELETED_BY = f"({undeleted('m')} OR m.deleted_at > :deleted)"


def held(
    connection: Connection, sql: Dialect, retention: Retentions, now: datetime
) -> tuple[Held, ...]:
    """Measure how much of each kind is stored, and how much is past its retention."""
    # Rows of a kind up to this instant are past its retention; none if the kind is kept forever.
    ends = {it: retention.until(it, now) for it in BY_CLOCK}
    until = {it: -(1 << 62) if end is None else micros(end) for it, end in ends.items()}
    values = {
        "keep": retention.revisions, "deleted": until[Kind.DELETED],
        "expired": until[Kind.EXPIRED], "now": micros(now),
    }  # fmt: skip
    amounts = []
    for kind, statement in _statements(sql).items():
        values["until"] = until.get(kind, 0)
        ((rows, size, oldest, past),) = connection.execute(statement, values)
        amount = Held(
            kind=kind, rows=int(rows), size=int(size),
            oldest=None if oldest is None else instant(oldest), past_retention=int(past),
        )  # fmt: skip
        amounts.append(amount)
    return tuple(amounts)


@cache
def _statements(sql: Dialect) -> dict[Kind, str]:
    """Return a query per kind: its rows, bytes, oldest instant, and rows past retention.

    A sweep removes rows by the same conditions.
    """
    size_of, latest = sql.bytes_of, sql.greatest

    def texts(table: str) -> str:
        columns = ("type", "title", "content", "tags")
        return " + ".join(f"coalesce({size_of(f'{table}.{it}')}, 0)" for it in columns)

    history = f"""{_total(texts("r"))} + {REVISION_BYTES} * count(r.id)"""
    whole = f"""{texts("m")} + {MEMORY_BYTES} + {history}"""
    return {
        Kind.DELETED: f"""
        SELECT count(*) + {_total("revisions")}, {_total("size")}, min(deleted_at),
               {_total("1 + revisions", "deleted_at <= :until AND NOT is_in_a_run")}
          FROM (SELECT m.deleted_at, {seen_by_a_run("m")} AS is_in_a_run,
                       {latest}(count(r.id), 1) AS revisions,
                       {whole} AS size
                  FROM memories m {sql.hint("memories_in_session")}
                  LEFT JOIN revisions r ON r.memory_id = m.id
                 WHERE {deleted("m")} AND {NOT_BEING_ERASED}
              GROUP BY m.id) d""",
        # A deleted memory counts as deleted, even if it is removed because it has expired.
        Kind.EXPIRED: f"""
        SELECT {_total("1 + revisions", "counts")}, {_total("size", "counts")},
               min(CASE WHEN counts THEN expires_at END), {_total("1 + revisions", "is_past")}
          FROM (SELECT l.expires_at, {undeleted("m")} AS counts,
                       {latest}(count(r.id), 1) AS revisions, {whole} AS size,
                       ({latest}(l.expires_at, m.updated_at) <= :until
                        OR m.id IN (SELECT memory_id FROM agent_memories))
                       AND {UNDELETED_BY} AS is_past
                  FROM lifecycles l
                  JOIN memories m ON m.id = l.memory_id
                  LEFT JOIN revisions r ON r.memory_id = m.id
                 WHERE l.{ENDED} AND {NOT_BEING_ERASED}
              GROUP BY m.id, l.memory_id) e""",
        # The revisions of live observations; a sweep also trims surplus revisions of others.
        Kind.REVISIONS: f"""
        SELECT {_total("number", "live")}, {_total("size", "live")},
               min(CASE WHEN live THEN first END),
               {_total("number - :keep", "number > :keep AND :keep > 0")}
          FROM (SELECT count(*) AS number, min(coalesce(r.at, m.updated_at)) AS first,
                       {live("m")} AS live, {history} AS size
                  FROM memories m
                  LEFT JOIN revisions r ON r.memory_id = m.id
                 WHERE {space.in_a_session("m")} AND {UNDELETED_BY}
                       AND NOT EXISTS (SELECT 1
                                         FROM lifecycles l
                                        WHERE l.memory_id = m.id
                                              AND {latest}(l.expires_at, m.updated_at) <= :expired)
              GROUP BY m.id) v""",
        Kind.IDEMPOTENCY: f"""
        SELECT count(*), {_total(f"coalesce(length(answer), 0) + {RECORD_BYTES}")}, min(at),
               {_total("1", "at <= :until")}
          FROM done""",
        Kind.RECEIPTS: f"""
        SELECT {_total("1 + names")}, {_total(f"{RECEIPT_BYTES} + {NAME_BYTES} * names")},
               min(bytes_gone_at),
               {_total("1 + names", "bytes_gone_at <= :until")}
          FROM (SELECT e.bytes_gone_at, count(d.memory_id) AS names
                  FROM erasures e
                  LEFT JOIN erased d ON d.erasure_id = e.id
                 WHERE e.bytes_gone_at IS NOT NULL AND NOT e.goes_on
              GROUP BY e.id) s""",
        Kind.EVENTS: f"""
        SELECT count(*), {_total(f"size + {EVENT_BYTES}")}, min(at), {_total("1", "is_past")}
          FROM (SELECT at, {size_of("payload")} AS size, at <= :until AS is_past
                  FROM events
                 WHERE {OF_MEMORY}
                 UNION ALL
                SELECT r.ended_at, {size_of("v.payload")}, r.ended_at <= :until
                  FROM runs r
                  JOIN run_events v ON v.run = r.id
                 WHERE r.ended_at IS NOT NULL) t""",
        Kind.LOG: f"""
        SELECT count(*), {_total(f"size + {EVENT_BYTES}")}, min(at), {_total("1", "at <= :until")}
          FROM (SELECT at, {size_of("payload")} AS size FROM events WHERE {OF_LOG}
                 UNION ALL
                SELECT completed_at, {size_of("details")}
                  FROM tasks
                 WHERE completed_at IS NOT NULL) t""",
    }


def _total(value: str, condition: str = "TRUE") -> str:
    return f"coalesce(sum(CASE WHEN {condition} THEN {value} ELSE 0 END), 0)"
