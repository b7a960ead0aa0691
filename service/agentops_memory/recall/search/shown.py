"""SQL of what a ranking asks beside words: which memories are shown, and which follow which."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from ...memory.model.memory import MemoryId
from ...memory.sql.liveness import indexed
from ...memory.sql.table import Table
from .visibility import VisibleRows


class Shown(Table):
    """What one transaction sees. Rows come as one: many would hold up other readers more."""

    def among(self, ids: Collection[MemoryId], visible: VisibleRows) -> frozenset[MemoryId]:
        """Those of the memories that the conditions leave in."""
        hidden = "".join(f" AND NOT {hides('m.id')}" for hides in visible.hidden)
        ((shown,),) = self._execute(
            f"""SELECT {self._sql.gathered("m.id")}
                  FROM {self._sql.ids("wanted")}
                 {self._sql.leads} memories m ON m.id = wanted.value
                 WHERE TRUE{visible.condition}{hidden}""",
            ids=json.dumps(list(ids)),
            **visible.values,
        )
        return frozenset(json.loads(shown))

    def sessions(self, ids: Sequence[MemoryId]) -> dict[MemoryId, str | None]:
        """The session of each memory; in each space it is another."""
        return self._of_each("m.space_id || ' ' || m.session_id", ids)

    def seconds(self, ids: Sequence[MemoryId]) -> dict[MemoryId, MemoryId | None]:
        """The second memory after each in its session, if there is one."""
        second = f"""(SELECT n.id
                        FROM memories n {self._sql.hint("memories_in_session")}
                       WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                             AND {indexed("n")} AND n.id > m.id
                    ORDER BY n.id
                       LIMIT 1 OFFSET 1)"""
        return self._of_each(second, ids) if ids else {}

    def _of_each(self, value: str, ids: Sequence[MemoryId]) -> dict[MemoryId, Any]:
        ((rows,),) = self._execute(
            f"""SELECT {self._sql.gathered("m.id", value)}
                  FROM {self._sql.ids("wanted")}
                 {self._sql.leads} memories m ON m.id = wanted.value""",
            ids=json.dumps(ids),
        )
        return dict(json.loads(rows))
