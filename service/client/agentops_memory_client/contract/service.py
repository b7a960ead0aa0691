"""What agents and people ask, whoever answers: a running service, or a database in this process."""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from . import calls
from .call import Call, T
from .method import Asks, Awaited, asking
from .models import Imported, ImportPlan, Progress


class Questions(Asks):
    """The questions of `calls`, as methods."""

    save = asking(calls.save)
    get = asking(calls.get)
    recent = asking(calls.recent)
    history = asking(calls.history)
    restore = asking(calls.restore)
    update = asking(calls.update)
    confirm = asking(calls.confirm)
    review = asking(calls.review)
    delete = asking(calls.delete)
    search = asking(calls.search)
    context = asking(calls.context)
    timeline = asking(calls.timeline)
    stats = asking(calls.stats)
    sessions = asking(calls.sessions)
    start_session = asking(calls.start_session)
    append_messages = asking(calls.append_messages)
    end_session = asking(calls.end_session)


class MemoryService(Awaited, Questions, ABC):
    """The memories of one caller. Every method refuses with a MemoryServiceError."""

    @abstractmethod
    async def _ask(self, call: Call[T], /) -> T:
        """What is answered to a call."""

    @abstractmethod
    def export(
        self, project: str | None = None, *, progress: Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Every session and observation of the project, or of all, as JSON: bytes as they come."""

    @abstractmethod
    async def import_from(
        self, path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> Imported:
        """Store what an export holds and the service does not, whole or not at all.

        OSError for a file that cannot be read.
        """

    @abstractmethod
    async def plan_import(
        self, path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> ImportPlan:
        """What an import of the file would do; nothing is stored. OSError as for an import."""
