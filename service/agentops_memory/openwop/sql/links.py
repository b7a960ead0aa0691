"""SQL for what stands for entries, and of what entries were made."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from ...memory.model.memory import MemoryId
from ...memory.model.space import MemoryRef
from ...memory.sql.rows import MOST, micros
from ...memory.sql.table import Table
from ..entries import RefEntry
from ..model.passes import Link
from ..refs import there
from ..runs import Run


@dataclass(eq=False)
class Links(Table):
    """The links of one transaction."""

    _now: datetime

    def link(self, run: Run, links: Sequence[Link], *, counts: bool) -> None:
        most, least = self._sql.greatest, self._sql.least
        seen = f"(SELECT {most}(duplicates, 0) FROM memories WHERE id = :older)" if counts else "0"
        rows = [{"newer": it.newer, "older": it.older, "pass": run.number} for it in links]
        self._connection.executemany(
            f"""INSERT INTO ref_supersessions (newer_id, older_id, made_after, pass, seen)
                VALUES (:newer, :older, (SELECT coalesce(max(id), 0) FROM run_events), :pass,
                        {seen})""",
            rows,
        )
        if counts:
            self._connection.executemany(
                f"""UPDATE memories
                      SET duplicates = {least}(memories.duplicates + o.duplicates, {MOST}),
                          last_seen_at = {most}(memories.last_seen_at, o.last_seen_at)
                     FROM (SELECT duplicates, last_seen_at FROM memories WHERE id = :older) o
                    WHERE id = :newer""",
                rows,
            )
        self._derive([(it.newer, it.older) for it in links])

    def add_archive(self, memory: MemoryId, ref: MemoryRef, sources: Sequence[RefEntry]) -> None:
        self._execute(
            """INSERT INTO archives (memory_id, space_id, sources, first_at, last_at)
               SELECT :memory, space_id, :sources, :first, :last FROM refs WHERE ref = :ref""",
            memory=memory,
            ref=ref,
            sources=len(sources),
            first=micros(sources[0].created_at),
            last=micros(sources[-1].created_at),
        )
        self._derive([(memory, it.memory) for it in sources])

    def is_archive_of(self, memory: MemoryId, sources: Collection[MemoryId]) -> bool:
        known = self._scalars(
            "SELECT source_id FROM derivations WHERE memory_id = :memory", memory=memory
        )
        return set(known) == set(sources)

    def take_over(self, old: MemoryId, new: MemoryId) -> None:
        for statement in _TAKEN_OVER:
            self._execute(statement, old=old, new=new)

    def inherit(self, gone: Collection[MemoryId]) -> None:
        heirs = f"""{self._sql.ids("given")}
                   {self._sql.leads} ref_supersessions h
                         ON h.older_id = given.value AND h.ended_after IS NULL
                   JOIN ref_entries n
                         ON n.memory_id = h.newer_id AND {there(None, "n")}"""
        given: dict[str, object] = {"ids": json.dumps(list(gone)), **self._at}
        self._execute(
            f"""INSERT INTO ref_supersessions (newer_id, older_id, made_after)
                SELECT h.newer_id, x.older_id, (SELECT coalesce(max(id), 0) FROM run_events)
                  FROM {heirs}
                  JOIN ref_supersessions x ON x.newer_id = given.value AND x.ended_after IS NULL
                 WHERE x.older_id <> h.newer_id
                    ON CONFLICT DO NOTHING""",
            **given,
        )
        self._execute(
            f"""INSERT INTO derivations (memory_id, source_id)
                SELECT h.newer_id, d.source_id
                  FROM {heirs}
                  JOIN derivations d ON d.memory_id = given.value
                 WHERE d.source_id <> h.newer_id
                    ON CONFLICT DO NOTHING""",
            **given,
        )

    def _derive(self, pairs: Sequence[tuple[MemoryId, MemoryId]]) -> None:
        self._connection.executemany(
            """INSERT INTO derivations (memory_id, source_id)
               VALUES (:memory, :source)
                   ON CONFLICT DO NOTHING""",
            [{"memory": memory, "source": source} for memory, source in pairs],
        )

    @property
    def _at(self) -> dict[str, object]:
        return {"now": micros(self._now)}


# What stood for an old entry, and what it stood for, is the new one's; snapshots have that one.
_TAKEN_OVER = (
    "UPDATE ref_supersessions SET newer_id = :new WHERE newer_id = :old",
    "UPDATE ref_supersessions SET older_id = :new WHERE older_id = :old",
    "UPDATE derivations SET memory_id = :new WHERE memory_id = :old",
    "UPDATE derivations SET source_id = :new WHERE source_id = :old",
    """UPDATE ref_entries
          SET renews = (SELECT coalesce(renews, memory_id)
                          FROM ref_entries
                         WHERE memory_id = :old)
        WHERE memory_id = :new""",
)
