"""The tables that are copied, how each engine is asked for its rows, and what rows add up to."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol

from ...errors import Refusal
from ...recall.text.features import Features

# In an order in which each row finds those that it refers to.
TABLES = (
    "sessions", "transcripts", "spaces", "memories", "lifecycles", "supersessions", "lookalikes",
    "revisions", "erasures", "erased", "stores", "versions", "done", "done_memories", "imports",
    "import_rows", "agents", "agent_spaces", "agent_memories", "namespaces", "namespace_access",
    "events", "agent_events", "seals", "intents", "tasks", "coordinators", "grants",
    "pending_archives", "refs", "ref_entries", "ref_losses", "ref_tags", "runs", "run_events",
    "passes", "derivations", "archives", "ref_supersessions", "commitments", "met_tags",
    "proposals",
)  # fmt: skip
WORDS = ("areas", "postings")  # of PostgreSQL, made from the texts
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
    key: tuple[str, ...]

    @property
    def select(self) -> str:
        """The statement for its rows, in order of the key, each with its project at the end."""
        columns = ", ".join(f't."{it}"' for it in self.columns)
        key = ", ".join(f't."{it}"' for it in self.key)
        return f"SELECT {columns}, {self._project} FROM {self.name} t ORDER BY {key}"

    @property
    def _project(self) -> str:
        found = (sql for column, sql in _PROJECTS.items() if column in self.columns)
        return _PROJECT_OF.get(self.name) or next(found, "NULL")


_PROJECT_OF = {"transcripts": "(SELECT s.project FROM sessions s WHERE s.number = t.session)"}
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
}
"""By a column that a table may have: the project of a row. The first counts that is there."""


class Source(Protocol):
    """A tenant's rows in one engine, on one state of them."""

    def rows(self, table: Table) -> Iterator[Row]:
        """Those of a table, in order of its key, each with its project at the end."""

    def last_ids(self) -> Mapping[str, int]:
        """The last id that each table has given out, which may be gone; some are not known."""


class Target(Source, Protocol):
    """Where a tenant's rows go; what was put there is kept once its context ends without error."""

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        """Store rows without their projects."""

    def finish(self, last_ids: Mapping[str, int], features: Features) -> None:
        """Go on with ids after the last ones, and make the words of the memories."""


@dataclass(slots=True)
class Tally:
    """How many rows each table has, and the digest of each project's rows of all tables."""

    counts: dict[str, int] = field(default_factory=dict)
    sums: Counter[Project] = field(default_factory=Counter)

    @classmethod
    def of(cls, source: Source, tables: Iterable[Table]) -> "Tally":
        tally = cls()
        for table in tables:
            for _ in tally.counting(table, source.rows(table)):
                pass
        return tally

    def counting(self, table: Table, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows of a table without their projects, which are counted as they pass."""
        count, name = 0, table.name.encode()
        for row in rows:
            count += 1
            *values, project = row
            digest = blake2b(name + repr(values).encode(), digest_size=16).digest()
            self.sums[project] = (self.sums[project] + int.from_bytes(digest)) % SUM
            yield row[:-1]
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


def copied(source: Source, target: Target, tables: Sequence[Table], features: Features) -> Tally:
    """Copy all rows, make their words, and compare; CopyRefused where the copy differs."""
    tally = Tally()
    for table in tables:
        target.put(table, tally.counting(table, source.rows(table)))
    target.finish(source.last_ids(), features)
    tally.require(Tally.of(target, tables))
    return tally
