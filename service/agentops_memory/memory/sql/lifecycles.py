"""SQL for lifecycles: how many pins there are, and the sweep of what has expired."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.erasure import MAX_STEP
from ..model.memory import MemoryId
from ..model.space import GLOBAL_SCOPE, Project, Space
from .liveness import ENDED, RETURNED, UNSWEPT, live, undeleted
from .rows import portion
from .table import GLOBAL, FilteredTable, Index

PUT_LIFECYCLE = """
    INSERT INTO lifecycles (memory_id, space_id, held_key, expires_at, pinned_at, review_at,
                            confirmed_at)
    SELECT id, space_id, CASE WHEN key IS NULL THEN :key END, :expires_at, :pinned_at,
           :review_at, :confirmed_at
      FROM memories
     WHERE id = :id
        ON CONFLICT (memory_id) DO UPDATE
       SET held_key = excluded.held_key, expires_at = :expires_at, pinned_at = :pinned_at,
           review_at = :review_at, confirmed_at = :confirmed_at,
           is_swept = lifecycles.is_swept AND coalesce(:expires_at <= :now, FALSE)"""

# One that lies beside the row comes back into it unless another has it: the clock went back.
KEY_IN_ROW = f"""CASE WHEN CAST(:key AS TEXT) IS NOT NULL
                           AND (key IS NOT NULL
                                OR NOT EXISTS (SELECT 1
                                                 FROM memories other
                                                WHERE other.space_id = memories.space_id
                                                      AND other.key = :key
                                                      AND {undeleted("other")}))
                      THEN :key END"""


@dataclass(eq=False)
class LifecycleTable(FilteredTable):
    """The lifecycles of memories, as of the transaction's instant."""

    _index: Index

    def pins(self, space: Space) -> int:
        """The count of live pinned memories of the space's project, or of all global ones."""
        if space.scope == GLOBAL_SCOPE:
            where = GLOBAL
        else:
            where = f"s.project = :project AND NOT ({GLOBAL})"
        return self._number(
            f"""SELECT count(*)
                  FROM spaces s
                 {self._sql.leads} lifecycles l {self._sql.hint("lifecycles_by_pin")}
                       ON l.space_id = s.id
                 {self._sql.leads} memories m ON m.id = l.memory_id
                 WHERE {where} AND l.pinned_at IS NOT NULL AND {live("m")}""",
            project=space.project,
            **self._moment.values,
        )

    def unswept(self, limit: int) -> list[MemoryId]:
        """Expired memories in the index, and those out of it that are not expired any more.

        As many as one step may sweep, at most `limit`.
        """
        rows = self._execute(
            f"""SELECT m.id, length(m.content)
                  FROM (SELECT memory_id
                          FROM lifecycles
                         WHERE {UNSWEPT}
                         UNION ALL
                        SELECT memory_id FROM lifecycles WHERE {RETURNED}
                         LIMIT :limit) due
                 {self._sql.leads} memories m ON m.id = due.memory_id""",
            limit=limit,
            **self._moment.values,
        )
        return [MemoryId(id_) for id_, _ in portion(rows, MAX_STEP, lambda row: row[1])]

    def sweep(self, memories: Sequence[MemoryId]) -> int:
        """Take the expired ones of these memories out of the index, and put the others in.

        How many were taken out.
        """
        return sum(map(self._sweep, memories))

    def _sweep(self, memory: MemoryId) -> int:
        with self._index.updating(memory):
            taken_out = self._scalars(
                f"""UPDATE lifecycles
                      SET is_swept = {ENDED}
                    WHERE memory_id = :id AND is_swept <> ({ENDED})
                RETURNING is_swept""",
                id=memory,
                **self._moment.values,
            )
        return sum(taken_out)

    def release_keys(self, project: Project, into: Project) -> None:
        """Let others take the keys that expired memories of both projects still hold."""
        spaces = "(SELECT id FROM spaces WHERE project IN (:project, :into))"
        values = {"project": project, "into": into, **self._moment.values}
        self._execute(
            f"""UPDATE lifecycles
                   SET held_key = (SELECT coalesce(key, held_key)
                                     FROM memories
                                    WHERE id = memory_id)
                 WHERE space_id IN {spaces} AND {ENDED}""",
            **values,
        )
        self._execute(
            f"""UPDATE memories
                   SET key = NULL
                 WHERE id IN (SELECT memory_id
                                FROM lifecycles
                               WHERE space_id IN {spaces} AND held_key IS NOT NULL)""",
            **values,
        )
