"""SQL that looks after the full-text index: areas made again, groups that are too large."""

from collections.abc import Iterator

from ....domain.model.kinds import group_of
from ....domain.model.memory import MemoryId
from ...search.document import Document
from ...search.groups import Groups
from ...sql.liveness import indexed
from ...sql.table import GLOBAL_AREA, Connection, Table
from ..base.dialect import POSTGRESQL
from .index import BULK, Index


class Upkeep(Table):
    """The upkeep of one transaction's index."""

    def __init__(self, connection: Connection, index: Index) -> None:
        super().__init__(connection, POSTGRESQL)
        self._index = index

    def areas(self) -> list[int]:
        """The areas that have words, or should."""
        return self._scalars(
            f"""SELECT area FROM areas
                 UNION
                SELECT area FROM spaces WHERE area >= {GLOBAL_AREA}
                 ORDER BY area"""
        )

    def foreign(self) -> list[int]:
        """The areas whose words were made by other rules."""
        return self._scalars(
            "SELECT area FROM areas WHERE rules <> :rules ORDER BY area", rules=self._index.rules
        )

    def drift(self, area: int) -> int:
        """By how many an area has more or fewer memories than there are."""
        return self._number(
            f"""SELECT abs(coalesce((SELECT memories FROM areas WHERE area = :area), 0)
                         - (SELECT count(*)
                              FROM spaces s
                              JOIN memories m ON m.space_id = s.id
                             WHERE s.area = :area AND {indexed("m")}))""",
            area=area,
        )

    def is_exact(self, area: int) -> bool:
        """Whether an area holds just what the memories say, word for word."""
        self._index.flush()
        stored = {
            (term, memory): (length, counts)
            for term, memory, length, counts in self._execute(
                "SELECT term, memory, length, counts FROM postings WHERE area = :area", area=area
            )
        }
        totals = self._execute(
            "SELECT memories, words FROM areas WHERE area = :area", area=area
        ).fetchone() or (0, 0)
        terms = set(self._scalars("SELECT term FROM terms WHERE area = :area", area=area))
        memories = words = 0
        for documents in self._in_portions(area):
            entries = self._index.documents.entries(list(documents.values()))
            for id_, entry in zip(documents, entries, strict=True):
                memories, words = memories + 1, words + entry.length
                for stem, counts in entry.stems.items():
                    if stored.pop((stem, id_), None) != (entry.length, counts):
                        return False
            own = self._index.forms(documents.values())
            if not own <= terms:
                return False
        return not stored and tuple(totals) == (memories, words)

    def rebuild(self, area: int) -> None:
        """Make the words of an area again from the memories."""
        self._index.flush()
        self._index.forget(area)
        for table in ("postings", "terms"):
            self._execute(f"DELETE FROM {table} WHERE area = :area", area=area)
        self._execute(
            """UPDATE areas
                  SET rules = :rules, version = version + 1, memories = 0, words = 0
                WHERE area = :area""",
            area=area,
            rules=self._index.rules,
        )
        self.fill(area)

    def fill(self, area: int) -> None:
        """Make the words of an area that has none from the memories."""
        for documents in self._in_portions(area):
            self._index.put_in(documents, are_new=True)

    def rebalance(self) -> bool:
        """Let one project of an oversized group have another; false if none can."""
        groups = Groups(self._connection, self._sql)
        for area, number, others in groups.oversized():
            target = groups.place(group_of(number))
            if target != number and not groups.holds(target, others):
                self._execute(
                    "UPDATE spaces SET partition = :target WHERE area = :area",
                    target=target,
                    area=area,
                )
                return True
        return False

    def _in_portions(self, area: int) -> Iterator[dict[MemoryId, Document]]:
        after = MemoryId(0)
        while some := self._index.documents.in_area(area, after, BULK):
            yield dict(some)
            after = some[-1][0]
