"""SQL for sessions."""

from typing import Any

from ...domain.model import Session, SessionId
from ...domain.text import Project
from .table import Table, instant, micros

COLUMNS = "id, project, started_at, ended_at, summary, message_count"


class Sessions(Table):
    """The sessions of one transaction."""

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

    def newest(
        self, project: Project | None, limit: int, *, before: SessionId | None = None
    ) -> list[Session]:
        conditions = ["TRUE"]
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
        )
        return [_session(row) for row in rows]

    def summaries(self, project: Project, limit: int) -> list[str]:
        rows = self._execute(
            """SELECT summary
                 FROM sessions
                WHERE project = :project AND summary <> ''
             ORDER BY started_at DESC, number DESC
                LIMIT :limit""",
            project=project,
            limit=limit,
        )
        return [summary for (summary,) in rows]

    def page(self, project: Project | None, after: SessionId | None, limit: int) -> list[Session]:
        rows = self._execute(
            f"""SELECT {COLUMNS}
                  FROM sessions
                 WHERE number > coalesce((SELECT number FROM sessions WHERE id = :after), 0)
                       AND (:project IS NULL OR project = :project)
              ORDER BY number
                 LIMIT :limit""",
            project=project,
            after=after,
            limit=limit,
        )
        return [_session(row) for row in rows]

    def count(self, project: Project | None) -> int:
        row = self._execute(
            "SELECT count(*) FROM sessions WHERE :project IS NULL OR project = :project",
            project=project,
        ).fetchone()
        return int(row[0])

    def projects(self) -> set[Project]:
        rows = self._execute("SELECT DISTINCT project FROM sessions")
        return {project for (project,) in rows}


def _session(row: Any) -> Session:
    id_, project, started_at, ended_at, summary, message_count = row
    return Session(
        id=SessionId(id_),
        project=project,
        started_at=instant(started_at),
        ended_at=None if ended_at is None else instant(ended_at),
        summary=summary,
        message_count=message_count,
    )
