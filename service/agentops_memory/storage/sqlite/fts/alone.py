"""The scores of memories whose words are weighed among themselves: BM25 within a range of rows.

By FTS5's own scores, what a word is worth would tell of all that share a partition.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from ....domain.model.bm25 import Postings, Sums, Totals, of_any, of_every
from ....domain.model.memory import MemoryId
from ....domain.model.ranking import PRIOR_MEMORIES, PRIOR_WORDS
from ....domain.model.search import Tier
from ....domain.text.query import Term
from ...index_cache.rows import memory_of
from ..base.dialect import SqliteTable
from .queries import IndexQuery
from .segments import numbers
from .tables import table

FIELDS = ("title", "content", "tags")
WEIGHTS = {"title": 2.0, "content": 1.0, "tags": 2.0}

Rows = dict[int, float]
"""How often a term stands in each row by the weights of the fields; in a field it counts once."""


class AloneScores(SqliteTable):
    """The scores of one transaction."""

    def best(self, query: IndexQuery) -> list[list[Sums]]:
        """What each sentence adds; the whole text is one where every word is looked for."""
        asked = query.query.every if query.tier is Tier.EVERY else query.query.sentences
        terms = {term.text: term for it in asked for term in it.terms}
        found = Found(self, query, terms.values())
        if query.tier is Tier.EVERY:
            pieces = [(found.of(it.parts), found.of(it.joined)) for it in query.query.every]
            return [[(of_every(pieces, found.norms), found.memories)]]
        return [
            [(of_any(found.of(it.terms), found.norms), found.memories)]
            for it in query.query.sentences
        ]

    def rows(self, number: int, first: int, last: int, terms: Sequence[Term]) -> list[Rows]:
        """Of each term the rows of a range that have it, the fields weighed."""
        asked = [(at, field, f"{field} : {_text(it)}")
                 for at, it in enumerate(terms) for field in FIELDS]  # fmt: skip
        name, rows = table(number), [Rows() for _ in terms]
        found = self._execute(
            f"""SELECT wanted.key, t.rowid
                  FROM json_each(:matches) wanted
                 CROSS JOIN {name} t
                 WHERE {name} MATCH wanted.value AND t.rowid BETWEEN :first AND :last""",
            matches=json.dumps([match for _, _, match in asked]),
            first=first,
            last=last,
        )
        for key, row in found:
            at, field, _ = asked[key]
            rows[at][row] = rows[at].get(row, 0.0) + WEIGHTS[field]
        return rows

    def count(self, number: int, first: int, last: int) -> int:
        """How many rows there are in a range."""
        return self._number(
            f"SELECT count(*) FROM {table(number)}_docsize WHERE id BETWEEN :first AND :last",
            first=first,
            last=last,
        )

    def lengths(self, number: int, rows: Iterable[int]) -> list[int]:
        """How many words each of some rows has."""
        found = self._execute(
            f"""SELECT sz
                  FROM {self._sql.ids("given")}
                  JOIN {table(number)}_docsize d ON d.id = given.value
              ORDER BY given.key""",
            ids=json.dumps(list(rows)),
        )
        return [sum(numbers(size)) for (size,) in found]


class Found:
    """The rows that have any of the terms of a query."""

    def __init__(self, scores: AloneScores, query: IndexQuery, terms: Iterable[Term]) -> None:
        self.memories: list[MemoryId] = []
        self.norms: list[float] = []
        self._postings: dict[str, Postings] = {}
        for number, spans in query.visible.spans.items():
            for first, last in spans:
                self._add(scores, (number, first, last), [*terms])

    def of(self, terms: Iterable[Term]) -> list[Postings]:
        """What each term adds."""
        return [self._postings[it.text] for it in terms if it.text in self._postings]

    def _add(self, scores: AloneScores, place: tuple[int, int, int], terms: list[Term]) -> None:
        number, first, last = place
        rows = scores.rows(number, first, last, terms)
        places: Mapping[int, int] = {row: at for at, row in enumerate(sorted(set().union(*rows)))}
        count = scores.count(number, first, last) + PRIOR_MEMORIES
        totals = Totals(count, count * PRIOR_WORDS)
        self.memories = [memory_of(row) for row in places]
        self.norms = totals.norms(scores.lengths(number, places))
        for term, having in zip(terms, rows, strict=True):
            self._postings[term.text] = Postings(
                totals.idf(len(having)), [places[row] for row in having], list(having.values())
            )


def _text(term: Term) -> str:
    return f'"{term.text}"' + " *" * term.starts
