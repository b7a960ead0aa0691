"""Database files of many observations, filled by the domain's own functions."""

import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path

from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.memory import Draft, SessionId, Text
from agentops_memory.memory.saves import save
from agentops_memory.memory.space import Space, project_name
from agentops_memory.sqlite.connection import Database, connect
from agentops_memory.sqlite.index import Index
from agentops_memory.sqlite.migrate import migrated
from agentops_memory.sqlite.transaction import SqliteTransaction

from .corpus import Piece, pieces

START = datetime(2025, 1, 1, tzinfo=UTC)  # in the past, so that no seeded row is a new one's twin
BATCH = 1000  # observations in one transaction
CACHE = 256 * 1024  # KiB of pages while seeding
PROJECTS = 1000  # that the texts are dealt out to
TYPES = ("decision", "bugfix", "pattern", "config", "discovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much a file holds."""

    rows: int
    projects: int

    def __str__(self) -> str:
        return f"{self.rows:,} in {self.projects:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Seeded files in a folder; those that are to be kept are made once, and copied."""

    folder: Path
    keep: Path | None
    seed: int

    def of(self, size: Size) -> Path:
        """A file of this size, to do with as one likes."""
        path = self.folder / f"{size.rows}-{size.projects}.db"
        if self.keep is None:
            seeded(path, size, self.seed)
        else:
            shutil.copyfile(self._kept(self.keep, size), path)
        return path

    def _kept(self, folder: Path, size: Size) -> Path:
        kept = folder / f"{size.rows}-{size.projects}-{self.seed}-{_format(self.folder)}.db"
        if not kept.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as unfinished:
                path = Path(unfinished) / kept.name
                seeded(path, size, self.seed)
                path.rename(kept)
        return kept


def seeded(path: Path, size: Size, seed: int) -> None:
    """Fill the file: observation after observation, each in the next project.

    Project by project, a file of few projects holds what one of many does.
    """
    migrated(path, START)
    source = islice(_drafts(size.projects, seed), size.rows)
    with closing(connect(path)) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute(f"PRAGMA cache_size = -{CACHE}")
        while batch := list(islice(source, BATCH)):
            database.execute("BEGIN")
            for at, draft in batch:
                save(SqliteTransaction(database, at, OPERATOR), draft, timedelta(0))
            database.execute("COMMIT")
        _index(database)
        _store_stems(database)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _index(database: Database) -> None:
    """Put all of them into the full-text index, as a service does when no change comes."""
    database.execute("BEGIN")
    Index(database).flush()
    database.execute("COMMIT")


def _store_stems(database: Database) -> None:
    """As a service does in the background."""
    index = SqliteTransaction(database, START, OPERATOR).index
    after: int | None = 0
    while after is not None:
        missing, after = index.missing_stems(after)
        database.execute("BEGIN")
        index.store_stems(missing)
        database.execute("COMMIT")
    database.execute("BEGIN")
    for area, state in index.areas.behind():
        index.areas.store(index.areas.area(area), state)
    database.execute("COMMIT")


def _drafts(projects: int, seed: int) -> Iterator[tuple[datetime, Draft]]:
    dealt = max(PROJECTS, projects)
    source = pieces(seed)
    for number in count():
        for project, piece in enumerate(islice(source, dealt)):
            if project < projects:
                at = START + timedelta(seconds=number * projects + project)
                yield at, _draft(number, project, piece)


def _draft(number: int, project: int, piece: Piece) -> Draft:
    type_ = TYPES[(number + project) % len(TYPES)]
    return Draft(
        session=SessionId(f"s{project}-{number // 10}"),
        space=Space(project=project_name(f"project-{project}")),
        text=Text(type=type_, title=piece.title, content=piece.content, tags=(type_,)),
    )


def _format(folder: Path) -> str:
    """A digest of how a file is made now: of the schema and the index of a few rows."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "few.db"
        seeded(path, Size(rows=300, projects=10), 1)
        with closing(sqlite3.connect(path)) as database:
            schema = database.execute("SELECT name, sql FROM sqlite_schema ORDER BY name")
            rows = list(schema)
            # Tables of the full-text index; others hold ids that are random.
            parts = [name for name, _ in rows if "_fts" in name and name.endswith("_data")]
            for name in parts:
                rows += database.execute(f"SELECT id, block FROM {name} ORDER BY id")
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:12]
