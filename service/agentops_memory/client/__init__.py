"""The service from Python: `MemoryClient` waits for each answer, `AsyncMemoryClient` awaits it.

Imports nothing of the server but its answers.
"""

try:
    from .awaiting import AsyncMemoryClient
    from .blocking import MemoryClient
except ModuleNotFoundError as error:
    if error.name != "httpx":
        raise
    raise ImportError("The client needs httpx: pip install 'agentops-memory[client]'") from error

from ..contract.errors import (
    Conflict,
    Denied,
    Failed,
    Invalid,
    MemoryServiceError,
    Misconfigured,
    NotFound,
    OverQuota,
    Refused,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from ..contract.models import Context, Found, Message, SessionEnd
from ..contract.port import Progress

__all__ = [
    "AsyncMemoryClient",
    "Conflict",
    "Context",
    "Denied",
    "Failed",
    "Found",
    "Invalid",
    "MemoryClient",
    "MemoryServiceError",
    "Message",
    "Misconfigured",
    "NotFound",
    "OverQuota",
    "Progress",
    "Refused",
    "SessionEnd",
    "TooLarge",
    "TooMany",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
]
