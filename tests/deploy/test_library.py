"""SQLite's own bookkeeping of memory is off where the service runs, and only before it does."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..support.process import served

USED = """
import _sqlite3, ctypes, sqlite3
from agentops_memory.sqlite.connection import without_memory_statistics
is_off = without_memory_statistics() if {called} else False
connection = sqlite3.connect(":memory:")
connection.execute("CREATE TABLE one (id)")
print(is_off, ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used() > 0)
"""


@pytest.mark.slow
def test_without_memory_statistics_no_memory_is_counted() -> None:
    assert used(called=False) == "False True\n"
    assert used(called=True) == "True False\n"


def test_a_service_without_them_serves(path: Path) -> None:
    with served(path) as (_, http):
        body = {"session_id": "s", "type": "t", "title": "x", "content": "apple", "project": "p"}
        assert http.post("/observations", json=body).status_code == 201
        assert len(http.get("/search?q=apple").json()) == 1


def used(*, called: bool) -> str:
    """Whether the statistics were switched off, and whether memory was counted."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", USED.format(called=called)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout
