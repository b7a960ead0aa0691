"""Entries of refs: memories that never change, each with a row beside it."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from ..engine.engine import Transaction
from ..errors import BadFields, required
from ..light import dataclass
from ..memory.memories import SpaceTable
from ..memory.memory import EXPIRES_AT, Lifecycle, Memory, MemoryId, Text
from ..memory.rows import Column, RowMapper, count, instant, micros, optional_micros, reads
from ..memory.saves import created
from ..memory.space import MemoryRef, SpaceKind
from ..memory.table import Sql, Table
from ..recall.text import content_hash
from ..record import CamelRecord, Milliseconds
from . import api
from .api import (
    NO_ENTRY,
    RefEntryId,
    Snapshot,
    present,
    put_by,
    ref_entry_id,
    stable_id,
    superseded,
    values,
)
from .runs import RunId

ENTRY_TYPE = "memory"
ALL = 1 << 62  # rows


class Method(StrEnum):
    """How the text of an entry came to be."""

    PUT = "put"
    EXTRACT = "extract-1"  # a rule has chosen from what others say
    HOST = "host"  # a host has written it in place of others


class Origin(CamelRecord):
    """Who wrote an entry, and how."""

    run: RunId | None = Field(default=None, serialization_alias="runId")
    node: str | None = Field(default=None, serialization_alias="nodeId")
    agent: str | None = Field(default=None, serialization_alias="agentId")
    method: Method = Field(default=Method.PUT, exclude=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefDraft:
    """An entry to be put."""

    ref: MemoryRef
    content: str
    tags: tuple[str, ...] = ()
    id: RefEntryId | None = None
    origin: Origin = Origin()


class RefEntry(CamelRecord):
    """An entry of a ref."""

    id: Annotated[RefEntryId, Column("m.uid", read=ref_entry_id, second="e.name")]
    memory: Annotated[MemoryId, Column("m.id"), Field(exclude=True)]
    uid: str = Field(exclude=True)
    content: str
    tags: tuple[str, ...]
    created_at: Milliseconds
    expires_at: Annotated[Milliseconds | None, EXPIRES_AT] = None

    @property
    def size(self) -> int:
        return len(self.content.encode())

    @property
    def cursor(self) -> RefEntryId:
        """An id that no other entry ever has: a name may be reused."""
        return ref_entry_id(self.uid, None)


ENTRY = RowMapper(RefEntry, "ref_entries", "m.id", alias="m.")


class Provenance(CamelRecord):
    """Where an entry comes from, and what replaces it."""

    memory_ref: MemoryRef
    memory_id: RefEntryId
    origin: Origin = Field(serialization_alias="writtenBy")
    method: Method
    derived_from: tuple[RefEntryId, ...]
    superseded_by: tuple[RefEntryId, ...] | None = None
    seen: int
    last_seen_at: Milliseconds


class ListedRef(NamedTuple):
    """What is known of a listed entry before its content is read."""

    memory: MemoryId
    size: int  # bytes of its content
    length: int  # code points


def added(
    tx: Transaction, draft: RefDraft, *, ends: datetime | None = None, like: Memory | None = None
) -> RefEntry:
    """Store a new entry; `like` another one, it keeps when that was put, and how often seen."""
    at = tx[SpaceTable].named(SpaceKind.REF, "refs", {"ref": draft.ref})
    memory = Memory(
        uid=tx.new_uid(tx.now), session=None, space=at, key=None,
        text=Text(type=ENTRY_TYPE, title="", content=draft.content, tags=draft.tags),
        duplicates=like.duplicates if like else 1,
        last_seen_at=like.last_seen_at if like else tx.now,
        created_at=like.created_at if like else tx.now, updated_at=tx.now,
        lifecycle=Lifecycle(expires_at=ends), content_hash=content_hash(draft.content),
    )  # fmt: skip
    memory = created(tx, memory)
    space, _ = tx[SpaceTable].placed(memory.space)
    origin = draft.origin
    tx[Sql].insert(
        "ref_entries", memory_id=memory.id, space_id=space, name=draft.id,
        created_at=micros(memory.created_at), ends_at=optional_micros(ends),
        run=origin.run, node=origin.node, agent=origin.agent, method=origin.method.value,
        **_measures(memory),
    )  # fmt: skip
    _tag(tx[Sql], memory, space)
    return RefEntry(
        id=ref_entry_id(memory.uid, draft.id), memory=memory.id, uid=memory.uid,
        content=draft.content, tags=draft.tags, created_at=memory.created_at, expires_at=ends,
    )  # fmt: skip


def measure(tx: Transaction, memory: Memory) -> None:
    """Update the size and tags of an entry whose text was redacted."""
    tx[Sql].run(
        "UPDATE ref_entries SET size = :size, length = :length WHERE memory_id = :id",
        id=memory.id, **_measures(memory),
    )  # fmt: skip
    tx[Sql].run("DELETE FROM ref_tags WHERE memory_id = :id", id=memory.id)
    space, _ = tx[SpaceTable].placed(memory.space)
    _tag(tx[Sql], memory, space)


def _measures(memory: Memory) -> dict[str, int]:
    content = memory.text.content
    return {"size": len(content.encode()), "length": len(content)}


def _tag(sql: Sql, memory: Memory, space: int) -> None:
    at = micros(memory.created_at)
    for tag in dict.fromkeys(memory.text.tags):
        sql.insert("ref_tags", memory_id=memory.id, space_id=space, tag=tag, created_at=at)


@reads("ref_entries")
def sized(id_: int, size: int, length: int) -> ListedRef:
    return ListedRef(MemoryId(id_), count(size), count(length))


_PROVENANCE = """m.id, e.name, m.uid, e.run, e.node, e.agent, e.method, m.duplicates,
                 m.last_seen_at"""
_SOURCES = """SELECT older_id
                FROM ref_supersessions
               WHERE newer_id = :memory AND ended_after IS NULL
               UNION
              SELECT source_id FROM derivations WHERE memory_id = :memory"""
_NEWER = """SELECT newer_id
              FROM ref_supersessions
             WHERE older_id = :memory AND ended_after IS NULL"""


@dataclass(eq=False)
class RefTable(Table):
    """The entries of refs. With a snapshot, as they were then; without one, as they are.

    Expired entries are never among them.
    """

    _now: datetime

    def get(self, ref: MemoryRef, id_: RefEntryId, at: Snapshot | None = None) -> RefEntry | None:
        """The entry, also one that others supersede."""
        row = self._row(str(ENTRY), ref, id_, at)
        return None if row is None else ENTRY(row)

    def some(self, memories: Sequence[MemoryId]) -> list[RefEntry]:
        """The entries that these memories are, in their order."""
        rows = self._execute(
            f"""SELECT {ENTRY}
                  FROM {self._sql.ids("listed")}
                 {self._sql.leads} ref_entries e ON e.memory_id = listed.value
                  JOIN memories m ON m.id = e.memory_id
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
              ORDER BY listed.key""",
            ids=json.dumps(list(memories)),
        )
        return list(self._intact(rows, ENTRY))

    def provenance(self, ref: MemoryRef, id_: RefEntryId) -> Provenance:
        """Where the entry comes from; NotFound."""
        row = required(self._row(_PROVENANCE, ref, id_), NO_ENTRY)
        memory, *_ = row

        @reads("ref_entries")
        def provenance(  # noqa: PLR0913, PLR0917 - the columns of _PROVENANCE
            _: int, name: str | None, uid: str, run: str | None, node: str | None,
            agent: str | None, method: str, seen: int, last_seen_at: int,
        ) -> Provenance:  # fmt: skip
            origin = Origin(
                run=None if run is None else RunId(run), node=node, agent=agent,
                method=Method(method),
            )  # fmt: skip
            return Provenance(
                memory_ref=ref, memory_id=ref_entry_id(uid, name), origin=origin,
                method=origin.method, derived_from=self._linked(_SOURCES, memory),
                superseded_by=self._linked(_NEWER, memory) or None,
                seen=count(seen), last_seen_at=instant(last_seen_at),
            )  # fmt: skip

        return provenance(row)

    def listed(
        self, ref: MemoryRef, at: Snapshot | None, *, tag: str | None, before: RefEntryId | None
    ) -> Iterator[ListedRef]:
        """Entries that no other one supersedes, newest first, read as far as they are needed.

        `before` is the id of an entry, or its cursor, also of a deleted one: those older than
        it; BadFields if it is unknown.
        """
        params: dict[str, object] = {"ref": ref, "tag": tag, **self._at(at)}
        condition = f"{present(at)} AND NOT {superseded(at)}"
        if before is not None:
            # Of those that had a name, the newest; in a snapshot the one that it has.
            visible = "" if at is None else f"WHERE {put_by('e')} AND {api.undeleted_at('e')}"
            row = self._execute(
                f"""SELECT e.created_at, e.memory_id
                      FROM {_named(before, has_no_name=False)} {visible}
                  ORDER BY e.memory_id DESC
                     LIMIT 1""",
                ref=ref, name=before, uid=stable_id(before), **values(at),
            ).fetchone()  # fmt: skip
            if row is None:
                raise BadFields([("before", "is not the id of an entry")])
            params["created_at"], params["before"] = row
            condition += " AND (e.created_at, e.memory_id) < (:created_at, :before)"
        rows = self._stream(self._listing(tag, at, condition), **params)
        return self._intact(rows, lambda row: sized(row[:3]))

    def _at(self, at: Snapshot | None = None) -> dict[str, object]:
        """The instant of the conditions: a clock that went back brings nothing into a snapshot."""
        return {"now": micros(max(self._now, at.at) if at else self._now), **values(at)}

    def _row(
        self, columns: str, ref: MemoryRef, id_: RefEntryId, at: Snapshot | None = None
    ) -> Any:
        """An entry's row, or None, always by one statement, so that timing reveals nothing."""
        return self._execute(
            f"""SELECT {columns}
                  FROM {_named(id_)}
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
                 WHERE {present(at)}
              ORDER BY m.id DESC
                 LIMIT 1""",
            ref=ref, name=id_, uid=stable_id(id_), **self._at(at),
        ).fetchone()  # fmt: skip

    def _listing(self, tag: str | None, at: Snapshot | None, condition: str) -> str:
        leads = self._sql.leads
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
        # What was deleted since is put in order before it is read further.
        return f"""SELECT e.memory_id, e.size, e.length
                     FROM ({kept} AND {put_by("e")}
                           UNION ALL
                           {gone} AND {put_by("e")}
                           ORDER BY created_at DESC, memory_id DESC LIMIT {ALL}) e
                    WHERE {condition}
                          {self._sql.reordered("e.created_at DESC, e.memory_id DESC")}"""

    def _leg(self, index: str, which: str) -> str:
        return f"""SELECT e.memory_id, e.size, e.length, e.created_at, e.deleted_after, e.renews
                     FROM refs f
                    {self._sql.leads} ref_entries e {self._sql.hint(index)}
                          ON e.space_id = f.space_id
                    WHERE f.ref = :ref AND {which}"""

    def _linked(self, linked: str, memory: MemoryId) -> tuple[RefEntryId, ...]:
        rows = self._execute(
            f"""SELECT m.uid, e.name
                  FROM ref_entries e
                  JOIN memories m ON m.id = e.memory_id
                 WHERE e.memory_id IN ({linked}) AND {present(None)}
              ORDER BY e.memory_id""",
            memory=memory, **self._at(),
        )  # fmt: skip
        return tuple(ref_entry_id(uid, name) for uid, name in rows)


def _named(id_: RefEntryId, *, has_no_name: bool = True) -> str:
    """The entries of a ref that have had an id: a name is free again after a deletion.

    A stable id is the id of those alone that have no name.
    """
    if stable_id(id_) is None:
        return """refs f
                  JOIN ref_entries e ON f.ref = :ref AND e.space_id = f.space_id AND e.name = :name
                  JOIN memories m ON m.id = e.memory_id"""
    nameless = "AND e.name IS NULL" if has_no_name else ""
    return f"""memories m
               JOIN ref_entries e ON m.uid = :uid AND e.memory_id = m.id {nameless}
               JOIN refs f ON f.space_id = e.space_id AND f.ref = :ref"""
