"""What a database holds, of any format that was ever ours, and of the original's."""

import sqlite3
from collections import Counter
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import PlainSerializer

from ...memory.erasure import Erasure, ErasureId, receipts
from ...memory.model.findings import GARBAGE
from ...memory.model.liveness import deleted, undeleted
from ...memory.model.rows import LAST, instant
from ...memory.model.space import in_a_session, in_no_session
from ...recall.text.instants import rendered
from ...record import Record
from ..connection import CHANGING, connect
from ..copies import QUARANTINE
from .migrate import version_of

UNREADABLE = (sqlite3.Error, OSError, *GARBAGE)


class Counts(Record):
    observations: int = 0  # live ones
    deleted: int = 0  # observations and entries that can be restored
    revisions: int = 0
    sessions: int = 0
    stores: int = 0
    entries: int = 0  # live ones, of stores
    versions: int = 0
    erasures: int = 0


class Contents(Record):
    format: int  # 0 for the original's, and for one that is empty
    counts: Counts
    changed_at: Annotated[datetime, PlainSerializer(rendered)] | None = None  # the last save
    damaged: tuple[str, ...] | None = None  # values, the first of them; none if nobody has looked


def contents(database: sqlite3.Connection) -> Contents:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    counted: Counter[str] = Counter()
    for noun, table, rows in _COUNTS:
        if table in tables:
            counted[noun] += database.execute(f"SELECT count(*) FROM {rows}").fetchone()[0]
    return Contents(
        format=version_of(database),
        counts=Counts(**counted),
        changed_at=_changed_at(database, tables),
    )


def contents_at(path: Path) -> Contents | None:
    """What the database at the path holds; none if it cannot be read."""
    try:
        with closing(connect(path, mode=CHANGING)) as database:
            return contents(database)
    except UNREADABLE:
        return None


def erasures_at(path: Path) -> tuple[dict[ErasureId, Erasure], bool]:
    """The receipts in the database at the path, the oldest first, and whether these are all."""
    try:
        with closing(connect(path, mode=CHANGING)) as database:
            found, damaged = receipts(database)
            return found, not damaged and not _are_moved(path)
    except UNREADABLE:
        return {}, False


def _are_moved(path: Path) -> bool:
    """Whether damaged receipts were moved out of the database."""
    file = path.with_name(f"{path.name}.{QUARANTINE}")
    tables = ('"table": "erasures"', '"table": "erased"')
    return file.exists() and any(it in file.read_text(errors="replace") for it in tables)


def _changed_at(database: sqlite3.Connection, tables: set[str]) -> datetime | None:
    if "memories" not in tables:
        return None
    ((latest,),) = database.execute(
        """SELECT max(at)
             FROM (SELECT max(last_seen_at) AS at FROM memories
                    UNION ALL SELECT max(updated_at) FROM memories
                    UNION ALL SELECT max(deleted_at) FROM memories
                    UNION ALL SELECT max(started_at) FROM sessions
                    UNION ALL SELECT max(ended_at) FROM sessions)
            WHERE at <= :last""",  # one of a damaged row may be later
        {"last": LAST},
    )
    return None if latest is None else instant(latest)


_COUNTS = (
    (
        "observations",
        "memories",
        f"memories WHERE {undeleted('memories')} AND {in_a_session('memories')}",
    ),
    ("observations", "observations", f"observations WHERE {undeleted('observations')}"),
    ("deleted", "memories", f"memories WHERE {deleted('memories')}"),
    ("deleted", "observations", f"observations WHERE {deleted('observations')}"),
    ("revisions", "revisions", "revisions"),
    ("sessions", "sessions", "sessions"),
    ("stores", "stores", "stores WHERE erasure_id IS NULL"),
    (
        "entries",
        "stores",
        f"""memories WHERE {undeleted("memories")} AND {in_no_session("memories")}
            AND space_id IN (SELECT space_id FROM stores)""",
    ),
    ("versions", "versions", "versions"),
    ("erasures", "erasures", "erasures"),
)
"""Of each noun: a table that must be there, and the rows that are counted then."""
