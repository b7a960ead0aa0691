"""What was deleted leaves the file and its log: both are written anew.

SQLite writes zeros over what is deleted (`secure_delete`). But when it moves rows to another page,
a copy of them stays in the free space of the old one, and no later deletion knows of it: of 1,500
deleted texts 1 could be read there, in SQLite 3.40.1 as in 3.54.1. A VACUUM leaves the copies out.
"""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from functools import partial

from ..base.connection import Connection, connect
from ..base.open_files import OpenFiles, checkpointed
from ..schema.upgrade import vacuum

TIMEOUT = timedelta(milliseconds=250)  # with reads that need the log, while saves wait
TRIES = 8  # to empty the log: the file would be written anew with the next scrub


async def scrubbed(writer: Connection, files: OpenFiles) -> bool:
    """Write the file anew, and truncate its log; false while something holds that back.

    Both are done on the thread that writes, between its transactions.
    """
    if not await writer.run(partial(_written_anew, files=files)):
        return False
    for _ in range(TRIES):
        if await writer.run(partial(_log_emptied, files=files)):
            return True
        await asyncio.sleep(TIMEOUT.total_seconds())
    return False


def _written_anew(database: sqlite3.Connection, files: OpenFiles) -> bool:
    if not _log_emptied(database, files):
        return False  # by a read of an older state, which would hold back the end, too
    # Not on the writer's own connection: where temporary files lie is set for it, and with that its
    # temporary triggers would go.
    with closing(connect(files.path, busy_timeout=TIMEOUT)) as own:
        return vacuum(own, files.path)


def _log_emptied(database: sqlite3.Connection, files: OpenFiles) -> bool:
    # What is committed to a log that another process does not know would be lost with it.
    return files.are_in_place() and checkpointed(database, "TRUNCATE", TIMEOUT)
