"""Idempotency keys: a request is executed once, and its repetition gets the first response.

The outcome of a write is stored with the key, in the write's transaction; the handler makes the
same response from it again. A stored outcome is removed when one of the memories that it contains
is erased or redacted, and by every erasure that names no memories. The key stays, so the request is
not executed again.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache, wraps
from hashlib import sha256
from inspect import unwrap
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from ..engine.engine import Transaction
from ..errors import AnswerErased, AnswerLost, DamagedRow, Invalid, KeyReused
from ..light import Lazy, dataclass, fields, is_dataclass
from .access import Caller, IdempotentRequest
from .memory import MemoryId
from .redactor import require_margin
from .rows import EARLIEST, RowMapper, micros
from .space import Kind
from .table import Table

if TYPE_CHECKING:
    import pydantic
else:  # only a request with a key needs it
    pydantic = Lazy(None, "pydantic")

SUCCESSES = range(200, 300)  # HTTP statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """A request executed under an idempotency key; key and request are stored as digests."""

    key: bytes
    request: bytes
    status: int  # of the response
    at: datetime
    answer: str | None  # the outcome as JSON; empty if it was not stored, None if it is erased


# The check `index` raises for a status that is not a success.
_RECORD = RowMapper(IdempotencyRecord, "done", "key", check=lambda it: SUCCESSES.index(it.status))


class IdempotencyTable(Table):
    """Idempotency records, by the digest of their key; the domain checks their retention."""

    def get(self, key: bytes) -> IdempotencyRecord | None:
        return self._fetch(_RECORD, "key = :key", key=key)

    def add(self, record: IdempotencyRecord, memories: Collection[MemoryId]) -> None:
        """Store a record; erasing any of the memories removes its answer."""
        self._execute("DELETE FROM done WHERE key = :key", key=record.key)
        self._insert("done", ids="", **_RECORD.values(record))
        self._connection.executemany(
            "INSERT INTO done_memories (memory_id, key) VALUES (:memory, :key)",
            [{"memory": memory, "key": record.key} for memory in set(memories)],
        )

    def erase_answers(self) -> None:
        """Remove all answers with text that belong to no memories; the keys stay."""
        self._execute(
            """UPDATE done
                  SET answer = NULL
                WHERE answer LIKE '{%' AND key NOT IN (SELECT key FROM done_memories)"""
        )

    def redact_answers(self) -> None:
        """Empty every answer with text; the keys stay."""
        self._execute("UPDATE done SET answer = '' WHERE answer LIKE '{%' OR answer LIKE '[%'")

    def until(self, at: datetime, most: int) -> list[bytes]:
        """Return the keys of at most `most` records up to an instant, oldest first."""
        return self._scalars(
            f"SELECT key FROM done WHERE at BETWEEN {EARLIEST} AND :at ORDER BY at LIMIT :most",
            at=micros(at),
            most=most,
        )

    def forget(self, keys: Sequence[bytes], at: datetime) -> int:
        """Remove the records of these keys that are not newer; return the number removed."""
        rows = [{"key": key, "at": micros(at)} for key in keys]
        statement = "DELETE FROM done WHERE key = :key AND at <= :at"
        return self._connection.executemany(statement, rows).rowcount


P = ParamSpec("P")
T = TypeVar("T")

LONGEST_KEY = 255
LARGEST_ANSWER = 2 * 1024 * 1024  # most bytes of a stored outcome; no response is larger

_KEY = re.compile(rf"[!-~]{{1,{LONGEST_KEY}}}")


def idempotency(
    caller: Caller, key: str, status: int, *request: bytes, holder: str = ""
) -> IdempotentRequest:
    """Return the digests of a request and the caller's key; Invalid for a malformed key.

    Different holders of an API key do not share idempotency keys. Both digests include the key,
    so that a short body cannot be guessed by hashing.
    """
    if not _KEY.fullmatch(key):
        raise Invalid(f"An idempotency key must have 1 to {LONGEST_KEY} visible ASCII characters.")
    parts = (caller.key or "").encode(), key.encode(), *([holder.encode()] if holder else [])
    return IdempotentRequest(key=_digest(*parts), request=_digest(*request, *parts), status=status)


def once(
    work: Callable[Concatenate[Transaction, P], T], *, check: Callable[..., object] | None = None,
    on_repeat: Callable[..., T] | None = None, kept: Callable[[T], T] | None = None,
    about: Callable[[T], Collection[MemoryId]] | None = None,
    status: Callable[[T], int] | None = None,
) -> Callable[Concatenate[Transaction, P], T]:  # fmt: skip
    """Wrap work so that it executes a request with an idempotency key only once.

    A repetition first runs `check` with the arguments of the work, which refuses the callers that
    the work would refuse. It returns the stored outcome, or `on_repeat(tx, outcome, *arguments)`;
    AnswerErased or AnswerLost if it is not stored, KeyReused for a different request. `kept` strips
    an outcome of what must not be stored, and `about` returns the memories whose text it contains.
    `status` returns the response status of an outcome, if outcomes differ in it. The outcome is
    stored as the declared return type of the work.
    """

    @wraps(work)
    def done_once(tx: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
        request = tx.caller.request
        if request is None:
            return work(tx, *args, **kwargs)
        done = _done(tx, request)
        request.is_replay = done is not None  # always set, as a transaction may be retried
        if done is not None:
            request.status = done.status
            if check is not None:
                check(tx, *args, **kwargs)
            first: T = _outcome(work, done)
            return first if on_repeat is None else on_repeat(tx, first, *args, **kwargs)
        outcome = work(tx, *args, **kwargs)
        if status is not None:
            request.status = status(outcome)
        require_margin(tx)
        answer = json.dumps(  # includes fields that are not sent, but no defaults
            outcome if kept is None else kept(outcome), default=_plain, ensure_ascii=False,
            separators=(",", ":"),
        )  # fmt: skip
        record = IdempotencyRecord(
            key=request.key, request=request.request, status=request.status, at=tx.now,
            answer=answer if len(answer.encode()) <= LARGEST_ANSWER else "",
        )  # fmt: skip
        tx[IdempotencyTable].add(record, () if about is None else about(outcome))
        return outcome

    return done_once


def is_due(tx: Transaction) -> bool:
    """Whether the request was not executed yet; KeyReused for a different one under its key."""
    request = tx.caller.request
    return request is None or _done(tx, request) is None


def _done(tx: Transaction, request: IdempotentRequest) -> IdempotencyRecord | None:
    done = tx[IdempotencyTable].get(request.key)
    until = tx.retention.until(Kind.IDEMPOTENCY, tx.now)
    if done is None or (until is not None and done.at <= until):
        return None
    if done.request != request.request:
        raise KeyReused
    return done


def _outcome(work: Callable[..., object], done: IdempotencyRecord) -> Any:
    """Return the stored outcome, also for work that returns None, which is stored as null."""
    if done.answer is None:
        raise AnswerErased
    try:
        return _adapter(work).validate_json(done.answer or "null")
    except pydantic.ValidationError as error:
        if done.answer and error.errors()[0]["type"] == "json_invalid":
            raise DamagedRow("done", done.key.hex(), "answer") from error
        raise AnswerLost from error  # too long to be stored, or stored by another version


@cache
def _adapter(work: Callable[..., object]) -> "pydantic.TypeAdapter[Any]":
    return pydantic.TypeAdapter(get_type_hints(unwrap(work))["return"])


def _plain(value: Any) -> object:
    if is_dataclass(value):
        named = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: it for field, it in named if it != field.default}
    if isinstance(value, pydantic.BaseModel):
        return vars(value)
    for type_, plain in _PLAIN.items():
        if isinstance(value, type_):
            return plain(value)
    raise TypeError(type(value).__name__)


_PLAIN: Mapping[type, Callable[[Any], object]] = {
    Enum: lambda it: it.value,
    datetime: datetime.isoformat,
    bytes: bytes.hex,  # as `Record` parses them
    Mapping: dict,
    Collection: list,
}


def _digest(*parts: bytes) -> bytes:
    return sha256(b"".join(sha256(part).digest() for part in parts)).digest()
