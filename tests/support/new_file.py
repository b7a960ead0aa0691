"""A new database file for a service of a test, made once: to make one takes longer than most tests.

It is made by the program itself, and each copy is what the program would have made there: for
its owner alone, and with a token that no other file has.
"""

import os
import random
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from agentops_memory.engine.files import private_file
from agentops_memory.memory.space import NUMBERS
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.migrate import migrated
from agentops_memory.sqlite.partitions import Partitions

VERSIONS = range(2**60, 2**62)  # SQLite stores them in eight bytes each
ANY_TIME = datetime(2030, 1, 1, tzinfo=UTC)  # a new file tells nothing of when it was made

_has_every_index = False


@pytest.fixture(scope="package", autouse=True)
def every_index() -> Iterator[None]:
    """New files have the index of stores and of agents, too, which their first save would make.

    For rooms whose tests each write there: to make it took a ninth of the time there.
    """
    global _has_every_index  # noqa: PLW0603 - of the tests of the room that run now
    _has_every_index = True
    yield
    _has_every_index = False


def new_file_size(*, has_every_index: bool | None = None) -> int:
    """The bytes of a new file; of one that is put now unless told."""
    before, after = _made(_has_every_index if has_every_index is None else has_every_index)
    return len(before) + len(after)


def put_new_file(path: Path) -> None:
    """Put a new database where there is none; the program makes the folder, if that is missing."""
    if os.path.lexists(path) or not path.parent.is_dir():
        return
    before, after = _made(_has_every_index)
    version = random.choice(VERSIONS)  # noqa: S311
    with (
        private_file(path, os.O_WRONLY | os.O_EXCL) as descriptor,
        open(descriptor, "wb", closefd=False) as file,
    ):
        file.write(before + struct.pack(">q", version) + after)


@cache
def _made(has_every_index: bool) -> tuple[bytes, bytes]:
    """A new file, before and after its token."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new.db"
        migrated(path, ANY_TIME)
        version = random.choice(VERSIONS)  # noqa: S311
        with closing(connect(path)) as database:
            for numbers in NUMBERS.values() if has_every_index else ():
                Partitions(database, is_alone=True).make(numbers[0])
            database.execute("UPDATE database_state SET token = ?", (version,))
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before, after = path.read_bytes().split(struct.pack(">q", version))
    return before, after
