"""SQL for what was done under idempotency keys."""

import json
from collections.abc import Sequence
from datetime import datetime

from ....domain.model.idempotency import IdempotencyRecord, Ids
from ..base.table import Table, instant, micros, parsed

SUCCESSES = range(200, 300)  # statuses


class DoneRecords(Table):
    """What was done, as one transaction sees it."""

    def get(self, key: bytes) -> IdempotencyRecord | None:
        row = self._execute(
            "SELECT request, status, ids, at FROM done WHERE key = :key", key=key
        ).fetchone()
        if row is None:
            return None
        request, status, ids, at = row
        return IdempotencyRecord(
            key=key,
            request=request,
            status=status if status in SUCCESSES else SUCCESSES.start,
            ids=ids_of(ids),
            at=instant(at),
        )

    def add(self, done: IdempotencyRecord) -> None:
        self._execute(
            """INSERT OR REPLACE INTO done (key, request, status, ids, at)
               VALUES (:key, :request, :status, :ids, :at)""",
            key=done.key,
            request=done.request,
            status=done.status,
            ids=json.dumps(done.ids),
            at=micros(done.at),
        )

    def until(self, at: datetime, most: int) -> list[bytes]:
        rows = self._execute(
            "SELECT key FROM done WHERE at <= :at ORDER BY at LIMIT :most",
            at=micros(at),
            most=most,
        )
        return [key for (key,) in rows]

    def forget(self, keys: Sequence[bytes], at: datetime) -> int:
        gone = self._connection.executemany(
            "DELETE FROM done WHERE key = :key AND at <= :at",
            [{"key": key, "at": micros(at)} for key in keys],
        )
        return gone.rowcount


def ids_of(text: str) -> Ids:
    """What a record keeps of an outcome."""
    return {name: id_ for name, id_ in parsed(text, dict).items() if isinstance(id_, int | str)}
