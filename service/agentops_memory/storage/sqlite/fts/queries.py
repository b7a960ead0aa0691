"""A query to the full-text index: the rows that a caller may see, and the BM25 of sentences there.

The score of a memory is made of what each sentence of the query contributes.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from ....domain.model.memory import MemoryId
from ....domain.model.ranking import (
    PLACES,
    Scored,
    gaining,
    sentence_depth,
    sentence_weights,
    weights_of,
)
from ....domain.model.search import Tier
from ....domain.text.query import Piece, Query, Term
from ...index_cache.rows import ID
from ...sql.liveness import indexed
from ..base.dialect import SqliteTable
from .tables import OWN_COLUMNS, table
from .visibility import VisibleRows

ALL = -1  # a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A tier's query to each visible partition; how deep it looks, and how many gain.

    With `own` it looks for the own words of memories alone.
    """

    tier: Tier
    query: Query
    own: bool
    gaining: int
    depth: int
    visible: VisibleRows

    @classmethod
    def of(cls, tier: Tier, query: Query, visible: VisibleRows, limit: int) -> "IndexQuery":
        """The query of a tier whose best `limit` memories are looked for."""
        first = gaining(tier, query)
        is_alone = tier is Tier.EVERY or len(query.sentences) == 1
        depth = max(limit, first) if is_alone else sentence_depth(query, limit)
        return cls(
            tier=tier,
            query=query,
            own=tier is Tier.EVERY,
            gaining=first,
            depth=ALL if depth is None else depth,
            visible=visible,
        )

    @property
    def weights(self) -> tuple[float, ...]:
        """What a word is worth in each field."""
        return weights_of(self.query.features)

    @property
    def sentence_weights(self) -> tuple[float, ...]:
        return sentence_weights(self.tier, self.query)

    @property
    def matches(self) -> tuple[str, ...]:
        """What each sentence matches, as FTS5 reads it; for every word the whole text is one."""
        if self.tier is Tier.EVERY:
            matches: tuple[str, ...] = (_all_of(self.query.every),)
        else:
            matches = tuple(any_of(sentence.terms) for sentence in self.query.sentences)
        return tuple(in_columns(OWN_COLUMNS, it) if self.own else it for it in matches)

    @property
    def for_similar(self) -> "IndexQuery":
        """The same among the own words of memories alone, whatever follows them."""
        return replace(self, own=True, gaining=0)

    @property
    def without_limit(self) -> "IndexQuery":
        """The same, where a single sentence contributes all; several are as deep as ever."""
        return replace(self, depth=PLACES) if len(self.sentence_weights) == 1 else self


class Scores(SqliteTable):
    """The scores of one transaction."""

    def best(self, query: IndexQuery, number: int) -> list[list[Scored]]:
        """The best of each sentence in a partition, best first."""
        sentences: list[list[Scored]] = [[] for _ in query.sentence_weights]
        found = self._execute(_sentences(query, number), **_parameters(query, number))
        for at, id_, score in found:
            sentences[at].append((score, id_))
        return sentences

    def shown(self, ids: Collection[MemoryId], visible: VisibleRows) -> frozenset[MemoryId]:
        """Those of the memories that the conditions leave in."""
        hidden = "".join(f" AND NOT {hides('m.id')}" for hides in visible.hidden)
        ((shown,),) = self._execute(
            f"""SELECT json_group_array(m.id)
                  FROM json_each(:ids) wanted
                 CROSS JOIN memories m ON m.id = wanted.value
                 WHERE TRUE{visible.condition}{hidden}""",
            ids=json.dumps(list(ids)),
            **visible.values,
        )
        return frozenset(json.loads(shown))

    def sessions(self, ids: Sequence[MemoryId]) -> dict[MemoryId, str | None]:
        """The session of each memory; in each space it is another."""
        return self._of_each("m.space_id || ' ' || m.session_id", ids)

    def seconds(self, ids: Sequence[MemoryId]) -> dict[MemoryId, MemoryId | None]:
        """The second memory after each in its session, if there is one."""
        return self._of_each(_SECOND, ids) if ids else {}

    def _of_each(self, value: str, ids: Sequence[MemoryId]) -> dict[MemoryId, Any]:
        ((rows,),) = self._execute(
            f"""SELECT json_group_array(json_array(m.id, {value}))
                  FROM json_each(:ids) wanted
                 CROSS JOIN memories m ON m.id = wanted.value""",
            ids=json.dumps(ids),
        )
        return dict(json.loads(rows))

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


_SECOND = f"""(SELECT n.id
                  FROM memories n INDEXED BY memories_in_session
                 WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                       AND {indexed("n")} AND n.id > m.id
              ORDER BY n.id
                 LIMIT 1 OFFSET 1)"""

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


def _sentences(query: IndexQuery, number: int) -> str:
    return " UNION ALL ".join(_sentence(at, number, query) for at in range(len(query.matches)))


def _sentence(at: int, number: int, query: IndexQuery) -> str:
    """The scores of one sentence, each range of rows queried on its own."""
    name, condition = table(number), query.visible.condition
    # CROSS JOIN: the full-text index leads. Led by memories, every row would ask it again.
    id_ = f"({name}.rowid & {ID})"
    hidden = "".join(f" AND NOT {hides(id_)}" for hides in query.visible.hidden)
    narrowed = f"CROSS JOIN memories m ON m.id = {name}.rowid & {ID}{condition}" * bool(condition)
    ranges = " UNION ALL ".join(
        f"""SELECT {name}.rowid & {ID} AS id,
                   {weighted(name, query.weights)} AS score
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
