"""The protocol's port: what a node of a workflow may ask of memory."""

from collections.abc import Sequence
from typing import Protocol

from .models import MemoryEntry


class MemoryAdapter(Protocol):
    """Memory as a node reads it; it cannot write.

    A ref that is unknown, malformed or another tenant's has no entries.
    """

    def list(
        self,
        memory_ref: str,
        *,
        limit: int | None = None,
        tag: str | None = None,
        token_budget: int | None = None,
    ) -> Sequence[MemoryEntry]:
        """Entries of the ref, newest first: with this tag, and within so many code points."""

    def get(self, memory_ref: str, memory_id: str) -> MemoryEntry | None:
        """The entry of the ref; None if there is none."""


class AsyncMemoryAdapter(Protocol):
    """The same, for nodes that await."""

    async def list(
        self,
        memory_ref: str,
        *,
        limit: int | None = None,
        tag: str | None = None,
        token_budget: int | None = None,
    ) -> Sequence[MemoryEntry]:
        """As `MemoryAdapter.list`."""

    async def get(self, memory_ref: str, memory_id: str) -> MemoryEntry | None:
        """As `MemoryAdapter.get`."""
