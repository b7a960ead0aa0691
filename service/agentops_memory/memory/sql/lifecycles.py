"""SQL for lifecycles: pins, the sweep of what has expired, and what supersedes what."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from ..model.erasure import MAX_STEP
from ..model.memory import Links, MemoryId
from ..model.space import GLOBAL_SCOPE, Project, Space
from .liveness import ENDED, RETURNED, UNSWEPT, live, undeleted
from .rows import portion, reads
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


@reads("supersessions")
def _uid(newer: int, uid: str) -> tuple[int, str]:
    return newer, uid


@dataclass(eq=False)
class SupersessionTable(FilteredTable):
    """Links from newer memories to those that they supersede."""

    def of(self, memories: Collection[MemoryId]) -> dict[MemoryId, Links]:
        """The links of memories; one without any is left out."""
        rows = self._execute(
            f"""SELECT given.value, older_id, NULL
                  FROM {self._sql.ids("given")}
                  JOIN supersessions ON newer_id = given.value
                  JOIN memories m ON m.id = older_id
                 WHERE {undeleted("m")}
                 UNION ALL
                SELECT given.value, NULL, newer_id
                  FROM {self._sql.ids("given")}
                  JOIN supersessions ON older_id = given.value
                  JOIN memories m ON m.id = newer_id
                 WHERE {live("m")}
              ORDER BY 1, 2, 3""",
            ids=json.dumps(list(memories)),
            **self._moment.values,
        ).fetchall()
        return {
            memory: Links(
                supersedes=tuple(MemoryId(it) for id_, it, _ in rows if id_ == memory and it),
                superseded_by=tuple(MemoryId(it) for id_, _, it in rows if id_ == memory and it),
            )
            for memory in {id_ for id_, _, _ in rows}
        }

    def uids(self, memories: Collection[MemoryId]) -> dict[MemoryId, tuple[str, ...]]:
        """The stable ids of the live memories that these supersede, in the order of ids."""
        rows = self._execute(
            f"""SELECT newer_id, m.uid
                  FROM {self._sql.ids("given")}
                  JOIN supersessions ON newer_id = given.value
                  JOIN memories m ON m.id = older_id
                 WHERE {live("m")}
              ORDER BY newer_id, older_id""",
            ids=json.dumps(list(memories)),
            **self._moment.values,
        )
        return {
            MemoryId(newer): tuple(uid for _, uid in older)
            for newer, older in groupby(self._intact(rows, _uid), key=itemgetter(0))
        }

    def add(self, newer: MemoryId, older: Iterable[MemoryId]) -> int:
        """Link a memory to those that it supersedes; how many of the links are new."""
        rows = [{"newer": newer, "older": it, **self._moment.values} for it in older]
        return self._connection.executemany(
            """INSERT INTO supersessions (newer_id, older_id, at)
               VALUES (:newer, :older, :now)
                   ON CONFLICT DO NOTHING""",
            rows,
        ).rowcount

    def clear(self, newer: MemoryId, but: Collection[MemoryId]) -> None:
        """Remove the links to all memories that are not among `but`."""
        self._execute(
            f"""DELETE FROM supersessions
                 WHERE newer_id = :newer
                       AND older_id NOT IN (SELECT value FROM {self._sql.ids("kept")})""",
            newer=newer,
            ids=json.dumps(list(but)),
        )

    def leads(self, memories: Collection[MemoryId], to: MemoryId) -> bool:
        """Whether the links lead from one of the memories to another, also by deleted ones."""
        return self._exists(
            f"""WITH RECURSIVE reached (id) AS (
                    SELECT value FROM {self._sql.ids("given")}
                     UNION
                    SELECT older_id FROM supersessions JOIN reached ON newer_id = id)
                SELECT 1 FROM reached WHERE id = :to LIMIT 1""",
            ids=json.dumps(list(memories)),
            to=to,
        )
