"""A look into the service's file, and rows put there in one request."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from agentops_memory.storage.sqlite.base.connection import connect
from agentops_memory.storage.sqlite.fts.partitions import Partitions

from .service import Service


def assert_index_is_whole(path: Path) -> None:
    """Each partition holds just the live memories that lie in it, word for word."""
    with closing(connect(path)) as database:
        partitions = Partitions(database, is_alone=True)
        for number in partitions.all():
            assert partitions.is_exact(number), number
            assert partitions.drift(number) == 0, number
        needed = database.execute(
            "SELECT DISTINCT partition FROM spaces WHERE partition IS NOT NULL"
        ).fetchall()
        assert {number for (number,) in needed} <= set(partitions.all())
        assert all_terms(database) == terms_afresh(database)


def all_terms(database: sqlite3.Connection) -> set[tuple[int, str]]:
    """The terms that are kept, by area."""
    return set(database.execute("SELECT area, term FROM terms"))


def terms_afresh(database: sqlite3.Connection) -> set[tuple[int, str]]:
    """The terms of every live memory's own words."""
    return set(
        database.execute(
            """SELECT area, value
                 FROM memory_text, json_each(forms(title || ' ' || content || ' ' || tags))"""
        )
    )


def imported(
    service: Service,
    observations: Iterable[dict[str, object]] = (),
    sessions: Iterable[dict[str, object]] = (),
) -> None:
    """Many rows in one request."""
    body = {"sessions": list(sessions), "observations": list(observations)}
    answer = service.http.post("/import", json=body)
    assert answer.status_code == 200, answer.text
