"""The service from Python: `MemoryClient` waits for each answer, `AsyncMemoryClient` awaits it.

The package knows nothing of the server, which shares its `contract`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .contract.errors import (
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
from .contract.models import Context, Found, Message, Progress, SessionEnd

if TYPE_CHECKING:
    from .awaiting import AsyncMemoryClient
    from .blocking import MemoryClient
else:
    _CLIENTS = {"AsyncMemoryClient": ".awaiting", "MemoryClient": ".blocking"}

    def __getattr__(name):
        """A client is imported, with httpx, when it is first asked for: a server needs none."""
        if name not in _CLIENTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_CLIENTS[name], __name__), name)


__version__ = "0.1.0"

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
