"""SQL for projects as a whole: what they hold, and how one is renamed, merged and erased."""

from datetime import datetime

from ...domain.model.memory import MemoryId
from ...domain.model.space import Project
from ...domain.model.totals import Extent, Listed, Rows
from ...domain.ports.retention import MAX_STEP
from .imports import ACCEPTED
from .project_merges import SPACES, ProjectMerges
from .rows import instant, portion
from .table import GLOBAL, OF_A_PROJECT

# Whether a space has memories, live or deleted.
HELD = "EXISTS (SELECT 1 FROM memories WHERE space_id = s.id)"


class Projects(ProjectMerges):
    """The projects of one transaction."""

    def names(self) -> list[Project]:
        rows = self._execute(
            f"""SELECT project
                  FROM (SELECT project
                          FROM spaces s
                         WHERE {OF_A_PROJECT} AND {HELD}
                         UNION
                        SELECT project FROM sessions) named
                 WHERE {self._acts_on("project")}
              ORDER BY project""",
            **self._patterns(),
        )
        return [project for (project,) in rows]

    def exists(self, project: Project) -> bool:
        ((exists,),) = self._execute(
            f"""SELECT EXISTS (SELECT 1 FROM sessions WHERE project = :project)
                    OR EXISTS (SELECT 1
                                 FROM import_rows
                                WHERE project = :project AND {ACCEPTED})
                    OR EXISTS (SELECT 1
                                 FROM spaces s
                                WHERE s.project = :project AND {HELD})""",
            project=project,
        )
        return bool(exists)

    def rows(self) -> Rows:
        (memories,) = self._execute("SELECT count(*) FROM memories").fetchone()
        (revisions,) = self._execute("SELECT count(*) FROM revisions").fetchone()
        sessions, ended = self._execute("SELECT count(*), count(ended_at) FROM sessions").fetchone()
        return Rows(
            memories=memories,
            revisions=revisions,
            sessions=sessions,
            sessions_open=sessions - ended,
        )

    def listed(self, project: Project) -> Listed:
        memories, written = self._execute(
            f"""SELECT count(*) FILTER (WHERE deleted_at IS NULL),
                       max(CASE WHEN deleted_at > updated_at THEN deleted_at ELSE updated_at END)
                  FROM memories
                 WHERE space_id IN {SPACES}""",
            project=project,
        ).fetchone()
        sessions, held = self._execute(
            """SELECT count(*),
                      max(CASE WHEN ended_at > started_at THEN ended_at ELSE started_at END)
                 FROM sessions
                WHERE project = :project""",
            project=project,
        ).fetchone()
        return Listed(
            project=project,
            memories=memories,
            sessions=sessions,
            changed_at=_latest(written, held),
        )

    def extent(self, project: Project) -> Extent:
        memories, deleted = self._execute(
            f"""SELECT count(*), count(deleted_at)
                  FROM memories
                 WHERE space_id IN {SPACES}""",
            project=project,
        ).fetchone()
        ((revisions,),) = self._execute(
            f"""SELECT count(*)
                  FROM memories m
                  JOIN revisions r ON r.memory_id = m.id
                 WHERE m.space_id IN {SPACES}""",
            project=project,
        )
        sessions, shared = self._execute(
            f"""SELECT count(*),
                       count(*) FILTER (WHERE EXISTS (SELECT 1
                                                        FROM memories m
                                                       WHERE m.session_id = sessions.id
                                                             AND m.space_id NOT IN {SPACES}))
                  FROM sessions
                 WHERE project = :project""",
            project=project,
        ).fetchone()
        return Extent(
            memories=memories,
            deleted=deleted,
            revisions=revisions,
            sessions=sessions,
            shared_sessions=shared,
            imported=self._imports.count(project),
        )

    def has_global(self, project: Project) -> bool:
        row = self._execute(
            f"SELECT 1 FROM spaces s WHERE s.project = :project AND {GLOBAL} AND {HELD} LIMIT 1",
            project=project,
        )
        return row.fetchone() is not None or self._imports.has_global(project)

    def some(self, project: Project, limit: int) -> list[MemoryId]:
        rows = self._newest_live(project, limit) or self._any(project, limit)
        return [id_ for id_, _ in portion(rows, MAX_STEP, lambda row: row[1])]

    def erase_sessions(self, project: Project) -> int:
        # Also of a session that stays.
        self._execute(
            """DELETE FROM transcripts
                WHERE session IN (SELECT number FROM sessions WHERE project = :project)""",
            project=project,
        )
        self._execute(
            """UPDATE sessions
                  SET summary = '', message_count = 0,
                      project = (SELECT s.project
                                   FROM memories m
                                   JOIN spaces s ON s.id = m.space_id
                                  WHERE m.session_id = sessions.id
                               ORDER BY m.id
                                  LIMIT 1)
                WHERE project = :project
                      AND EXISTS (SELECT 1 FROM memories WHERE session_id = sessions.id)""",
            project=project,
        )
        sessions = self._execute("DELETE FROM sessions WHERE project = :project", project=project)
        self._execute("DELETE FROM spaces WHERE project = :project", project=project)
        return sessions.rowcount

    def _newest_live(self, project: Project, limit: int) -> list[tuple[MemoryId, int]]:
        """Nothing that stays borrows from the newest: those that would come after them."""
        rows = self._execute(
            f"""SELECT m.id, length(m.content)
                 FROM spaces s
                 JOIN memories m
                   ON m.id IN (SELECT n.id
                                 FROM memories n {self._sql.hint("memories_in_space")}
                                WHERE n.space_id = s.id AND n.deleted_at IS NULL
                             ORDER BY n.id DESC
                                LIMIT :limit)
                WHERE s.project = :project
             ORDER BY m.id DESC
                LIMIT :limit""",
            project=project,
            limit=limit,
        )
        return rows.fetchall()

    def _any(self, project: Project, limit: int) -> list[tuple[MemoryId, int]]:
        rows = self._execute(
            f"""SELECT id, length(content)
                  FROM memories {self._sql.hint("memories_by_hash")}
                 WHERE space_id IN {SPACES}
                 LIMIT :limit""",
            project=project,
            limit=limit,
        )
        return rows.fetchall()


def _latest(*instants: int | None) -> datetime | None:
    known = [at for at in instants if at is not None]
    return instant(max(known)) if known else None
