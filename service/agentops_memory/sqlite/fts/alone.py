"""The scores of memories whose words are weighed among themselves: BM25 within a range of rows.

By FTS5's own scores, what a word is worth would tell of all that share a partition.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...memory.model.bm25 import PiecePostings, Place, Postings, Sums, Totals, of_any, of_every
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import NAMED, SAID
from ...memory.model.search import Tier
from ...recall.index_cache.rows import memory_of
from ...recall.search.query import IndexQuery
from ...recall.text.query import Piece, Term
from ..base.dialect import SqliteTable
from .segments import numbers
from .tables import table

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
        """Of each term the rows of a range that have it."""
        texts = [_text(it) for it in terms]
        if unknown := [it for it in dict.fromkeys(texts) if (place, it) not in self._rows]:
            self._find(place, unknown)
        return [self._rows[place, it] for it in texts]

    def count(self, place: Range) -> int:
        """How many rows there are in a range."""
        number, first, last = place
        return self._number(
            f"SELECT count(*) FROM {table(number)}_docsize WHERE id BETWEEN :first AND :last",
            first=first,
            last=last,
        )

    def lengths(self, number: int, rows: Iterable[int]) -> list[int]:
        """How many words each of some rows has."""
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
    """The rows that have any of the terms of a query."""

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
    """The postings in some places alone."""
    kept = [
        (idf, [(at, it) for at, it in zip(there, often, strict=True) if at in places])
        for idf, there, often in postings
    ]
    return [Postings(idf, [at for at, _ in both], [it for _, it in both]) for idf, both in kept]


def _text(term: Term) -> str:
    return f'"{term.text}"' + " *" * term.starts
