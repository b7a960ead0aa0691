"""SQL for the stems in memories' own words, by which a misspelt word is put right."""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from ....domain.text.normalization import plain_words
from ..base.table import Table
from .partitions import FIRST, GLOBAL_AREA, OWN_COLUMNS, Partitions, span_of, table

# The areas of a partition; the first one answers for the global memories, too.
AREAS = f"""SELECT area FROM spaces WHERE partition = :partition
             UNION
            SELECT {GLOBAL_AREA} WHERE :partition = {FIRST}"""
# Every term that there should be, once.
TERMS = """SELECT DISTINCT area, length(value), value
             FROM memory_text, json_each(forms(title || char(10) || content || char(10) || tags))"""

NOTED = 2000  # words of an area that a transaction remembers to have noted


@dataclass(frozen=True, slots=True)
class Entry:
    """What the index holds of one live memory: prepared text, by column."""

    area: int
    title: str
    content: str
    context: str
    tags: str

    @property
    def own(self) -> str:
        """The memory's own words, without those that it borrows."""
        return "\n".join((self.title, self.content, self.tags))


class Terms(Table):
    """The terms of one transaction: each stem once in an area, as long as a memory has it."""

    def __init__(self, connection: sqlite3.Connection, partitions: Partitions) -> None:
        super().__init__(connection)
        self._partitions = partitions
        self._noted: dict[int, set[str]] = {}  # words whose terms are there, by area

    def note(self, area: int, entries: Iterable[Entry]) -> None:
        """Store what the entries bring."""
        noted = self._noted.setdefault(area, set())
        words = {word for entry in entries for word in plain_words(entry.own)} - noted
        self._execute(
            """INSERT INTO terms (area, length, term)
               SELECT :area, length(value), value
                 FROM json_each(forms_of(:words))
                WHERE value <> ''
                   ON CONFLICT DO NOTHING""",
            area=area,
            words=json.dumps(list(words)),
        )
        if len(noted) < NOTED:
            noted |= words

    def follow(self, old: Entry | None, new: Entry | None) -> None:
        """Bring the terms in line when a memory has changed; the index knows of it already."""
        if old:
            self._forget(old.area, old.own, new.own if new else "")
        if new:
            self.note(new.area, [new])

    def forget(self, area: int, entries: Iterable[Entry]) -> None:
        """Drop what entries brought that the index no longer has, unless others have it."""
        self._forget(area, "\n".join(entry.own for entry in entries), "")

    def merge(self, area: int, into: int) -> None:
        """Let the terms of an area be another's."""
        self._noted.clear()
        self._execute(
            """INSERT INTO terms (area, length, term)
               SELECT :into, length, term
                 FROM terms
                WHERE area = :area
                   ON CONFLICT DO NOTHING""",
            area=area,
            into=into,
        )
        self._execute("DELETE FROM terms WHERE area = :area", area=area)

    def are_exact(self, partition: int) -> bool:
        """Whether the terms of a partition's projects are those of their memories."""
        row = self._execute(
            f"""  WITH kept AS (SELECT area, length, term FROM terms WHERE area IN ({AREAS})),
                       afresh AS MATERIALIZED ({TERMS} WHERE area IN ({AREAS}))
                SELECT 1 FROM (SELECT * FROM kept EXCEPT SELECT * FROM afresh)
                 UNION ALL
                SELECT 1 FROM (SELECT * FROM afresh EXCEPT SELECT * FROM kept)""",
            partition=partition,
        )
        return row.fetchone() is None

    def rebuild(self, partition: int) -> None:
        """Make the terms of a partition's projects anew."""
        self._noted.clear()
        self._execute(f"DELETE FROM terms WHERE area IN ({AREAS})", partition=partition)
        self._execute(
            f"INSERT INTO terms (area, length, term) {TERMS} WHERE area IN ({AREAS})",
            partition=partition,
        )

    def make_anew(self) -> None:
        """Make all terms anew."""
        self._noted.clear()
        self._execute("DELETE FROM terms")
        self._execute(f"INSERT INTO terms (area, length, term) {TERMS}")

    def _forget(self, area: int, text: str, kept: str) -> None:
        """Drop the terms of a text that the index no longer has, unless others have them."""
        self._noted.clear()
        (number, *_) = self._partitions.holding(area)
        first, last = span_of(area)
        self._execute(
            f"""DELETE FROM terms
                 WHERE area = :area
                   AND (length, term) IN (
                           SELECT length(value), value
                             FROM json_each(forms(:text))
                            WHERE value NOT IN (SELECT value FROM json_each(forms(:kept)))
                              AND NOT EXISTS (
                                      SELECT 1
                                        FROM {table(number)}
                                       WHERE {table(number)} MATCH
                                             '{{{" ".join(OWN_COLUMNS)}}} : "' || value || '"'
                                             AND rowid BETWEEN :first AND :last))""",
            area=area,
            text=text,
            kept=kept,
            first=first,
            last=last,
        )
