"""Recall by FTS5 and its BM25, or by what is in memory of its index."""

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from ...errors import Damaged, TimedOut
from ...memory.memories import MemoryLists
from ...memory.model.bm25 import Totals
from ...memory.model.memory import MemoryId
from ...memory.model.ranking import NAMED, SAID, Scored, combined
from ...memory.model.search import TermScore, Tier
from ...recall.inverted_index.cache import DatabaseIndex
from ...recall.inverted_index.group import Lookup
from ...recall.inverted_index.ranking import Ranking
from ...recall.search.query import IndexQuery
from ...recall.search.ranker import (
    FoundWords,
    Ranker,
    Shown,
    sentences,
    term_score,
    weightings,
)
from ...recall.search.rows import ID, Row, memory_of
from ...recall.search.search import Search
from ...recall.search.visibility import Span, Visibility, VisibleRows
from ...recall.text.query import Corrections, Piece, Term
from ..base.connection import READ_LIMIT, interrupt_at, known_stems
from ..base.dialect import SQLITE, SqliteTable
from ..base.errors import is_damage, primary_code
from .cached_index import CachedIndex
from .partitions import OWN_COLUMNS, Vocabularies, numbers, table


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


# By FTS5's own scores, what a word is worth would tell of all that share a partition.
WEIGHTS = {"{title tags}": NAMED, "content": SAID}


class AloneWords(SqliteTable):
    """The words of a transaction's queries that are weighed within one area alone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._found: dict[tuple[int, Span, tuple[Term, ...]], FoundWords] = {}

    def of(self, query: IndexQuery) -> FoundWords | None:
        """None where nothing was ever stored."""
        if not query.visible.spans:
            return None
        ((number, (span,)),) = query.visible.spans.items()
        key = number, span, tuple(dict.fromkeys(query.terms))
        if key not in self._found:  # both tiers of a search ask for the same
            self._found[key] = self._look(*key)
        return self._found[key]

    def _look(self, number: int, span: Span, terms: Sequence[Term]) -> FoundWords:
        name, (first, last) = table(number), span
        asked = [(term, field) for term in terms for field in WEIGHTS]
        found = self._execute(
            f"""SELECT wanted.key, t.rowid
                  FROM json_each(:matches) wanted
                 CROSS JOIN {name} t
                 WHERE {name} MATCH wanted.value AND t.rowid BETWEEN :first AND :last""",
            matches=json.dumps([f"{field} : {any_of([term])}" for term, field in asked]),
            first=first,
            last=last,
        )
        often: dict[Term, dict[MemoryId, float]] = {term: {} for term in terms}
        rows: set[int] = set()
        for key, row in found:
            (term, field), memory = asked[key], memory_of(row)
            often[term][memory] = often[term].get(memory, 0.0) + WEIGHTS[field]
            rows.add(row)
        sizes = self._execute(
            f"SELECT id, sz FROM {name}_docsize WHERE id IN (SELECT value FROM json_each(:ids))",
            ids=json.dumps(list(rows)),
        )
        lengths = {memory_of(row): sum(numbers(size)) for row, size in sizes}
        if len(lengths) < len(rows):
            raise Damaged("The index lacks the lengths of some rows.")
        count = self._number(
            f"SELECT count(*) FROM {name}_docsize WHERE id BETWEEN :first AND :last",
            first=first,
            last=last,
        )
        having = {term: len(it) for term, it in often.items()}
        return FoundWords(Totals.alone(count), often, having, lengths)


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
        self._stored = Scores(connection)
        cached, shown = CachedIndex(connection, index), Shown(connection, SQLITE)
        super().__init__(
            memories,
            visibility,
            Ranker(_Words(connection, self._stored, cached, shown), shown),
            shown,
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
                group, parts = found
                ranking, stem_of = Ranking(parts, group.vocabulary), self._stems.of(forms)
                stems = {it: group.vocabulary.number(stem_of[it]) for it in forms}
                ranking.look_up(stems.values())
                known = ranking.known(stems.values())
                return ranking.corrections(it for it in forms.items() if stems[it[0]] not in known)
        return super()._corrections(forms, visible)

    def _stems_near(self, forms: Collection[str], visible: VisibleRows) -> list[str]:
        vocabularies, letters = Vocabularies(self._connection), {form[0] for form in forms}
        return [it for number in visible.spans for it in vocabularies.stems(number, letters)]

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        return self._stored.counts(terms, visible, most)

    def _scores(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> tuple[list[list[Scored]], dict[MemoryId, dict[Term, TermScore]]]:
        return self._stored.best(query, number), self._stored.of_terms(query, number, terms, rows)


class _Words:
    def __init__(
        self, connection: sqlite3.Connection, scores: Scores, cached: CachedIndex, shown: Shown
    ) -> None:
        self._stems = known_stems(connection)
        self._scores = scores
        self._alone = AloneWords(connection)
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
            stems = {text: group.vocabulary.number(it) for text, it in stem_of.items()}
            lookup = Lookup(parts, stems, own=query.own)
            yield lookup, lookup

    def best(self, query: IndexQuery) -> list[Scored]:
        weights = query.sentence_weights
        if query.visible.is_alone:
            found = self._alone.of(query)
            return combined(sentences(query, found, self._shown), weights) if found else []
        stored = [combined(self._scores.best(query, it), weights) for it in query.visible.spans]
        return stored[0] if len(stored) == 1 else sorted(it for each in stored for it in each)
