"""SQL for imports that are stored in many transactions."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from ...domain.model.access import ANY, Patterns
from ...domain.model.space import GLOBAL_SCOPE, Project
from ...domain.ports.imports import Import, ImportId, Row
from .rows import micros, tag_array, tag_tuple
from .staged_rows import MEMORY, SCOPE_AT, row_of, staged
from .table import Connection, Dialect, Table

PLACE = 32  # bits of a row's number that are its place in the import
KEPT = timedelta(days=1)  # for which an import is known after its end
COLUMNS = """id, projects, staged, applied, sessions, observations,
             accepted_at IS NOT NULL, finished_at IS NOT NULL"""
ACCEPTED = f"number >> {PLACE} IN (SELECT id FROM imports WHERE accepted_at IS NOT NULL)"


class Imports(Table):
    """The imports of one transaction."""

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        now: datetime,
        require_alone: Callable[[], None],
    ) -> None:
        super().__init__(connection, dialect)
        self._require_alone = require_alone
        self._now = micros(now)

    def begin(self, projects: Patterns) -> ImportId:
        self._execute(
            "DELETE FROM imports WHERE finished_at < :until AND accepted_at IS NOT NULL",
            until=self._now - KEPT // timedelta(microseconds=1),
        )
        id_ = self._inserted(
            "INSERT INTO imports (projects, touched_at) VALUES (:projects, :now)",
            projects=json.dumps(projects.names),
            now=self._now,
        )
        return ImportId(id_)

    def get(self, import_: ImportId) -> Import | None:
        row = self._execute(f"SELECT {COLUMNS} FROM imports WHERE id = :id", id=import_).fetchone()
        return None if row is None else _import(row)

    def stage(self, import_: ImportId, rows: Sequence[Row]) -> None:
        ((before,),) = self._execute("SELECT staged FROM imports WHERE id = :id", id=import_)
        texts = [staged(row) for row in rows]
        self._connection.executemany(
            """INSERT INTO import_rows (number, project, row)
               VALUES (:number, :project, :row)""",
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
        self._require_alone()  # else all who share the commit would wait for these rows
        rows = self._execute(
            """SELECT number, project, row
                 FROM import_rows
                WHERE number > :first AND number < :end
             ORDER BY number""",
            first=_number(import_, 0),
            end=_number(ImportId(import_ + 1), 0),
        )
        for number, project, row in rows:
            yield number - _number(import_, 0), row_of(project, row)

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

    def has_global(self, project: Project) -> bool:
        """Whether global memories of a project are left in imports that were accepted."""
        kind, scope = self._sql.element("row", 0), self._sql.element("row", SCOPE_AT)
        row = self._execute(
            f"""SELECT 1
                  FROM import_rows
                 WHERE project = :project AND {ACCEPTED}
                       AND {kind} = '{MEMORY}' AND {scope} = '{GLOBAL_SCOPE}'
                 LIMIT 1""",
            project=project,
        )
        return row.fetchone() is not None

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
                {"id": id_, "projects": tag_array((*_patterns(projects).names, into))}
                for id_, projects in imports.fetchall()
            ],
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
        projects=_patterns(projects),
        staged=staged,
        applied=applied,
        sessions=sessions,
        memories=memories,
        is_accepted=bool(is_accepted),
        is_finished=bool(is_finished),
    )


def _patterns(projects: str) -> Patterns:
    return Patterns(tag_tuple(projects) or (ANY,))  # none are a damaged value's
