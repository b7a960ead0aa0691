"""SQL for sessions."""

import sqlite3
from typing import Any

from ....domain.model.access import Patterns
from ....domain.model.memory import Session, SessionId
from ....domain.model.space import Project
from ..base.filters import acted_on, acting
from ..base.table import Table, count, instant, micros

COLUMNS = "id, project, started_at, ended_at, summary, message_count"


class Sessions(Table):
    """The sessions of one transaction."""

    def __init__(self, connection: sqlite3.Connection, projects: Patterns) -> None:
        super().__init__(connection)
        self._projects = projects

    def get(self, session: SessionId) -> Session | None:
        row = self._execute(f"SELECT {COLUMNS} FROM sessions WHERE id = :id", id=session).fetchone()
        return None if row is None else _session(row)

    def open(self, session: Session) -> Session:
        known = self.get(session.id)
        if known is not None:
            return known
        self._execute(
            """INSERT INTO sessions (id, project, started_at)
               VALUES (:id, :project, :started_at)""",
            id=session.id,
            project=session.project,
            started_at=micros(session.started_at),
        )
        return session

    def close(self, session: Session) -> None:
        self._execute(
            """UPDATE sessions
                  SET ended_at = :ended_at, summary = :summary, message_count = :message_count
                WHERE id = :id""",
            id=session.id,
            ended_at=None if session.ended_at is None else micros(session.ended_at),
            summary=session.summary,
            message_count=session.message_count,
        )

    def grow(self, session: Session) -> None:
        self._execute(
            "UPDATE sessions SET message_count = :message_count WHERE id = :id",
            id=session.id,
            message_count=session.message_count,
        )

    def newest(
        self, project: Project | None, limit: int, *, before: SessionId | None = None
    ) -> list[Session]:
        conditions = [acted_on(self._projects, "project")]
        if project is not None:
            conditions.append("project = :project")
        if before is not None:
            conditions.append(
                """(started_at, number)
                 < (SELECT started_at, number FROM sessions WHERE id = :before)"""
            )
        rows = self._execute(
            f"""SELECT {COLUMNS}
                  FROM sessions
                 WHERE {" AND ".join(conditions)}
              ORDER BY started_at DESC, number DESC
                 LIMIT :limit""",
            project=project,
            before=before,
            limit=limit,
            **acting(self._projects),
        )
        return [_session(row) for row in rows]

    def summaries(self, project: Project, limit: int) -> list[str]:
        rows = self._execute(
            f"""SELECT summary
                  FROM sessions
                 WHERE project = :project AND summary <> ''
                       AND {acted_on(self._projects, "project")}
              ORDER BY started_at DESC, number DESC
                 LIMIT :limit""",
            project=project,
            limit=limit,
            **acting(self._projects),
        )
        return [summary for (summary,) in rows]

    def page(self, project: Project | None, after: int, limit: int) -> list[tuple[int, Session]]:
        rows = self._execute(
            f"""SELECT number, {COLUMNS}
                  FROM sessions
                 WHERE number > :after
                       AND (:project IS NULL OR project = :project)
                       AND {acted_on(self._projects, "project")}
              ORDER BY number
                 LIMIT :limit""",
            project=project,
            after=after,
            limit=limit,
            **acting(self._projects),
        )
        return [(number, _session(row)) for number, *row in rows]

    def count(self, project: Project | None) -> int:
        row = self._execute(
            f"""SELECT count(*)
                  FROM sessions
                 WHERE (:project IS NULL OR project = :project)
                       AND {acted_on(self._projects, "project")}""",
            project=project,
            **acting(self._projects),
        ).fetchone()
        return int(row[0])

    def projects(self) -> set[Project]:
        rows = self._execute(
            f"""SELECT project
                  FROM (SELECT DISTINCT project FROM sessions)
                 WHERE {acted_on(self._projects, "project")}""",
            **acting(self._projects),
        )
        return {project for (project,) in rows}


def _session(row: Any) -> Session:
    id_, project, started_at, ended_at, summary, message_count = row
    return Session(
        id=SessionId(id_),
        project=project,
        started_at=instant(started_at),
        ended_at=None if ended_at is None else instant(ended_at),
        summary=summary,
        message_count=count(message_count),
    )
