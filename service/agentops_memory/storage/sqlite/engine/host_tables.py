"""The tables of hosts in a transaction: refs, runs, and what comes of them."""

import sqlite3
from abc import ABC, abstractmethod
from datetime import datetime
from functools import cached_property

from ....domain.text.ids import Uids
from ...sql.hosts.commitments import Commitments
from ...sql.hosts.entries import Refs
from ...sql.hosts.passes import Passes
from ...sql.hosts.proposals import Proposals
from ...sql.hosts.runs import Runs
from ...sql.hosts.subjects import Subjects
from ...sql.memories import Spaces
from ..base.dialect import SQLITE


class HostTables(ABC):
    """Each is made when it is asked for."""

    now: datetime
    _connection: sqlite3.Connection
    _uids: Uids

    @property
    @abstractmethod
    def _spaces(self) -> Spaces: ...

    @cached_property
    def refs(self) -> Refs:
        return Refs(self._connection, SQLITE, self.now, self._spaces, self._uids)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self._connection, SQLITE, self.now, self._uids)

    @cached_property
    def commitments(self) -> Commitments:
        return Commitments(self._connection, SQLITE, self.now, self._uids)

    @cached_property
    def passes(self) -> Passes:
        return Passes(self._connection, SQLITE, self.now)

    @cached_property
    def subjects(self) -> Subjects:
        return Subjects(self._connection, SQLITE, self.now, self._uids)

    @cached_property
    def proposals(self) -> Proposals:
        return Proposals(self._connection, SQLITE, self.now, self._uids)
