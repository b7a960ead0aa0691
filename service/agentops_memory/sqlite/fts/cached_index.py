"""The full-text index in memory, as one reading transaction sees it, and how it gets there."""

import json
import logging
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from ...engine.shared.stems import Stems
from ...errors import Damaged
from ...memory.model.bm25 import Totals
from ...memory.model.memory import MemoryId
from ...recall.index_cache.area import Area, Entry, once
from ...recall.index_cache.cache import CachedGroups, Wanted
from ...recall.index_cache.group import Group
from ...recall.index_cache.lookup import Lookup
from ...recall.index_cache.rows import AREA, area_of, span_of
from ...recall.search.visibility import VisibleRows
from ...recall.text.columns import Columns
from ..base.connection import in_snapshot, known_stems
from ..base.dialect import SqliteTable
from .partitions import OWN_COLUMNS, numbers, table
from .queries import in_columns

AT_ONCE = 64  # memories whose words are stemmed together
FIELDS = len(Columns._fields)
TOTALS = 1  # the row of FTS5's data that counts rows, and words by column


class StoredGroup(SqliteTable):
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
    return _entry(stems.of_texts(said))


def _entry(texts: Sequence[Sequence[str]]) -> Entry:
    stems: dict[str, int] = {}
    for field, words in enumerate(texts):
        unit = once(field)
        for stem in words:
            stems[stem] = stems.get(stem, 0) + unit
    return Entry(sum(map(len, texts)), stems)


LONGEST = timedelta(seconds=30)  # that reading a project into memory takes

log = logging.getLogger(__name__)


class _Held(NamedTuple):
    group: Group
    areas: Sequence[Area]
    source: StoredGroup


class CachedIndex(SqliteTable):
    """What is in memory for one transaction, which began at a time of the monotonic clock."""

    def __init__(
        self, connection: sqlite3.Connection, groups: CachedGroups | None, begun: float
    ) -> None:
        super().__init__(connection)
        self._groups = None if groups is None or groups.hold_nothing else groups
        self._begun = begun
        self._versions: dict[int, int] = {}  # of partitions
        self._has_wanted = False

    @contextmanager
    def of(
        self, visible: VisibleRows, stem_of: Mapping[str, str], *, own: bool
    ) -> Iterator[tuple[Lookup, Group] | None]:
        """The words of a query in memory, for one reader; None where it cannot tell all of them."""
        if not all(stem_of.values()):
            yield None
            return
        with self._held(visible) as held:
            if held is not None:
                group, areas, source = held

                def weigh(words: Mapping[str, str]) -> tuple[Totals, Mapping[str, int]]:
                    return group.totals(source), group.having(source, words, own=own)

                yield Lookup(areas, stem_of, weigh, own=own), group
                return
        self._want(visible)
        yield None

    def known(self, visible: VisibleRows, words: Collection[str]) -> Collection[str] | None:
        """The words that a visible memory has; None where memory cannot tell.

        What memories borrow are words that others have among their own.
        """
        with self._held(visible) as held:
            if held is None:
                return None
            stem_of = known_stems(self._connection).of(words)
            return {it for it in words if any(each.has(stem_of[it]) for each in held.areas)}

    def _want(self, visible: VisibleRows) -> None:
        place = _place(visible)
        if place is not None and self._groups is not None and not self._has_wanted:
            self._has_wanted = True  # however many rankings a search needs
            self._groups.want(*place)

    @contextmanager
    def _held(self, visible: VisibleRows) -> Iterator[_Held | None]:
        place = _place(visible)
        if place is None or self._groups is None:
            yield None
            return
        number, areas = place
        source = StoredGroup(self._connection, number)
        if number not in self._versions:
            self._versions[number] = source.version
        of_text = partial(entry_of, known_stems(self._connection))
        with self._groups.reading(number, self._versions[number], self._begun, of_text) as group:
            there = group and group.areas(areas)
            if group and there:
                yield _Held(group, there, source)
                return
        yield None


def load_wanted(database: sqlite3.Connection, groups: CachedGroups) -> None:
    """Read what prompts ask for into memory, if there is anything; when nobody waits for it."""
    with groups.loading() as wanted:
        if wanted is not None:
            try:
                in_snapshot(database, LONGEST, partial(_load, database, groups, wanted))
            except (Damaged, sqlite3.Error) as error:
                log.debug("A project is not held in memory: %s", error)
                groups.refuse(wanted)
            except BaseException:
                groups.refuse(wanted)
                raise


def _load(database: sqlite3.Connection, groups: CachedGroups, wanted: Wanted) -> None:
    begun, stored = time.monotonic(), StoredGroup(database, wanted.number)
    if groups.admit(wanted, stored.memories(wanted.area)):
        version = stored.version
        of_text = partial(entry_of, known_stems(database))
        groups.load(wanted, version, begun, stored.entries(wanted.area), of_text)


def _place(visible: VisibleRows) -> tuple[int, list[int]] | None:
    if len(visible.spans) != 1:
        return None
    ((number, spans),) = visible.spans.items()
    areas = [area_of(first) for first, last in spans if area_of(first) == area_of(last)]
    return (number, areas) if len(areas) == len(spans) else None
