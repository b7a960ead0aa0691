"""SQL of imports: what of many rows is stored, and many rows stored by few statements."""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from ...recall.text.normalization import content_hash, fingerprint
from ..model.memory import NO_LIFECYCLE, ChangeKind, Memory, MemoryId, Session, SessionId
from ..model.space import Project
from .lifecycles import PUT_LIFECYCLE
from .liveness import Moment, undeleted
from .memories import SECOND, SpaceTable
from .rows import json_of, lifecycle_row, micros, optional_micros, tag_array
from .table import Dialect, Index, Table

COLUMNS = (
    "space_id", "uid", "session_id", "key", "type", "title", "content", "tags", "content_hash",
    "fingerprint", "revision", "duplicates", "last_seen_at", "promoted_to", "created_at",
    "updated_at", "extras",
)  # fmt: skip


@dataclass(eq=False)
class ImportTable(Table):
    """The rows of imports, of one transaction."""

    _index: Index
    _spaces: SpaceTable
    _moment: Moment
    _require_alone: Callable[[], None]

    def begin(self) -> None:
        """Share no group commit: all who do would wait for many rows."""
        self._require_alone()

    def projects_of(self, sessions: Iterable[SessionId]) -> dict[SessionId, Project]:
        """The projects of those sessions that there are."""
        given = f"(SELECT value FROM {self._sql.texts('given')})"
        rows = self._execute(
            f"SELECT id, project FROM sessions WHERE id IN {given}",
            texts=json.dumps(list(sessions)),
        )
        return {SessionId(id_): project for id_, project in rows}

    def add_sessions(self, sessions: Iterable[Session]) -> None:
        """Store new sessions."""
        self._connection.executemany(
            """INSERT INTO sessions (id, project, started_at, ended_at, summary, message_count)
               VALUES (:id, :project, :started_at, :ended_at, :summary, :message_count)""",
            [
                {
                    "id": it.id,
                    "project": it.project,
                    "started_at": micros(it.started_at),
                    "ended_at": optional_micros(it.ended_at),
                    "summary": it.summary,
                    "message_count": it.message_count,
                }
                for it in sessions
            ],
        )

    def matched(self, memories: Sequence[Memory]) -> set[int]:
        """The places of those that an import may find stored: by uid, by key, or as a twin.

        It may name one that is not; it leaves out none that is.
        """
        uids = [it.uid for it in memories if it.uid]
        at_key = [(place, *_space(it), it.key) for place, it in enumerate(memories) if it.key]
        twins = [
            (place, *_space(it), *_twin(it)) for place, it in enumerate(memories) if not it.uid
        ]
        known = self._known(uids)
        return (
            {place for place, it in enumerate(memories) if it.uid in known}
            | self._places(_at_key, at_key)
            | self._places(_twins, twins)
        )

    def add(self, memories: Sequence[Memory]) -> list[MemoryId]:
        """Store and index new memories, each with its first revision; their ids."""
        placed = [(it, *self._spaces.placed(it.space)) for it in memories]
        rows = [self._row(it, space) for it, space, _ in placed]
        inserted = self._sql.inserted_all(self._connection, "memories", COLUMNS, rows)
        ids = [MemoryId(it) for it in inserted]
        self._execute(
            f"""INSERT INTO revisions (memory_id, number, deed, at)
                SELECT m.id, m.revision, '{ChangeKind.CREATED}', m.updated_at
                  FROM {self._sql.ids("given")}
                 {self._sql.leads} memories m ON m.id = given.value""",
            ids=json.dumps(ids),
        )
        for id_, (it, *_) in zip(ids, placed, strict=True):
            if it.lifecycle != NO_LIFECYCLE:
                values = {**lifecycle_row(it.lifecycle), **self._moment.values}
                self._execute(PUT_LIFECYCLE, id=id_, key=it.key, **values)
        self._index.add_all((id_, *it) for id_, it in zip(ids, placed, strict=True))
        return ids

    def _row(self, memory: Memory, space: int) -> tuple[object, ...]:
        text, created_at = memory.text, micros(memory.created_at)
        hash_ = content_hash(text.content)
        is_expired = memory.lifecycle.is_expired(self._moment.now)  # its key lies beside its row
        return (
            space, memory.uid, memory.session, None if is_expired else memory.key,
            text.type, text.title, text.content, tag_array(text.tags), hash_,
            fingerprint(memory.key, text.type, text.title, hash_),
            memory.revision, memory.duplicates, _micros(memory, memory.last_seen_at, created_at),
            memory.promoted_to, created_at, _micros(memory, memory.updated_at, created_at),
            json_of(memory.extras),
        )  # fmt: skip

    def _known(self, uids: Collection[str]) -> set[str]:
        if not uids:
            return set()
        return set(self._scalars(_by_uid(self._sql), texts=json.dumps(uids)))

    def _places(
        self, statement: Callable[[Dialect], str], given: Sequence[tuple[object, ...]]
    ) -> set[int]:
        if not given:
            return set()
        return set(map(int, self._scalars(statement(self._sql), texts=json.dumps(given))))


def _micros(memory: Memory, at: datetime, created_at: int) -> int:
    return created_at if at is memory.created_at else micros(at)


def _space(memory: Memory) -> tuple[object, ...]:
    return memory.space.project, memory.space.scope


def _twin(memory: Memory) -> tuple[object, ...]:
    text = memory.text
    hash_ = fingerprint(memory.key, text.type, text.title, content_hash(text.content))
    return hash_, memory.session, micros(memory.created_at)


def _given(sql: Dialect, *names: str) -> str:
    """The arrays that are given as rows; each is taken apart once, whatever it is joined with."""
    parts = (sql.element("it.value", place) for place in range(len(names)))
    return f"""WITH given ({", ".join(names)}) AS MATERIALIZED (
                   SELECT {", ".join(parts)} FROM {sql.texts("it")})"""


@cache
def _by_uid(sql: Dialect) -> str:
    return f"""SELECT m.uid
                 FROM {sql.texts("given")} {sql.leads} memories m ON m.uid = given.value"""


@cache
def _at_key(sql: Dialect) -> str:
    return f"""{_given(sql, "place", "project", "scope", "key")}
               SELECT place
                 FROM given
                {sql.leads} spaces s ON s.project = given.project AND s.scope = given.scope
                {sql.leads} memories m
                   ON m.space_id = s.id AND m.key = given.key AND {undeleted("m")}"""


@cache
def _twins(sql: Dialect) -> str:
    second = SECOND.format("CAST(given.at AS BIGINT)")
    return f"""{_given(sql, "place", "project", "scope", "hash", "session", "at")}
               SELECT place
                 FROM given
                {sql.leads} spaces s ON s.project = given.project AND s.scope = given.scope
                {sql.leads} memories m {sql.hint("memories_by_hash")}
                   ON m.space_id = s.id AND m.fingerprint = CAST(given.hash AS BIGINT)
                      AND m.session_id = given.session
                      AND m.created_at >= {second} AND m.created_at < {second} + 1000000"""
