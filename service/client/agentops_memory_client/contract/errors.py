"""Why a call failed: one class for each kind of failure that a caller handles.

The text of each is a sentence that is safe to show. An extra that is missing is named with the
command that installs what it requires: no package index has it by name yet.
"""

import shlex
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
    """Any failure of a call to the service."""


class MemoryServiceWarning(UserWarning):
    """The call succeeded, but the service warns that it may not do what was intended."""


class Misconfigured(MemoryServiceError, ValueError):
    """The configuration of the client is invalid; nothing was sent."""


class Unreachable(MemoryServiceError):
    """No answer, or none in time; the same request may succeed later."""

    may_be_done = False  # whether the service may have received and executed the request


class UnexpectedAnswer(MemoryServiceError):
    """The answer is not one that the service gives."""

    status = 0  # of HTTP, if there was one
    retry_after: timedelta | None = None


class Refused(MemoryServiceError):
    """The service refused the call."""

    status = 0  # as AgentOps REST says it
    code: str | None = None  # as OpenWOP says it, which has several for a status
    details: Mapping[str, Any] = MappingProxyType({})  # as OpenWOP names them, for some codes
    request_id: str | None = None  # if the service named the request
    retry_after: timedelta | None = None  # if the service said when to ask again


class Invalid(Refused):
    """The request is invalid or exceeds a limit; the message names every fault."""

    status = 400


class Unauthenticated(Refused):
    """No valid key was sent."""

    status = 401


class Denied(Refused):
    """The key does not allow this."""

    status = 403


class NotFound(Refused):
    """It does not exist, or this key has no access to it."""

    status = 404


class Conflict(Refused):
    """The stored state does not allow this change."""

    status = 409


class TooLarge(Refused):
    """The request is too large; nothing was stored."""

    status = 413


class TooMany(Refused):
    """The key has sent too many requests; the same request succeeds in a few seconds."""

    status = 429


class Failed(Refused):
    """The service failed; its log has the reason."""

    status = 500


class Unavailable(Refused):
    """The service cannot do this now; the same request may succeed later."""

    status = 503


class OverQuota(Refused):
    """The tenant has used up its quota."""

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
    """The refusal for a status; an unknown one counts as 400 or 500."""
    rough = Failed if status >= 500 else Invalid
    refusal = BY_STATUS.get(status, rough)(sentence)
    refusal.status, refusal.code, refusal.details = status, code, details
    refusal.request_id, refusal.retry_after = request_id, retry_after
    return refusal


CLIENT, SERVER = "agentops-memory-client", "agentops-memory"


def install_command(name: str, extra: str) -> str:
    """The shell command that installs what an extra of a distribution requires."""
    # Not at the top: it takes 20 ms, and only what is missing needs it.
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415

    try:
        lines = [line.partition(";") for line in requires(name) or ()]
    except PackageNotFoundError:  # the client's sources, on the path of an editable server
        return f"install the extra `{extra}` of {name}"
    needed = [line.strip() for line, _, marker in lines if f"'{extra}'" in marker]
    return f"pip install {' '.join(map(shlex.quote, needed))}"
