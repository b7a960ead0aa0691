"""SQLite's own bookkeeping of memory is off where the service runs, and only before it does."""

import subprocess
import sys

import pytest

USED = """
import _sqlite3, ctypes, sqlite3
from agentops_memory.sqlite.dialect import without_memory_statistics
is_off = without_memory_statistics() if {called} else False
connection = sqlite3.connect(":memory:")
connection.execute("CREATE TABLE one (id)")
print(is_off, ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used() > 0)
"""


@pytest.mark.slow
def test_without_memory_statistics_no_memory_is_counted() -> None:
    assert used(called=False) == "False True\n"
    assert used(called=True) == "True False\n"


def used(*, called: bool) -> str:
    """Whether the statistics were switched off, and whether memory was counted."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", USED.format(called=called)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout
