"""Idempotency keys: a request is executed once, and its repetition gets the first answer."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from hashlib import sha256
from typing import Concatenate, ParamSpec, TypeVar

from ..engine.engine import IdempotencyRecord, Ids, Transaction
from ..errors import AnswerLost, Invalid, KeyReused
from .limits import require_margin
from .model.access import Caller
from .model.retention import Kind
from .sql.idempotency_records import IdempotencyTable

P = ParamSpec("P")
T = TypeVar("T")

LONGEST_KEY = 255

_KEY = re.compile(rf"[!-~]{{1,{LONGEST_KEY}}}")


@dataclass(slots=True, kw_only=True)
class IdempotentRequest:
    """A request under its caller's idempotency key, as digests; used for one write."""

    key: bytes
    request: bytes
    status: int  # of the answer; the write replaces it by that of the first
    is_replay: bool = False  # set by the write: whether it was executed before


def idempotency(
    caller: Caller, key: str, status: int, *request: bytes, holder: str = ""
) -> IdempotentRequest:
    """The request of these parts under the caller's key; Invalid for a malformed key.

    Of several holders each is told of its own requests alone. The key goes into both
    digests, so that a short body cannot be guessed by hashing.
    """
    if not _KEY.fullmatch(key):
        raise Invalid(f"An idempotency key has 1 to {LONGEST_KEY} visible ASCII characters.")
    held = (caller.key or "").encode(), key.encode(), *([holder.encode()] if holder else [])
    return IdempotentRequest(key=_digest(*held), request=_digest(*request, *held), status=status)


def no_ids(_: object) -> Ids:
    """For an outcome that follows from the request and the stored state."""
    return {}


def idempotent(
    work: Callable[Concatenate[Transaction, P], T],
    idempotency: IdempotentRequest | None,
    *,
    again: Callable[Concatenate[Transaction, Ids, P], T],
    ids: Callable[[T], Ids] = no_ids,
    status: Callable[[T], int] | None = None,
) -> Callable[Concatenate[Transaction, P], T]:
    """Work that executes a request once; without a key, the work itself.

    The `ids` of the outcome are recorded in the same transaction. A repetition finds
    them, and `again` rebuilds the outcome from them and the work's arguments: it must
    refuse whom the work would refuse. `status` tells that of the answer where it follows
    from the outcome. Another request under the key is Conflict.
    """
    if idempotency is None:
        return work

    @wraps(work)
    def done_once(tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done = _done(tx, idempotency)
        idempotency.is_replay = done is not None  # set each time: a transaction may be retried
        if done is not None:
            idempotency.status = done.status
            return _again(partial(again, tx, done.ids, *args, **kwargs))
        outcome = work(tx, *args, **kwargs)
        if status is not None:
            idempotency.status = status(outcome)
        _record(tx, idempotency, ids(outcome))
        return outcome

    return done_once


def _again(outcome: Callable[[], T]) -> T:
    """The rebuilt outcome; Conflict for ids that a damaged file has garbled."""
    try:
        return outcome()
    except (LookupError, ValueError, TypeError, OverflowError) as damage:
        raise AnswerLost from damage


def is_due(tx: Transaction, idempotency: IdempotentRequest | None) -> bool:
    """Whether the request was not executed yet; Conflict for another one under its key."""
    return idempotency is None or _done(tx, idempotency) is None


def _done(tx: Transaction, idempotency: IdempotentRequest) -> IdempotencyRecord | None:
    """The record of the request, within its retention."""
    done = tx[IdempotencyTable].get(idempotency.key)
    until = tx.retention.until(Kind.IDEMPOTENCY, tx.now)
    if done is None or (until is not None and done.at <= until):
        return None
    if done.request != idempotency.request:
        raise KeyReused
    return done


def _record(tx: Transaction, idempotency: IdempotentRequest, ids: Ids) -> None:
    require_margin(tx)
    record = IdempotencyRecord(
        key=idempotency.key,
        request=idempotency.request,
        status=idempotency.status,
        ids=ids,
        at=tx.now,
    )
    tx[IdempotencyTable].add(record)


def _digest(*parts: bytes) -> bytes:
    return sha256(b"".join(sha256(part).digest() for part in parts)).digest()
