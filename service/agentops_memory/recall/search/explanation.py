"""What a term adds to a score, taken apart."""

import json
from collections.abc import Collection, Sequence

from ...memory.model.memory import MemoryId
from ...memory.model.search import Field, TermScore
from ...memory.sql.kinds import GLOBAL_AREA
from ...memory.sql.liveness import indexed
from ...memory.sql.table import Table
from ..index_cache.rows import Row, row_number
from .visibility import VisibleRows

ENDLESS = 1e18  # a weight under which BM25 is as good as at its limit
FIELDS = tuple(Field)  # in the order of the columns


def term_score(score: float, limit: float, alone: Sequence[float]) -> TermScore:
    """What a term adds, shared out among the fields.

    For a term whose weighted count is f, BM25 is L * f / (f + K). The counts of
    the fields add up to f, so each is known, in units of K, from the score that
    the field alone would have and from L, the score of endless weights.
    """
    counts = [field / (limit - field) for field in alone]
    shares = {name: count / sum(counts) for name, count in zip(FIELDS, counts, strict=True)}
    return TermScore(score=score, fields=shares)


class Places(Table):
    """Where memories are seen in one transaction."""

    def of(self, ids: Collection[MemoryId], visible: VisibleRows) -> dict[int, dict[MemoryId, Row]]:
        """The memories' row numbers, by the partition in which they are seen."""
        found = self._execute(
            f"""SELECT m.id, s.area, s.partition
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.id IN (SELECT value FROM {self._sql.ids("given")}) AND {indexed("m")}""",
            ids=json.dumps(list(ids)),
        )
        rows: dict[int, dict[MemoryId, Row]] = {}
        for id_, area, partition in found.fetchall():
            row = row_number(area, id_)
            for number in visible.spans if area == GLOBAL_AREA else (partition,):
                if any(first <= row <= last for first, last in visible.spans.get(number, ())):
                    rows.setdefault(number, {})[id_] = row
        return rows
