"""Failures of HTTP as errors of the client."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import httpx

from ..contract import reading
from ..contract.errors import MemoryServiceError, Refused, UnexpectedAnswer, Unreachable, refused

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
START = "Does it run? Start it with `agentops-memory serve`."
_CUT = ("disconnected", "closed connection")  # as httpcore words it
_SECONDS = re.compile(r"[0-9]{1,9}")


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Inside, an error of httpx becomes Unreachable or UnexpectedAnswer."""
    try:
        yield
    except httpx.HTTPError as error:
        raise _failure(error, url) from error


def timed_out(url: str) -> Unreachable:
    return _may_be_done(f"{url} does not answer in time.")


def refusal(
    url: str, status: int, headers: Mapping[str, str], body: bytes
) -> Refused | UnexpectedAnswer:
    """The error for an unsuccessful response."""
    if 300 <= status < 400:
        return _unexpected(status, f"{url} redirects ({status}), which is not followed.")
    try:
        problem = reading.problem(body)
    except UnexpectedAnswer:
        failure = _unexpected(status, f"{url} answers {status}, but not as the service does.")
        failure.retry_after = _retry_after(headers)
        return failure
    request_id, retry_after = headers.get("x-request-id"), _retry_after(headers)
    return refused(
        status, problem.sentence, code=problem.code, details=problem.details,
        request_id=request_id, retry_after=retry_after,
    )  # fmt: skip


def is_retryable(failure: MemoryServiceError, *, is_idempotent: bool) -> bool:
    """Whether the same call may succeed if sent again, without being executed twice."""
    if isinstance(failure, Unreachable):
        return is_idempotent or not failure.may_be_done
    return getattr(failure, "status", 0) in (429, 503)


def _failure(error: httpx.HTTPError, url: str) -> Unreachable | UnexpectedAnswer:
    if isinstance(error, NOT_SENT):
        return Unreachable(f"{url} cannot be reached ({_reason(error)}). {START}")
    if isinstance(error, httpx.TimeoutException):
        return timed_out(url)
    if isinstance(error, httpx.NetworkError) or any(word in str(error) for word in _CUT):
        return _may_be_done(f"{url} broke off.")
    return UnexpectedAnswer(f"{url} answers, but not as the service does.")


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.PoolTimeout):
        return "every connection is in use"
    return str(error) or "no connection in time"


def _may_be_done(sentence: str) -> Unreachable:
    failure = Unreachable(sentence)
    failure.may_be_done = True
    return failure


def _unexpected(status: int, sentence: str) -> UnexpectedAnswer:
    failure = UnexpectedAnswer(sentence)
    failure.status = status
    return failure


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    seconds = headers.get("retry-after", "")
    return timedelta(seconds=int(seconds)) if _SECONDS.fullmatch(seconds) else None
