"""SQL for the BM25 of sentences in the partitions of the full-text index."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...memory.model.memory import MemoryId
from ...memory.model.ranking import Scored
from ...memory.model.search import TermScore, Tier
from ...recall.search.query import IndexQuery
from ...recall.search.ranker import term_score, weightings
from ...recall.search.rows import ID, Row
from ...recall.search.visibility import VisibleRows
from ...recall.text.query import Piece, Term
from ..base.dialect import SqliteTable
from .partitions import OWN_COLUMNS, table


class Scores(SqliteTable):
    def best(self, query: IndexQuery, number: int) -> list[list[Scored]]:
        sentences: list[list[Scored]] = [[] for _ in query.sentence_weights]
        found = self._execute(_sentences(query, number), **_parameters(query, number))
        for at, id_, score in found:
            sentences[at].append((score, id_))
        return sentences

    def of_terms(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> dict[MemoryId, dict[Term, TermScore]]:
        """What the terms add to the scores of memories in a partition."""
        name = table(number)
        scores = ", ".join(_weighted(name, it) for it in weightings(query.weights))
        matches = [_term(it) for it in terms]
        found = self._execute(
            f"""SELECT wanted.key, {name}.rowid & {ID}, {scores}
                  FROM json_each(:matches) wanted
                 CROSS JOIN {name}
                 WHERE {name} MATCH wanted.value AND {name}.rowid BETWEEN :first AND :last
                       AND +{name}.rowid IN (SELECT value FROM json_each(:rows))""",
            matches=json.dumps(
                [in_columns(OWN_COLUMNS, it) if query.own else it for it in matches]
            ),
            rows=json.dumps(list(rows.values())),
            first=min(rows.values()),
            last=max(rows.values()),
        )
        added: dict[MemoryId, dict[Term, TermScore]] = {}
        for at, id_, score, limit, *parts in found:
            added.setdefault(id_, {})[terms[at]] = term_score(score, limit, parts)
        return added

    def counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        """How many rows have each term, or that they are more than so many."""
        matches = json.dumps([in_columns(OWN_COLUMNS, _term(term)) for term in terms])
        counts = [0] * len(terms)
        for number, spans in visible.spans.items():
            for first, last in spans:
                rows = self._execute(
                    _COUNTS.format(table(number)),
                    matches=matches, first=first, last=last, most=most + 1,
                )  # fmt: skip
                for place, count in rows:
                    counts[place] += count
        return counts


# No more rows of a term are counted than show that it is frequent.
_COUNTS = """
    SELECT wanted.key,
           (SELECT count(*)
              FROM (SELECT 1
                      FROM {0}
                     WHERE {0} MATCH wanted.value AND rowid BETWEEN :first AND :last
                     LIMIT :most))
      FROM json_each(:matches) wanted"""


def matches(query: IndexQuery) -> tuple[str, ...]:
    """What each sentence matches, as FTS5 reads it; for every word the whole text is one."""
    if query.tier is Tier.EVERY:
        found: tuple[str, ...] = (_all_of(query.query.every),)
    else:
        found = tuple(any_of(sentence.terms) for sentence in query.query.sentences)
    return tuple(in_columns(OWN_COLUMNS, it) if query.own else it for it in found)


def _weighted(name: str, weights: tuple[float, ...]) -> str:
    return f"bm25({name}, {', '.join(map(str, weights))})"


def _sentences(query: IndexQuery, number: int) -> str:
    count = len(query.sentence_weights)
    return " UNION ALL ".join(_sentence(at, number, query) for at in range(count))


def _sentence(at: int, number: int, query: IndexQuery) -> str:
    name, condition = table(number), query.visible.condition
    # CROSS JOIN: the full-text index leads. Led by memories, every row would ask it again.
    id_ = f"({name}.rowid & {ID})"
    hidden = "".join(f" AND NOT {hides(id_)}" for hides in query.visible.hidden)
    narrowed = f"CROSS JOIN memories m ON m.id = {name}.rowid & {ID}{condition}" * bool(condition)
    ranges = " UNION ALL ".join(
        f"""SELECT {name}.rowid & {ID} AS id,
                   {_weighted(name, query.weights)} AS score
              FROM {name} {narrowed}
             WHERE {name} MATCH :match_{at}
                   AND {name}.rowid BETWEEN :first_{span} AND :last_{span}{hidden}"""
        for span in range(len(query.visible.spans[number]))
    )
    return f"""SELECT {at} AS sentence, id, score
                 FROM ({ranges} ORDER BY score, id LIMIT :depth)"""


def _parameters(query: IndexQuery, number: int) -> dict[str, object]:
    spans = {
        f"{end}_{at}": value
        for at, span in enumerate(query.visible.spans[number])
        for end, value in zip(("first", "last"), span, strict=True)
    }
    asked = {f"match_{at}": match for at, match in enumerate(matches(query))}
    return {"depth": query.depth, **asked, **spans, **query.visible.values}


def _all_of(pieces: Iterable[Piece]) -> str:
    """Matches where every piece is. Every term is quoted, so that none of it is syntax."""
    return " AND ".join(f"({_piece(piece)})" for piece in pieces)


def any_of(terms: Iterable[Term]) -> str:
    return " OR ".join(map(_term, terms))


def in_columns(columns: Sequence[str], match: str) -> str:
    """The same in these columns alone."""
    return f"{{{' '.join(columns)}}} : ({match})"


def _piece(piece: Piece) -> str:
    parts = " AND ".join(map(_term, piece.parts))
    joined = any_of(piece.joined)
    return f"({parts}) OR {joined}" if parts and joined else parts or joined


def _term(term: Term) -> str:
    return f'"{term.text}" *' if term.starts else f'"{term.text}"'
