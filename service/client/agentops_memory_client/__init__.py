"""Clients of the service: `MemoryClient` is blocking, `AsyncMemoryClient` async.

The package is independent of the server, which shares its `contract`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .contract import __version__ as __version__
from .contract import models
from .contract.models import *  # noqa: F403 - which are public
from .contract.models import Context, Found, Message, Progress, SessionEnd

if TYPE_CHECKING:
    from .client import AsyncMemoryClient, MemoryClient
else:

    def __getattr__(name):
        """Import a client, and httpx, on first use: a server needs neither."""
        if name not in ("AsyncMemoryClient", "MemoryClient"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(".client", __name__), name)


__all__ = [
    "AsyncMemoryClient", "Context", "Found", "MemoryClient", "Message", "Progress", "SessionEnd",
]  # fmt: skip
__all__ += models.__all__
