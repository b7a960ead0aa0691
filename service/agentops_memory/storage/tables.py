"""The tables of a transaction, of whichever engine."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from functools import cached_property

from ..domain.model.access import Caller
from ..domain.model.retention import USUAL, Retentions
from ..domain.ports.sealing import Sealer
from ..domain.text.ids import Uids, uid_of
from .sql.agents.agents import Agents
from .sql.agents.archives import Archives
from .sql.agents.bound import Bound
from .sql.agents.entries import AgentEntries
from .sql.agents.events import AgentEvents
from .sql.agents.intents import Intents
from .sql.agents.namespaces import Namespaces
from .sql.agents.seals import Seals
from .sql.agents.tasks import Tasks
from .sql.hosts.commitments import Commitments
from .sql.hosts.entries import Refs
from .sql.hosts.passes import Passes
from .sql.hosts.proposals import Proposals
from .sql.hosts.runs import Runs
from .sql.hosts.subjects import Subjects
from .sql.idempotency_records import IdempotencyRecords
from .sql.imports import Imports
from .sql.lifecycles import Lifecycles
from .sql.liveness import Moment
from .sql.lookalikes import Lookalikes
from .sql.memories import Memories, Spaces
from .sql.past_retention import PastRetention
from .sql.projects import Projects
from .sql.receipts import Receipts
from .sql.reviews import ReviewRows
from .sql.revisions import Revisions, Versions
from .sql.sessions import Sessions, Transcripts
from .sql.stores import Entries, Stores
from .sql.supersessions import Supersessions
from .sql.table import Connection, Dialect, Index


class Tables(ABC):
    """Each table is made when it is asked for: a request needs few of them."""

    _sql: Dialect

    def __init__(  # noqa: PLR0913 - all that a transaction is bound to
        self,
        connection: Connection,
        now: datetime,
        caller: Caller,
        *,
        quota: int | None = None,
        retention: Retentions = USUAL,
        uids: Uids | None = None,
        others: Callable[[], int] = lambda: 0,
        sealer: Sealer | None = None,
    ) -> None:
        self._connection = connection
        self._quota = quota
        self._uids = uids or Uids()
        self._others = others
        self._sealer = sealer
        self._projects = caller.projects
        self._begun = time.monotonic()
        self.now = now
        self.caller = caller
        self.retention = retention

    @property
    def is_awaited(self) -> bool:
        return self._others() > 0

    @property
    def room(self) -> int | None:
        return None if self._quota is None else self._quota - self._stored()

    @abstractmethod
    def _stored(self) -> int:
        """The bytes that the tenant takes now."""

    @property
    @abstractmethod
    def index(self) -> Index:
        """The full-text index, as the tables see it."""

    @abstractmethod
    def _require_alone(self) -> None:
        """Nothing else may share the transaction."""

    def new_uid(self, at: datetime) -> str:
        return self._uids.make(at) if at == self.now else uid_of(at)

    @cached_property
    def memories(self) -> Memories:
        return Memories(
            self._connection, self._sql, self._projects, self._moment, self.index, self._spaces
        )

    @cached_property
    def sessions(self) -> Sessions:
        return Sessions(self._connection, self._sql, self._projects, self._moment)

    @cached_property
    def lifecycles(self) -> Lifecycles:
        return Lifecycles(self._connection, self._sql, self._projects, self._moment, self.index)

    @cached_property
    def supersessions(self) -> Supersessions:
        return Supersessions(self._connection, self._sql, self._projects, self._moment)

    @cached_property
    def lookalikes(self) -> Lookalikes:
        return Lookalikes(self._connection, self._sql, self.now)

    @cached_property
    def reviews(self) -> ReviewRows:
        return ReviewRows(self._connection, self._sql, self._projects, self._moment)

    @cached_property
    def transcripts(self) -> Transcripts:
        return Transcripts(self._connection, self._sql, self.now)

    @cached_property
    def revisions(self) -> Revisions:
        return Revisions(self._connection, self._sql)

    @cached_property
    def imports(self) -> Imports:
        return Imports(self._connection, self._sql, self.now, self._require_alone)

    @cached_property
    def projects(self) -> Projects:
        return Projects(
            self._connection, self._sql, self._projects, self._moment, self.index, self.imports
        )

    @cached_property
    def receipts(self) -> Receipts:
        return Receipts(self._connection, self._sql, self.now)

    @cached_property
    def stores(self) -> Stores:
        return Stores(self._connection, self._sql, self.index, self._spaces)

    @cached_property
    def entries(self) -> Entries:
        return Entries(self._connection, self._sql, self.now)

    @cached_property
    def versions(self) -> Versions:
        return Versions(self._connection, self._sql)

    @cached_property
    def agents(self) -> AgentEntries:
        return AgentEntries(
            self._connection, self._sql, self.now, self._spaces, self._uids, self._seals
        )

    @cached_property
    def _seals(self) -> Seals:
        return Seals(self._connection, self._sql, self._sealer, self.caller.tenant)

    @cached_property
    def intents(self) -> Intents:
        return Intents(self._connection, self._sql, self.now)

    @cached_property
    def tasks(self) -> Tasks:
        return Tasks(self._connection, self._sql, self.now)

    @cached_property
    def bound(self) -> Bound:
        return Bound(self._connection, self._sql, self.now)

    @cached_property
    def archives(self) -> Archives:
        return Archives(self._connection, self._sql, self.now, self._seals)

    @cached_property
    def agent_directory(self) -> Agents:
        return Agents(self._connection, self._sql, self.now)

    @cached_property
    def agent_events(self) -> AgentEvents:
        return AgentEvents(self._connection, self._sql, self.now, self._uids)

    @cached_property
    def namespaces(self) -> Namespaces:
        return Namespaces(self._connection, self._sql, self.now)

    @cached_property
    def idempotency_records(self) -> IdempotencyRecords:
        return IdempotencyRecords(self._connection, self._sql)

    @cached_property
    def past_retention(self) -> PastRetention:
        return PastRetention(self._connection, self._sql)

    @cached_property
    def refs(self) -> Refs:
        return Refs(self._connection, self._sql, self.now, self._spaces, self._uids)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self._connection, self._sql, self.now, self._uids)

    @cached_property
    def commitments(self) -> Commitments:
        return Commitments(self._connection, self._sql, self.now, self._uids)

    @cached_property
    def passes(self) -> Passes:
        return Passes(self._connection, self._sql, self.now)

    @cached_property
    def subjects(self) -> Subjects:
        return Subjects(self._connection, self._sql, self.now, self._uids)

    @cached_property
    def proposals(self) -> Proposals:
        return Proposals(self._connection, self._sql, self.now, self._uids)

    @cached_property
    def _spaces(self) -> Spaces:
        return Spaces(self._connection, self._sql, self.index)

    @cached_property
    def _moment(self) -> Moment:
        return Moment(self._connection, self.now)
