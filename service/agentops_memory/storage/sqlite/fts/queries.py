"""A query to the full-text index: the rows that a caller may see, and the BM25 of sentences there.

The score of a memory is made of what each sentence of the query contributes.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ....domain.model.memory import MemoryId
from ....domain.model.ranking import (
    OTHER_SENTENCES,
    Candidate,
    gaining,
    sentence_depth,
    sentence_weights,
    weights_of,
)
from ....domain.model.search import Tier
from ....domain.text.query import Piece, Query, Term
from ...sql.liveness import undeleted
from ..base.dialect import SqliteTable
from .partitions import AREA, OWN_COLUMNS, table
from .visibility import VisibleRows

ALL = -1  # a limit

_ID = (1 << AREA) - 1  # the bits of a row number that are a memory's id


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A tier's query to each visible partition: what each sentence matches, and how deep."""

    matches: tuple[str, ...]
    sentence_weights: tuple[float, ...]
    weights: tuple[float, ...]
    gaining: int
    depth: int
    visible: VisibleRows

    @classmethod
    def of(cls, tier: Tier, query: Query, visible: VisibleRows, limit: int) -> "IndexQuery":
        """The query of a tier whose best `limit` memories are looked for."""
        if tier is Tier.EVERY:
            matches: tuple[str, ...] = (in_columns(OWN_COLUMNS, _all_of(query.every)),)
        else:
            matches = tuple(any_of(sentence.terms) for sentence in query.sentences)
        first, is_alone = gaining(tier, query), len(matches) == 1
        depth = max(limit, first) if is_alone else sentence_depth(query, limit)
        depth = ALL if depth is None else depth
        return cls(
            matches=matches,
            sentence_weights=sentence_weights(tier, query),
            weights=weights_of(query),
            gaining=first,
            depth=depth,
            visible=visible,
        )

    @property
    def for_similar(self) -> "IndexQuery":
        """The same among the own words of memories alone, whatever follows them."""
        matches = tuple(in_columns(OWN_COLUMNS, it) for it in self.matches)
        return replace(self, matches=matches, gaining=0)

    @property
    def without_limit(self) -> "IndexQuery":
        """The same, where a single sentence contributes all; several are as deep as ever."""
        return replace(self, depth=ALL) if len(self.matches) == 1 else self


class Scores(SqliteTable):
    """The scores of one transaction."""

    def best(self, query: IndexQuery, limit: int) -> list[Candidate]:
        """The best of all partitions, without what those that follow add."""
        found = [
            Candidate(*row)
            for number in query.visible.spans
            for row in self._execute(
                _candidates(query, number), limit=limit, **_parameters(query, number)
            )
        ]
        return found if len(query.visible.spans) == 1 else sorted(found)[:limit]

    def of_sentences(
        self, query: IndexQuery, number: int, ids: Collection[MemoryId]
    ) -> list[tuple[int, MemoryId, float]]:
        """Each sentence, and the scores of these memories in it, before its weight."""
        return self._execute(
            f"""SELECT sentence, id, score
                  FROM ({_sentences(query, number)})
                 WHERE id IN (SELECT value FROM json_each(:ids))""",
            ids=json.dumps(list(ids)),
            **_parameters(query, number),
        ).fetchall()

    def rare(self, terms: Collection[Term], visible: VisibleRows, most: int) -> tuple[Term, ...]:
        """The rarest of a memory's terms that others have, as many as bring at most so many rows.

        Among their own words; the memory itself is in the index.
        """
        counts = self._counts(terms, visible, most)
        shared = sorted((count, place) for place, count in enumerate(counts) if count > 1)
        sums = accumulate(count for count, _ in shared)
        places = [place for (_, place), total in zip(shared, sums, strict=True) if total <= most]
        every = tuple(terms)
        return tuple(every[place] for place in sorted(places))

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
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


def weighted(name: str, weights: tuple[float, ...]) -> str:
    """The score of a row of a full-text table."""
    return f"bm25({name}, {', '.join(map(str, weights))})"


def _candidates(query: IndexQuery, number: int) -> str:
    """The best with their sessions, where those that follow count."""
    if not query.gaining:
        return _best(query, number)
    return f"""SELECT best.score, m.id, m.space_id || ' ' || m.session_id,
                      (SELECT n.id
                         FROM memories n INDEXED BY memories_in_session
                        WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                              AND {undeleted("n")} AND n.id > m.id
                     ORDER BY n.id
                        LIMIT 1 OFFSET 1)
                 FROM ({_best(query, number)}) best
                CROSS JOIN memories m ON m.id = best.id
             ORDER BY best.score, m.id"""


def _best(query: IndexQuery, number: int) -> str:
    best = "min(weighted)"
    return f"""SELECT {best} + {OTHER_SENTENCES} * (sum(weighted) - {best}) AS score, id
                 FROM ({_sentences(query, number)})
             GROUP BY id
             ORDER BY score, id
                LIMIT :limit"""


def _sentences(query: IndexQuery, number: int) -> str:
    return " UNION ALL ".join(_sentence(at, number, query) for at in range(len(query.matches)))


def _sentence(at: int, number: int, query: IndexQuery) -> str:
    """The scores of one sentence, each range of rows queried on its own."""
    name, condition = table(number), query.visible.condition
    # CROSS JOIN: the full-text index leads. Led by memories, every row would ask it again.
    id_ = f"({name}.rowid & {_ID})"
    hidden = "".join(f" AND NOT {hides(id_)}" for hides in query.visible.hidden)
    narrowed = f"CROSS JOIN memories m ON m.id = {name}.rowid & {_ID}{condition}" * bool(condition)
    ranges = " UNION ALL ".join(
        f"""SELECT {name}.rowid & {_ID} AS id,
                   {weighted(name, query.weights)} AS score
              FROM {name} {narrowed}
             WHERE {name} MATCH :match_{at}
                   AND {name}.rowid BETWEEN :first_{span} AND :last_{span}{hidden}"""
        for span in range(len(query.visible.spans[number]))
    )
    weight = query.sentence_weights[at]
    return f"""SELECT {at} AS sentence, id, score, {weight} * score AS weighted
                 FROM ({ranges} ORDER BY score, id LIMIT :depth)"""


def _parameters(query: IndexQuery, number: int) -> dict[str, object]:
    spans = {
        f"{end}_{at}": value
        for at, span in enumerate(query.visible.spans[number])
        for end, value in zip(("first", "last"), span, strict=True)
    }
    matches = {f"match_{at}": match for at, match in enumerate(query.matches)}
    return {"depth": query.depth, **matches, **spans, **query.visible.values}


def _all_of(pieces: Iterable[Piece]) -> str:
    """Matches where every piece is. Every term is quoted, so that none of it is syntax."""
    return " AND ".join(f"({_piece(piece)})" for piece in pieces)


def any_of(terms: Iterable[Term]) -> str:
    """Matches where any term is."""
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
