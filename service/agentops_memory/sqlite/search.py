"""Search by FTS5 and its BM25, or by the in-memory index."""

import json
import logging
import sqlite3
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from operator import itemgetter

from ..errors import Damaged, TimedOut, Unreadable
from ..light import replace
from ..memory.memories import MemoryLists
from ..memory.memory import MemoryId, expiry_of, indexed, undeleted
from ..memory.search import NAMED, PRIOR_MEMORIES, SAID, Scored, TermScore, Tier, Totals, weights_of
from ..memory.space import GLOBAL_AREA
from ..recall.area import Row as MemoryRow
from ..recall.area import drafted
from ..recall.cache import READ_BYTES, DatabaseIndex, IndexCache
from ..recall.cached_reads import Ranking
from ..recall.features import ALL, Features
from ..recall.group import Group, Lookup, Weights
from ..recall.query import Corrections, Piece, Term
from ..recall.search import FoundWords, RowLookup, Search, sentences, term_score, weightings
from ..recall.stems import BORROWED, Entry, Stems, Vocabulary, likely_in
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
from . import partitions
from .connection import READ_LIMIT, in_snapshot, interrupt_at, known_stems, token_of
from .dialect import SQLITE, IndexBehind, SqliteTable, decoded, is_damage, primary_code
from .partitions import OWN_COLUMNS, Documents, Partitions, Vocabularies, numbers, table

LOAD_TIMEOUT = timedelta(seconds=30)  # of reading a group into memory
NEVER = 1 << 62  # an expiry in microseconds
TOTALS = 1  # the row of FTS5's data with the number of rows, and of words by column

log = logging.getLogger(__name__)


def index_in_memory(cache: IndexCache, features: Features) -> DatabaseIndex:
    """Return an empty in-memory index of a database, disabled unless all features are on."""
    stems = Stems()  # used under the lock of the index
    return DatabaseIndex(
        cache if features == ALL else IndexCache(0),
        Vocabulary(weights_of(features), stems.forms_of),
        lambda texts: Entry.of_fields(stems.of_texts(texts)),
    )


def load_requested(database: sqlite3.Connection, index: DatabaseIndex) -> None:
    """Load the next requested part of the index into memory, while no request waits for it."""
    with index.queue.next() as number:
        if number is None:
            return
        try:
            with in_snapshot(database, LOAD_TIMEOUT):
                _load(database, index, number)
        except (Damaged, Unreadable, ValueError, OverflowError, sqlite3.Error) as error:
            log.debug("A part of the index was not loaded into memory: %s", error)
            index.queue.defer(number)
        except BaseException:
            index.queue.defer(number)
            raise
    while not index.queue.is_due and index.add_some_forms():
        pass  # each batch takes the lock


def _load(database: sqlite3.Connection, index: DatabaseIndex, number: int) -> None:
    token, stored, plan = token_of(database), _Stored(database), index.plan(number)
    stored.require_own_rules()
    areas = stored.areas(plan.number) if plan.areas is None else plan.areas
    globals_ = {GLOBAL_AREA} if plan.globals_too else set()
    drafts = (drafted(it, stored.rows(it), index.vocabulary) for it in sorted({*areas, *globals_}))
    is_same = index.install(token, plan, drafts, stored.totals(plan.number))
    if stored.computed:
        index.computed.append((token, stored.computed))
    if not is_same:
        raise Damaged("The index differs from the memories.")


class _Stored(SqliteTable):
    """The rows to load from a database, in one snapshot."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.computed: dict[MemoryId, Entry] = {}  # entries of memories without stored stems

    def require_own_rules(self) -> None:
        if not self._number("SELECT rules = own_rules() FROM index_rules"):
            raise Damaged("The index was built with other rules.")

    def areas(self, partition: int) -> set[int]:
        return set(self._scalars("SELECT area FROM spaces WHERE partition = :it", it=partition))

    def rows(self, area: int) -> Iterator[tuple[MemoryRow, str]]:
        """Yield an area's memories by id with their stems; Damaged if an expiry is unreadable."""
        memories = self._execute(
            f"""SELECT m.id, m.space_id, m.session_id, m.created_at, l.expires_at, l.pinned_at,
                       t.stems
                  FROM spaces s
                 CROSS JOIN memories m {self._sql.hint("memories_in_space")} ON m.space_id = s.id
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
                  LEFT JOIN memory_stems t ON t.memory_id = m.id
                 WHERE s.area = :area AND {indexed("m")}""",
            area=area,
        ).fetchall()
        memories.sort(key=itemgetter(0))
        superseded: dict[MemoryId, list[int]] = {}
        for older, expiry in self._superseded(area):
            superseded.setdefault(older, []).append(NEVER if expiry is None else expiry)
        missing = [row[0] for row in memories if row[-1] is None]
        entries = self._entries(missing) if missing else {}
        self.computed |= entries
        for id_, space, session, created_at, expires_at, pinned_at, stems in memories:
            expiry_of(id_, expires_at)
            expiries = tuple(superseded.get(id_, ()))
            row = MemoryRow(id_, space, session, created_at, expires_at, pinned_at, expiries)
            yield row, entries[id_].stored if stems is None else stems

    def _superseded(self, area: int) -> list[tuple[MemoryId, int | None]]:
        """Return the superseded memories of an area with the expiry of each superseding one."""
        return self._execute(
            f"""SELECT x.older_id, l.expires_at
                  FROM supersessions x
                  JOIN memories newer ON newer.id = x.newer_id
                  JOIN memories older ON older.id = x.older_id
                  JOIN spaces s ON s.id = older.space_id
                  LEFT JOIN lifecycles l ON l.memory_id = newer.id
                 WHERE s.area = :area AND {undeleted("newer")}""",
            area=area,
        ).fetchall()

    def totals(self, partition: int) -> Totals:
        """Count the rows and the words of a partition, including pending memories."""
        name = table(partition)
        row = self._execute(f"SELECT block FROM {name}_data WHERE id = {TOTALS}").fetchone()
        count, *words = numbers(row[0]) if row else (0,)
        pending = self._entries(Partitions(self._connection, is_alone=False).waiting(partition))
        more = sum(it.length for it in pending.values())
        return Totals(count + len(pending), sum(words) + more)

    def _entries(self, memories: Sequence[MemoryId]) -> dict[MemoryId, Entry]:
        """Compute the entries of memories without stored stems, as in an older format."""
        stems = known_stems(self._connection)
        documents = Documents(self._connection, Partitions(self._connection, is_alone=False))
        return partitions.entries_of(stems, documents.of(memories))


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
WEIGHTS = {"{title tags}": NAMED, "content": SAID}


RESERVED = timedelta(seconds=1)  # of a read's time limit, for its work after a search timeout


class SqliteSearch(SqliteTable, Search):
    """Search by FTS5, or by the in-memory index where it has the area."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        memories: MemoryLists,
        visibility: Visibility,
        index: DatabaseIndex | None,
        begun: float,
        *,
        may_be_behind: bool,
    ) -> None:
        SqliteTable.__init__(self, connection)
        lookup, stems = RowLookup(connection, SQLITE), known_stems(connection)
        Search.__init__(self, memories, visibility, lookup, stems)
        self.met_damage = False  # even if the newest memories replaced the matches
        self._end = begun + READ_LIMIT.total_seconds()
        self._may_be_behind = may_be_behind
        self._complete = set[int]()
        self._missing = set[int]()  # groups that the in-memory index lacks
        self._index = None if index is None or index.is_disabled else index
        self._cached_words: dict[tuple[int, Span, tuple[Term, ...]], FoundWords] = {}
        self._lines: dict[frozenset[int], Mapping[str, str] | None] = {}  # of stems, by areas

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
        with index.lock:
            group = index.group(number) if index.is_at(token_of(self._connection)) else None
            if group is not None:
                yield group, group.weights_of(areas)
        if group is None:
            self._missing.add(number)
            index.queue.request(number, self._memories_of(number))
            yield None
            return
        index.grew(READ_BYTES)

    def _location(self, visible: VisibleRows) -> tuple[int, list[int]] | None:
        """Return a filter's group and areas, or None if they cannot be in memory."""
        if self._index is None or len(visible.spans) != 1 or visible.is_alone:
            return None
        ((number, spans),) = visible.spans.items()
        areas = [area_of(first) for first, last in spans if area_of(first) == area_of(last)]
        return (number, areas) if number not in self._missing and len(areas) == len(spans) else None

    def _memories_of(self, number: int) -> int:
        block = self._execute(
            f"SELECT block FROM {table(number)}_data WHERE id = {TOTALS}"
        ).fetchone()
        return next(numbers(block[0]), 0) - PRIOR_MEMORIES if block else 0

    @contextmanager
    def _in_memory(self, query: IndexQuery) -> Iterator[tuple[Lookup, Lookup] | None]:
        terms = query.terms
        if any(term.starts for term in terms) or not self._location(query.visible):
            yield None
            return
        stem_of = self._stems.of([term.text for term in terms])
        if not all(stem_of.values()):
            yield None
            return
        with self._cached(query.visible) as cached:
            if cached is None:
                yield None
                return
            group, parts = cached
            stems = {text: group.vocabulary.number(it) for text, it in stem_of.items()}
            lookup = Lookup(parts, stems, own=query.own)
            yield lookup, lookup

    def _stored(self, query: IndexQuery) -> Iterator[Sequence[Sequence[Scored]]]:
        for number in query.visible.spans:
            if query.visible.is_alone:
                yield sentences(query, self._area_words(query), self._lookup)
            else:
                yield self._best_of_sentences(query, number)

    def _require_complete(self, number: int) -> None:
        """Raise IndexBehind if memories are pending for a partition, unless that is allowed."""
        if not self._may_be_behind and number not in self._complete:
            if Partitions(self._connection, is_alone=False).waiting(number):
                if self._index is not None:
                    self._index.queue.request(number)  # it includes pending memories
                raise IndexBehind
            self._complete.add(number)

    def _best_of_sentences(self, query: IndexQuery, number: int) -> list[list[Scored]]:
        self._require_complete(number)
        best: list[list[Scored]] = [[] for _ in query.sentence_weights]
        each = (_sentence(at, number, query) for at in range(len(best)))
        parameters = _parameters(self._without_absent(query), number)
        scored = self._execute(" UNION ALL ".join(each), **parameters)
        for at, id_, score in scored:
            best[at].append((score, id_))
        return best

    def _term_scores(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> dict[MemoryId, dict[Term, TermScore]]:
        name = table(number)
        scores = ", ".join(_weighted(name, it) for it in weightings(query.weights))
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
        pairs = [(term, field) for term in terms for field in WEIGHTS]
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
            frequencies[term][memory] = frequencies[term].get(memory, 0.0) + WEIGHTS[field]
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
                stems = {it: group.vocabulary.number(stem_of[it]) for it in words}
                ranking.look_up(stems.values())
                known = ranking.known(stems.values())
                forms = self._stems.compared.get_all([it for it in words if stems[it] not in known])
                return ranking.corrections(it for it in forms.items() if it[1])
        return super()._corrections(words, visible)

    def _existing(self, words: Collection[str], visible: VisibleRows) -> set[str]:
        lines = self._gathered(visible)
        if lines is None:
            return super()._existing(words, visible)
        stems = self._stems.of(words).items()
        return {word for word, it in stems if it and f" {it} " in lines.get(it[0], "")}

    def _without_absent(self, query: IndexQuery) -> IndexQuery:
        """Return the query without terms that no visible memory is known to have.

        They score nothing, but FTS5 would count the rows of other projects with them.
        """
        lines, known = self._gathered(query.visible), self._stems.known
        if lines is None:
            return query
        absent = {
            term
            for term in query.terms
            if (stem := known.get(term.text)) and not term.starts
            if f" {stem} " not in (line := lines.get(stem[0], ""))
            if f" {stem}{BORROWED} " not in line
        }
        sentences = [
            it._replace(terms=tuple(t for t in it.terms if t not in absent) or it.terms[:1])
            for it in query.query.sentences
        ]
        return replace(query, query=replace(query.query, sentences=tuple(sentences)))

    def _stems_near(self, forms: Collection[str], visible: VisibleRows) -> Collection[str]:
        lines = self._gathered(visible)
        if lines is None:
            vocabularies, letters = Vocabularies(self._connection), {form[0] for form in forms}
            return {it for number in visible.spans for it in vocabularies.stems(number, letters)}
        return {it for form in forms for it in likely_in(lines.get(form[0], ""), form)}

    def _gathered(self, visible: VisibleRows) -> Mapping[str, str] | None:
        """Return the gathered stems by first letter, or None if some memories' are missing."""
        spans = list(chain.from_iterable(visible.spans.values()))
        if any(area_of(first) != area_of(last) for first, last in spans):
            return None
        areas = frozenset(area_of(first) for first, _ in spans)
        if areas not in self._lines:
            self._lines[areas] = self._read_lines(areas)
        return self._lines[areas]

    def _read_lines(self, areas: Collection[int]) -> Mapping[str, str] | None:
        rows = self._execute(
            f"""SELECT CAST(a.stems AS BLOB), max({partitions.IS_BEHIND})
                  FROM {partitions.GATHERED}
                 WHERE s.area IN (SELECT value FROM json_each(:areas))
              GROUP BY s.area""",
            areas=json.dumps(list(areas)),
        ).fetchall()
        if any(is_behind for _, is_behind in rows):
            return None
        by_letter = defaultdict[str, str](str)
        for line in chain.from_iterable(decoded(stems or b"").split("\n") for stems, _ in rows):
            by_letter[line[1:2]] += line
        return by_letter

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        is_cached = self._location(visible) and not any(it.starts for it in terms)
        stem_of = self._stems.of([it.text for it in terms]) if is_cached else {}
        if is_cached and all(stem_of.values()):
            with self._cached(visible) as cached:
                if cached is not None:
                    group, parts = cached
                    stems = [group.vocabulary.number(stem_of[it.text]) for it in terms]
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
