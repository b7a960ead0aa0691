"""The record of a request with an idempotency key."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

Ids = Mapping[str, int | str]
"""Ids and numbers from which an outcome is rebuilt; never any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """The outcome of a request with an idempotency key; key and request are kept as digests."""

    key: bytes
    request: bytes
    status: int  # of the answer
    ids: Ids
    at: datetime
