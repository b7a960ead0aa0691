"""Recall by postings that are stored."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from math import ceil

from psycopg import errors

from ..errors import Damaged, TimedOut
from ..memory.memories import MemoryLists
from ..memory.memory import MemoryId
from ..memory.search import Scored, TermScore, frequency, scored
from ..recall.features import Features
from ..recall.group import Lookup
from ..recall.query import Term
from ..recall.search import (
    QueryWords,
    RowLookup,
    Search,
    Sessions,
    sentences,
    term_score,
    weightings,
)
from ..recall.stems import UNKNOWN, Stems
from ..recall.visibility import IndexQuery, Row, Visibility, VisibleRows, area_of
from .connection import POSTGRESQL, PostgresConnection
from .postings import (
    OWN,
    GroupWeights,
    IndexMemory,
    Postings,
    StoredStatistics,
    StoredWords,
    of_fields,
    stored_term,
)


def _added(
    words: StoredWords, query: IndexQuery, terms: Iterable[Term], memory: MemoryId
) -> Mapping[Term, TermScore]:
    added: dict[Term, TermScore] = {}
    for term in terms:
        counts = of_fields(words.counts.get(term, {}).get(memory, 0), own=query.own)
        if any(counts):
            idf, norm = words.idf(term), words.norm(memory)
            score, limit, *alone = (
                scored(idf, frequency(counts, it), norm) for it in weightings(query.weights)
            )
            added[term] = term_score(score, limit, alone)
    return added


SPELT_OUT = (1, 2)  # places at which an edit is looked for by each letter that may be there


def _starts(form: str, following: Collection[str]) -> Iterator[str]:
    """How words one edit away from a form begin, which has the same first letter.

    `following` has a word for each letter that follows the first ones in any word.
    """
    yield form[: SPELT_OUT[-1] + 1]
    for at in SPELT_OUT:
        head, two = form[:at], form[at : at + 2]
        yield head + form[at + 1 : at + 3]  # one left out
        yield head + two[::-1] + form[at + 2 : at + 3]  # two swapped
        for letter in {it[at] for it in following if it.startswith(head) and len(it) > at}:
            yield head + letter + form[at + 1 : at + 3]  # one replaced
            yield head + letter + two  # one added


READ_LIMIT = timedelta(seconds=5)  # half of what our client waits, so that it gets the reason
TRIES = 9  # to undo what took too long
RESERVED = timedelta(seconds=1)  # of a read's time limit, for its work after a search timeout


class PostgresSearch(Search):
    """Recall in one transaction, which began at a time of the monotonic clock."""

    def __init__(
        self,
        connection: PostgresConnection,
        *,
        memories: MemoryLists,
        visibility: Visibility,
        features: Features,
        stems: Stems,
        begun: float,
        cached: IndexMemory,
    ) -> None:
        self._connection = connection
        self._end = begun + READ_LIMIT.total_seconds()
        self._postings, self._features, self._cached = Postings(connection), features, cached
        self._weights: dict[int, GroupWeights] = {}
        super().__init__(memories, visibility, RowLookup(connection, POSTGRESQL), stems)

    @contextmanager
    def within(self, timeout: timedelta) -> Iterator[None]:
        left = self._end - RESERVED.total_seconds() - time.monotonic()
        within = max(min(timeout.total_seconds(), left), 0.001)
        self._connection.execute("SAVEPOINT words")
        self._limit(within)
        self._postings.end = time.monotonic() + within
        try:
            yield
            if within < RESERVED.total_seconds():  # else what follows may have as long
                self._limit(max(self._end - time.monotonic(), 0.001))
                self._connection.sync()
        except errors.QueryCanceled as error:
            self._go_back()
            raise TimedOut("The search took too long.") from error
        except TimedOut:
            self._go_back()
            raise
        except (errors.DataCorrupted, errors.IndexCorrupted) as error:
            self._go_back()
            raise Damaged("Full-text search is unavailable.") from error
        finally:
            self._postings.end = self._end

    def _go_back(self) -> None:
        """Undo what was tried, and its limit, within which that has to be done, too."""
        for left in reversed(range(TRIES)):
            try:
                self._connection.go_back("words")
            except errors.QueryCanceled:
                if not left:
                    raise
            else:
                return

    def _limit(self, seconds: float) -> None:
        timeout = {"timeout": str(ceil(seconds * 1000))}
        self._connection.execute("SELECT set_config('statement_timeout', :timeout, TRUE)", timeout)

    @contextmanager
    def _in_memory(self, query: IndexQuery) -> Iterator[tuple[QueryWords, Sessions | None] | None]:
        """The words in memory, if all areas are there as of this snapshot."""
        visible, terms = query.visible, query.terms
        stem_of = self._stems.of([term.text for term in terms])
        is_plain = all(stem_of.values()) and not any(term.starts for term in terms)
        if len(visible.spans) != 1 or visible.is_alone or not is_plain:
            yield None
            return
        stem_of = {text: stored_term(stem) for text, stem in stem_of.items()}
        (number,) = visible.spans
        weights = self._weights_of(number)
        with self._cached.of(self._areas(visible, number), weights.versions) as areas:
            if areas is None:
                yield None
                return
            vocabulary = self._cached.vocabulary
            numbers = {text: vocabulary.number(it) for text, it in stem_of.items()}
            known = {it: stem_of[text] for text, it in numbers.items() if it != UNKNOWN}
            parts = StoredStatistics(weights, known, self._cached).weights_of(areas, own=query.own)
            yield Lookup(parts, numbers, own=query.own), None

    def _stored(self, query: IndexQuery) -> Iterator[Sequence[Sequence[Scored]]]:
        for number in query.visible.spans:
            yield sentences(query, self._words(query, number), self._lookup)

    def _words(self, query: IndexQuery, number: int) -> StoredWords:
        terms = query.terms
        stems = self._stems.of_texts([term.text for term in terms])
        stems_of = {
            term: tuple(map(stored_term, it)) for term, it in zip(terms, stems, strict=True)
        }
        weights = None if query.visible.is_alone else self._weights_of(number)
        areas = self._areas(query.visible, number)
        return StoredWords(self._postings, query, areas, stems_of, weights)

    def _weights_of(self, number: int) -> GroupWeights:
        if number not in self._weights:
            known = self._cached.counts
            self._weights[number] = GroupWeights(self._postings, number, self._features, known)
        return self._weights[number]

    def _areas(self, visible: VisibleRows, number: int) -> list[int]:
        areas: list[int] = []
        for first, last in visible.spans[number]:
            if area_of(first) == area_of(last):
                areas.append(area_of(first))
            else:  # all of the group's own
                areas += self._postings.areas_of(number)
        return areas

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        stems = self._stems.of([term.text for term in terms])
        names = [stored_term(stems[term.text]) for term in terms]
        areas = [it for number in visible.spans for it in self._areas(visible, number)]
        rows = self._connection.execute(
            f"""SELECT stems.term, sum(counted.rows)
                  FROM unnest(CAST(:stems AS TEXT[])) AS stems (term)
                 CROSS JOIN unnest(CAST(:areas AS BIGINT[])) AS its (area)
                 CROSS JOIN LATERAL (SELECT count(*) AS rows
                                       FROM (SELECT 1
                                               FROM postings
                                              WHERE area = its.area AND term = stems.term
                                                    AND counts & {OWN} <> 0
                                              LIMIT :most) first) counted
              GROUP BY stems.term""",
            {"stems": sorted(set(names)), "areas": areas, "most": most + 1},
        )
        counts: dict[str, int] = dict(rows.fetchall())
        return [counts.get(stem, 0) for stem in names]

    def _stems_near(self, forms: Collection[str], visible: VisibleRows) -> list[str]:
        areas = [it for number in visible.spans for it in self._areas(visible, number)]
        heads = [form[:size] for form in forms for size in SPELT_OUT]
        following = self._postings.starting(areas, heads, letters=1)
        starts = {it for form in forms for it in _starts(form, following)}
        shorter = {it[:size] for it in starts for size in range(2, len(it))}
        return [*self._postings.starting(areas, sorted(starts)), *shorter]

    def _scores(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> tuple[list[list[Scored]], dict[MemoryId, Mapping[Term, TermScore]]]:
        words = self._words(query, number)
        added = {id_: _added(words, query, terms, id_) for id_ in rows}
        return sentences(query, words, self._lookup), added
