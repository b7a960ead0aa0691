"""SQL for the scores of memories: BM25 of each sentence, and what the sentences make together."""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ....domain.model.memory import Memory, MemoryId
from ....domain.model.search import OTHER_SENTENCES, Tier
from ....domain.text.features import Feature
from ....domain.text.query import Query
from ..base.table import Table
from ..tables.memories import COLUMNS, listed, memory_of
from .match import all_of, any_of, in_columns
from .partitions import AREA, OWN_COLUMNS, table
from .scope import Sight

SENTENCE_DEPTH = 10  # memories that one of several sentences contributes at most
WEIGHTS = (2.0, 1.0, 0.4, 2.0)  # of title, content, context, tags
EVEN_WEIGHTS = (1.0, 1.0, 0.4, 1.0)
UNLIMITED = -1
_ID = (1 << AREA) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A tier's question to each partition in sight: what each sentence matches, and how deep."""

    matches: tuple[str, ...]
    weights: tuple[float, ...]
    depth: int
    sight: Sight

    @property
    def without_limit(self) -> "Asked":
        """The same, where a single sentence contributes all; several are as deep as ever."""
        return replace(self, depth=UNLIMITED) if len(self.matches) == 1 else self


def asked(tier: Tier, query: Query, sight: Sight, limit: int) -> Asked:
    """The question of a tier whose best `limit` memories are looked for."""
    if tier is Tier.EVERY:
        matches: tuple[str, ...] = (in_columns(OWN_COLUMNS, all_of(query.every)),)
    else:
        matches = tuple(map(any_of, query.sentences))
    is_even = Feature.TITLE_WEIGHT not in query.features
    is_deep = Feature.SENTENCE_DEPTH not in query.features
    deepest = UNLIMITED if is_deep else max(limit, SENTENCE_DEPTH)
    return Asked(
        matches=matches,
        weights=EVEN_WEIGHTS if is_even else WEIGHTS,
        depth=limit if len(matches) == 1 else deepest,
        sight=sight,
    )


class Scores(Table):
    """The scores of one transaction."""

    def best(self, asked: Asked, number: int, limit: int) -> list[tuple[MemoryId, float]]:
        """The best of one partition."""
        return self._execute(
            _best(asked, number), limit=limit, **_parameters(asked, number)
        ).fetchall()

    def best_memories(self, asked: Asked, number: int, limit: int) -> list[tuple[Memory, float]]:
        """The same with the memories, as far as one answer can hold them.

        In one statement: with two, searches side by side hold each other up more.
        """
        rows = self._execute(
            f"""SELECT {COLUMNS}, best.score
                  FROM ({_best(asked, number)}) best
                 CROSS JOIN memories m ON m.id = best.id
                  JOIN spaces s ON s.id = m.space_id
              ORDER BY best.score, best.id""",
            limit=limit,
            **_parameters(asked, number),
        )
        scores: dict[MemoryId, float] = {}

        def memories() -> Iterator[Memory]:
            for *columns, score in rows:
                memory = memory_of(columns)
                scores[memory.id] = score
                yield memory

        return [(memory, scores[memory.id]) for memory in listed(memories())]

    def of_sentences(
        self, asked: Asked, number: int, ids: Collection[MemoryId]
    ) -> list[tuple[int, MemoryId, float]]:
        """Each sentence, and what it contributes to the scores of these memories."""
        return self._execute(
            f"""SELECT sentence, id, score
                  FROM ({_sentences(asked, number)})
                 WHERE id IN (SELECT value FROM json_each(:ids))""",
            ids=json.dumps(list(ids)),
            **_parameters(asked, number),
        ).fetchall()


def weighted(name: str, weights: tuple[float, ...]) -> str:
    """The score of a row of a full-text table."""
    return f"bm25({name}, {', '.join(map(str, weights))})"


def _best(asked: Asked, number: int) -> str:
    return f"""SELECT id, min(score) + {OTHER_SENTENCES} * (sum(score) - min(score)) AS score
                 FROM ({_sentences(asked, number)})
             GROUP BY id
             ORDER BY score, id
                LIMIT :limit"""


def _sentences(asked: Asked, number: int) -> str:
    return " UNION ALL ".join(_sentence(at, number, asked) for at in range(len(asked.matches)))


def _sentence(at: int, number: int, asked: Asked) -> str:
    """The scores of one sentence, each range of rows asked on its own."""
    name, condition = table(number), asked.sight.condition
    # CROSS JOIN: the full-text index leads. Led by memories, every row would ask it anew.
    narrowed = f"CROSS JOIN memories m ON m.id = {name}.rowid & {_ID}{condition}" * bool(condition)
    ranges = " UNION ALL ".join(
        f"""SELECT {at} AS sentence, {name}.rowid & {_ID} AS id,
                   {weighted(name, asked.weights)} AS score
              FROM {name} {narrowed}
             WHERE {name} MATCH :match_{at}
                   AND {name}.rowid BETWEEN :first_{span} AND :last_{span}"""
        for span in range(len(asked.sight.spans[number]))
    )
    return f"SELECT * FROM ({ranges} ORDER BY score, id LIMIT :depth)"


def _parameters(asked: Asked, number: int) -> dict[str, object]:
    spans = {
        f"{end}_{at}": value
        for at, span in enumerate(asked.sight.spans[number])
        for end, value in zip(("first", "last"), span, strict=True)
    }
    matches = {f"match_{at}": match for at, match in enumerate(asked.matches)}
    return {"depth": asked.depth, **matches, **spans, **asked.sight.values}
