"""SQL that takes scores apart: what each term adds, and where in a memory it stands."""

import json
import sqlite3
from collections.abc import Collection, Mapping

from ...memory.model.memory import MemoryId
from ...memory.model.search import Parts, TermScore, Tier
from ...recall.search.query import IndexQuery
from ...recall.search.ranker import ENDLESS, FIELDS, Places, term_score
from ...recall.text.query import Query, Term
from ..base.dialect import SqliteTable
from .queries import Scores, any_of, in_columns, weighted
from .tables import OWN_COLUMNS, table


class Explanations(SqliteTable):
    """The parts of scores in one transaction."""

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
        """What each term adds to the scores of these rows of a partition."""
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
