"""A look into the service's file, and rows put there in one request."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from agentops_memory.storage.sqlite.connection import connect

from .service import Service


def assert_index_is_whole(path: Path) -> None:
    """The index holds exactly the live memories, word for word."""
    with closing(connect(path)) as database:
        database.execute(
            "INSERT INTO memories_fts(memories_fts, rank) VALUES('integrity-check', 1)"
        )
        ((live,),) = database.execute("SELECT count(*) FROM memories WHERE deleted_at IS NULL")
        ((indexed,),) = database.execute("SELECT count(*) FROM memories_fts_docsize")
    assert indexed == live


def imported(
    service: Service,
    observations: Iterable[dict[str, object]] = (),
    sessions: Iterable[dict[str, object]] = (),
) -> None:
    """Many rows in one request."""
    body = {"sessions": list(sessions), "observations": list(observations)}
    answer = service.http.post("/import", json=body)
    assert answer.status_code == 200, answer.text
