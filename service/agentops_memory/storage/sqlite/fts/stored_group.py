"""SQL that reads of a partition how often stems stand in which row."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp

from ....domain.model.bm25 import K1, LEAST_IDF, Totals
from ....domain.model.memory import MemoryId
from ...index_cache.group import Found, Packed, once
from ...index_cache.rows import ID, span_of
from ..base.dialect import SqliteTable
from .queries import in_columns, weighted
from .segments import numbers
from .tables import OWN_COLUMNS, table

TOTALS = 1  # the row of FTS5's data that counts rows, and words by column
TITLE, CONTENT, CONTEXT, TAGS = map(once, range(4))

# FTS5 tells of counts through BM25 alone. With weights so small, what it makes of two fields
# are the digits of a number; with an endless one, it is what the stem is worth.
_UNIT, _DIGIT = 2.0**-50, 1 << 20
_WEIGHTS = (
    (_UNIT, 0.0, 0.0, _UNIT * _DIGIT),
    (0.0, _UNIT, _UNIT * _DIGIT, 0.0),
    (1e18, 1e18, 1e18, 1e18),
)


class StoredGroup(SqliteTable):
    """A partition in one transaction.

    What is read comes as one row: row by row, searches side by side hold each other up more.
    """

    def __init__(self, connection: sqlite3.Connection, number: int) -> None:
        super().__init__(connection)
        self._number_of_partition = number

    def totals(self) -> Totals:
        name = table(self._number_of_partition)
        row = self._execute(f"SELECT block FROM {name}_data WHERE id = {TOTALS}").fetchone()
        rows, *words = numbers(row[0]) if row else (0,)
        return Totals(rows, sum(words))

    def lengths(self, area: int) -> dict[MemoryId, int]:
        first, last = span_of(area)
        ((ids, sizes),) = self._execute(
            f"""SELECT json_group_array(id & {ID}), json_group_array(hex(sz))
                  FROM {table(self._number_of_partition)}_docsize
                 WHERE id BETWEEN :first AND :last""",
            first=first,
            last=last,
        )
        lengths = (sum(numbers(bytes.fromhex(size))) for size in json.loads(sizes))
        return dict(zip(json.loads(ids), lengths, strict=True))

    def found(
        self, words: Collection[str], area: int, totals: Totals, lengths: Mapping[MemoryId, int]
    ) -> Mapping[str, Found]:
        name = table(self._number_of_partition)
        scores = ", ".join(
            f"{weighted(name, weights)} AS score_{at}" for at, weights in enumerate(_WEIGHTS)
        )
        first, last = span_of(area)
        ((rows,),) = self._execute(
            f"""SELECT json_group_array(json_array(word, id, score_0, score_1, score_2))
                  FROM (SELECT wanted.value AS word, {name}.rowid & {ID} AS id, {scores}
                          FROM json_each(:words) wanted
                         CROSS JOIN {name}
                         WHERE {name} MATCH '"' || wanted.value || '"'
                               AND {name}.rowid BETWEEN :first AND :last
                         LIMIT -1)""",
            words=json.dumps(list(words)),
            first=first,
            last=last,
        )
        counts: dict[str, dict[MemoryId, Packed]] = {}
        worth: dict[str, float] = {}
        norms = totals.norms(lengths.values())
        for word, id_, score, other, most in json.loads(rows):
            norm = norms[lengths[id_]]
            tags, title = divmod(_number(score / most, norm), _DIGIT)
            context, content = divmod(_number(other / most, norm), _DIGIT)
            packed = title * TITLE + content * CONTENT + context * CONTEXT + tags * TAGS
            counts.setdefault(word, {})[id_] = packed
            worth[word] = most / -(K1 + 1)
        having = {word: _having(idf, totals) for word, idf in worth.items() if idf > LEAST_IDF * 2}
        common = [word for word in worth if word not in having]
        having.update(zip(common, self._counts(map(_quoted, common)), strict=True))
        return {word: Found(having[word], it) for word, it in counts.items()}

    def having_own(self, words: Sequence[str]) -> Sequence[int]:
        return self._counts(in_columns(OWN_COLUMNS, _quoted(word)) for word in words)

    def _counts(self, matches: Iterable[str]) -> list[int]:
        """How many rows match each."""
        name = table(self._number_of_partition)
        ((counts,),) = self._execute(
            f"""SELECT json_group_array((SELECT count(*)
                                           FROM {name}
                                          WHERE {name} MATCH wanted.value))
                  FROM json_each(:matches) wanted""",
            matches=json.dumps(list(matches)),
        )
        found: list[int] = json.loads(counts)
        return found


def _number(share: float, norm: float) -> int:
    """What weighs so little that it has this share of a score without end."""
    return round(share * norm / (1 - share) / _UNIT)


def _having(idf: float, totals: Totals) -> int:
    """How many of the rows have a stem that is worth this."""
    odds = exp(idf)
    return round((totals.rows + 0.5 - 0.5 * odds) / (odds + 1))


def _quoted(word: str) -> str:
    return f'"{word}"'
