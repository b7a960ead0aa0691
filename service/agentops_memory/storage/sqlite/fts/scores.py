"""SQL for the scores of memories: BM25 of each sentence, and what the sentences make together."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ....domain.model.memory import Memory, MemoryId
from ....domain.model.search import OTHER_SENTENCES, Tier, sentence_depth, weights_of
from ....domain.text.query import Piece, Query, Term
from ...sql.memory_lists import listed
from ...sql.rows import MEMORY, memory_of
from ..base.dialect import SqliteTable
from .partitions import AREA, OWN_COLUMNS, table
from .visibility import VisibleRows

ALL = -1  # a limit
_ID = (1 << AREA) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A tier's query to each visible partition: what each sentence matches, and how deep."""

    matches: tuple[str, ...]
    weights: tuple[float, ...]
    depth: int
    visible: VisibleRows

    @property
    def without_limit(self) -> "IndexQuery":
        """The same, where a single sentence contributes all; several are as deep as ever."""
        return replace(self, depth=ALL) if len(self.matches) == 1 else self


def index_query(tier: Tier, query: Query, visible: VisibleRows, limit: int) -> IndexQuery:
    """The query of a tier whose best `limit` memories are looked for."""
    if tier is Tier.EVERY:
        matches: tuple[str, ...] = (in_columns(OWN_COLUMNS, all_of(query.every)),)
    else:
        matches = tuple(map(any_of, query.sentences))
    depth = limit if len(matches) == 1 else sentence_depth(query, limit)
    return IndexQuery(
        matches=matches,
        weights=weights_of(query),
        depth=ALL if depth is None else depth,
        visible=visible,
    )


class Scores(SqliteTable):
    """The scores of one transaction."""

    def best(self, query: IndexQuery, number: int, limit: int) -> list[tuple[MemoryId, float]]:
        """The best of one partition."""
        return self._execute(
            _best(query, number), limit=limit, **_parameters(query, number)
        ).fetchall()

    def best_memories(
        self, query: IndexQuery, number: int, limit: int
    ) -> list[tuple[Memory, float]]:
        """The same with the memories, as far as one answer can hold them.

        In one statement: with two, searches side by side hold each other up more.
        """
        rows = self._execute(
            f"""SELECT {MEMORY}, best.score
                  FROM ({_best(query, number)}) best
                 CROSS JOIN memories m ON m.id = best.id
                  JOIN spaces s ON s.id = m.space_id
              ORDER BY best.score, best.id""",
            limit=limit,
            **_parameters(query, number),
        )
        scores: dict[MemoryId, float] = {}

        def memories() -> Iterator[Memory]:
            for *columns, score in rows:
                memory = memory_of(columns)
                scores[memory.id] = score
                yield memory

        return [(memory, scores[memory.id]) for memory in listed(memories())]

    def of_sentences(
        self, query: IndexQuery, number: int, ids: Collection[MemoryId]
    ) -> list[tuple[int, MemoryId, float]]:
        """Each sentence, and what it contributes to the scores of these memories."""
        return self._execute(
            f"""SELECT sentence, id, score
                  FROM ({_sentences(query, number)})
                 WHERE id IN (SELECT value FROM json_each(:ids))""",
            ids=json.dumps(list(ids)),
            **_parameters(query, number),
        ).fetchall()


def weighted(name: str, weights: tuple[float, ...]) -> str:
    """The score of a row of a full-text table."""
    return f"bm25({name}, {', '.join(map(str, weights))})"


def _best(query: IndexQuery, number: int) -> str:
    return f"""SELECT id, min(score) + {OTHER_SENTENCES} * (sum(score) - min(score)) AS score
                 FROM ({_sentences(query, number)})
             GROUP BY id
             ORDER BY score, id
                LIMIT :limit"""


def _sentences(query: IndexQuery, number: int) -> str:
    return " UNION ALL ".join(_sentence(at, number, query) for at in range(len(query.matches)))


def _sentence(at: int, number: int, query: IndexQuery) -> str:
    """The scores of one sentence, each range of rows query on its own."""
    name, condition = table(number), query.visible.condition
    # CROSS JOIN: the full-text index leads. Led by memories, every row would ask it again.
    narrowed = f"CROSS JOIN memories m ON m.id = {name}.rowid & {_ID}{condition}" * bool(condition)
    ranges = " UNION ALL ".join(
        f"""SELECT {at} AS sentence, {name}.rowid & {_ID} AS id,
                   {weighted(name, query.weights)} AS score
              FROM {name} {narrowed}
             WHERE {name} MATCH :match_{at}
                   AND {name}.rowid BETWEEN :first_{span} AND :last_{span}"""
        for span in range(len(query.visible.spans[number]))
    )
    return f"SELECT * FROM ({ranges} ORDER BY score, id LIMIT :depth)"


def _parameters(query: IndexQuery, number: int) -> dict[str, object]:
    spans = {
        f"{end}_{at}": value
        for at, span in enumerate(query.visible.spans[number])
        for end, value in zip(("first", "last"), span, strict=True)
    }
    matches = {f"match_{at}": match for at, match in enumerate(query.matches)}
    return {"depth": query.depth, **matches, **spans, **query.visible.values}


def all_of(pieces: Iterable[Piece]) -> str:
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
