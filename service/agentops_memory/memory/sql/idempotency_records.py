"""SQL for the records of what was done under idempotency keys."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ...engine.engine import IdempotencyRecord
from ...errors import DamagedRow
from .rows import EARLIEST, LAST, ids_of, instant, micros
from .table import Table

SUCCESSES = range(200, 300)  # statuses


class IdempotencyTable(Table):
    """Idempotency records, by the digest of their key; the domain checks their retention."""

    def get(self, key: bytes) -> IdempotencyRecord | None:
        """The record of the key with this digest."""
        return self._first(
            _record, "SELECT key, request, status, ids, at FROM done WHERE key = :key", key=key
        )

    def add(self, record: IdempotencyRecord) -> None:
        """Store a record, in the transaction that it describes; an older one is replaced."""
        self._execute(
            """INSERT INTO done (key, request, status, ids, at)
               VALUES (:key, :request, :status, :ids, :at)
                   ON CONFLICT (key) DO UPDATE
                  SET request = excluded.request, status = excluded.status,
                      ids = excluded.ids, at = excluded.at""",
            key=record.key,
            request=record.request,
            status=record.status,
            ids=json.dumps(record.ids),
            at=micros(record.at),
        )

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


def _record(row: Any) -> IdempotencyRecord:
    key, request, status, ids, at = row
    if not EARLIEST <= at <= LAST:  # by which it could be over, and done again
        raise DamagedRow("done", key.hex(), "at")
    return IdempotencyRecord(
        key=key,
        request=request,
        status=status if status in SUCCESSES else SUCCESSES.start,
        ids=ids_of(ids),
        at=instant(at),
    )
