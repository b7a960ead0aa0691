"""SQL for the records of what was done under idempotency keys."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from ...errors import Unreadable
from ..model.memory import MemoryId
from .rows import EARLIEST, instant, micros, reads
from .table import Table

SUCCESSES = range(200, 300)  # statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """What was done under an idempotency key; key and request are kept as digests."""

    key: bytes
    request: bytes
    status: int  # of the answer
    at: datetime
    answer: str | None  # the outcome as JSON, empty if it was not stored; None if it is erased


class IdempotencyTable(Table):
    """Idempotency records, by the digest of their key; the domain checks their retention."""

    def get(self, key: bytes) -> IdempotencyRecord | None:
        """The record of the key with this digest.

        The previous release stores ids, and no answer. A pod of it that takes over the row of a
        key whose retention is over leaves the answer in it, which is none to its request.
        """
        return self._first(
            _record,
            """SELECT key, request, status, at, CASE ids WHEN '' THEN answer ELSE '' END
                  FROM done
                 WHERE key = :key""",
            key=key,
        )

    def add(self, record: IdempotencyRecord, memories: Collection[MemoryId]) -> None:
        """Store a record, in the transaction that it describes; an older one is replaced.

        Its answer goes with any of the memories.
        """
        self._execute("DELETE FROM done WHERE key = :key", key=record.key)
        self._insert(
            "done",
            key=record.key,
            request=record.request,
            status=record.status,
            ids="",
            at=micros(record.at),
            answer=record.answer,
        )
        self._connection.executemany(
            "INSERT INTO done_memories (memory_id, key) VALUES (:memory, :key)",
            [{"memory": memory, "key": record.key} for memory in set(memories)],
        )

    def erase_answers(self) -> None:
        """Remove the answers with text that go with no memories; their keys stay."""
        self._execute(
            """UPDATE done
                  SET answer = NULL
                WHERE answer LIKE '{%' AND key NOT IN (SELECT key FROM done_memories)"""
        )

    def redact_answers(self) -> None:
        """Empty every answer with text; the keys stay."""
        self._execute("UPDATE done SET answer = '' WHERE answer LIKE '{%' OR answer LIKE '[%'")

    def until(self, at: datetime, most: int) -> list[bytes]:
        """The keys of records up to then, oldest first, at most `most`."""
        return self._scalars(
            f"SELECT key FROM done WHERE at BETWEEN {EARLIEST} AND :at ORDER BY at LIMIT :most",
            at=micros(at),
            most=most,
        )

    def forget(self, keys: Sequence[bytes], at: datetime) -> int:
        """Remove the records of these keys that are up to then; how many were removed."""
        gone = self._connection.executemany(
            "DELETE FROM done WHERE key = :key AND at <= :at",
            [{"key": key, "at": micros(at)} for key in keys],
        )
        return gone.rowcount


@reads("done")
def _record(
    key: bytes, request: bytes, status: int, at: int, answer: str | None
) -> IdempotencyRecord:
    if status not in SUCCESSES:
        raise Unreadable
    return IdempotencyRecord(key=key, request=request, status=status, at=instant(at), answer=answer)
