"""Search in the stored postings, or in cached areas."""

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
from ..memory.space import GLOBAL_AREA
from ..recall import search as shared
from ..recall.group import Lookup, Weights
from ..recall.query import Term
from ..recall.stems import UNKNOWN, Stems
from ..recall.visibility import IndexQuery, Row, Visibility, VisibleRows, area_of
from . import postings
from .connection import POSTGRESQL, PostgresConnection


def _term_scores(
    words: postings.StoredWords, query: IndexQuery, terms: Iterable[Term], memory: MemoryId
) -> Mapping[Term, TermScore]:
    scores: dict[Term, TermScore] = {}
    for term in terms:
        counts = postings.of_fields(words.counts.get(term, {}).get(memory, 0), own=query.own)
        if any(counts):
            idf, norm = words.idf(term), words.norm(memory)
            score, limit, *by_field = (
                scored(idf, frequency(counts, it), norm) for it in shared.WEIGHTINGS
            )
            scores[term] = shared.term_score(score, limit, by_field)
    return scores


EDITED_LETTERS = (1, 2)  # positions where each possible letter is looked up


def _prefixes(form: str, following: Collection[str]) -> Iterator[str]:
    """Yield prefixes of words with the same first letter that are one edit from a form.

    `following` has a word for each letter that continues the form's first letters in any word.
    """
    yield form[: EDITED_LETTERS[-1] + 1]
    for at in EDITED_LETTERS:
        head, two = form[:at], form[at : at + 2]
        yield head + form[at + 1 : at + 3]  # a deletion
        yield head + two[::-1] + form[at + 2 : at + 3]  # a transposition
        for letter in {it[at] for it in following if it.startswith(head) and len(it) > at}:
            yield head + letter + form[at + 1 : at + 3]  # a replacement
            yield head + letter + two  # an insertion


READ_LIMIT = timedelta(seconds=5)  # half of our client's timeout, so that it gets the reason
FOR_ROLLBACK = timedelta(milliseconds=100)  # least time limit, which the rollback has, too
CORRUPTED = (errors.DataCorrupted, errors.IndexCorrupted)
RESERVED = timedelta(seconds=1)  # of READ_LIMIT, for work after a search that timed out


class PostgresSearch(shared.Search):
    """Search in one transaction; `begun` is its start on the monotonic clock."""

    def __init__(
        self, connection: PostgresConnection, *, memories: MemoryLists, visibility: Visibility,
        stems: Stems, begun: float, cached: postings.IndexMemory,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._end = begun + READ_LIMIT.total_seconds()
        self._postings = postings.Postings(connection)
        self._cached = cached
        self._groups: dict[int, postings.GroupStatistics] = {}
        super().__init__(memories, visibility, shared.RowLookup(connection, POSTGRESQL), stems)

    @contextmanager
    def within(self, timeout: timedelta) -> Iterator[None]:
        left = self._end - RESERVED.total_seconds() - time.monotonic()
        within = max(min(timeout.total_seconds(), left), 0.001)
        self._connection.execute("SAVEPOINT words")
        self._limit(max(within, FOR_ROLLBACK.total_seconds()))
        self._postings.deadline = time.monotonic() + within
        try:
            yield
            if within < RESERVED.total_seconds():  # else the timeout stays
                self._limit(max(self._end - time.monotonic(), 0.001))
                self._connection.sync()
        except (TimedOut, errors.QueryCanceled, *CORRUPTED) as error:
            self._connection.roll_back_to("words")
            if isinstance(error, CORRUPTED):
                raise Damaged("Full-text search is unavailable.") from error
            raise TimedOut("The search took too long.") from error
        finally:
            self._postings.deadline = self._end

    def _limit(self, seconds: float) -> None:
        timeout = {"timeout": str(ceil(seconds * 1000))}
        self._connection.execute("SELECT set_config('statement_timeout', :timeout, TRUE)", timeout)

    @contextmanager
    def _in_memory(
        self, query: IndexQuery
    ) -> Iterator[tuple[shared.QueryWords, shared.Gains | None] | None]:
        """Yield the words of cached areas, or None unless all are at this snapshot's versions."""
        visible, terms = query.visible, query.terms
        stem_of = self._stems.of([term.text for term in terms])
        is_plain = all(stem_of.values()) and not any(term.starts for term in terms)
        if len(visible.spans) != 1 or visible.is_alone or not is_plain:
            yield None
            return
        stem_of = {text: postings.stored_term(stem) for text, stem in stem_of.items()}
        (number,) = visible.spans
        statistics = self._statistics_of(number)
        with self._cached.of(self._areas(visible, number), statistics.versions) as areas:
            if areas is None:
                yield None
                return
            numbers = {text: self._cached.vocabulary.number(it) for text, it in stem_of.items()}
            known = [stem_of[text] for text, it in numbers.items() if it != UNKNOWN]
            statistics.document_counts(known, own=query.own)  # all in one statement
            weights = [Weights(statistics, it) for it in areas]
            yield Lookup(weights, numbers, own=query.own), None

    def _stored(self, query: IndexQuery) -> Iterator[Sequence[Sequence[Scored]]]:
        for number in query.visible.spans:
            yield shared.sentences(query, self._words(query, number), self._lookup)

    def _words(self, query: IndexQuery, number: int) -> postings.StoredWords:
        terms = query.terms
        stems = self._stems.of_texts([term.text for term in terms])
        stems_of = {
            term: tuple(map(postings.stored_term, it))
            for term, it in zip(terms, stems, strict=True)
        }
        statistics = None if query.visible.is_alone else self._statistics_of(number)
        areas = self._areas(query.visible, number)
        return postings.StoredWords(self._postings, query, areas, stems_of, statistics)

    def _statistics_of(self, number: int) -> postings.GroupStatistics:
        if number not in self._groups:
            self._groups[number] = postings.GroupStatistics(self._postings, number, self._cached)
        return self._groups[number]

    def _areas(self, visible: VisibleRows, number: int) -> list[int]:
        areas: list[int] = []
        for first, last in visible.spans[number]:
            if area_of(first) == area_of(last):
                areas.append(area_of(first))
            else:  # all projects of the group
                areas += [it for it in self._statistics_of(number).versions if it > GLOBAL_AREA]
        return areas

    def _counts(self, terms: Collection[Term], visible: VisibleRows, most: int) -> list[int]:
        stems = self._stems.of([term.text for term in terms])
        names = [postings.stored_term(stems[term.text]) for term in terms]
        areas = [it for number in visible.spans for it in self._areas(visible, number)]
        rows = self._connection.execute(
            f"""SELECT stems.term, sum(counted.rows)
                  FROM unnest(CAST(:stems AS TEXT[])) AS stems (term)
                 CROSS JOIN unnest(CAST(:areas AS BIGINT[])) AS its (area)
                 CROSS JOIN LATERAL (SELECT count(*) AS rows
                                       FROM (SELECT 1
                                               FROM postings
                                              WHERE area = its.area AND term = stems.term
                                                    AND counts & {postings.OWN_BITS} <> 0
                                              LIMIT :most) first) counted
              GROUP BY stems.term""",
            {"stems": sorted(set(names)), "areas": areas, "most": most + 1},
        )
        counts: dict[str, int] = dict(rows.fetchall())
        return [counts.get(stem, 0) for stem in names]

    def _stems_near(self, forms: Collection[str], visible: VisibleRows) -> list[str]:
        areas = [it for number in visible.spans for it in self._areas(visible, number)]
        heads = [form[:size] for form in forms for size in EDITED_LETTERS]
        following = self._postings.starting(areas, heads, letters=1)
        prefixes = {it for form in forms for it in _prefixes(form, following)}
        shorter = {it[:size] for it in prefixes for size in range(2, len(it))}
        return [*self._postings.starting(areas, sorted(prefixes)), *shorter]

    def _scores(
        self, query: IndexQuery, number: int, terms: Sequence[Term], rows: Mapping[MemoryId, Row]
    ) -> tuple[list[list[Scored]], dict[MemoryId, Mapping[Term, TermScore]]]:
        words = self._words(query, number)
        term_scores = {id_: _term_scores(words, query, terms, id_) for id_ in rows}
        return shared.sentences(query, words, self._lookup), term_scores
