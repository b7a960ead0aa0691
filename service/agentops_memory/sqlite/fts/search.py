"""Recall by FTS5 and its BM25, or by what is in memory of its index."""

import json
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from ...errors import Damaged, TimedOut
from ...memory.model.bm25 import Totals
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import NAMED, SAID, Scored, combined
from ...memory.model.search import TermScore
from ...memory.sql.memories import MemoryLists
from ...recall.inverted_index.cache import DatabaseIndex
from ...recall.inverted_index.group import Lookup
from ...recall.inverted_index.ranking import Ranking
from ...recall.search.query import IndexQuery
from ...recall.search.ranker import (
    FoundWords,
    Ranker,
    Shown,
    sentences,
)
from ...recall.search.rows import Row, memory_of
from ...recall.search.search import Search
from ...recall.search.visibility import Span, Visibility, VisibleRows
from ...recall.text.query import Corrections, Term
from ..base.connection import READ_LIMIT, interrupt_at, known_stems
from ..base.dialect import SQLITE, SqliteTable
from ..base.errors import is_damage, primary_code
from .cached_index import CachedIndex
from .partitions import Vocabularies, numbers, table
from .queries import Scores, any_of

# By FTS5's own scores, what a word is worth would tell of all that share a partition.
WEIGHTS = {"{title tags}": NAMED, "content": SAID}


class AloneWords(SqliteTable):
    """The words of a transaction's queries that are weighed within one area alone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._found: dict[tuple[int, Span, tuple[Term, ...]], FoundWords] = {}

    def of(self, query: IndexQuery) -> FoundWords | None:
        """None where nothing was ever stored."""
        if not query.visible.spans:
            return None
        ((number, (span,)),) = query.visible.spans.items()
        key = number, span, tuple(dict.fromkeys(query.terms))
        if key not in self._found:  # both tiers of a search ask for the same
            self._found[key] = self._look(*key)
        return self._found[key]

    def _look(self, number: int, span: Span, terms: Sequence[Term]) -> FoundWords:
        name, (first, last) = table(number), span
        asked = [(term, field) for term in terms for field in WEIGHTS]
        found = self._execute(
            f"""SELECT wanted.key, t.rowid
                  FROM json_each(:matches) wanted
                 CROSS JOIN {name} t
                 WHERE {name} MATCH wanted.value AND t.rowid BETWEEN :first AND :last""",
            matches=json.dumps([f"{field} : {any_of([term])}" for term, field in asked]),
            first=first,
            last=last,
        )
        often: dict[Term, dict[MemoryId, float]] = {term: {} for term in terms}
        rows: set[int] = set()
        for key, row in found:
            (term, field), memory = asked[key], memory_of(row)
            often[term][memory] = often[term].get(memory, 0.0) + WEIGHTS[field]
            rows.add(row)
        sizes = self._execute(
            f"SELECT id, sz FROM {name}_docsize WHERE id IN (SELECT value FROM json_each(:ids))",
            ids=json.dumps(list(rows)),
        )
        lengths = {memory_of(row): sum(numbers(size)) for row, size in sizes}
        if len(lengths) < len(rows):
            raise Damaged("The index lacks the lengths of some rows.")
        count = self._number(
            f"SELECT count(*) FROM {name}_docsize WHERE id BETWEEN :first AND :last",
            first=first,
            last=last,
        )
        having = {term: len(it) for term, it in often.items()}
        return FoundWords(Totals.alone(count), often, having, lengths)


AFTERWARDS = timedelta(seconds=1)  # left of a read for what it does when words took too long


class SqliteSearch(Search):
    def __init__(
        self,
        connection: sqlite3.Connection,
        memories: MemoryLists,
        visibility: Visibility,
        index: DatabaseIndex | None,
        begun: float,
    ) -> None:
        self.met_damage = False  # where something else could stand in
        self._connection = connection
        self._end = begun + READ_LIMIT.total_seconds()
        self._stored = Scores(connection)
        cached, shown = CachedIndex(connection, index), Shown(connection, SQLITE)
        super().__init__(
            memories,
            visibility,
            Ranker(_Words(connection, self._stored, cached, shown), shown),
            shown,
            known_stems(connection),
        )
        self._cached = cached

    @contextmanager
    def within(self, timeout: timedelta) -> Iterator[None]:
        latest = self._end - AFTERWARDS.total_seconds()
        end = min(time.monotonic() + timeout.total_seconds(), latest)
        interrupt_at(self._connection, end)
        try:
            yield
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                self.met_damage = True
                raise Damaged("Words cannot be looked for.") from error
            if primary_code(error) != sqlite3.SQLITE_INTERRUPT:
                raise
            raise TimedOut("Looking for words took too long.") from error
        finally:
            interrupt_at(self._connection, self._end)

    def _corrections(self, forms: Mapping[str, str], visible: VisibleRows) -> Corrections:
        with self._cached.of(visible) as found:
            if found is not None:
                group, parts = found
                ranking, stem_of = Ranking(parts, group.vocabulary), self._stems.of(forms)
                stems = {it: group.vocabulary.number(stem_of[it]) for it in forms}
                ranking.look_up(stems.values())
                known = ranking.known(stems.values())
                return ranking.corrections(it for it in forms.items() if stems[it[0]] not in known)
        return super()._corrections(forms, visible)

    def _stems_near(self, forms: Collection[str], visible: VisibleRows) -> list[str]:
        vocabularies, letters = Vocabularies(self._connection), {form[0] for form in forms}
        return [it for number in visible.spans for it in vocabularies.stems(number, letters)]

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        return self._stored.counts(terms, visible, most)

    def _scores(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> tuple[list[list[Scored]], dict[MemoryId, dict[Term, TermScore]]]:
        return self._stored.best(query, number), self._stored.of_terms(query, number, terms, rows)


class _Words:
    def __init__(
        self, connection: sqlite3.Connection, scores: Scores, cached: CachedIndex, shown: Shown
    ) -> None:
        self._stems = known_stems(connection)
        self._scores = scores
        self._alone = AloneWords(connection)
        self._cached = cached
        self._shown = shown

    @contextmanager
    def found(self, query: IndexQuery) -> Iterator[tuple[Lookup, Lookup] | None]:
        terms = query.terms
        stem_of = self._stems.of([term.text for term in terms])
        if not all(stem_of.values()) or any(term.starts for term in terms):
            yield None
            return
        with self._cached.of(query.visible) as found:
            if found is None:
                yield None
                return
            group, parts = found
            stems = {text: group.vocabulary.number(it) for text, it in stem_of.items()}
            lookup = Lookup(parts, stems, own=query.own)
            yield lookup, lookup

    def best(self, query: IndexQuery) -> list[Scored]:
        weights = query.sentence_weights
        if query.visible.is_alone:
            found = self._alone.of(query)
            return combined(sentences(query, found, self._shown), weights) if found else []
        stored = [combined(self._scores.best(query, it), weights) for it in query.visible.spans]
        return stored[0] if len(stored) == 1 else sorted(it for each in stored for it in each)
