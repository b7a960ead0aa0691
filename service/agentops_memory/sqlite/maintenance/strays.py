"""Strays: what lies beside the memories of a damaged file, and no request makes."""

import sqlite3
from dataclasses import dataclass

from ...memory.model.kinds import NUMBERS
from ...memory.model.space import GLOBAL_SCOPE


@dataclass(frozen=True, slots=True, kw_only=True)
class Strays:
    """Rows that no request makes, and how they are put right."""

    table: str
    what: str
    where: str  # the condition on a row of the table
    repair: str = "DELETE FROM {0} WHERE {1}"

    def count(self, database: sqlite3.Connection) -> int:
        ((count,),) = database.execute(f"SELECT count(*) FROM {self.table} WHERE {self.where}")
        return int(count)

    def put_right(self, database: sqlite3.Connection) -> None:
        database.execute(self.repair.format(self.table, self.where))


def strays_of(database: sqlite3.Connection) -> list[str]:
    """What there is of them, as parts of a sentence."""
    counts = {it.what: it.count(database) for it in _STRAYS}
    return [f"{count:,} {what}" for what, count in counts.items() if count]


def put_right(database: sqlite3.Connection) -> None:
    for strays in _STRAYS:
        strays.put_right(database)


def _not_of(newer: str, older: str, may_be_linked: str) -> str:
    """That a row is of one memory alone, of one that is gone, or of two that may not be linked."""
    return f"""NOT EXISTS (SELECT 1
                             FROM memories m
                             JOIN spaces s ON s.id = m.space_id
                             JOIN memories n ON n.id = {older}
                             JOIN spaces t ON t.id = n.space_id
                            WHERE m.id = {newer} AND n.id <> m.id AND ({may_be_linked}))"""


def _of_its_memory(column: str) -> str:
    return f"(SELECT {column} FROM memories m WHERE m.id = memory_id)"


_S_IS_GLOBAL, _T_IS_GLOBAL = (f"{it}.scope = '{GLOBAL_SCOPE}'" for it in "st")

_STRAYS = (
    Strays(
        table="partitions",
        what="numbers of partitions that no space can be in",
        where=" AND ".join(f"number NOT BETWEEN {it[0]} AND {it[-1]}" for it in NUMBERS.values()),
    ),
    Strays(
        table="lifecycles",
        what="lifecycles of memories that are gone",
        where="memory_id NOT IN (SELECT id FROM memories)",
    ),
    Strays(
        table="lifecycles",
        what="lifecycles in another space than their memory",
        where=f"space_id <> {_of_its_memory('space_id')}",
        repair=f"UPDATE {{0}} SET space_id = {_of_its_memory('space_id')} WHERE {{1}}",
    ),
    Strays(
        table="lifecycles",
        what="topic keys beside memories that have one of their own",
        where=f"held_key IS NOT NULL AND {_of_its_memory('key')} IS NOT NULL",
        repair="UPDATE {0} SET held_key = NULL WHERE {1}",
    ),
    Strays(
        table="supersessions",
        what="supersessions that no memory may make, or of memories that are gone",
        where=_not_of(
            "newer_id",
            "older_id",
            f"s.project = t.project AND ({_S_IS_GLOBAL}) = ({_T_IS_GLOBAL})",
        ),
    ),
    Strays(
        table="lookalikes",
        what="pairs of memories that are gone, or that no project has both of",
        where=_not_of(
            "later_id", "earlier_id", f"s.project = t.project OR {_S_IS_GLOBAL} OR {_T_IS_GLOBAL}"
        ),
    ),
)

TABLES = {it.table for it in _STRAYS}
