"""Writes beside each other: what they touch is claimed by name, and nothing else can be touched.

A write holds the tenant's lock alone, as SQLite's one writer does. One whose function is declared
to be `within_one_project` shares it with others like it. Then it has the tables here alone, each
of whose methods claims what it names until the commit; what is not here makes it run again, with
the lock to itself. So no claim can be forgotten.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import NoReturn, TypeVar, cast

from ...engine.engine import IdempotencyRecord
from ...memory.model.access import TenantId
from ...memory.model.memory import Links, Memory, MemoryId, Session, SessionId, Text
from ...memory.model.space import GLOBAL_SCOPE, Project, Space
from ...memory.sql.idempotency_records import IdempotencyTable
from ...memory.sql.lifecycles import LifecycleTable, SupersessionTable
from ...memory.sql.memories import MemoryTable
from ...memory.sql.revisions import RevisionTable
from ...memory.sql.sessions import SessionTable, TranscriptTable
from ...recall.text.summary import Transcript
from ..base.connection import PostgresConnection
from .transaction import PostgresTransaction

T = TypeVar("T")


class NeedsToBeAlone(Exception):
    """Work touched what it cannot claim: it is run again, with the tenant's lock to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What a write holds from its beginning: its tenant, and a project if that is known."""

    tenant: TenantId
    alone: bool = False
    project: Project | None = None

    @property
    def is_shared(self) -> bool:
        """Whether any other write may hold the same."""
        return not (self.alone or self.project)


class Claims:
    """What one transaction has claimed, in a schema."""

    def __init__(
        self, connection: PostgresConnection, schema: str, taken: Collection[int] = ()
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._taken = set(taken)

    def anew(self) -> "Claims":
        """For one of several works: what others claim is given back when they are undone."""
        return Claims(self._connection, self._schema, self._taken)

    def lock(self, lock: Lock) -> None:
        """The whole tenant, alone or beside others that claim what they touch; and a project."""
        shared = "" if lock.alone else "_shared"
        self._connection.execute(
            f"SELECT pg_advisory_xact_lock{shared}(:number)", {"number": number_of(self._schema)}
        )
        if lock.project:
            self._claim("project", lock.project)

    def key(self, digest: bytes) -> None:
        self._claim("key", digest.hex())

    def session(self, session: SessionId) -> None:
        self._claim("session", session)

    def space(self, space: Space) -> None:
        """The project of a space: its scopes share its words. Global memories are of all."""
        if not space.traits.has_project or space.scope == GLOBAL_SCOPE:
            raise NeedsToBeAlone
        self._claim("project", space.project)

    def _claim(self, kind: str, name: str) -> None:
        """Nobody else may touch it until this transaction has ended; asked for once."""
        number = number_of(self._schema, kind, name)
        if number not in self._taken:
            self._taken.add(number)
            self._connection.execute("SELECT pg_advisory_xact_lock(:number)", {"number": number})


def number_of(*parts: str) -> int:
    """The number of an advisory lock."""
    digest = blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


class Claimed:
    """A part of a transaction, of which a write beside others has a few methods."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NeedsToBeAlone(name)


class ClaimedKeys(Claimed):
    def __init__(self, records: IdempotencyTable, claims: Claims) -> None:
        self._records = records
        self._claims = claims

    def get(self, key: bytes) -> IdempotencyRecord | None:
        self._claims.key(key)
        return self._records.get(key)

    def add(self, record: IdempotencyRecord) -> None:
        self._claims.key(record.key)
        self._records.add(record)


class ClaimedSessions(Claimed):
    def __init__(self, sessions: SessionTable, claims: Claims) -> None:
        self._sessions = sessions
        self._claims = claims

    def get(self, session: SessionId) -> Session | None:
        self._claims.session(session)
        return self._sessions.get(session)

    def open(self, session: Session) -> Session:
        self._claims.session(session.id)
        return self._sessions.open(session)

    def close(self, session: Session) -> None:
        self._claims.session(session.id)
        self._sessions.close(session)

    def grow(self, session: Session) -> None:
        self._claims.session(session.id)
        self._sessions.grow(session)


class ClaimedTranscripts(Claimed):
    def __init__(self, transcripts: TranscriptTable, claims: Claims) -> None:
        self._transcripts = transcripts
        self._claims = claims

    def get(self, session: SessionId) -> Transcript | None:
        self._claims.session(session)
        return self._transcripts.get(session)

    def put(self, session: SessionId, transcript: Transcript) -> None:
        self._claims.session(session)
        self._transcripts.put(session, transcript)

    def drop(self, session: SessionId) -> None:
        self._claims.session(session)
        self._transcripts.drop(session)


class ClaimedMemories(Claimed):
    def __init__(self, memories: MemoryTable, claims: Claims) -> None:
        self._memories = memories
        self._claims = claims

    def get(self, memory: MemoryId) -> Memory | None:
        found = self._memories.get(memory)
        if found is None:
            return None
        self._claim(found.space)
        return self._memories.get(memory)  # it may have changed until it was claimed

    def at_key(self, space: Space, key: str) -> Memory | None:
        self._claim(space)
        return self._memories.at_key(space, key)

    def twin(self, space: Space, key: str | None, text: Text, since: datetime) -> Memory | None:
        self._claim(space)
        return self._memories.twin(space, key, text, since)

    def insert(self, memory: Memory) -> Memory:
        self._claim(memory.space)
        return self._memories.insert(memory)

    def replace(self, memory: Memory) -> None:
        self._claim(memory.space)
        self._memories.replace(memory)

    def set_lifecycle(self, memory: Memory) -> None:
        self._claim(memory.space)
        self._memories.set_lifecycle(memory)

    def release_key(self, memory: Memory) -> None:
        self._claim(memory.space)
        self._memories.release_key(memory)

    def count_duplicate(self, memory: Memory) -> None:
        self._claim(memory.space)
        self._memories.count_duplicate(memory)

    def _claim(self, space: Space) -> None:
        self._claims.space(space)


class ClaimedLifecycles(Claimed):
    def __init__(self, lifecycles: LifecycleTable, claims: Claims) -> None:
        self._lifecycles = lifecycles
        self._claims = claims

    def pins(self, space: Space) -> int:
        self._claims.space(space)
        return self._lifecycles.pins(space)


class ClaimedSupersessions(Claimed):
    """What is linked is of one project: that of a memory which was claimed."""

    def __init__(self, supersessions: SupersessionTable) -> None:
        self._supersessions = supersessions

    def of(self, memories: Collection[MemoryId]) -> dict[MemoryId, Links]:
        return self._supersessions.of(memories)


class WithinOneProject(Claimed):
    """What a write beside others has of its transaction."""

    def __init__(self, tx: PostgresTransaction, claims: Claims) -> None:
        self.now = tx.now
        self.caller = tx.caller
        self.retention = tx.retention
        self.new_uid = tx.new_uid
        self._tx = tx
        self._tables: Mapping[type, object] = {
            IdempotencyTable: ClaimedKeys(tx[IdempotencyTable], claims),
            SessionTable: ClaimedSessions(tx[SessionTable], claims),
            TranscriptTable: ClaimedTranscripts(tx[TranscriptTable], claims),
            MemoryTable: ClaimedMemories(tx[MemoryTable], claims),
            LifecycleTable: ClaimedLifecycles(tx[LifecycleTable], claims),
            SupersessionTable: ClaimedSupersessions(tx[SupersessionTable]),
            RevisionTable: tx[RevisionTable],  # of memories, which were claimed
        }

    def __getitem__(self, table: type[T], /) -> T:
        if table not in self._tables:
            raise NeedsToBeAlone(table.__name__)
        return cast("T", self._tables[table])

    @property
    def room(self) -> int | None:
        return self._tx.room

    @property
    def is_awaited(self) -> bool:
        return self._tx.is_awaited
