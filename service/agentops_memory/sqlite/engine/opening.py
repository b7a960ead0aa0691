"""A database file is opened for an engine: migrated first, and checkpointed at the end."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...recall.inverted_index.cache import DatabaseIndex
from ...recall.text.features import Features
from ..base.connection import Connection, connection, note_changes, noted_by
from ..base.open_files import OpenFiles, WriteAheadLog, checkpointed, file_id, in_use, protect_log
from ..schema.migrate import OnUpgrade, migrated
from .writer import OnCommit, Writer

T = TypeVar("T")

log = logging.getLogger(__name__)

CHECKPOINT_TIMEOUT = timedelta(seconds=1)  # with another process that reads


@asynccontextmanager
async def opened_file(
    path: Path, now: datetime, features: Features, on_upgrade: OnUpgrade
) -> AsyncIterator[tuple[Connection, OpenFiles]]:
    """The connection that writes into a file, made or brought up to date first, and its files.

    Raises StartRefused when the file cannot be used as it is. A cancelled
    opening leaves at once; what it began on the file is undone by the next.
    """
    with ExitStack() as held:
        held.enter_context(in_use(file_id(path)))
        await run_in_thread(partial(migrated, path, now, features, on_upgrade))
        held.enter_context(in_use(file := file_id(path)))  # a new one
        async with connection(path, features) as database:
            files = await database.run(partial(OpenFiles.of, path, file))
            await database.run(lambda it: note_changes(it, noted_by(it)))
            try:
                yield database, files
            finally:
                if files.has_another_log():
                    protect_log(files)
                else:
                    await database.run(_checkpoint)


@asynccontextmanager
async def serving(
    database: Connection,
    files: OpenFiles,
    places: int,
    wait: timedelta,
    on_commit: OnCommit,
    index: DatabaseIndex,
) -> AsyncIterator[Writer]:
    """A writer at work. At the end it writes what it has accepted."""
    wal = WriteAheadLog(database, files)
    writer = Writer(
        database, places, wait, wal.after_batch, on_commit, files.require_in_place, index=index
    )
    task = asyncio.create_task(writer.serve())
    try:
        yield writer
    finally:
        await writer.index_now()
        writer.close()
        await asyncio.gather(task, return_exceptions=True)


def _checkpoint(database: sqlite3.Connection) -> None:
    is_done = False
    with suppress(sqlite3.Error):
        is_done = checkpointed(database, "TRUNCATE", CHECKPOINT_TIMEOUT)
    if not is_done:
        log.warning("the write-ahead log could not be emptied; the next start reads it")


async def run_in_thread(work: Callable[[], T]) -> T:
    """What work answers. It runs on a thread that does not keep the process from ending."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            answer.set_exception(error)

    threading.Thread(target=run, name="opening", daemon=True).start()
    return await asyncio.wrap_future(answer)
