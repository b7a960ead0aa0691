"""Imports that take many transactions: their rows as the JSON that is staged, and the SQL."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NewType

from ...recall.text.normalization import clean, content_hash, fingerprint
from ..model.access import Patterns
from ..model.memory import (
    NO_LIFECYCLE,
    NO_LINKS,
    Imported,
    Lifecycle,
    Links,
    Memory,
    MemoryId,
    Session,
    Supersession,
    Text,
)
from ..model.space import GLOBAL_SCOPE, Project, Space
from .liveness import undeleted
from .memories import SECOND
from .rows import (
    EARLIEST,
    LAST,
    UNREADABLE,
    instant,
    micros,
    optional_instant,
    optional_micros,
    reads,
    tag_array,
    texts_of,
)
from .table import Dialect, Table

ImportId = NewType("ImportId", int)
Row = Session | Memory | Supersession


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """The progress of an import that is being staged or was accepted."""

    id: ImportId
    projects: Patterns  # of its caller
    staged: int = 0  # rows
    applied: int = 0  # of them
    sessions: int = 0  # that it has stored
    memories: int = 0
    refused: int = 0  # supersessions
    is_accepted: bool = False
    is_finished: bool = False


log = logging.getLogger(__name__)

# The first element of a row.
SESSION, MEMORY, SUPERSESSION = "session", "observation", "supersession"
SCOPE_AT = 3  # the element of a memory's row that is its scope


def staged(row: Row) -> tuple[Project, str]:
    """The project of a row, and the row as JSON."""
    elements: tuple[object, ...]
    match row:
        case Session():
            project, elements = row.project, (SESSION, *_session_values(row))
        case Memory():
            project, elements = row.space.project, (MEMORY, *_memory_values(row))
        case Supersession():
            project, elements = row.project, (SUPERSESSION, row.newer, row.older)
    return project, json.dumps(elements, ensure_ascii=False)


def row_of(project: Project, row: str) -> Row | None:
    """The inverse of `staged`; None, and an error in the log, if it is damaged."""
    try:
        kind, *values = json.loads(row)
        if _can_be_stored(values):
            read: Callable[..., Row] = _READ.get(kind, _memory)
            return read(project, *values)
    except UNREADABLE:
        pass
    log.error("a row of an import is damaged, and was left out")
    return None


def _can_be_stored(value: object) -> bool:
    """Whether it is as it was staged: whole numbers, and texts that can be stored."""
    if isinstance(value, list):
        return all(map(_can_be_stored, value))
    return value is None or type(value) is int or (isinstance(value, str) and clean(value) == value)


def _session_values(session: Session) -> tuple[object, ...]:
    ended_at = None if session.ended_at is None else micros(session.ended_at)
    started_at = micros(session.started_at)
    return session.id, started_at, ended_at, session.summary, session.message_count


def _session(project: Project, *values: Any) -> Session:
    id_, started_at, ended_at, summary, message_count = values
    return Session(
        id=id_,
        project=project,
        started_at=instant(started_at),
        ended_at=None if ended_at is None else instant(ended_at),
        summary=summary,
        message_count=message_count,
    )


def _memory_values(memory: Memory) -> tuple[object, ...]:
    text, instants = memory.text, (memory.last_seen_at, memory.created_at, memory.updated_at)
    return (
        memory.uid, memory.session, memory.space.scope, memory.key,
        (text.type, text.title, text.content, text.tags),
        memory.revision, memory.duplicates, memory.promoted_to, *map(micros, instants),
        *_life_values(memory),
    )  # fmt: skip


def _life_values(memory: Memory) -> tuple[object, ...]:
    """The lifecycle and what it supersedes; nothing if it has neither."""
    life = memory.lifecycle
    if life == NO_LIFECYCLE and memory.links == NO_LINKS:
        return ()
    ends = (life.expires_at, life.pinned_at, life.review_at, life.confirmed_at)
    return tuple(map(optional_micros, ends)), memory.links.uids


def _memory(project: Project, *values: Any) -> Memory:
    (uid, session, scope, key, (type_, title, content, tags), revision, duplicates, promoted_to,
     last_seen_at, created_at, updated_at, *life) = values  # fmt: skip
    ends, uids = life or ((), ())
    return Memory(
        uid=uid,
        session=session,
        space=Space(project=project, scope=scope),
        key=key,
        text=Text(type=type_, title=title, content=content, tags=tuple(tags)),
        revision=revision,
        duplicates=duplicates,
        promoted_to=promoted_to,
        last_seen_at=instant(last_seen_at),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
        lifecycle=_lifecycle(*ends) if any(ends) else NO_LIFECYCLE,
        links=Links(uids=tuple(uids)),
    )


def _lifecycle(*ends: int | None) -> Lifecycle:
    if not EARLIEST <= (ends[0] or 0) <= LAST:
        raise ValueError  # of a damaged end no other one may be made, later or none
    expires_at, pinned_at, review_at, confirmed_at = map(optional_instant, ends)
    return Lifecycle(
        expires_at=expires_at, pinned_at=pinned_at, review_at=review_at, confirmed_at=confirmed_at
    )


def _supersession(project: Project, newer: int, older: list[str]) -> Supersession:
    return Supersession(newer=MemoryId(newer), project=project, older=tuple(older))


_READ: dict[str, Callable[..., Row]] = {SESSION: _session, SUPERSESSION: _supersession}


PLACE = 32  # bits of a row's number that are its place in the import
KEPT = timedelta(days=1)  # for which an import is known after its end
# One whose mark is damaged is not: nobody may have accepted it.
IS_ACCEPTED = f"""(accepted_at BETWEEN {EARLIEST} AND {LAST}
                   AND CAST(accepted_at AS BIGINT) = accepted_at)"""
COLUMNS = f"""id, projects, staged, applied, sessions, observations, refused,
             {IS_ACCEPTED}, finished_at IS NOT NULL"""
COUNTED = ("staged", "applied", "sessions", "memories", "refused")
OF_IMPORT = "number > :first AND number < :end"
ACCEPTED = f"number >> {PLACE} IN (SELECT id FROM imports WHERE {IS_ACCEPTED})"


@dataclass(eq=False)
class ImportTable(Table):
    """Large imports, and their staged rows."""

    _now: datetime
    _require_alone: Callable[[], None]

    def begin(self, projects: Patterns) -> ImportId:
        """Start an import of a caller with these patterns; long finished ones are removed."""
        self._execute(
            f"DELETE FROM imports WHERE finished_at < :until AND {IS_ACCEPTED}",
            until=micros(self._now - KEPT),
        )
        given = json.dumps(projects.names)
        return ImportId(self._inserted("imports", projects=given, touched_at=micros(self._now)))

    def get(self, import_: ImportId) -> Import | None:
        return self._first(_import, f"SELECT {COLUMNS} FROM imports WHERE id = :id", id=import_)

    def stage(self, import_: ImportId, rows: Sequence[Row]) -> None:
        """Stage the next rows of an import."""
        before = self._number("SELECT staged FROM imports WHERE id = :id", id=import_)
        texts = [staged(row) for row in rows]
        self._connection.executemany(
            "INSERT INTO import_rows (number, project, row) VALUES (:number, :project, :row)",
            [
                {"number": _number(import_, place), "project": project, "row": text}
                for place, (project, text) in enumerate(texts, start=before + 1)
            ],
        )
        self._execute(
            """UPDATE imports
                  SET staged = staged + :rows, size = size + :size, touched_at = :now
                WHERE id = :id""",
            id=import_,
            rows=len(rows),
            size=sum(len(text.encode()) for _, text in texts),
            now=micros(self._now),
        )

    def size(self, import_: ImportId) -> int:
        """The size in bytes of the staged rows of this import and of all accepted ones."""
        return self._number(
            f"""SELECT sum(size)
                 FROM imports
                WHERE id = :id OR ({IS_ACCEPTED} AND finished_at IS NULL)""",
            id=import_,
        )

    def accept(self, import_: ImportId) -> None:
        """Mark an import as accepted: it will be completed."""
        self._execute(
            "UPDATE imports SET accepted_at = :now WHERE id = :id",
            id=import_,
            now=micros(self._now),
        )

    def rows(self, import_: ImportId) -> Iterator[tuple[int, Row | None]]:
        """The staged rows in order, each with its place from 1; None for a corrupt one.

        The transaction that applies them takes no part in a group commit.
        """
        self._require_alone()  # else all who share the commit would wait for these rows
        rows = self._stream(
            f"SELECT number, project, row FROM import_rows WHERE {OF_IMPORT} ORDER BY number",
            **_numbers(import_),
        )
        for number, project, row in rows:
            yield number - _number(import_, 0), row_of(project, row)

    def matched(self, memories: Sequence[Memory]) -> set[int]:
        """The places of those that an import may find stored: by uid, by key, or as a twin.

        It may name one that is not; it leaves out none that is.
        """
        given = list(enumerate(memories))
        by_uid = [(place, it.uid) for place, it in given if it.uid]
        at_key = [(place, *_space(it), it.key) for place, it in given if it.key]
        twins = [(place, *_space(it), *_twin(it)) for place, it in given if not it.uid]
        return (
            self._places(_by_uid, by_uid)
            | self._places(_at_key, at_key)
            | self._places(_twins, twins)
        )

    def applied(self, import_: ImportId, place: int, step: Imported) -> None:
        """Remove the staged rows up to a place, and add up what the step has stored."""
        self._execute(
            "DELETE FROM import_rows WHERE number > :first AND number <= :last",
            first=_number(import_, 0),
            last=_number(import_, place),
        )
        self._execute(
            """UPDATE imports
                  SET applied = :place, sessions = sessions + :sessions,
                      observations = observations + :memories, refused = refused + :refused,
                      touched_at = :now
                WHERE id = :id""",
            id=import_,
            place=place,
            sessions=step.sessions,
            memories=step.memories,
            refused=step.refused,
            now=micros(self._now),
        )

    def finish(self, import_: ImportId) -> None:
        """Mark an import as finished."""
        self._execute(
            "UPDATE imports SET finished_at = :now WHERE id = :id",
            id=import_,
            now=micros(self._now),
        )

    def has_rows(self) -> bool:
        """Whether there are staged rows of any import."""
        return self._exists("SELECT 1 FROM import_rows")

    def is_any_staged(self) -> bool:
        """Whether any import is still being staged."""
        return self._exists("SELECT 1 FROM imports WHERE accepted_at IS NULL")

    def unfinished(self) -> list[Import]:
        """The accepted and unfinished imports, oldest first."""
        rows = self._execute(
            f"""SELECT {COLUMNS}
                  FROM imports
                 WHERE {IS_ACCEPTED} AND finished_at IS NULL
              ORDER BY id"""
        )
        return list(self._intact(rows.fetchall(), _import))

    def silent(self, since: datetime, until: datetime) -> list[ImportId]:
        """Abandoned imports: not accepted, and without a row staged between the instants."""
        return self._scalars(
            """SELECT id
                 FROM imports
                WHERE accepted_at IS NULL AND touched_at NOT BETWEEN :since AND :until
             ORDER BY id""",
            since=micros(since),
            until=micros(until),
        )

    def discard(self, import_: ImportId, most: int) -> bool:
        """Remove at most `most` rows of an import that was not accepted; whether more are left."""
        open_ = "SELECT 1 FROM imports WHERE id = :id AND accepted_at IS NULL"
        if not self._exists(open_, id=import_):
            return False
        self.finish(import_)  # so that nothing more is staged, nor is it accepted
        gone = self._execute(
            f"""DELETE FROM import_rows
                 WHERE number IN (SELECT number FROM import_rows WHERE {OF_IMPORT} LIMIT :most)""",
            most=most,
            **_numbers(import_),
        ).rowcount
        if gone == most:
            return True
        self._execute("DELETE FROM imports WHERE id = :id", id=import_)
        return False

    def count(self, project: Project) -> int:
        """How many rows of a project are left in imports that were accepted."""
        return self._number(
            f"SELECT count(*) FROM import_rows WHERE project = :project AND {ACCEPTED}",
            project=project,
        )

    def erase_some(self, project: Project, most: int) -> int:
        """Remove at most `most` rows of a project from accepted imports; how many were removed."""
        return self._execute(
            f"""DELETE FROM import_rows
                 WHERE number IN (SELECT number
                                    FROM import_rows
                                   WHERE project = :project AND {ACCEPTED}
                                   LIMIT :most)""",
            project=project,
            most=most,
        ).rowcount

    def has_global(self, project: Project) -> bool:
        """Whether global memories of a project are left in imports that were accepted."""
        kind, scope = self._sql.element("row", 0), self._sql.element("row", SCOPE_AT)
        return self._exists(
            f"""SELECT 1
                  FROM import_rows
                 WHERE project = :project AND {ACCEPTED}
                       AND {kind} = '{MEMORY}' AND {scope} = '{GLOBAL_SCOPE}'
                 LIMIT 1""",
            project=project,
        )

    def move(self, project: Project, into: Project) -> None:
        """Give the rows of a project in imports that were accepted to another."""
        imports = self._execute(
            f"""SELECT id, projects
                  FROM imports
                 WHERE finished_at IS NULL
                       AND id IN (SELECT number >> {PLACE}
                                    FROM import_rows
                                   WHERE project = :project AND {ACCEPTED})""",
            project=project,
        )
        self._connection.executemany(
            "UPDATE imports SET projects = :projects WHERE id = :id",
            [
                {"id": id_, "projects": tag_array((*_patterns((id_, projects)).names, into))}
                for id_, projects in imports.fetchall()
            ],
        )
        self._execute(
            f"UPDATE import_rows SET project = :into WHERE project = :project AND {ACCEPTED}",
            project=project,
            into=into,
        )

    def _places(
        self, statement: Callable[[Dialect], str], given: Sequence[tuple[object, ...]]
    ) -> set[int]:
        if not given:
            return set()
        return set(map(int, self._scalars(statement(self._sql), texts=json.dumps(given))))


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
    return f"""{_given(sql, "place", "uid")}
               SELECT place FROM given {sql.leads} memories m ON m.uid = given.uid"""


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
    return f"""{_given(sql, "place", "project", "scope", "hash", "session", "at")}
               SELECT place
                 FROM given
                {sql.leads} spaces s ON s.project = given.project AND s.scope = given.scope
                {sql.leads} memories m {sql.hint("memories_by_second")}
                   ON m.space_id = s.id AND m.fingerprint = CAST(given.hash AS BIGINT)
                      AND m.session_id = given.session
                      AND {SECOND.format("m.created_at")}
                        = {SECOND.format("CAST(given.at AS BIGINT)")}"""


def _number(import_: ImportId, place: int) -> int:
    return import_ << PLACE | place


def _numbers(import_: ImportId) -> dict[str, int]:
    """The values that OF_IMPORT names."""
    return {"first": import_ << PLACE, "end": (import_ + 1) << PLACE}


def _import(row: Any) -> Import:
    id_, projects, *counts, is_accepted, is_finished = row
    return Import(
        id=ImportId(id_),
        projects=_patterns((id_, projects)),
        **dict(zip(COUNTED, counts, strict=True)),
        is_accepted=bool(is_accepted),
        is_finished=bool(is_finished),
    )


@reads("imports")
def _patterns(_: int, projects: str) -> Patterns:
    return Patterns(texts_of(projects))
