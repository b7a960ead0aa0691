"""What a tenant has is copied from one engine to the other: the tables, and what rows add up to."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ...errors import Refusal

SUM = 1 << 128  # digests of rows are added up below it, in whatever order they come

Row = tuple[Any, ...]
Project = str | None
"""A project's name; None for what a tenant has in no project."""


class CopyRefused(Refusal):
    """Nothing can be copied, or what was copied is not kept; the sentence says why."""

    code = "copy_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, which has the same columns in the same order in both engines."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]  # of PostgreSQL

    @property
    def select(self) -> str:
        """The statement for its rows, each with its project at the end."""
        found = (sql for column, sql in _PROJECTS.items() if column in self.columns)
        return f"SELECT {self.names}, {next(found, 'NULL')} FROM {self.name} t ORDER BY 1"

    @property
    def names(self) -> str:
        return ", ".join(f'"{it}"' for it in self.columns)


_OF_A_MEMORY = """(SELECT s.project
                     FROM memories m
                     JOIN spaces s ON s.id = m.space_id
                    WHERE m.id = t.{})""".format
_PROJECTS = {
    "project": "t.project",
    "space_id": "(SELECT s.project FROM spaces s WHERE s.id = t.space_id)",
    "memory_id": _OF_A_MEMORY("memory_id"),
    "newer_id": _OF_A_MEMORY("newer_id"),
    "later_id": _OF_A_MEMORY("later_id"),
    "session": "(SELECT s.project FROM sessions s WHERE s.number = t.session)",
}
"""By a column that a table may have: the project of a row. The first counts that is there."""


@dataclass(slots=True)
class Tally:
    """How many rows each table has, and the digest of each project's rows of all tables."""

    counts: dict[str, int] = field(default_factory=dict)
    sums: Counter[Project] = field(default_factory=Counter)

    def counting(self, table: Table, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows of a table without their projects, which are counted as they pass."""
        count, name = 0, table.name.encode()
        for *values, project in rows:
            count += 1
            digest = blake2b(name + repr(values).encode(), digest_size=16).digest()
            self.sums[project] = (self.sums[project] + int.from_bytes(digest)) % SUM
            yield tuple(values)
        self.counts[table.name] = count

    @property
    def digests(self) -> dict[Project, str]:
        return {project: f"{it:032x}" for project, it in self.sums.items()}

    def require(self, other: "Tally") -> None:
        """CopyRefused if another tally is not the same."""
        tables = sorted(it for it in self.counts if self.counts[it] != other.counts.get(it))
        projects = self.sums.keys() | other.sums.keys()
        differing = sum(self.sums[it] != other.sums[it] for it in projects)
        if tables or differing:
            where = f"in the tables {', '.join(tables)}" if tables else f"in {differing} projects"
            raise CopyRefused(f"What was copied differs {where}; nothing of it is kept.")
