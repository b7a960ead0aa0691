"""SQL for the tags that were put and whose commitments have not all fired."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ...memory.model.memory import MemoryId
from ...memory.model.space import MemoryRef
from ...memory.sql.rows import micros
from ...memory.sql.table import Table
from .visible import there

SPACE = "(SELECT space_id FROM refs WHERE ref = :ref)"


@dataclass(eq=False)
class MetTags(Table):
    """The notes of one transaction: one for each tag, however many commitments wait for it."""

    _now: datetime

    @property
    def exist(self) -> bool:
        return self._exists("SELECT 1 FROM met_tags LIMIT 1")

    def add(self, ref: MemoryRef, memory: MemoryId, tags: Sequence[str]) -> int | None:
        """Note the tags of a new entry that are met; the first note."""
        notes = [
            {"tag": tag, "source": next(iter(others), None)}
            for tag in self._awaited(ref, tags)
            if len(others := self._others(ref, memory, tag)) <= 1
        ]
        if not notes:
            return None
        first = self._number("SELECT coalesce(max(id), 0) FROM met_tags") + 1
        self._connection.executemany(
            """INSERT INTO met_tags (space_id, tag, newest, source_id)
               SELECT space_id, :tag, (SELECT max(id) FROM commitments), :source
                 FROM ref_entries
                WHERE memory_id = :memory""",
            [{"memory": memory, **note} for note in notes],
        )
        return first

    def take(self, most: int, first: int) -> list[int]:
        """Armed commitments that notes tell of, from the first one on; notes used up go."""
        found: list[int] = []
        of_source = "(t.source_id IS NULL OR c.memory_id = t.source_id)"
        for note in self._scalars(
            "SELECT id FROM met_tags WHERE id >= :first ORDER BY id LIMIT :most",
            first=first,
            most=most,
        ):
            found += self._scalars(
                f"""SELECT c.id
                      FROM met_tags t
                     {self._sql.leads} commitments c {self._sql.hint("commitments_by_tag")}
                           ON c.space_id = t.space_id AND c.tag = t.tag AND c.id <= t.newest
                              AND {of_source}
                     WHERE t.id = :note AND c.state = 'armed'
                  ORDER BY c.id
                     LIMIT :most""",
                note=note,
                most=most - len(found),
            )
            if len(found) == most:
                break
            self._execute("DELETE FROM met_tags WHERE id = :note", note=note)
        return found

    def retag(self, source: MemoryId, tag: str, clean: str) -> None:
        """What has met the commitments of an entry by a tag has met them by its new name, too."""
        self._execute(
            """INSERT INTO met_tags (space_id, tag, newest, source_id)
               SELECT t.space_id, :clean, t.newest, e.memory_id
                 FROM met_tags t
                 JOIN ref_entries e ON e.space_id = t.space_id AND e.memory_id = :source
                WHERE t.tag = :tag AND (t.source_id IS NULL OR t.source_id = :source)""",
            source=source,
            tag=tag,
            clean=clean,
        )
        self._execute(
            """DELETE FROM met_tags
                WHERE tag = :tag
                      AND NOT EXISTS (SELECT 1
                                        FROM commitments c
                                       WHERE c.space_id = met_tags.space_id AND c.tag = :tag
                                             AND c.state = 'armed')""",
            tag=tag,
        )

    def _awaited(self, ref: MemoryRef, tags: Sequence[str]) -> list[str]:
        """Those of the tags that something of the ref waits for."""
        return self._scalars(
            f"""SELECT given.value
                  FROM {self._sql.texts("given")}
                 WHERE EXISTS (SELECT 1
                                 FROM commitments c {self._sql.hint("commitments_by_tag")}
                                WHERE c.space_id = {SPACE} AND c.tag = given.value
                                      AND c.state = 'armed')
              ORDER BY given.key""",
            ref=ref,
            texts=json.dumps(list(tags)),
        )

    def _others(self, ref: MemoryRef, new: MemoryId, tag: str) -> list[MemoryId]:
        """Live entries that have a tag besides a new one: two of them are as good as all."""
        return self._scalars(
            f"""SELECT t.memory_id
                  FROM ref_tags t
                  JOIN ref_entries e ON e.memory_id = t.memory_id
                 WHERE t.space_id = {SPACE} AND t.tag = :tag AND t.memory_id <> :new
                       AND {there(None)}
              ORDER BY t.created_at DESC, t.memory_id DESC
                 LIMIT 2""",
            ref=ref,
            tag=tag,
            new=new,
            now=micros(self._now),
        )
