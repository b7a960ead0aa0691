"""SQL for what the index holds of memories: their prepared text, and the stems of their words."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...engine.shared.stems import Stems
from ...memory.model.kinds import TRAITS
from ...memory.model.memory import MemoryId
from ...memory.sql.kinds import GLOBAL_AREA, kind_of
from ...memory.sql.liveness import indexed
from ...memory.sql.rows import tag_tuple
from ...memory.sql.table import Connection
from ...recall.search.document import Borrowing, Document
from ...recall.text.columns import columns
from ...recall.text.features import Features
from ...recall.text.json_words import words_of
from ...recall.text.normalization import NEIGHBOURS
from ..base.dialect import POSTGRESQL
from .terms import FIELDS, Counts, counted

MOST_TEXT = 100_000  # characters of contents whose words are put in together


class Entry(NamedTuple):
    """The words of a document: how many, and how often each stem stands in each field."""

    length: int
    stems: dict[str, Counts]


class Documents(Borrowing):
    """The documents of one transaction."""

    def __init__(self, connection: Connection, features: Features, stems: Stems) -> None:
        super().__init__(connection, POSTGRESQL)
        self._features = features
        self._stems = stems

    def of(self, ids: Collection[MemoryId]) -> dict[MemoryId, Document]:
        """Those of live memories."""
        if not ids:
            return {}
        given = f"(SELECT value FROM {self._sql.ids('given')})"
        return dict(self._read(f"m.id IN {given}", ids=json.dumps(list(ids))))

    def in_area(
        self, area: int, after: MemoryId, last: MemoryId, limit: int
    ) -> list[tuple[MemoryId, Document]]:
        """Those of an area's memories with ids up to the last, in the order of ids."""
        return list(
            self._read(
                "s.area = :area AND m.id > :after AND m.id <= :last",
                f"ORDER BY m.id LIMIT {limit}",
                area=area,
                after=after,
                last=last,
            )
        )

    def entries(self, documents: Sequence[Document]) -> list[Entry]:
        """The words of documents."""
        texts = [it for d in documents for it in (d.title, d.content, d.context, d.tags)]
        said = self._stems.of_texts(texts)
        each = (said[at : at + FIELDS] for at in range(0, len(said), FIELDS))
        return [Entry(sum(map(len, fields)), counted(fields)) for fields in each]

    def _read(
        self, condition: str, order: str = "", **values: object
    ) -> Iterator[tuple[MemoryId, Document]]:
        rows = self._execute(
            f"""SELECT m.id, s.area, s.kind, s.project, m.title, m.content, m.tags,
                       ARRAY(SELECT n.content
                               FROM memories n
                              WHERE n.session_id = m.session_id AND n.space_id = m.space_id
                                    AND n.id < m.id AND {indexed("n")}
                           ORDER BY n.id DESC
                              LIMIT {NEIGHBOURS})
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE {condition} AND s.area >= {GLOBAL_AREA} AND {indexed("m")}
                 {order}""",
            **values,
        )
        for id_, area, kind, project, title, content, tags, before in rows.fetchall():
            said = words_of(content) if TRAITS[kind_of(kind, project)].is_json else content
            prepared = columns(title, said, tag_tuple(tags), before[::-1], self._features)
            yield MemoryId(id_), Document(area, *prepared)


def bounded(documents: Mapping[MemoryId, Document]) -> Iterator[Mapping[MemoryId, Document]]:
    """The documents in portions, each of so much text that its words fit into memory."""
    some: dict[MemoryId, Document] = {}
    size = 0
    for id_, it in documents.items():
        some[id_] = it
        size += len(it.content)
        if size >= MOST_TEXT:
            yield some
            some, size = {}, 0
    if some:
        yield some
