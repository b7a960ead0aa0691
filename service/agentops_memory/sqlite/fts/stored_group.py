"""SQL that reads of a partition what is held in memory: counts of rows, and entries of projects."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence

from ...engine.shared.stems import Stems
from ...errors import Damaged
from ...memory.model.bm25 import Totals
from ...memory.model.memory import MemoryId
from ...recall.index_cache.area import Entry, once
from ...recall.index_cache.rows import AREA, span_of
from ...recall.text.columns import Columns
from ..base.connection import known_stems
from ..base.dialect import SqliteTable
from .queries import in_columns
from .segments import numbers
from .tables import OWN_COLUMNS, table

AT_ONCE = 64  # memories whose words are stemmed together
FIELDS = len(Columns._fields)
TOTALS = 1  # the row of FTS5's data that counts rows, and words by column


class StoredGroup(SqliteTable):
    """A partition in one transaction."""

    def __init__(self, connection: sqlite3.Connection, number: int) -> None:
        super().__init__(connection)
        self._partition = number

    @property
    def version(self) -> int:
        return self._number(
            "SELECT version FROM partitions WHERE number = :number", number=self._partition
        )

    def totals(self) -> Totals:
        name = table(self._partition)
        row = self._execute(f"SELECT block FROM {name}_data WHERE id = {TOTALS}").fetchone()
        rows, *words = numbers(row[0]) if row else (0,)
        return Totals(rows, sum(words))

    def having(self, words: Collection[str], *, own: bool) -> Sequence[int]:
        name, quoted = table(self._partition), [f'"{word}"' for word in words]
        matches = [in_columns(OWN_COLUMNS, it) for it in quoted] if own else quoted
        ((counts,),) = self._execute(
            f"""SELECT json_group_array((SELECT count(*)
                                           FROM {name}
                                          WHERE {name} MATCH wanted.value))
                  FROM json_each(:matches) wanted""",
            matches=json.dumps(matches),
        )
        found: list[int] = json.loads(counts)
        return found

    def memories(self, area: int) -> int:
        """How many memories of an area are in the index."""
        first, last = span_of(area)
        return self._number(
            f"""SELECT count(*)
                  FROM {table(self._partition)}_docsize
                 WHERE id BETWEEN :first AND :last""",
            first=first,
            last=last,
        )

    def entries(self, area: int) -> Iterator[tuple[MemoryId, Entry]]:
        """The entries of an area's memories, made from their texts as they were when put in.

        Raises Damaged where the index holds others.
        """
        if not self._number("SELECT rules = own_rules() FROM index_rules"):
            raise Damaged("The index was made by other rules.")
        rows = self._connection.execute(
            f"""SELECT t.id, t.title, t.content, t.context, t.tags, stored.sz
                  FROM memory_text t
                  LEFT JOIN {table(self._partition)}_docsize stored
                    ON stored.id = (:area << {AREA}) | t.id
                 WHERE t.area = :area""",
            {"area": area},
        )
        stems, count = known_stems(self._connection), 0
        while some := rows.fetchmany(AT_ONCE):
            said = stems.of_texts([text for _, *texts, _ in some for text in texts])
            for at, (id_, *_, stored) in enumerate(some):
                texts = said[at * FIELDS : (at + 1) * FIELDS]
                if stored is None or [*numbers(stored)] != [*map(len, texts)]:
                    raise Damaged("The index does not hold what the memories say.")
                yield id_, _entry(texts)
            count += len(some)
        if count != self.memories(area):
            raise Damaged("The index does not hold what the memories say.")


def entry_of(stems: Stems, said: Columns) -> Entry:
    """The entry of a memory that is indexed with these columns."""
    return _entry(stems.of_texts(said))


def _entry(texts: Sequence[Sequence[str]]) -> Entry:
    stems: dict[str, int] = {}
    for field, words in enumerate(texts):
        unit = once(field)
        for stem in words:
            stems[stem] = stems.get(stem, 0) + unit
    return Entry(sum(map(len, texts)), stems)
