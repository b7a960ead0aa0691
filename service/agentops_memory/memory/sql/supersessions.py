"""SQL for supersession: the links between memories and those that they replace."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from ..model.memory import Links, MemoryId
from .liveness import live, undeleted
from .table import FilteredTable


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
            for newer, older in groupby(rows, key=itemgetter(0))
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
