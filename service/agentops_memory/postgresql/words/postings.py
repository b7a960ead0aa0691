"""SQL for postings: where each stem is, and how often."""

import time
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from ...errors import TimedOut
from ...memory.model.kinds import IndexGroup, group_of
from ...memory.model.memory import MemoryId
from ...memory.sql.kinds import GLOBAL_AREA
from ...memory.sql.table import Connection, Table
from ..base.dialect import POSTGRESQL
from .terms import OWN, Counts

Having = Mapping[MemoryId, Counts]
"""How often a term stands in each memory that has it."""

AT_ONCE = 10_000  # rows between two looks at the clock
BEYOND = "\U0010ffff"  # what no stem begins with
FEW = 2  # areas that are named one by one


class Postings(Table):
    """The postings of one transaction."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, POSTGRESQL)
        self.end = inf  # of the monotonic clock, for what is done with rows here

    def _require_time(self) -> None:
        if time.monotonic() > self.end:
            raise TimedOut("Looking for words took too long.")

    def areas_of(self, number: int) -> list[int]:
        """The areas of a group, without the global one."""
        return self._scalars(
            f"SELECT DISTINCT area FROM spaces WHERE partition = :number AND area > {GLOBAL_AREA}",
            number=number,
        )

    def of(
        self, areas: Sequence[int], stems: Iterable[str]
    ) -> tuple[dict[str, dict[MemoryId, Counts]], dict[MemoryId, int]]:
        """Of each stem the memories of areas that have it; and the lengths of all these."""
        found: dict[str, dict[MemoryId, Counts]] = {}
        lengths: dict[MemoryId, int] = {}
        where, values = in_areas(areas)
        rows = self._execute(
            f"""SELECT term, memory, length, counts
                  FROM postings
                 WHERE {where} AND term = ANY(CAST(:stems AS TEXT[]))""",
            stems=list(stems),
            **values,
        )
        for number, (term, memory, length, counts) in enumerate(rows.fetchall()):
            if not number % AT_ONCE:
                self._require_time()
            found.setdefault(term, {})[memory] = counts
            lengths[memory] = length
        self._require_time()
        return found, lengths

    def beginning(
        self, areas: Sequence[int], start: str
    ) -> tuple[dict[MemoryId, Counts], dict[MemoryId, int]]:
        """The same of all stems that begin with a text, together."""
        found: dict[MemoryId, Counts] = {}
        lengths: dict[MemoryId, int] = {}
        where, values = in_areas(areas)
        rows = self._execute(
            f"""SELECT memory, length, counts
                  FROM postings
                 WHERE {where} AND term >= :start AND term < :end""",
            start=start,
            end=f"{start}{BEYOND}",
            **values,
        )
        for memory, length, counts in rows.fetchall():
            found[memory] = found.get(memory, 0) + counts
            lengths[memory] = length
        return found, lengths

    def areas(self, number: int) -> list[tuple[int, int, int, int]]:
        """The areas that count in a group: of each its version, memories and words."""
        rows = self._execute(
            f"""SELECT area, version, memories, words
                  FROM areas
                 WHERE area IN ({_group(number)})""",
            number=number,
        )
        return rows.fetchall()

    def memories(self, areas: Sequence[int]) -> int:
        """How many memories areas have in the index."""
        where, values = in_areas(areas)
        return self._number(f"SELECT coalesce(sum(memories), 0) FROM areas WHERE {where}", **values)

    def having(self, number: int, stems: Iterable[str], *, own: bool) -> dict[str, int]:
        """How many memories of a group have each stem, or among their own words."""
        owned = f"AND counts & {OWN} <> 0" * own
        rows = self._execute(
            f"""SELECT term, count(*)
                  FROM postings
                 WHERE area IN ({_group(number)}) AND term = ANY(CAST(:stems AS TEXT[])) {owned}
              GROUP BY term""",
            number=number,
            stems=list(stems),
        )
        return dict(rows.fetchall())

    def having_all(self, number: int, stems: Sequence[str], *, own: bool) -> int:
        """How many memories of a group have all of the stems."""
        owned = f"AND counts & {OWN} <> 0" * own
        return self._number(
            f"""SELECT count(*)
                  FROM (SELECT memory
                          FROM postings
                         WHERE area IN ({_group(number)}) AND term = ANY(CAST(:stems AS TEXT[]))
                               {owned}
                      GROUP BY memory
                        HAVING count(*) = :most) found""",
            number=number,
            stems=list(stems),
            most=len(set(stems)),
        )

    def having_beginning(self, number: int, start: str, *, own: bool) -> int:
        """How many memories of a group have a stem that begins with a text."""
        owned = f"AND counts & {OWN} <> 0" * own
        return self._number(
            f"""SELECT count(DISTINCT memory)
                  FROM postings
                 WHERE area IN ({_group(number)}) AND term >= :start AND term < :end {owned}""",
            number=number,
            start=start,
            end=f"{start}{BEYOND}",
        )


def in_areas(areas: Sequence[int]) -> tuple[str, dict[str, object]]:
    """The condition that the column `area` is one of these, and the values that it names.

    An array would be taken for one of ten: its plan would be made again for each that is shorter.
    """
    if not 1 <= len(areas) <= FEW:
        return "area = ANY(CAST(:areas AS BIGINT[]))", {"areas": list(areas)}
    values: dict[str, object] = {f"area_{at}": area for at, area in enumerate(areas)}
    return f"area IN ({', '.join(f':{it}' for it in values)})", values


def _group(number: int) -> str:
    """The areas of the group `:number`, as a query."""
    of_group = f"SELECT area FROM spaces WHERE partition = :number AND area > {GLOBAL_AREA}"
    if group_of(number) is IndexGroup.PROJECTS:
        return f"{of_group} UNION SELECT {GLOBAL_AREA}"
    return of_group
