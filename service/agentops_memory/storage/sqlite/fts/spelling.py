"""SQL for corrections of misspelt words, by the terms of a project and the global ones."""

import json
import sqlite3
from collections.abc import Collection, Mapping
from itertools import islice

from ....domain.model.search import Filter
from ....domain.model.space import GLOBAL_SCOPE
from ....domain.text.query import Corrections
from ....domain.text.spelling import MOST_TERMS, MOST_WORDS, is_one_edit
from ...index_cache.rows import area_of
from ..base.connection import known_stems
from ..base.dialect import SqliteTable, compared
from .cached_index import CachedIndex
from .queries import in_columns
from .tables import OWN_COLUMNS, table
from .visibility import Span, Visibility


class Spelling(SqliteTable):
    """Corrections in one transaction, by the terms of a project and the global ones."""

    def __init__(
        self, connection: sqlite3.Connection, visibility: Visibility, cached: CachedIndex
    ) -> None:
        super().__init__(connection)
        self._visibility = visibility
        self._cached = cached
        self._stems = known_stems(connection)

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        """What the unknown ones among the words may have meant."""
        is_one = filter_.project or filter_.is_elsewhere
        if not is_one and filter_.scope != GLOBAL_SCOPE:
            return {}
        visible = self._visibility.of(filter_)
        if not visible.spans:  # nothing was ever there
            return {}
        ((number, spans),) = visible.spans.items()
        areas = [area_of(first) for first, _ in spans]
        forms = {word: it for word, it in compared(self._stems, words).items() if it}
        known = self._cached.known(visible, forms)
        if known is None:
            known = self._known(forms, areas)
        unknown = islice((it for it in forms.items() if it[0] not in known), MOST_WORDS)
        likely: dict[str, list[str]] = {}
        for word, form, term in self._near(dict(unknown), areas):
            if is_one_edit(form, term):
                likely.setdefault(word, []).append(term)
        return {word: self._frequent(terms, number, spans) for word, terms in likely.items()}

    def _known(self, forms: Mapping[str, str], areas: list[int]) -> frozenset[str]:
        """Those of the words, by their forms, that are terms of an area."""
        ((known,),) = self._execute(
            """SELECT json_group_array(key)
                 FROM json_each(:forms) word
                WHERE EXISTS (SELECT 1
                                FROM terms
                               WHERE area IN (SELECT value FROM json_each(:areas))
                                     AND length = length(word.value) AND term = word.value)""",
            forms=json.dumps(forms),
            areas=json.dumps(areas),
        )
        return frozenset(json.loads(known))

    def _near(self, forms: Mapping[str, str], areas: list[int]) -> list[tuple[str, str, str]]:
        """Unknown words, their forms, and terms of the areas that begin or end alike.

        One that is one edit away does: the edit lies in one of the halves. The rows
        come as one: row by row, searches side by side hold each other up more.
        """
        if not forms:
            return []
        ((rows,),) = self._execute(
            """  WITH area AS MATERIALIZED (SELECT value FROM json_each(:areas)),
                      unknown AS MATERIALIZED
                      (SELECT key AS word, value AS form, length(value) AS length,
                              length(value) / 2 AS middle
                         FROM json_each(:forms))
               SELECT json_group_array(json_array(word, form, term))
                 FROM (SELECT DISTINCT word, form, term
                         FROM unknown
                         JOIN terms
                           ON terms.area IN area
                          AND terms.length IN (unknown.length - 1, unknown.length,
                                               unknown.length + 1)
                          AND term >= substr(form, 1, 1)
                          AND term < char(unicode(form) + 1)
                          AND (substr(term, 1, middle) = substr(form, 1, middle)
                               OR substr(term, middle + 1 - unknown.length)
                                  = substr(form, middle + 1 - unknown.length)))""",
            forms=json.dumps(forms),
            areas=json.dumps(areas),
        )
        near: list[tuple[str, str, str]] = json.loads(rows)
        return near

    def _frequent(self, terms: list[str], number: int, spans: list[Span]) -> tuple[str, ...]:
        """The most frequent of the terms, ties in the order of the alphabet."""
        if len(terms) <= MOST_TERMS:
            return tuple(sorted(terms))
        counts = {term: self._count(term, number, spans) for term in terms}
        return tuple(sorted(terms, key=lambda term: (-counts[term], term))[:MOST_TERMS])

    def _count(self, term: str, number: int, spans: list[Span]) -> int:
        """How many memories have the term among their own words."""
        name = table(number)
        counts = (
            self._execute(
                f"""SELECT count(*)
                      FROM {name}
                     WHERE {name} MATCH :match AND rowid BETWEEN :first AND :last""",
                match=in_columns(OWN_COLUMNS, f'"{term}"'),
                first=first,
                last=last,
            ).fetchone()
            for first, last in spans
        )
        return sum(count for (count,) in counts)
