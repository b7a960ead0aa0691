"""What a request with an idempotency key has done."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

Ids = Mapping[str, int | str]
"""Ids and numbers by which an outcome is found again; never anything that was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """What a request with an idempotency key has done. Of key and request digests are kept."""

    key: bytes
    request: bytes
    status: int  # of the answer
    ids: Ids
    at: datetime
