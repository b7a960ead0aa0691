"""Writes beside each other: what they touch is claimed by name, and nothing else can be touched.

A write holds the tenant's lock alone, as SQLite's one writer does. One whose function is declared
to be `within_one_project` shares it with others like it. Then it has the tables here alone, each
of whose methods claims what it names until the commit; what is not here makes it run again, with
the lock to itself. So no claim can be forgotten.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar, cast

from ...engine.callbacks import noop
from ...memory.idempotency import IdempotencyRecord, IdempotencyTable
from ...memory.lifecycles import LifecycleTable, SupersessionTable
from ...memory.memories import MemoryTable
from ...memory.model.access import TenantId
from ...memory.model.memory import Memory, MemoryId, Session, SessionId
from ...memory.model.space import GLOBAL_SCOPE, Project, Space
from ...memory.revisions import RevisionTable
from ...memory.sessions import SessionTable, TranscriptTable
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
        return not (self.alone or self.project)


class Claims:
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
    digest = blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


class Claimed:
    """A table of which a write beside others has some methods: each claims its first argument."""

    def __init__(self, table: object, claims: Mapping[str, Callable[[Any], None]]) -> None:
        self._table = table
        self._claims = claims

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self._claims:
            raise NeedsToBeAlone(name)
        claim, method = self._claims[name], getattr(self._table, name)

        def claimed(subject: object, *rest: object, **named: object) -> Any:
            claim(subject)
            return method(subject, *rest, **named)

        return claimed


class ClaimedMemories(Claimed):
    _table: MemoryTable

    def get(self, memory: MemoryId) -> Memory | None:
        found = self._table.get(memory)
        if found is None:
            return None
        self._claims["replace"](found)
        return self._table.get(memory)  # it may have changed until it was claimed


class WithinOneProject:
    def __init__(self, tx: PostgresTransaction, claims: Claims) -> None:
        self.now = tx.now
        self.caller = tx.caller
        self.retention = tx.retention
        self.new_uid = tx.new_uid
        self._tx = tx

        def session(it: Session) -> None:
            claims.session(it.id)

        def memory(it: Memory) -> None:
            claims.space(it.space)

        def key(it: IdempotencyRecord) -> None:
            claims.key(it.key)

        methods: Mapping[type, Mapping[str, Callable[[Any], None]]] = {
            IdempotencyTable: {"get": claims.key, "add": key},
            SessionTable: {
                **dict.fromkeys(("get", "project_of"), claims.session),
                **dict.fromkeys(("open", "close", "grow"), session),
            },
            TranscriptTable: dict.fromkeys(("get", "put", "drop"), claims.session),
            LifecycleTable: {"pins": claims.space},
            # What is linked is of one project: that of a memory which was claimed.
            SupersessionTable: {"of": noop},
        }  # fmt: skip
        self._tables: Mapping[type, object] = {
            **{table: Claimed(tx[table], its) for table, its in methods.items()},
            MemoryTable: ClaimedMemories(
                tx[MemoryTable],
                {
                    "at_key": claims.space,
                    **dict.fromkeys(("twin", "insert", "replace", "set_lifecycle"), memory),
                    **dict.fromkeys(("release_key", "count_duplicate"), memory),
                },
            ),
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
