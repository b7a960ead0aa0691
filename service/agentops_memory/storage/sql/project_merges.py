"""SQL for two projects that become one, and for one that takes another name."""

from ...domain.model.access import Patterns
from ...domain.model.memory import MemoryId
from ...domain.model.space import Project
from .imports import Imports
from .index import GLOBAL_AREA, Index
from .table import Connection, Dialect, FilteredTable

# The spaces of a project.
SPACES = "(SELECT id FROM spaces WHERE project = :project)"
# Spaces of two projects that have the same scope.
TWINS = """SELECT s.id AS source, t.id AS target
             FROM spaces s
             JOIN spaces t ON t.project = :into AND t.scope = s.scope
            WHERE s.project = :project"""


class ProjectMerges(FilteredTable):
    """How projects are renamed and merged in one transaction."""

    def __init__(
        self,
        connection: Connection,
        dialect: Dialect,
        projects: Patterns,
        index: Index,
        imports: Imports,
    ) -> None:
        super().__init__(connection, dialect, projects)
        self._index = index
        self._imports = imports

    def rename(self, project: Project, new: Project) -> None:
        # What the new name still has are spaces without memories.
        self._execute("DELETE FROM spaces WHERE project = :new", new=new)
        for table in ("spaces", "sessions"):
            self._execute(
                f"UPDATE {table} SET project = :new WHERE project = :project",
                project=project,
                new=new,
            )
        self._imports.move(project, new)

    def same_keys(self, project: Project, into: Project) -> list[tuple[MemoryId, MemoryId]]:
        rows = self._execute(
            f"""SELECT m.id, n.id
                  FROM ({TWINS}) twins
                  JOIN memories m {self._sql.hint("memories_at_key")} ON m.space_id = source
                  JOIN memories n {self._sql.hint("memories_at_key")}
                    ON n.space_id = target AND n.key = m.key
                 WHERE m.key IS NOT NULL AND m.deleted_at IS NULL
                       AND n.key IS NOT NULL AND n.deleted_at IS NULL
              ORDER BY m.id""",
            project=project,
            into=into,
        )
        return [(MemoryId(ours), MemoryId(theirs)) for ours, theirs in rows]

    def merge(self, project: Project, into: Project) -> None:
        source, target = self._place(project), self._place(into)
        affected = self._in_shared_sessions(project, into)
        if source and target:
            affected |= self._in_area(source[0])
        with self._index.moving(sorted(affected)):
            self._move_memories(project, into)
            self._move_spaces(project, into, target)
            self._execute(
                "UPDATE sessions SET project = :into WHERE project = :project",
                project=project,
                into=into,
            )
        self._imports.move(project, into)
        if source and target:
            self._index.merge_area(*source, into=target[0])

    def _place(self, project: Project) -> tuple[int, int] | None:
        """The area and the partition of the project's own memories, if it ever had one."""
        place: tuple[int, int] | None = self._execute(
            f"""SELECT area, partition
                  FROM spaces
                 WHERE project = :project AND area <> {GLOBAL_AREA}
                 LIMIT 1""",
            project=project,
        ).fetchone()
        return place

    def _in_area(self, area: int) -> set[MemoryId]:
        rows = self._execute(
            f"""SELECT m.id
                 FROM spaces s
                 JOIN memories m {self._sql.hint("memories_in_space")} ON m.space_id = s.id
                WHERE s.area = :area AND m.deleted_at IS NULL""",
            area=area,
        )
        return {MemoryId(id_) for (id_,) in rows}

    def _in_shared_sessions(self, project: Project, into: Project) -> set[MemoryId]:
        """The memories of both that lie in a session and a scope with some of the other."""
        in_session = self._sql.hint("memories_in_session")
        rows = self._execute(
            f"""  WITH twins AS ({TWINS}),
                       shared AS (
                           SELECT DISTINCT m.session_id, source, target
                             FROM twins
                             JOIN memories m {self._sql.hint("memories_in_space")}
                               ON m.space_id = source
                            WHERE m.deleted_at IS NULL
                                  AND EXISTS (SELECT 1
                                                FROM memories n {in_session}
                                               WHERE n.session_id = m.session_id
                                                     AND n.space_id = target
                                                     AND n.deleted_at IS NULL))
                SELECT m.id
                  FROM shared
                  JOIN memories m {in_session}
                    ON m.session_id = shared.session_id AND m.space_id IN (source, target)
                 WHERE m.deleted_at IS NULL""",
            project=project,
            into=into,
        )
        return {MemoryId(id_) for (id_,) in rows}

    def _move_memories(self, project: Project, into: Project) -> None:
        """Move what lies in a scope that both projects have; the spaces that it leaves go."""
        twins = self._execute(TWINS, project=project, into=into).fetchall()
        for source, target in twins:
            self._execute(
                "UPDATE memories SET space_id = :target WHERE space_id = :source",
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
        self._execute(
            "UPDATE spaces SET project = :into WHERE project = :project",
            project=project,
            into=into,
        )
