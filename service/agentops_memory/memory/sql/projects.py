"""SQL for projects as a whole: what they hold, and how one is renamed, merged and erased."""

from dataclasses import dataclass
from datetime import datetime

from ..model.agent_memory import Tier
from ..model.erasure import MAX_STEP
from ..model.memory import MemoryId
from ..model.space import Extent, Listed, Project, RowCounts
from .kinds import GLOBAL_AREA, OF_A_PROJECT, place_of
from .liveness import indexed, live, undeleted
from .rows import instant, portion
from .table import GLOBAL, FilteredTable, Index

# The spaces of a project.
SPACES = "(SELECT id FROM spaces WHERE project = :project)"
# Spaces of two projects that have the same scope.
TWINS = """SELECT s.id AS source, t.id AS target
             FROM spaces s
             JOIN spaces t ON t.project = :into AND t.scope = s.scope
            WHERE s.project = :project"""
# Whether a space has memories, live or deleted.
HELD = "EXISTS (SELECT 1 FROM memories WHERE space_id = s.id)"


@dataclass(eq=False)
class ProjectTable(FilteredTable):
    """Whole projects: live and soft-deleted memories, revisions, sessions and spaces."""

    _index: Index

    def names(self) -> list[Project]:
        """The names of non-empty projects, sorted."""
        return self._texts(
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

    def rows(self) -> RowCounts:
        """The row counts of the database, whoever the caller is."""
        return RowCounts(*self._execute(_ROWS, **self._moment.values).fetchone())

    def listed(self, project: Project) -> Listed:
        """A project's entry in a list."""
        memories, written = self._execute(
            f"""SELECT count(*) FILTER (WHERE {live("memories")}),
                       max(CASE WHEN deleted_at > updated_at THEN deleted_at ELSE updated_at END)
                  FROM memories
                 WHERE space_id IN {SPACES}""",
            project=project,
            **self._moment.values,
        ).fetchone()
        sessions, held = self._execute(
            """SELECT count(*),
                      max(CASE WHEN ended_at > started_at THEN ended_at ELSE started_at END)
                 FROM sessions
                WHERE project = :project""",
            project=project,
        ).fetchone()
        return Listed(
            project=project, memories=memories, sessions=sessions, changed_at=_latest(written, held)
        )

    def extent(self, project: Project) -> Extent:
        """The counts of what the project holds."""
        memories, deleted = self._execute(
            f"SELECT count(*), count(deleted_at) FROM memories WHERE space_id IN {SPACES}",
            project=project,
        ).fetchone()
        revisions = self._number(
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
        )

    def has_global(self, project: Project) -> bool:
        """Whether there are global memories among its own, live or deleted."""
        return self._exists(
            f"SELECT 1 FROM spaces s WHERE s.project = :project AND {GLOBAL} AND {HELD} LIMIT 1",
            project=project,
        )

    def some(self, project: Project, limit: int) -> list[MemoryId]:
        """A batch of memories to erase: the newest live ones, then deleted ones.

        No other memory borrows context from them. Fewer than the limit if they are long.
        """
        rows = self._newest_live(project, limit) or self._any(project, limit)
        return [id_ for id_, _ in portion(rows, MAX_STEP, lambda row: row[1])]

    def erase_sessions(self, project: Project) -> int:
        # Also of a session that stays.
        """Remove the sessions and the spaces of a project without memories; how many sessions.

        One in which other projects have memories stays, without its summary: it goes
        to the project of the oldest of them.
        """
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

    def rename(self, project: Project, new: Project) -> None:
        # What the new name still has are spaces without memories.
        """Rename a project; the new name must be unused."""
        self._execute("DELETE FROM spaces WHERE project = :new", new=new)
        self._rename_in("spaces", project, new)
        self._rename_in("sessions", project, new)

    def same_keys(self, project: Project, into: Project) -> list[tuple[MemoryId, MemoryId]]:
        """Pairs of live memories of the two projects that share a scope and key."""
        rows = self._execute(
            f"""SELECT m.id, n.id
                  FROM ({TWINS}) twins
                  JOIN memories m {self._sql.hint("memories_at_key")} ON m.space_id = source
                  JOIN memories n {self._sql.hint("memories_at_key")}
                    ON n.space_id = target AND n.key = m.key
                 WHERE m.key IS NOT NULL AND {live("m")}
                       AND n.key IS NOT NULL AND {live("n")}
              ORDER BY m.id""",
            project=project,
            into=into,
            **self._moment.values,
        )
        return [(MemoryId(ours), MemoryId(theirs)) for ours, theirs in rows]

    def merge(self, project: Project, into: Project) -> None:
        """Move everything of a project into another; no key may conflict."""
        source, target = place_of(self._connection, project), place_of(self._connection, into)
        affected = self._in_shared_sessions(project, into)
        if source and target:
            affected |= self._in_area(source[0])
        with self._index.moving(sorted(affected)):
            self._move_memories(project, into)
            self._move_spaces(project, into, target)
            self._rename_in("sessions", project, into)
        if source and target:
            self._index.merge_area(*source)

    def _newest_live(self, project: Project, limit: int) -> list[tuple[MemoryId, int]]:
        """Nothing that stays borrows from the newest: those that would come after them."""
        newest = f"""SELECT n.id
                       FROM memories n {self._sql.hint("memories_in_space")}
                      WHERE n.space_id = s.id AND {undeleted("n")}
                   ORDER BY n.id DESC
                      LIMIT :limit"""
        rows = self._execute(
            f"""SELECT m.id, length(m.content)
                 FROM spaces s
                      {self._sql.each(newest)}
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

    def _in_area(self, area: int) -> set[MemoryId]:
        ids = self._scalars(
            f"""SELECT m.id
                 FROM spaces s
                 JOIN memories m {self._sql.hint("memories_in_space")} ON m.space_id = s.id
                WHERE s.area = :area AND {indexed("m")}""",
            area=area,
        )
        return set(ids)

    def _in_shared_sessions(self, project: Project, into: Project) -> set[MemoryId]:
        """The memories of both that lie in a session and a scope with some of the other."""
        in_session = self._sql.hint("memories_in_session")
        ids = self._scalars(
            f"""  WITH twins AS ({TWINS}),
                       shared AS (
                           SELECT DISTINCT m.session_id, source, target
                             FROM twins
                             JOIN memories m {self._sql.hint("memories_in_space")}
                               ON m.space_id = source
                            WHERE {indexed("m")}
                                  AND EXISTS (SELECT 1
                                                FROM memories n {in_session}
                                               WHERE n.session_id = m.session_id
                                                     AND n.space_id = target
                                                     AND {indexed("n")}))
                SELECT m.id
                  FROM shared
                  JOIN memories m {in_session}
                    ON m.session_id = shared.session_id AND m.space_id IN (source, target)
                 WHERE {indexed("m")}""",
            project=project,
            into=into,
        )
        return set(ids)

    def _move_memories(self, project: Project, into: Project) -> None:
        """Move what lies in a scope that both projects have; the spaces that it leaves go."""
        twins = self._execute(TWINS, project=project, into=into).fetchall()
        for source, target in twins:
            for table in ("memories", "lifecycles"):
                self._execute(
                    f"UPDATE {table} SET space_id = :target WHERE space_id = :source",
                    source=source,
                    target=target,
                )
            self._execute("DELETE FROM spaces WHERE id = :source", source=source)

    def _move_spaces(self, project: Project, into: Project, place: tuple[int, int] | None) -> None:
        """Give a project the spaces in scopes that it has not; they take its area if it has one."""
        if place is not None:
            area, partition = place
            self._execute(
                f"""UPDATE spaces
                       SET area = :area, partition = :partition
                     WHERE project = :project AND area <> {GLOBAL_AREA}""",
                area=area,
                partition=partition,
                project=project,
            )
        self._rename_in("spaces", project, into)

    def _rename_in(self, table: str, project: Project, new: Project) -> None:
        self._execute(
            f"UPDATE {table} SET project = :new WHERE project = :project", project=project, new=new
        )


_BESIDE = f"SELECT count(*) FROM lifecycles JOIN memories m ON m.id = memory_id WHERE {live('m')}"
_ROWS = f"""
    SELECT (SELECT count(*) FROM memories),
           (SELECT count(*) FROM revisions),
           (SELECT count(*) FROM sessions),
           (SELECT count(*) FROM sessions WHERE ended_at IS NULL),
           ({_BESIDE} AND pinned_at IS NOT NULL),
           ({_BESIDE} AND review_at <= :now),
           (SELECT count(*) FROM agent_memories WHERE tier = '{Tier.WORKING}'),
           (SELECT count(*) FROM agent_memories WHERE tier = '{Tier.EPISODIC}'),
           (SELECT count(*) FROM agent_memories WHERE tier = '{Tier.SEMANTIC}'),
           (SELECT count(*) FROM ref_entries),
           (SELECT count(*) FROM runs),
           (SELECT count(*) FROM runs WHERE ended_at IS NULL)"""


def _latest(*instants: int | None) -> datetime | None:
    known = [at for at in instants if at is not None]
    return instant(max(known)) if known else None
