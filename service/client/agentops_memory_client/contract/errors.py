"""Why the service did not do as asked: one class for each kind of answer that a caller makes.

The text of each is a sentence that is safe to show.
"""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

__all__ = [
    "Conflict", "Denied", "Failed", "Invalid", "MemoryServiceError", "MemoryServiceWarning",
    "Misconfigured", "NotFound", "OverQuota", "Refused", "TooLarge", "TooMany", "Unauthenticated",
    "Unavailable", "UnexpectedAnswer", "Unreachable",
]  # fmt: skip


class MemoryServiceError(Exception):
    """Whatever can go wrong between a caller and the service."""


class MemoryServiceWarning(UserWarning):
    """The service did what was asked, and warns that it may not be what was meant."""


class Misconfigured(MemoryServiceError, ValueError):
    """What a client was given to reach the service with cannot be right; nothing was sent."""


class Unreachable(MemoryServiceError):
    """Nobody answers, or not in time; the same request may succeed later."""

    may_be_done = False  # whether so much was sent that the service may have done it


class UnexpectedAnswer(MemoryServiceError):
    """Something answers, but not as the service does."""

    status = 0  # of HTTP, if there was one
    retry_after: timedelta | None = None


class Refused(MemoryServiceError):
    """The service answered, and did not do it."""

    status = 0  # as AgentOps REST says it
    code: str | None = None  # as OpenWOP says it, which has several for a status
    details: Mapping[str, Any] = MappingProxyType({})  # as OpenWOP names them, for some codes
    request_id: str | None = None  # if the service named the request
    retry_after: timedelta | None = None  # if the service said when to ask again


class Invalid(Refused):
    """What was sent breaks a limit, or cannot be understood; every fault is named."""

    status = 400


class Unauthenticated(Refused):
    """No key was sent that opens the service."""

    status = 401


class Denied(Refused):
    """The key does not allow this."""

    status = 403


class NotFound(Refused):
    """There is no such thing, or none that this key may know of."""

    status = 404


class Conflict(Refused):
    """What is stored does not allow this change."""

    status = 409


class TooLarge(Refused):
    """What was sent is over its limit; nothing of it was stored."""

    status = 413


class TooMany(Refused):
    """The key has asked too often; the same request succeeds after some seconds."""

    status = 429


class Failed(Refused):
    """The service failed; its log has the reason."""

    status = 500


class Unavailable(Refused):
    """The service cannot do this now; the same request may succeed later."""

    status = 503


class OverQuota(Refused):
    """The tenant stores as much as it may."""

    status = 507


BY_STATUS: Mapping[int, type[Refused]] = {kind.status: kind for kind in Refused.__subclasses__()}


def refused(
    status: int,
    sentence: str,
    *,
    code: str | None = None,
    details: Mapping[str, Any] = MappingProxyType({}),
    request_id: str | None = None,
    retry_after: timedelta | None = None,
) -> Refused:
    """The refusal that a status stands for; an unknown one counts as the first of its hundred."""
    rough = Failed if status >= 500 else Invalid
    refusal = BY_STATUS.get(status, rough)(sentence)
    refusal.status, refusal.code, refusal.details = status, code, details
    refusal.request_id, refusal.retry_after = request_id, retry_after
    return refusal
