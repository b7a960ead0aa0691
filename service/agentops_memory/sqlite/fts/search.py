"""Recall by FTS5 and its BM25, or by what is in memory of its index."""

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from ...errors import Damaged, TimedOut
from ...memory.model.bm25 import (
    PiecePostings,
    Place,
    Postings,
    Sums,
    Totals,
    lowest,
    of_any,
    of_every,
)
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import NAMED, SAID, Scored, combined
from ...memory.model.search import Parts, TermScore, Tier
from ...memory.sql.memories import MemoryLists
from ...recall.inverted_index.cache import DatabaseIndex
from ...recall.inverted_index.group import Lookup
from ...recall.inverted_index.ranking import Ranking
from ...recall.search.query import ALL, IndexQuery
from ...recall.search.ranker import (
    ENDLESS,
    FIELDS,
    Places,
    Ranker,
    Shown,
    term_score,
    without_hidden,
)
from ...recall.search.rows import memory_of
from ...recall.search.search import Search
from ...recall.search.visibility import Visibility, VisibleRows
from ...recall.text.query import Corrections, Piece, Query, Term
from ..base.connection import READ_LIMIT, interrupt_at, known_stems
from ..base.dialect import SQLITE, SqliteTable
from ..base.errors import is_damage, primary_code
from .cached_index import CachedIndex
from .partitions import OWN_COLUMNS, Vocabularies, numbers, table
from .queries import Scores, any_of, in_columns, weighted

# By FTS5's own scores, what a word is worth would tell of all that share a partition.
WEIGHTS = {"{title tags}": NAMED, "content": SAID}

Rows = dict[int, float]
"""How often a term stands in each row, by the weights of fields."""

Range = tuple[int, int, int]
"""A partition, and the first and the last row number of a range there."""


class AloneScores(SqliteTable):
    """The scores of one transaction, and what was found for them, for its next query."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._rows: dict[tuple[Range, str], Rows] = {}
        self._found: dict[tuple[tuple[Range, ...], tuple[str, ...]], Found] = {}

    def best(self, query: IndexQuery) -> list[list[Sums]]:
        """What each sentence adds; the whole text is one where every word is looked for."""
        asked = query.query.every if query.tier is Tier.EVERY else query.query.sentences
        terms = {term.text: term for it in asked for term in it.terms}
        ranges = [(number, *it) for number, spans in query.visible.spans.items() for it in spans]
        key = tuple(ranges), tuple(terms)
        if key not in self._found:  # both tiers of a search ask for the same
            self._found[key] = Found(self, ranges, list(terms.values()))
        found = self._found[key]
        if query.tier is Tier.EVERY:
            pieces = found.having_every(query.query.every)
            return [[(of_every(pieces, found.norms), found.memories)]]
        return [
            [(of_any(found.of(it.terms), found.norms), found.memories)]
            for it in query.query.sentences
        ]

    def rows(self, place: Range, terms: Sequence[Term]) -> list[Rows]:
        texts = [_text(it) for it in terms]
        if unknown := [it for it in dict.fromkeys(texts) if (place, it) not in self._rows]:
            self._find(place, unknown)
        return [self._rows[place, it] for it in texts]

    def count(self, place: Range) -> int:
        number, first, last = place
        return self._number(
            f"SELECT count(*) FROM {table(number)}_docsize WHERE id BETWEEN :first AND :last",
            first=first,
            last=last,
        )

    def lengths(self, number: int, rows: Iterable[int]) -> list[int]:
        found = self._execute(
            f"""SELECT d.sz
                  FROM {self._sql.ids("given")}
                  JOIN {table(number)}_docsize d ON d.id = given.value
              ORDER BY given.key""",
            ids=json.dumps(list(rows)),
        )
        return [sum(numbers(size)) for (size,) in found]

    def _find(self, place: Range, texts: Sequence[str]) -> None:
        number, first, last = place
        asked = [(text, field) for text in texts for field in WEIGHTS]
        name, rows = table(number), {text: Rows() for text in texts}
        found = self._execute(
            f"""SELECT wanted.key, t.rowid
                  FROM json_each(:matches) wanted
                 CROSS JOIN {name} t
                 WHERE {name} MATCH wanted.value AND t.rowid BETWEEN :first AND :last""",
            matches=json.dumps([f"{field} : {text}" for text, field in asked]),
            first=first,
            last=last,
        )
        for key, row in found:
            text, field = asked[key]
            rows[text][row] = rows[text].get(row, 0.0) + WEIGHTS[field]
        self._rows |= {(place, text): having for text, having in rows.items()}


class Found:
    def __init__(self, scores: AloneScores, ranges: Sequence[Range], terms: Sequence[Term]) -> None:
        self.memories: list[MemoryId] = []
        self.norms: list[float] = []
        self._postings: dict[str, Postings] = {}
        for place in ranges:
            self._add(scores, place, terms)

    def of(self, terms: Iterable[Term]) -> list[Postings]:
        """What each term adds."""
        return [self._postings[it.text] for it in terms if it.text in self._postings]

    def having_every(self, pieces: Sequence[Piece]) -> list[PiecePostings]:
        """What the pieces add where every one is; nothing is looked at anywhere else."""
        found = [(self.of(it.parts), self.of(it.joined)) for it in pieces]
        matched = [
            _having_all(parts).union(*(it.places for it in joined)) for parts, joined in found
        ]
        places = set.intersection(*matched) if matched else set()
        return [(_among(places, parts), _among(places, joined)) for parts, joined in found]

    def _add(self, scores: AloneScores, place: Range, terms: Sequence[Term]) -> None:
        rows = scores.rows(place, terms)
        places: Mapping[int, int] = {row: at for at, row in enumerate(sorted(set().union(*rows)))}
        totals = Totals.alone(scores.count(place))
        self.memories = [memory_of(row) for row in places]
        self.norms = totals.norms(scores.lengths(place[0], places))
        for term, having in zip(terms, rows, strict=True):
            self._postings[term.text] = Postings(
                totals.idf(len(having)), [places[row] for row in having], list(having.values())
            )


def _having_all(parts: Sequence[Postings]) -> set[Place]:
    return set.intersection(*(set(it.places) for it in parts)) if parts else set()


def _among(places: Collection[Place], postings: Iterable[Postings]) -> list[Postings]:
    kept = [
        (idf, [(at, it) for at, it in zip(there, often, strict=True) if at in places])
        for idf, there, often in postings
    ]
    return [Postings(idf, [at for at, _ in both], [it for _, it in both]) for idf, both in kept]


def _text(term: Term) -> str:
    return f'"{term.text}"' + " *" * term.starts


class Explanations(SqliteTable):
    def __init__(self, connection: sqlite3.Connection, scores: Scores) -> None:
        super().__init__(connection)
        self._scores = scores

    def of(
        self, index_query: IndexQuery, tier: Tier, query: Query, ids: Collection[MemoryId]
    ) -> dict[MemoryId, Parts]:
        """The parts of these memories' scores; a memory that is not visible has none."""
        every = (term for piece in query.every for term in piece.terms)
        terms = list(dict.fromkeys(every if tier is Tier.EVERY else query.terms))
        found: dict[MemoryId, Parts] = {}
        for number, rows in (
            Places(self._connection, self._sql).of(ids, index_query.visible).items()
        ):
            added = self._added(index_query, number, tier, terms, rows)
            sentences: dict[MemoryId, dict[int, float]] = {}
            for at, id_, score in self._scores.of_sentences(index_query, number, rows):
                sentences.setdefault(id_, {})[at] = score
            for id_ in rows:
                counted = sentences.get(id_, {})
                found[id_] = Parts(
                    sentences=tuple(map(counted.get, range(len(index_query.sentence_weights)))),
                    terms=added.get(id_, {}),
                )
        return found

    def _added(
        self,
        index_query: IndexQuery,
        number: int,
        tier: Tier,
        terms: list[Term],
        rows: Mapping[MemoryId, int],
    ) -> dict[MemoryId, dict[Term, TermScore]]:
        name = table(number)
        weights, fields = index_query.weights, range(len(FIELDS))
        alone = [tuple(weights[it] if it == at else 0.0 for it in fields) for at in fields]
        endless = (ENDLESS,) * len(FIELDS)
        scores = ", ".join(weighted(name, it) for it in (weights, endless, *alone))
        found = self._execute(
            f"""SELECT wanted.key, {name}.rowid, {scores}
                  FROM json_each(:matches) wanted
                 CROSS JOIN {name}
                 WHERE {name} MATCH wanted.value AND {name}.rowid BETWEEN :first AND :last
                       AND +{name}.rowid IN (SELECT value FROM json_each(:rows))""",
            matches=json.dumps([_match(tier, term) for term in terms]),
            rows=json.dumps(list(rows.values())),
            first=min(rows.values()),
            last=max(rows.values()),
        )
        ids = {row: id_ for id_, row in rows.items()}
        added: dict[MemoryId, dict[Term, TermScore]] = {}
        for at, row, score, limit, *parts in found:
            added.setdefault(ids[row], {})[terms[at]] = term_score(score, limit, parts)
        return added


def _match(tier: Tier, term: Term) -> str:
    match = any_of([term])
    return in_columns(OWN_COLUMNS, match) if tier is Tier.EVERY else match


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
        self._scores = Scores(connection)
        cached, shown = CachedIndex(connection, index), Shown(connection, SQLITE)
        super().__init__(
            memories,
            visibility,
            Ranker(_Words(connection, self._scores, cached, shown), shown),
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
                stem_of = self._stems.of(forms)
                words = [(word, stem_of[word], form) for word, form in forms.items()]
                group, parts = found
                return Ranking(parts, group.vocabulary).corrections(words)
        return super()._corrections(forms, visible)

    def _stems_from(self, letters: Collection[str], visible: VisibleRows) -> list[str]:
        vocabularies = Vocabularies(self._connection)
        return [it for number in visible.spans for it in vocabularies.stems(number, letters)]

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        return self._scores.counts(terms, visible, most)

    def _explained(
        self, index_query: IndexQuery, tier: Tier, query: Query, ids: Collection[MemoryId]
    ) -> dict[MemoryId, Parts]:
        return Explanations(self._connection, self._scores).of(index_query, tier, query, ids)


class _Words:
    def __init__(
        self, connection: sqlite3.Connection, scores: Scores, cached: CachedIndex, shown: Shown
    ) -> None:
        self._stems = known_stems(connection)
        self._scores = scores
        self._alone = AloneScores(connection)
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
            stems = {text: group.vocabulary.numbers.get(it) for text, it in stem_of.items()}
            lookup = Lookup(parts, stems, own=query.own)
            yield lookup, lookup

    def best(self, query: IndexQuery) -> list[Scored]:
        weights = query.sentence_weights
        if query.visible.is_alone:
            depth = None if query.depth == ALL else query.depth
            sums = without_hidden(self._alone.best(query), query.visible, self._shown)
            return combined([lowest(it, depth) for it in sums], weights)
        stored = [combined(self._scores.best(query, it), weights) for it in query.visible.spans]
        return stored[0] if len(stored) == 1 else sorted(it for each in stored for it in each)
