"""SQL for refs and their entries: memories, each with a row beside it."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from ...memory.model.memory import Memory, MemoryId
from ...memory.model.space import MemoryRef, Space
from ...memory.sql.memories import SpaceTable
from ...memory.sql.rows import EARLIEST, LAST, count, instant, member, micros, optional_micros
from ...memory.sql.table import Table
from ...recall.text.ids import Uids
from ..model.entries import (
    ListedRef,
    Method,
    Origin,
    Provenance,
    RefEntry,
    RefEntryId,
    RefExtent,
    RefQuery,
    ref_entry_id,
)
from ..model.runs import Offset, RunId, Snapshot
from .rows import ENTRY, PROVENANCE, entry_of, measures, named, names
from .visible import put_by, superseded, there, undeleted_at, values

T = TypeVar("T")
ALL = 1 << 62  # rows
_IS_NO_END = f"e.ends_at NOT BETWEEN {EARLIEST} AND {LAST}"  # damaged, so that it may be lost


@dataclass(eq=False)
class RefTable(Table):
    """Refs and their entries. With a snapshot, as they were then; without one, as they are.

    What has expired is never there.
    """

    _now: datetime
    _spaces: SpaceTable
    _uids: Uids

    def space(self, ref: MemoryRef) -> Space | None:
        """The ref's space, if anything was ever put there."""
        row = self._execute(
            """SELECT s.scope, s.id, s.area, s.partition
                 FROM refs f
                 JOIN spaces s ON s.id = f.space_id
                WHERE f.ref = :ref""",
            ref=ref,
        ).fetchone()
        if row is None:
            return None
        scope, *place = row
        space = Space.of_ref(scope)
        self._spaces.know(space, *place)
        return space

    def add(self, ref: MemoryRef) -> Space:
        """Make a ref."""
        space = Space.of_ref(self._uids.make(self._now))
        id_, _ = self._spaces.placed(space)
        self._insert("refs", space_id=id_, ref=ref)
        return space

    def get(self, ref: MemoryRef, id_: RefEntryId, at: Snapshot | None = None) -> RefEntry | None:
        """The entry, also one that others supersede."""
        return self._one(ENTRY, entry_of, ref, id_, at)

    def provenance(self, ref: MemoryRef, id_: RefEntryId) -> Provenance | None:
        """Where the entry comes from."""
        return self._one(PROVENANCE, self._provenance, ref, id_, None)

    def listed(
        self, ref: MemoryRef, query: RefQuery, at: Snapshot | None
    ) -> Iterator[ListedRef] | None:
        """The entries that a query asks for, newest first; None for an unknown `before`.

        Its limit and its budget are the domain's.
        """
        given: dict[str, object] = {"ref": ref, "tag": query.tag, **self._at(at)}
        condition = f"{there(at)} AND NOT {superseded(at)}"
        if query.before is not None:
            before = self._position(ref, query.before, at)
            if before is None:
                return None
            given["created_at"], given["before"] = before
            condition += " AND (e.created_at, e.memory_id) < (:created_at, :before)"
        rows = self._stream(self._listing(query.tag, at, condition), **given)
        return (
            ListedRef(MemoryId(id_), count(size), count(length)) for id_, size, length, *_ in rows
        )

    def some(self, memories: Sequence[MemoryId]) -> list[RefEntry]:
        """The entries that these memories are, in their order."""
        rows = self._execute(
            f"""SELECT {ENTRY}
                  FROM {self._sql.ids("given")}
                 {self._sql.leads} ref_entries e ON e.memory_id = given.value
                  JOIN memories m ON m.id = e.memory_id
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
              ORDER BY given.key""",
            ids=json.dumps(list(memories)),
        )
        return list(self._intact(rows, entry_of))

    def put(self, memory: Memory, name: RefEntryId | None, origin: Origin) -> None:
        """Insert what lies beside the memory of a new entry."""
        space, _ = self._spaces.placed(memory.space)
        self._insert(
            "ref_entries",
            memory_id=memory.id,
            space_id=space,
            name=name,
            created_at=micros(memory.created_at),
            ends_at=optional_micros(memory.lifecycle.expires_at),
            run=origin.run,
            node=origin.node,
            agent=origin.agent,
            method=origin.method.value,
            **measures(memory),
        )
        self._tag(memory, space)

    def supersede(self, newer: MemoryId, older: Sequence[MemoryId]) -> None:
        """Let an entry that is new supersede others."""
        if not older:
            return
        last = self._number("SELECT coalesce(max(id), 0) FROM run_events")
        for it in older:
            self._insert("ref_supersessions", newer_id=newer, older_id=it, made_after=last)

    def delete(self, memory: MemoryId, after: Offset) -> None:
        """Note after which event the entry's memory was deleted."""
        self._execute(
            "UPDATE ref_entries SET deleted_after = :after WHERE memory_id = :id",
            id=memory,
            after=after,
        )

    def measure(self, memory: Memory) -> None:
        """Update what lies beside a memory whose text was redacted."""
        self._execute(
            "UPDATE ref_entries SET size = :size, length = :length WHERE memory_id = :id",
            id=memory.id,
            **measures(memory),
        )
        self._execute("DELETE FROM ref_tags WHERE memory_id = :id", id=memory.id)
        space, _ = self._spaces.placed(memory.space)
        self._tag(memory, space)

    def extents(self, after: MemoryRef, limit: int) -> list[RefExtent]:
        """Refs that hold entries, in code point order, after one."""
        rows = self._execute(
            """SELECT ref, entries, size
                 FROM refs
                WHERE ref > :after AND entries > 0
             ORDER BY ref
                LIMIT :limit""",
            after=after,
            limit=limit,
        )
        return [
            RefExtent(ref=MemoryRef(ref), entries=count(entries), size=count(size))
            for ref, entries, size in rows
        ]

    def has_lost(
        self, ref: MemoryRef, at: Snapshot, until: datetime, since: Offset | None = None
    ) -> bool:
        """Whether something of a snapshot had expired by then, or was erased.

        What was still there after the event `since`, and has expired by now, is no loss.
        """
        return self._exists(
            f"""SELECT 1
                  FROM refs f
                 {self._sql.leads} ref_losses e ON e.space_id = f.space_id
                 WHERE f.ref = :ref AND e.memory_id <= :high AND e.deleted_after >= :offset
                       AND (e.ends_at IS NULL OR e.ends_at > :at OR {_IS_NO_END})
                       AND NOT coalesce(e.deleted_after >= :since AND e.ends_at > :until
                                        AND e.ends_at <= :now, FALSE)
                 UNION ALL
                SELECT 1
                  FROM refs f
                 {self._sql.leads} ref_entries e {self._sql.hint("ref_entries_by_end")}
                       ON e.space_id = f.space_id
                 WHERE f.ref = :ref AND {put_by("e")} AND {undeleted_at("e")}
                       AND e.ends_at IS NOT NULL
                       AND ((e.ends_at > :at AND e.ends_at <= :until) OR {_IS_NO_END})
                 LIMIT 1""",
            ref=ref,
            at=micros(at.at),
            until=micros(until),
            since=since,
            **self._at(at),
        )

    def _at(self, at: Snapshot | None = None) -> dict[str, object]:
        """The instant of the conditions: a clock that went back brings nothing into a snapshot."""
        return {"now": micros(max(self._now, at.at) if at else self._now), **values(at)}

    def _tag(self, memory: Memory, space: int) -> None:
        at = micros(memory.created_at)
        for tag in dict.fromkeys(memory.text.tags):
            self._insert("ref_tags", memory_id=memory.id, space_id=space, tag=tag, created_at=at)

    def _one(
        self,
        columns: str,
        made: Callable[[Any], T],
        ref: MemoryRef,
        id_: RefEntryId,
        at: Snapshot | None,
    ) -> T | None:
        """What is made of an entry's row, in one statement whatever there is."""
        return self._first(
            made,
            f"""SELECT {columns}
                  FROM {named(id_)}
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
                 WHERE {there(at)}
              ORDER BY m.id DESC
                 LIMIT 1""",
            **names(ref, id_),
            **self._at(at),
        )

    def _position(
        self, ref: MemoryRef, id_: RefEntryId, at: Snapshot | None
    ) -> tuple[int, int] | None:
        """Where an entry stands in the order of time, also a deleted one.

        Of those that had a name, the newest; in a snapshot the one that it has.
        """
        seen = "" if at is None else f"WHERE {put_by('e')} AND {undeleted_at('e')}"
        return self._first(
            lambda row: (row[0], row[1]),
            f"""SELECT e.created_at, e.memory_id
                  FROM {named(id_, has_no_name=False)} {seen}
              ORDER BY e.memory_id DESC
                 LIMIT 1""",
            **names(ref, id_),
            **values(at),
        )

    def _listing(self, tag: str | None, at: Snapshot | None, condition: str) -> str:
        """The statement of a list, newest first, which is read as far as it is needed."""
        leads, newest_first = self._sql.leads, "ORDER BY created_at DESC, memory_id DESC"
        if tag is not None:
            return f"""SELECT e.memory_id, e.size, e.length
                         FROM refs f
                        {leads} ref_tags t ON t.space_id = f.space_id
                        {leads} ref_entries e ON e.memory_id = t.memory_id
                        WHERE f.ref = :ref AND t.tag = :tag AND {condition}
                     ORDER BY t.created_at DESC, t.memory_id DESC"""
        kept = self._leg("ref_entries_in_time", "e.deleted_after IS NULL")
        if at is None:
            return f"{kept} AND {condition} ORDER BY e.created_at DESC, e.memory_id DESC"
        gone = self._leg("ref_entries_deleted", "e.deleted_after >= :offset")
        # What was deleted since is put in order before more is asked of it.
        return f"""SELECT e.memory_id, e.size, e.length
                     FROM ({kept} AND {put_by("e")}
                           UNION ALL
                           {gone} AND {put_by("e")} {newest_first} LIMIT {ALL}) e
                    WHERE {condition}
                          {self._sql.reordered("e.created_at DESC, e.memory_id DESC")}"""

    def _leg(self, index: str, which: str) -> str:
        return f"""SELECT e.memory_id, e.size, e.length, e.created_at, e.deleted_after,
                          e.renews
                     FROM refs f
                    {self._sql.leads} ref_entries e {self._sql.hint(index)}
                          ON e.space_id = f.space_id
                    WHERE f.ref = :ref AND {which}"""

    def _provenance(self, row: Any) -> Provenance:
        name, uid, memory, run, node, agent, method, seen, last_seen_at = row
        return Provenance(
            id=ref_entry_id(uid, name),
            origin=Origin(
                run=None if run is None else RunId(run),
                node=node,
                agent=agent,
                method=member(Method, method, Method.PUT),
            ),
            derived_from=self._linked(_SOURCES, memory),
            superseded_by=self._linked(_NEWER, memory),
            seen=count(seen),
            last_seen_at=instant(last_seen_at),
        )

    def _linked(self, linked: str, memory: MemoryId) -> list[RefEntryId]:
        rows = self._execute(
            f"""SELECT m.uid, e.name
                  FROM ref_entries e
                  JOIN memories m ON m.id = e.memory_id
                 WHERE e.memory_id IN ({linked}) AND {there(None)}
              ORDER BY e.memory_id""",
            memory=memory,
            **self._at(),
        )
        return [ref_entry_id(uid, name) for uid, name in rows]


_SOURCES = """SELECT older_id
                FROM ref_supersessions
               WHERE newer_id = :memory AND ended_after IS NULL
               UNION
              SELECT source_id FROM derivations WHERE memory_id = :memory"""
_NEWER = """SELECT newer_id
              FROM ref_supersessions
             WHERE older_id = :memory AND ended_after IS NULL"""
