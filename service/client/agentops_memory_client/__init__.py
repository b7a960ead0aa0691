"""Clients of the memory service: `MemoryClient` blocks, `AsyncMemoryClient` is for asyncio.

The package does not need the server; the server imports its `contract`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .contract import __version__ as __version__, models
from .contract.models import *  # noqa: F403 - the public exceptions
from .contract.models import Context, Found, Message, Progress, SessionEnd

if TYPE_CHECKING:
    from .client import AsyncMemoryClient, MemoryClient
else:

    def __getattr__(name):
        """Import the client and httpx on first use: the server needs neither of them."""
        if name not in ("AsyncMemoryClient", "MemoryClient"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(".client", __name__), name)


__all__ = [
    "AsyncMemoryClient", "Context", "Found", "MemoryClient", "Message", "Progress", "SessionEnd",
]  # fmt: skip
__all__ += models.__all__
