"""The rows of an import in batches: memories that match nothing are stored many at a time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ...engine.engine import Transaction
from ...memory.model.imports import Row
from ...memory.model.memory import Imported, Memory, Session, SessionId, Supersession
from ...memory.model.space import Project
from ...memory.sessions import admitted
from ...memory.sql.imports import ImportTable
from ...memory.sql.sessions import SessionTable
from ...memory.writes import all_created
from .overlay import match_keys
from .storing import import_row, is_refused


@dataclass(slots=True)
class Batches:
    """The rows that one transaction imports, in their order; None is a corrupt one.

    A row is skipped if its caller may not store it, and that is to be `skipped`.
    What memories supersede is added to the links.
    """

    tx: Transaction
    skipped: tuple[type[Exception], ...] = ()
    size: int = 0  # rows
    counts: Counter[type[Row]] = field(default_factory=Counter)  # of what was stored
    links: list[Supersession] = field(default_factory=list)
    refused: int = 0  # supersessions
    _unmatched: set[int] = field(default_factory=set)  # places in a batch
    _sessions: dict[SessionId, Project] = field(default_factory=dict)
    _waiting: list[Memory] = field(default_factory=list)

    @property
    def imported(self) -> Imported:
        """What of them was stored."""
        counts = self.counts
        return Imported(sessions=counts[Session], memories=counts[Memory], refused=self.refused)

    def add(self, rows: Sequence[Row | None]) -> None:
        """Import the next rows."""
        memories = {place: it for place, it in enumerate(rows) if isinstance(it, Memory)}
        self._unmatched = _unmatched(self.tx, memories)
        named = {it.session for it in memories.values() if it.session} - self._sessions.keys()
        self._sessions |= self.tx[SessionTable].projects_of(named)
        for place, row in enumerate(rows):
            with suppress(*self.skipped):
                self._add(place, row)
        self._store()
        self.size += len(rows)

    def _add(self, place: int, row: Row | None) -> None:
        if isinstance(row, Memory) and place in self._unmatched:
            self._admit(row)
            self._waiting.append(row)
            return
        self._store()
        if isinstance(row, Supersession):
            self.refused += is_refused(self.tx, row)
        elif row is not None and import_row(self.tx, row, self.links):
            self.counts[type(row)] += 1
            if isinstance(row, Memory):
                self._unmatched.clear()  # the others may match what it has become

    def _admit(self, memory: Memory) -> None:
        """Make sure of the session of a memory that is new; Denied as for any other."""
        caller, session = self.tx.caller, memory.session
        assert session is not None  # entries of stores are not imported
        caller.require_space(memory.space)
        project = memory.space.project
        if session not in self._sessions:
            new = Session(id=session, project=project, started_at=memory.created_at)
            self._sessions[session] = admitted(self.tx, new).project
        caller.require_project(self._sessions[session])

    def _store(self) -> None:
        """Store what waits."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        ids = all_created(self.tx, waiting)
        self.counts[Memory] += len(waiting)
        self.links += [
            Supersession(newer=id_, project=it.space.project, older=it.links.uids)
            for id_, it in zip(ids, waiting, strict=True)
            if it.links.uids
        ]


def _unmatched(tx: Transaction, memories: Mapping[int, Memory]) -> set[int]:
    """The places of memories that match nothing stored, nor each other: each is a new one."""
    keys = {place: set(match_keys(it)) for place, it in memories.items()}
    rows = Counter(key for each in keys.values() for key in each)
    alone = [
        place
        for place, it in memories.items()
        if tx.retention.oldest(it.revision) <= 1 and all(rows[key] == 1 for key in keys[place])
    ]
    matched = tx[ImportTable].matched([memories[place] for place in alone])
    return {place for number, place in enumerate(alone) if number not in matched}
