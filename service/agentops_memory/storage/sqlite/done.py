"""SQL for what was done under idempotency keys."""

import json
from datetime import datetime

from ...domain.model import Done
from .table import Table, instant, micros


class DoneRecords(Table):
    """What was done, as one transaction sees it."""

    def get(self, key: bytes) -> Done | None:
        row = self._execute(
            "SELECT request, status, ids, at FROM done WHERE key = :key", key=key
        ).fetchone()
        if row is None:
            return None
        request, status, ids, at = row
        return Done(key=key, request=request, status=status, ids=json.loads(ids), at=instant(at))

    def add(self, done: Done) -> None:
        self._execute(
            """INSERT OR REPLACE INTO done (key, request, status, ids, at)
               VALUES (:key, :request, :status, :ids, :at)""",
            key=done.key,
            request=done.request,
            status=done.status,
            ids=json.dumps(done.ids),
            at=micros(done.at),
        )

    def trim(self, until: datetime, most: int) -> None:
        self._execute(
            """DELETE FROM done
                WHERE key IN (SELECT key
                                FROM done
                               WHERE at <= :until
                               LIMIT :most)""",
            until=micros(until),
            most=most,
        )
