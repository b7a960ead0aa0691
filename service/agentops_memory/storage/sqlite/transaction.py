"""One transaction: its instant and its tables."""

import secrets
import sqlite3
from datetime import datetime

from ...domain.model import Caller
from ...domain.uids import ENTROPY, uuid7
from .index import Index
from .memories import Memories
from .partitions import Partitions
from .revisions import Revisions
from .search import Search
from .sessions import Sessions


class SqliteTransaction:
    """The tables of a connection on which a transaction has begun, or a savepoint in one."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: datetime,
        caller: Caller,
        *,
        is_alone: bool = True,
    ) -> None:
        self.now = now
        self.caller = caller
        self.is_alone = is_alone
        partitions = Partitions(connection, is_alone=is_alone)
        self.index = Index(connection, partitions)
        self.memories = Memories(connection, self.index, caller.projects)
        self.sessions = Sessions(connection, caller.projects)
        self.revisions = Revisions(connection)
        self.search = Search(connection, self.memories, partitions, caller.projects)

    def new_uid(self, at: datetime) -> str:
        return uuid7(at, secrets.token_bytes(ENTROPY))
