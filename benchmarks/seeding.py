"""A database file of many observations, filled by the domain's own functions."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from agentops_memory.domain.memories import save
from agentops_memory.domain.model import Draft, SessionId, Space, Text
from agentops_memory.domain.text import project_name
from agentops_memory.storage.sqlite.connection import connect
from agentops_memory.storage.sqlite.migrate import migrated
from agentops_memory.storage.sqlite.transaction import SqliteTransaction

from .corpus import Piece, pieces

START = datetime(2030, 1, 1, tzinfo=UTC)
BATCH = 2000  # observations in one transaction
TYPES = ("decision", "bugfix", "pattern", "config", "discovery")


def seeded(path: Path, rows: int, projects: int, seed: int) -> None:
    """Fill the file: observation after observation, each in the next project."""
    migrated(path, START)
    source = enumerate(islice(pieces(seed), rows))
    with closing(connect(path)) as database:
        database.execute("PRAGMA synchronous = OFF")
        while batch := list(islice(source, BATCH)):
            database.execute("BEGIN")
            for number, piece in batch:
                transaction = SqliteTransaction(database, START + timedelta(seconds=number))
                save(transaction, _draft(number, piece, projects), timedelta(0))
            database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _draft(number: int, piece: Piece, projects: int) -> Draft:
    project = number % projects
    return Draft(
        session=SessionId(f"s{project}-{number // (10 * projects)}"),
        space=Space(project=project_name(f"project-{project}")),
        text=Text(
            type=TYPES[number % len(TYPES)],
            title=piece.title,
            content=piece.content,
            tags=(TYPES[number % len(TYPES)],),
        ),
    )
