"""SQL for corrections of misspelt words, by the terms of a project and the global ones."""

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from ...recall.search.search import Spelling
from ...recall.search.visibility import Visibility, VisibleRows
from ...recall.text.spelling import MOST_WORDS
from ..base.connection import known_stems
from .cached_index import CachedIndex
from .queries import in_columns
from .tables import OWN_COLUMNS, table


class SqliteSpelling(Spelling):
    """Corrections in one transaction."""

    def __init__(
        self, connection: sqlite3.Connection, visibility: Visibility, cached: CachedIndex
    ) -> None:
        super().__init__(visibility, known_stems(connection))
        self._connection = connection
        self._cached = cached

    def _known(
        self, forms: Mapping[str, str], areas: Sequence[int], visible: VisibleRows
    ) -> Collection[str]:
        """Those of the words, by their forms, that a visible memory has among its own."""
        known = self._cached.known(visible, forms)
        if known is not None:
            return known
        ((found,),) = self._connection.execute(
            """SELECT json_group_array(key)
                 FROM json_each(:forms) word
                WHERE EXISTS (SELECT 1
                                FROM terms
                               WHERE area IN (SELECT value FROM json_each(:areas))
                                     AND length = length(word.value) AND term = word.value)""",
            {"forms": json.dumps(forms), "areas": json.dumps(areas)},
        )
        return frozenset(json.loads(found))

    def _near(
        self, forms: Mapping[str, str], areas: Sequence[int], visible: VisibleRows
    ) -> list[tuple[str, str, str]]:
        """The rows come as one: row by row, searches side by side hold each other up more."""
        known = self._known(forms, areas, visible)
        unknown = dict(islice((it for it in forms.items() if it[0] not in known), MOST_WORDS))
        if not unknown:
            return []
        ((rows,),) = self._connection.execute(
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
            {"forms": json.dumps(unknown), "areas": json.dumps(areas)},
        )
        near: list[tuple[str, str, str]] = json.loads(rows)
        return near

    def _count(self, term: str, visible: VisibleRows) -> int:
        ((number, spans),) = visible.spans.items()
        name, match = table(number), in_columns(OWN_COLUMNS, f'"{term}"')
        counts = (
            self._connection.execute(
                f"""SELECT count(*)
                      FROM {name}
                     WHERE {name} MATCH :match AND rowid BETWEEN :first AND :last""",
                {"match": match, "first": first, "last": last},
            ).fetchone()
            for first, last in spans
        )
        return sum(count for (count,) in counts)
