"""The files after the requests: nothing in them is damaged, and every index is exact."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from agentops_memory.sqlite.connection import connect

from ..support.database import assert_index_is_whole

TABLES = ("memories", "revisions", "sessions", "stores", "versions", "erasures", "done")


def faults(database: Path) -> Iterator[str]:
    """What is wrong with the file of each tenant."""
    for path in files(database):
        with closing(connect(path)) as opened:
            for check in ("integrity_check", "foreign_key_check"):
                found = opened.execute(f"PRAGMA {check}").fetchall()
                if found not in ([], [("ok",)]):
                    yield f"{path.name}: {check}: {found[:3]}"
        try:
            assert_index_is_whole(path)
        except AssertionError as error:
            yield f"{path.name}: the index is not exact: {error}"


def held(database: Path) -> str:
    """How much the files hold, in words."""
    counts = dict.fromkeys(TABLES, 0)
    for path in files(database):
        with closing(connect(path)) as opened:
            for table in TABLES:
                counts[table] += opened.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return ", ".join(f"{count:,} {table}" for table, count in counts.items())


def files(database: Path) -> list[Path]:
    """The file of each tenant, the default one first."""
    return [database, *sorted(Path(f"{database}.tenants").glob("*.db"))]
