"""What can be asked of the service by whoever works on memories: agents and people."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from .models import (
    Appended,
    Context,
    Found,
    Imported,
    ImportPlan,
    Message,
    Observation,
    Revision,
    Saved,
    Session,
    SessionEnd,
    Stats,
    TimelineEntry,
)

Progress = Callable[[int, int | None], None]
"""What is told of a transfer after each piece: bytes done, and bytes in all if they are known."""


class MemoryService(Protocol):
    """The memories of one caller. Every method refuses with a MemoryServiceError.

    There are two: a running service behind its REST API, and the domain in this process.
    """

    async def save(  # noqa: PLR0913 - the fields of a memory, each by its name
        self,
        *,
        session_id: str,
        project: str,
        type: str,  # noqa: A002 - the protocol's word
        title: str,
        content: str,
        tags: Sequence[str] = (),
        scope: str | None = None,
        topic_key: str | None = None,
    ) -> Saved:
        """Save a memory; an equal one, or one with its topic key, is not doubled."""

    async def search(
        self,
        query: str,
        *,
        project: str | None = None,
        type: str | None = None,  # noqa: A002 - the protocol's word
        scope: str | None = None,
        tag: str | None = None,
        limit: int = 10,
        explain: bool = False,
    ) -> Found:
        """The memories of the project, or of all, that a query finds, best first."""

    async def context(
        self,
        *,
        project: str | None = None,
        query: str | None = None,
        scope: str | None = None,
        tag: str | None = None,
        limit: int = 5,
        explain: bool = False,
    ) -> Context:
        """What to remind an agent of; without a query the newest."""

    async def get(self, observation: int) -> Observation:
        """A memory in full."""

    async def update(
        self,
        observation: int,
        *,
        type: str | None = None,  # noqa: A002 - the protocol's word
        title: str | None = None,
        content: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> Observation:
        """Change what is given, and answer the memory as it is now."""

    async def delete(self, observation: int) -> object:
        """Forget a memory so that it can be brought back; again is the same. Answers nothing."""

    async def history(self, observation: int) -> list[Revision]:
        """The changes of a memory, newest first."""

    async def timeline(
        self, observation: int, *, before: int = 3, after: int = 3
    ) -> list[TimelineEntry]:
        """A memory among those saved before and after it in its project, oldest first."""

    async def stats(self, project: str | None = None) -> Stats:
        """How much is stored, in the project or in all."""

    async def sessions(
        self, project: str | None = None, *, limit: int = 5, before: str | None = None
    ) -> list[Session]:
        """Sessions, newest first; with `before`, those older than that one."""

    async def start_session(self, session_id: str, project: str) -> Session:
        """Open a session; one that is there already is answered as it is."""

    async def append_messages(
        self, session_id: str, messages: Sequence[Message], *, project: str | None = None
    ) -> Appended:
        """Add messages to what was told of a session; an end without any sums them up."""

    async def end_session(
        self, session_id: str, messages: Sequence[Message] = (), *, project: str | None = None
    ) -> SessionEnd:
        """End a session; messages, or else those that were told, become its summary."""


class TransferService(Protocol):
    """Exports and imports of one caller. They refuse as a MemoryService does.

    OSError for a file that cannot be read.
    """

    def export(
        self, project: str | None = None, *, progress: Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Every session and observation of the project, or of all, as JSON: bytes as they come."""

    async def import_from(
        self, path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> Imported:
        """Store what an export holds and the service does not, whole or not at all."""

    async def plan_import(
        self, path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> ImportPlan:
        """What an import of the file would do; nothing is stored."""
