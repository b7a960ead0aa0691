"""SQL for corrections of misspelt words, by the terms of a project and the global ones."""

from collections.abc import Mapping, Sequence

from ...engine.shared.stems import Stems
from ...memory.sql.table import Connection
from ...recall.index_cache.rows import area_of
from ...recall.search.search import Spelling
from ...recall.search.visibility import Visibility, VisibleRows
from ...recall.text.spelling import MOST_WORDS
from .postings import BEYOND, in_areas
from .terms import OWN, stored_term


class PostgresSpelling(Spelling):
    """Corrections in one transaction."""

    def __init__(self, connection: Connection, visibility: Visibility, stems: Stems) -> None:
        super().__init__(visibility, stems)
        self._connection = connection

    def _near(
        self,
        forms: Mapping[str, str],
        areas: Sequence[int],
        visible: VisibleRows,  # noqa: ARG002
    ) -> list[tuple[str, str, str]]:
        """Each word is looked up by the key: as a join, all terms of the areas may be read."""
        where, values = in_areas(areas)
        found = self._connection.execute(
            f"""SELECT DISTINCT word, form, term
                  FROM (SELECT word, form, length(form) AS size, length(form) / 2 AS middle
                          FROM unnest(CAST(:words AS TEXT[]), CAST(:forms AS TEXT[]))
                               WITH ORDINALITY AS asked (word, form, place)
                         WHERE (SELECT 1
                                  FROM terms
                                 WHERE {where} AND length = length(form) AND term = form
                                 LIMIT 1) IS NULL
                      ORDER BY place
                         LIMIT {MOST_WORDS}) unknown
                  JOIN terms
                    ON {where} AND length = ANY(CAST(ARRAY[size - 1, size, size + 1] AS BIGINT[]))
                   AND term >= left(form, 1) AND term < left(form, 1) || :beyond
                   AND (left(term, middle) = left(form, middle)
                        OR right(term, size - middle - 1) = right(form, size - middle - 1))""",
            {
                "words": list(forms),
                "forms": list(forms.values()),
                "beyond": BEYOND,
                **values,
            },
        )
        return list(found.fetchall())

    def _count(self, term: str, visible: VisibleRows) -> int:
        ((_, spans),) = visible.spans.items()
        stem = stored_term(self._stems.of([term])[term])
        ((count,),) = self._connection.execute(
            f"""SELECT count(*)
                  FROM postings
                 WHERE area = ANY(CAST(:areas AS BIGINT[])) AND term = :stem
                       AND counts & {OWN} <> 0""",
            {"areas": [area_of(first) for first, _ in spans], "stem": stem},
        )
        return int(count)
