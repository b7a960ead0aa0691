"""A query to the full-text index: the rows that a caller may see, and the BM25 of sentences there.

The score of a memory is made of what each sentence of the query contributes.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ....domain.model.access import Patterns
from ....domain.model.memory import Memory, MemoryId
from ....domain.model.ranking import OTHER_SENTENCES, sentence_depth, weights_of
from ....domain.model.search import Filter, Tier
from ....domain.model.space import GLOBAL_SCOPE, Project, StoreId
from ....domain.text.query import Piece, Query, Term
from ...sql.liveness import indexed, live
from ...sql.memory_lists import listed
from ...sql.rows import LIFECYCLE, MEMORY, memory_of
from ...sql.table import GLOBAL_AREA, OF_A_STORE, FilteredTable
from ..base.dialect import SQLITE, SqliteTable
from .partitions import AREA, FIRST, OWN_COLUMNS, Partitions, row_number, span_of, table

ALL = -1  # a limit

# What has expired and is in the index yet, and what is superseded.
EXPIRED = """SELECT memory_id
               FROM lifecycles
              WHERE expires_at IS NOT NULL AND NOT is_swept AND expires_at <= :now"""
SUPERSEDED = f"""SELECT older_id
                   FROM supersessions
                   JOIN memories newer ON newer.id = newer_id
                  WHERE {live("newer")}"""

Span = tuple[int, int]
"""The first and the last row number of a range."""

_GLOBALS = span_of(GLOBAL_AREA)
_PROJECTS = (row_number(GLOBAL_AREA + 1, 0), (1 << 63) - 1)
_ID = (1 << AREA) - 1  # the bits of a row number that are a memory's id


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleRows:
    """Ranges of row numbers in partitions, and conditions: on `memories m`, and on an id.

    The conditions name some of the values. Without `hidden` all that is in the ranges is shown.
    """

    spans: dict[int, list[Span]]
    condition: str
    hidden: tuple[str, ...]
    values: Mapping[str, object]


class Visibility(FilteredTable):
    """Which rows are visible in one transaction."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        partitions: Partitions,
        projects: Patterns,
        now: datetime,
    ) -> None:
        super().__init__(connection, SQLITE, projects, now)
        self._partitions = partitions
        self._known: dict[Filter, VisibleRows] = {}

    def of(self, filter_: Filter) -> VisibleRows:
        """The rows of a filter. A project lies in one partition, and so do all global memories."""
        if filter_ not in self._known:
            self._known[filter_] = VisibleRows(
                spans=self._spans(filter_),
                condition=self._condition(filter_),
                hidden=self._hidden(filter_),
                values=self._values(filter_),
            )
        return self._known[filter_]

    def _spans(self, filter_: Filter) -> dict[int, list[Span]]:
        if filter_.store is not None:
            return self._store(filter_.store)
        if filter_.scope == GLOBAL_SCOPE:
            return {FIRST: [_GLOBALS]}
        if filter_.project is None:
            numbers = self._partitions.of_projects()
            return {it: [_PROJECTS, _GLOBALS] if it == FIRST else [_PROJECTS] for it in numbers}
        place = self._place(filter_.project)
        if place is None:
            return {FIRST: [_GLOBALS]}
        area, number, has_globals = place
        # A range without memories is left out: each costs a search.
        globals_too = has_globals and filter_.scope is None
        return {number: [span_of(area), _GLOBALS] if globals_too else [span_of(area)]}

    def _place(self, project: Project) -> tuple[int, int, bool] | None:
        """The project's area and partition, and whether there are global memories.

        None if the project never had a memory of its own, or the caller does not
        act on it: not even the ranks of global memories tell the two apart.
        """
        if not self._projects.match(project):
            return None
        place: tuple[int, int, bool] | None = self._execute(
            f"""SELECT area, partition,
                       EXISTS (SELECT 1
                                 FROM spaces s
                                 JOIN memories m INDEXED BY memories_in_space
                                   ON m.space_id = s.id
                                WHERE s.area = {GLOBAL_AREA} AND {indexed("m")})
                  FROM spaces
                 WHERE project = :project AND area <> {GLOBAL_AREA}
                 LIMIT 1""",
            project=project,
        ).fetchone()
        return place

    def _store(self, store: StoreId) -> dict[int, list[Span]]:
        row = self._execute(
            f"SELECT s.area, s.partition FROM spaces s WHERE {OF_A_STORE}", store=store
        ).fetchone()
        return {} if row is None else {row[1]: [span_of(row[0])]}

    def _hidden(self, filter_: Filter) -> tuple[str, ...]:
        """What the ranges have and a reader may not see, as far as there may be any."""
        has_expired, has_superseded = self._execute(
            f"SELECT EXISTS ({EXPIRED}), EXISTS (SELECT 1 FROM supersessions)", **self._instant
        ).fetchone()
        conditions = {
            f"NOT IN ({EXPIRED})": has_expired,
            f"NOT IN ({SUPERSEDED})": has_superseded and filter_.is_current,
        }
        return tuple(condition for condition, is_needed in conditions.items() if is_needed)

    def _condition(self, filter_: Filter) -> str:
        """What the ranges do not say already."""
        on_memories = self._on_memories(filter_, "m")
        if filter_.store is not None:
            return on_memories
        are_all = self._projects.are_everything if filter_.project is None else filter_.global_too
        if filter_.scope == GLOBAL_SCOPE or (filter_.scope is None and are_all):
            return on_memories
        spaces = f"SELECT s.id FROM spaces s WHERE {self._on_spaces(filter_)}"
        return f" AND m.space_id IN ({spaces}){on_memories}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A tier's query to each visible partition: what each sentence matches, and how deep."""

    matches: tuple[str, ...]
    weights: tuple[float, ...]
    depth: int
    visible: VisibleRows

    @classmethod
    def of(cls, tier: Tier, query: Query, visible: VisibleRows, limit: int) -> "IndexQuery":
        """The query of a tier whose best `limit` memories are looked for."""
        if tier is Tier.EVERY:
            matches: tuple[str, ...] = (in_columns(OWN_COLUMNS, _all_of(query.every)),)
        else:
            matches = tuple(map(any_of, query.sentences))
        depth = limit if len(matches) == 1 else sentence_depth(query, limit)
        depth = ALL if depth is None else depth
        return cls(matches=matches, weights=weights_of(query), depth=depth, visible=visible)

    @property
    def in_own_columns(self) -> "IndexQuery":
        """The same among the own words of memories alone."""
        return replace(self, matches=tuple(in_columns(OWN_COLUMNS, it) for it in self.matches))

    @property
    def without_limit(self) -> "IndexQuery":
        """The same, where a single sentence contributes all; several are as deep as ever."""
        return replace(self, depth=ALL) if len(self.matches) == 1 else self


class Scores(SqliteTable):
    """The scores of one transaction."""

    def best(self, query: IndexQuery, number: int, limit: int) -> list[tuple[MemoryId, float]]:
        """The best of one partition."""
        best, parameters = _best(query, number), _parameters(query, number)
        return self._execute(best, limit=limit, **parameters).fetchall()

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
                       {LIFECYCLE}
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

    def rare(self, terms: Collection[Term], visible: VisibleRows, most: int) -> tuple[Term, ...]:
        """The terms that some visible memories have among their own words, and at most so many."""
        matches = [in_columns(OWN_COLUMNS, _term(term)) for term in terms]
        counts = [0] * len(matches)
        for number, spans in visible.spans.items():
            for first, last in spans:
                rows = self._execute(
                    _COUNTS.format(table(number)),
                    matches=json.dumps(matches), first=first, last=last, most=most + 1,
                )  # fmt: skip
                for place, count in rows:
                    counts[place] += count
        return tuple(term for term, count in zip(terms, counts, strict=True) if 0 < count <= most)


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


def _best(query: IndexQuery, number: int) -> str:
    return f"""SELECT id, min(score) + {OTHER_SENTENCES} * (sum(score) - min(score)) AS score
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
    hidden = "".join(f" AND +{name}.rowid & {_ID} {it}" for it in query.visible.hidden)
    narrowed = f"CROSS JOIN memories m ON m.id = {name}.rowid & {_ID}{condition}" * bool(condition)
    ranges = " UNION ALL ".join(
        f"""SELECT {at} AS sentence, {name}.rowid & {_ID} AS id,
                   {weighted(name, query.weights)} AS score
              FROM {name} {narrowed}
             WHERE {name} MATCH :match_{at}
                   AND {name}.rowid BETWEEN :first_{span} AND :last_{span}{hidden}"""
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
