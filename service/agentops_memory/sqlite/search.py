"""Search by FTS5 and its BM25, or by the in-memory index."""

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from ..errors import Damaged, TimedOut
from ..memory.memories import MemoryLists
from ..memory.memory import MemoryId
from ..memory.search import NAMED, PRIOR_MEMORIES, SAID, WEIGHTS, Scored, TermScore, Tier, Totals
from ..recall.cache import READ_BYTES, DatabaseIndex, IndexCache
from ..recall.cached_reads import Ranking
from ..recall.group import Group, Lookup, Weights
from ..recall.query import LONGEST, SHORTEST, Corrections, Piece, Term
from ..recall.search import WEIGHTINGS, FoundWords, Gains, RowLookup, Search, sentences, term_score
from ..recall.stems import Stems, Vocabulary, entry_of
from ..recall.visibility import (
    ID,
    IndexQuery,
    Row,
    Span,
    Visibility,
    VisibleRows,
    area_of,
    memory_of,
)
from .areas import load_at_once
from .connection import READ_LIMIT, Database, SqliteTable, interrupt_at, token_of
from .dialect import SQLITE, IndexBehind, is_damage, primary_code
from .partitions import OWN_COLUMNS, Partitions, numbers, table


def index_in_memory(cache: IndexCache) -> DatabaseIndex:
    """Return an empty in-memory index of a database."""
    stems = Stems()  # used under the lock of the index
    vocabulary = Vocabulary(stems.forms_of)
    return DatabaseIndex(cache, vocabulary, lambda texts: entry_of(stems.of_texts(texts)))


# Counting stops once it shows that a term is frequent.
_COUNTS = """
    SELECT requested.key,
           (SELECT count(*)
              FROM (SELECT 1
                      FROM {0}
                     WHERE {0} MATCH requested.value AND rowid BETWEEN :first AND :last
                     LIMIT :most))
      FROM json_each(:matches) requested"""


def matches(query: IndexQuery) -> tuple[str, ...]:
    """Return the FTS5 expression of each sentence, or one of the whole text for every word."""
    if query.tier is Tier.EVERY:
        texts: tuple[str, ...] = (" AND ".join(f"({_piece(it)})" for it in query.query.every),)
    else:
        texts = tuple(any_of(sentence.terms) for sentence in query.query.sentences)
    return tuple(in_columns(OWN_COLUMNS, it) if query.own else it for it in texts)


def _weighted(name: str, weights: tuple[float, ...]) -> str:
    return f"bm25({name}, {', '.join(map(str, weights))})"


def _sentence(at: int, number: int, query: IndexQuery) -> str:
    name, condition = table(number), query.visible.condition
    # CROSS JOIN makes the full-text index the outer table, else it is queried for each memory.
    id_ = f"({name}.rowid & {ID})"
    hidden = "".join(f" AND NOT {hides(id_)}" for hides in query.visible.hidden)
    narrowed = f"CROSS JOIN memories m ON m.id = {name}.rowid & {ID}{condition}" * bool(condition)
    ranges = " UNION ALL ".join(
        f"""SELECT {name}.rowid & {ID} AS id,
                   {_weighted(name, WEIGHTS)} AS score
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
    texts = {f"match_{at}": match for at, match in enumerate(matches(query))}
    return {"depth": query.depth, **texts, **spans, **query.visible.values}


def any_of(terms: Iterable[Term]) -> str:
    return " OR ".join(map(_term, terms))


def in_columns(columns: Sequence[str], match: str) -> str:
    """Restrict an FTS5 expression to these columns."""
    return f"{{{' '.join(columns)}}} : ({match})"


def _piece(piece: Piece) -> str:
    parts = " AND ".join(map(_term, piece.parts))
    joined = any_of(piece.joined)
    return f"({parts}) OR {joined}" if parts and joined else parts or joined


def _term(term: Term) -> str:
    """Return a quoted term, no part of which can be syntax."""
    return f'"{term.text}" *' if term.starts else f'"{term.text}"'


# Not FTS5's own scores, whose statistics would reveal words of others in the partition.
WEIGHT_OF = {"{title tags}": NAMED, "content": SAID}


LAST_LETTER = 0x10FFFF
RESERVED = timedelta(seconds=1)  # of a read's time limit, for its work after a search timeout


@contextmanager
def _writable_temporarily(database: sqlite3.Connection) -> Iterator[None]:
    """Within, a reader may create temporary tables."""
    ((is_reader,),) = database.execute("PRAGMA query_only").fetchall()
    try:
        database.execute("PRAGMA query_only = OFF")
        yield
    finally:
        database.execute(f"PRAGMA query_only = {is_reader}")


class SqliteSearch(SqliteTable, Search):
    """Search by FTS5, or by the in-memory index where it has the area."""

    def __init__(
        self,
        connection: Database,
        memories: MemoryLists,
        visibility: Visibility,
        index: DatabaseIndex | None,
        begun: float,
        *,
        may_be_behind: bool,
    ) -> None:
        SqliteTable.__init__(self, connection)
        lookup, stems = RowLookup(connection, SQLITE), connection.stems
        Search.__init__(self, memories, visibility, lookup, stems)
        self.met_damage = False  # even if the newest memories replaced the matches
        self._end = begun + READ_LIMIT.total_seconds()
        self._may_be_behind = may_be_behind
        self._complete = set[int]()
        self._missing = set[int]()  # groups that the in-memory index lacks
        self._index = None if index is None or index.is_disabled else index
        self._cached_words: dict[tuple[int, Span, tuple[Term, ...]], FoundWords] = {}

    @contextmanager
    def within(self, timeout: timedelta) -> Iterator[None]:
        latest = self._end - RESERVED.total_seconds()
        end = min(time.monotonic() + timeout.total_seconds(), latest)
        interrupt_at(self._connection, end)
        try:
            yield
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                self.met_damage = True
                raise Damaged("Full-text search is unavailable.") from error
            if primary_code(error) != sqlite3.SQLITE_INTERRUPT:
                raise
            raise TimedOut("The search took too long.") from error
        finally:
            interrupt_at(self._connection, self._end)

    @contextmanager
    def _cached(self, visible: VisibleRows) -> Iterator[tuple[Group, list[Weights]] | None]:
        """Yield a filter's group and areas under the lock, or None if they are not in memory."""
        location, index = self._location(visible), self._index
        if location is None or index is None:
            yield None
            return
        number, areas = location
        for try_ in range(2):
            with index.lock:
                group = (
                    index.group(number, areas) if index.is_at(token_of(self._connection)) else None
                )
                if group is not None:
                    yield group, group.weights_of(areas)
            if group is not None:
                index.cache.grew(READ_BYTES)
                return
            if try_ or not load_at_once(self._connection, index, number, areas):
                break
        self._missing.add(number)
        index.queue.request(number, self._memories_of(number))
        yield None

    def _location(self, visible: VisibleRows) -> tuple[int, list[int]] | None:
        """Return a filter's group and areas, or None if they cannot be in memory."""
        if self._index is None or len(visible.spans) != 1 or visible.is_alone:
            return None
        ((number, spans),) = visible.spans.items()
        areas = [area_of(first) for first, last in spans if area_of(first) == area_of(last)]
        return (number, areas) if number not in self._missing and len(areas) == len(spans) else None

    def _memories_of(self, number: int) -> int:
        return Partitions(self._connection).totals(number)[0] - PRIOR_MEMORIES

    @contextmanager
    def _numbered(
        self, terms: Collection[Term], visible: VisibleRows
    ) -> Iterator[tuple[Group, list[Weights], dict[str, int]] | None]:
        """Yield what `_cached` does, with the numbers of the terms; None if not all have one."""
        is_cached = self._location(visible) and not any(it.starts for it in terms)
        stem_of = self._stems.of([it.text for it in terms]) if is_cached else {}
        if not (is_cached and all(stem_of.values())):
            yield None
            return
        with self._cached(visible) as cached:
            if cached is None:
                yield None
                return
            group, parts = cached
            yield *cached, {text: group.number_of(it, parts) for text, it in stem_of.items()}

    @contextmanager
    def _in_memory(self, query: IndexQuery) -> Iterator[tuple[Lookup, Gains] | None]:
        with self._numbered(query.terms, query.visible) as cached:
            if cached is None:
                yield None
                return
            lookup = Lookup(*cached[1:], own=query.own)
            yield lookup, lookup.with_gains

    def _stored(self, query: IndexQuery) -> Iterator[Sequence[Sequence[Scored]]]:
        for number in query.visible.spans:
            if query.visible.is_alone:
                yield sentences(query, self._area_words(query), self._lookup)
            else:
                yield self._best_of_sentences(query, number)

    def _require_complete(self, number: int) -> None:
        """Raise IndexBehind if memories are pending for a partition, unless that is allowed."""
        if not self._may_be_behind and number not in self._complete:
            if Partitions(self._connection).waiting(number):
                if self._index is not None:
                    self._index.queue.request(number)  # it includes pending memories
                raise IndexBehind
            self._complete.add(number)

    def _best_of_sentences(self, query: IndexQuery, number: int) -> list[list[Scored]]:
        self._require_complete(number)
        best: list[list[Scored]] = [[] for _ in query.sentence_weights]
        each = (_sentence(at, number, query) for at in range(len(best)))
        parameters = _parameters(query, number)
        scored = self._execute(" UNION ALL ".join(each), **parameters)
        for at, id_, score in scored:
            best[at].append((score, id_))
        return best

    def _term_scores(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> dict[MemoryId, dict[Term, TermScore]]:
        name = table(number)
        scores = ", ".join(_weighted(name, it) for it in WEIGHTINGS)
        matches = [_term(it) for it in terms]
        scored = self._execute(
            f"""SELECT requested.key, {name}.rowid & {ID}, {scores}
                  FROM json_each(:matches) requested
                 CROSS JOIN {name}
                 WHERE {name} MATCH requested.value AND {name}.rowid BETWEEN :first AND :last
                       AND +{name}.rowid IN (SELECT value FROM json_each(:rows))""",
            matches=json.dumps(
                [in_columns(OWN_COLUMNS, it) if query.own else it for it in matches]
            ),
            rows=json.dumps(list(rows.values())),
            first=min(rows.values()),
            last=max(rows.values()),
        )
        added: dict[MemoryId, dict[Term, TermScore]] = {}
        for at, id_, score, limit, *parts in scored:
            added.setdefault(id_, {})[terms[at]] = term_score(score, limit, parts)
        return added

    def _area_words(self, query: IndexQuery) -> FoundWords:
        """Return the query's words with statistics of one area only."""
        ((number, (span,)),) = query.visible.spans.items()
        key = number, span, tuple(dict.fromkeys(query.terms))
        if key not in self._cached_words:  # both tiers of a search read the same words
            self._cached_words[key] = self._read_words(*key)
        return self._cached_words[key]

    def _read_words(self, number: int, span: Span, terms: Sequence[Term]) -> FoundWords:
        self._require_complete(number)
        name, (first, last) = table(number), span
        pairs = [(term, field) for term in terms for field in WEIGHT_OF]
        occurrences = self._execute(
            f"""SELECT requested.key, t.rowid
                  FROM json_each(:matches) requested
                 CROSS JOIN {name} t
                 WHERE {name} MATCH requested.value AND t.rowid BETWEEN :first AND :last""",
            matches=json.dumps([f"{field} : {any_of([term])}" for term, field in pairs]),
            first=first,
            last=last,
        )
        frequencies: dict[Term, dict[MemoryId, float]] = {term: {} for term in terms}
        rows: set[int] = set()
        for key, row in occurrences:
            (term, field), memory = pairs[key], memory_of(row)
            frequencies[term][memory] = frequencies[term].get(memory, 0.0) + WEIGHT_OF[field]
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
        document_counts = {term: len(it) for term, it in frequencies.items()}
        return FoundWords(Totals.alone(count), frequencies, document_counts, lengths)

    def _corrections(self, words: Collection[str], visible: VisibleRows) -> Corrections:
        with self._cached(visible) as cached:
            if cached is not None:
                group, parts = cached
                ranking, stem_of = Ranking(parts, group.vocabulary), self._stems.of(words)
                stems = {it: group.number_of(stem_of[it], parts) for it in words}
                ranking.look_up(stems.values())
                known = ranking.known(stems.values())
                forms = self._stems.compared.get_all([it for it in words if stems[it] not in known])
                return ranking.corrections(it for it in forms.items() if it[1])
        return super()._corrections(words, visible)

    def _stems_near(self, forms: Collection[str], visible: VisibleRows) -> Collection[str]:
        """Return the stems with a first letter of the forms and a length that is compared.

        FTS5 reads every position of each: a tenth of a second in 100,000 memories.
        """
        letters, stems = json.dumps([*{form[0] for form in forms}]), set[str]()
        for number in visible.spans:
            stems |= set(
                self._scalars(
                    f"""SELECT term
                          FROM json_each(:letters) letter
                         CROSS JOIN temp.{self._vocabulary(number)}
                         WHERE term >= letter.value AND term < letter.value || char({LAST_LETTER})
                               AND length(term) BETWEEN {SHORTEST - 2} AND {LONGEST}""",
                    letters=letters,
                )
            )
        return stems

    def _vocabulary(self, number: int) -> str:
        """Create a temporary table, which stays, because readers commit; return its name."""
        name = f"stems_{number}"
        if not self._exists("SELECT 1 FROM temp.sqlite_schema WHERE name = :name", name=name):
            with _writable_temporarily(self._connection):
                self._execute(
                    f"CREATE VIRTUAL TABLE temp.{name} USING fts5vocab (main, {table(number)}, row)"
                )
        return name

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        with self._numbered(terms, visible) as cached:
            if cached is not None:
                group, parts, number_of = cached
                stems = [number_of[it.text] for it in terms]
                counts = Ranking(parts, group.vocabulary).counts(stems)
                return [counts.get(it, 0) for it in stems]
        matches = json.dumps([in_columns(OWN_COLUMNS, _term(term)) for term in terms])
        sums = [0] * len(terms)
        for number, spans in visible.spans.items():
            self._require_complete(number)
            for first, last in spans:
                rows = self._execute(
                    _COUNTS.format(table(number)),
                    matches=matches, first=first, last=last, most=most + 1,
                )  # fmt: skip
                for position, count in rows:
                    sums[position] += count
        return sums

    def _scores(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> tuple[list[list[Scored]], dict[MemoryId, dict[Term, TermScore]]]:
        return self._best_of_sentences(query, number), self._term_scores(query, number, terms, rows)
