"""What held reads look up in a database, on the thread of the event loop."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

from ...memory.memories import MemoryLists
from ...memory.model.access import EVERYTHING
from ...memory.model.liveness import Moment
from ...memory.model.memory import MemoryId, Shown
from ...memory.model.space import GLOBAL_AREA, Project, place_of
from ...memory.model.table import Known
from ...memory.sessions import SessionTable
from ...recall.held_reads import HeldReads, Place, Stored
from ...recall.inverted_index.cache import DatabaseIndex, Token
from ...recall.text.instants import EPOCH
from ..base.connection import connect, known_stems, read_only, token_of
from ..base.dialect import SQLITE, SqliteTable
from ..base.errors import translated
from ..base.open_files import OpenFiles

NO_WAIT = timedelta(0)  # for a lock: nothing else is served meanwhile


class SqliteStored(SqliteTable):
    """Looks of some microseconds each."""

    def __init__(self, connection: sqlite3.Connection, files: OpenFiles) -> None:
        super().__init__(connection)
        self._files = files
        self._data_version = -1
        self._token: Token | None = None
        moment = Moment(connection, EPOCH)  # at which nothing here is looked at
        self._sessions = SessionTable(connection, SQLITE, EVERYTHING, moment, Known())
        self._memories = MemoryLists(connection, SQLITE, EVERYTHING, moment)

    def token(self) -> Token | None:
        if self._files.has_another_log():
            return None
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version != self._data_version:
                self._token, self._data_version = token_of(self._connection), version
        except sqlite3.Error:  # locked, full or damaged: a transaction tells
            return None
        return self._token

    def place(self, project: Project) -> Place | None:
        with translated():
            found = place_of(self._connection, project)
            if found is None:
                return None
            area, group = found
            spaces = self._scalars(
                f"SELECT id FROM spaces WHERE project = :project AND area = {GLOBAL_AREA}",
                project=project,
            )
            return Place(group, area, frozenset(spaces))

    def summaries(self, project: Project, most: int) -> list[str]:
        with translated():
            return self._sessions.summaries(project, most)

    def shown(self, ids: Sequence[MemoryId]) -> list[Shown]:
        with translated():
            return self._memories.shown(ids)


@contextmanager
def held_reads(path: Path, index: DatabaseIndex, files: OpenFiles) -> Iterator[HeldReads]:
    """The reads of a database that memory answers, over a connection of their own."""
    connection = connect(path, busy_timeout=NO_WAIT, one_thread=False, is_strict=True)
    with closing(connection):
        read_only(connection)
        it = SqliteStored(connection, files)
        stored = Stored(it.token, it.place, it.summaries, it.shown)
        yield HeldReads(index, stored, known_stems(connection))
