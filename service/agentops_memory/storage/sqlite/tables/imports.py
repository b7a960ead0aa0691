"""SQL for imports that are stored in many transactions."""

import json
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from ....domain.model.access import ANY, Patterns
from ....domain.model.memory import Memory, Session, SessionId, Text
from ....domain.model.space import GLOBAL_SCOPE, Project, Space
from ....domain.ports.imports import Import, ImportId, Row
from ....domain.text.normalization import clean
from ..base.errors import NeedsTransactionOfItsOwn
from ..base.table import Table, instant, micros, parsed, tag_tuple

log = logging.getLogger(__name__)

PLACE = 32  # bits of a row's number that are its place in the import
KEPT = timedelta(days=1)  # for which an import is known after its end
COLUMNS = """id, projects, staged, applied, sessions, observations,
             accepted_at IS NOT NULL, finished_at IS NOT NULL"""
ACCEPTED = f"number >> {PLACE} IN (SELECT id FROM imports WHERE accepted_at IS NOT NULL)"

# A row of a memory that is to be global: as `_memory_values` has it.
GLOBAL_ROW = f"""json_valid(row) AND json_extract(row, '$[0]') = 'observation'
                 AND json_extract(row, '$[3]') = '{GLOBAL_SCOPE}'"""


class Imports(Table):
    """The imports of one transaction."""

    def __init__(self, connection: sqlite3.Connection, now: datetime, *, is_alone: bool) -> None:
        super().__init__(connection)
        self._is_alone = is_alone
        self._now = micros(now)

    def begin(self, projects: Patterns) -> ImportId:
        self._execute(
            "DELETE FROM imports WHERE finished_at < :until AND accepted_at IS NOT NULL",
            until=self._now - KEPT // timedelta(microseconds=1),
        )
        cursor = self._execute(
            "INSERT INTO imports (projects, touched_at) VALUES (:projects, :now)",
            projects=json.dumps(projects.names),
            now=self._now,
        )
        return ImportId(cursor.lastrowid or 0)

    def get(self, import_: ImportId) -> Import | None:
        row = self._execute(f"SELECT {COLUMNS} FROM imports WHERE id = :id", id=import_).fetchone()
        return None if row is None else _import(row)

    def stage(self, import_: ImportId, rows: Sequence[Row]) -> None:
        ((staged,),) = self._execute("SELECT staged FROM imports WHERE id = :id", id=import_)
        some = [
            (_number(import_, place), *_staged(row))
            for place, row in enumerate(rows, start=staged + 1)
        ]
        self._connection.executemany(
            "INSERT INTO import_rows (number, project, row) VALUES (?, ?, ?)", some
        )
        self._execute(
            """UPDATE imports
                  SET staged = staged + :rows, size = size + :size, touched_at = :now
                WHERE id = :id""",
            id=import_,
            rows=len(rows),
            size=sum(len(row.encode()) for _, _, row in some),
            now=self._now,
        )

    def size(self, import_: ImportId) -> int:
        ((size,),) = self._execute(
            """SELECT sum(size)
                 FROM imports
                WHERE id = :id OR (accepted_at IS NOT NULL AND finished_at IS NULL)""",
            id=import_,
        )
        return int(size)

    def accept(self, import_: ImportId) -> None:
        self._execute(
            "UPDATE imports SET accepted_at = :now WHERE id = :id", id=import_, now=self._now
        )

    def rows(self, import_: ImportId) -> Iterator[tuple[int, Row | None]]:
        if not self._is_alone:  # else all who share the commit would wait for these rows
            raise NeedsTransactionOfItsOwn
        rows = self._execute(
            """SELECT number, project, row
                 FROM import_rows
                WHERE number > :first AND number < :end
             ORDER BY number""",
            first=_number(import_, 0),
            end=_number(ImportId(import_ + 1), 0),
        )
        for number, project, row in rows:
            yield number - _number(import_, 0), _row(project, row)

    def applied(self, import_: ImportId, place: int, sessions: int, memories: int) -> None:
        self._execute(
            "DELETE FROM import_rows WHERE number > :first AND number <= :last",
            first=_number(import_, 0),
            last=_number(import_, place),
        )
        self._execute(
            """UPDATE imports
                  SET applied = :place, sessions = sessions + :sessions,
                      observations = observations + :memories, touched_at = :now
                WHERE id = :id""",
            id=import_,
            place=place,
            sessions=sessions,
            memories=memories,
            now=self._now,
        )

    def finish(self, import_: ImportId) -> None:
        self._execute(
            "UPDATE imports SET finished_at = :now WHERE id = :id", id=import_, now=self._now
        )

    def has_rows(self) -> bool:
        return self._execute("SELECT 1 FROM import_rows").fetchone() is not None

    def is_any_staged(self) -> bool:
        row = self._execute("SELECT 1 FROM imports WHERE accepted_at IS NULL").fetchone()
        return row is not None

    def unfinished(self) -> list[Import]:
        rows = self._execute(
            f"""SELECT {COLUMNS}
                  FROM imports
                 WHERE accepted_at IS NOT NULL AND finished_at IS NULL
              ORDER BY id"""
        )
        return [_import(row) for row in rows]

    def silent(self, since: datetime, until: datetime) -> list[ImportId]:
        rows = self._execute(
            """SELECT id
                 FROM imports
                WHERE accepted_at IS NULL AND touched_at NOT BETWEEN :since AND :until
             ORDER BY id""",
            since=micros(since),
            until=micros(until),
        )
        return [ImportId(id_) for (id_,) in rows]

    def discard(self, import_: ImportId, most: int) -> bool:
        found = self.get(import_)
        if found is None or found.is_accepted:
            return False
        self.finish(import_)  # so that nothing more is staged, nor is it accepted
        gone = self._execute(
            """DELETE FROM import_rows
                WHERE number IN (SELECT number
                                   FROM import_rows
                                  WHERE number > :first AND number < :end
                                  LIMIT :most)""",
            first=_number(import_, 0),
            end=_number(ImportId(import_ + 1), 0),
            most=most,
        ).rowcount
        if gone == most:
            return True
        self._execute("DELETE FROM imports WHERE id = :id", id=import_)
        return False

    def count(self, project: Project) -> int:
        """How many rows of a project are left in imports that were accepted."""
        ((number,),) = self._execute(
            f"SELECT count(*) FROM import_rows WHERE project = :project AND {ACCEPTED}",
            project=project,
        )
        return int(number)

    def erase_some(self, project: Project, most: int) -> int:
        return self._execute(
            f"""DELETE FROM import_rows
                 WHERE number IN (SELECT number
                                    FROM import_rows
                                   WHERE project = :project AND {ACCEPTED}
                                   LIMIT :most)""",
            project=project,
            most=most,
        ).rowcount

    def move(self, project: Project, into: Project) -> None:
        self._execute(
            f"""UPDATE imports
                   SET projects = json_insert(projects, '$[#]', :into)
                 WHERE finished_at IS NULL
                       AND id IN (SELECT number >> {PLACE}
                                    FROM import_rows
                                   WHERE project = :project AND {ACCEPTED})""",
            project=project,
            into=into,
        )
        self._execute(
            f"UPDATE import_rows SET project = :into WHERE project = :project AND {ACCEPTED}",
            project=project,
            into=into,
        )


def _number(import_: ImportId, place: int) -> int:
    return import_ << PLACE | place


def _import(row: Any) -> Import:
    id_, projects, staged, applied, sessions, memories, is_accepted, is_finished = row
    return Import(
        id=ImportId(id_),
        projects=Patterns(tag_tuple(projects) or (ANY,)),  # none are a damaged value's
        staged=staged,
        applied=applied,
        sessions=sessions,
        memories=memories,
        is_accepted=bool(is_accepted),
        is_finished=bool(is_finished),
    )


def _staged(row: Row) -> tuple[str, str]:
    """The project of a row, and the row as JSON."""
    if isinstance(row, Session):
        return row.project, _json("session", _session_values(row))
    return row.space.project, _json("observation", _memory_values(row))


def _json(kind: str, values: Sequence[object]) -> str:
    return json.dumps([kind, *values], ensure_ascii=False)


def _row(project: Project, row: str) -> Row | None:
    try:
        staged: list[Any] = parsed(row, list)
        kind, *values = staged
        if _can_be_stored(values):
            return (_session if kind == "session" else _memory)(project, *values)
    except (ValueError, TypeError):
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


def _session(
    project: Project,
    id_: SessionId,
    started_at: int,
    ended_at: int | None,
    summary: str,
    message_count: int,
) -> Session:
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
    )  # fmt: skip


def _memory(project: Project, *values: Any) -> Memory:
    (uid, session, scope, key, (type_, title, content, tags), revision, duplicates, promoted_to,
     last_seen_at, created_at, updated_at) = values  # fmt: skip
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
    )
