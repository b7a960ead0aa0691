"""SQL for the records of what was done under idempotency keys."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ...domain.ports.engine import IdempotencyRecord
from .rows import EARLIEST, LAST, StrictRow, ids_of, instant, micros
from .table import Table

SUCCESSES = range(200, 300)  # statuses


class IdempotencyRecords(Table):
    """The records of one transaction."""

    def get(self, key: bytes) -> IdempotencyRecord | None:
        return self._first(
            _record, "SELECT key, request, status, ids, at FROM done WHERE key = :key", key=key
        )

    def add(self, record: IdempotencyRecord) -> None:
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
        return self._scalars(
            f"SELECT key FROM done WHERE at BETWEEN {EARLIEST} AND :at ORDER BY at LIMIT :most",
            at=micros(at),
            most=most,
        )

    def forget(self, keys: Sequence[bytes], at: datetime) -> int:
        gone = self._connection.executemany(
            "DELETE FROM done WHERE key = :key AND at <= :at",
            [{"key": key, "at": micros(at)} for key in keys],
        )
        return gone.rowcount


def _record(row: Any) -> IdempotencyRecord:
    key, request, status, ids, at = row
    if not EARLIEST <= at <= LAST:  # by which it could be over, and done again
        raise StrictRow("done", key.hex()).damaged("at")
    return IdempotencyRecord(
        key=key,
        request=request,
        status=status if status in SUCCESSES else SUCCESSES.start,
        ids=ids_of(ids),
        at=instant(at),
    )
