"""What agents and people ask, whoever answers: a running service, or a database in this process."""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from . import calls, session_calls
from .call import Call, shown_as
from .models import Imported, ImportPlan, Progress

T = TypeVar("T")
P = ParamSpec("P")


def awaiting(
    question: Callable[P, Call[T]],
) -> Callable[Concatenate["MemoryService", P], Coroutine[Any, Any, T]]:
    """The method that asks the question."""

    async def ask(self: "MemoryService", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._ask(question(*args, **kwargs))

    return shown_as(question, ask)


class MemoryService(ABC):
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

    save = awaiting(calls.save)
    get = awaiting(calls.get)
    recent = awaiting(calls.recent)
    history = awaiting(calls.history)
    restore = awaiting(calls.restore)
    update = awaiting(calls.update)
    confirm = awaiting(calls.confirm)
    review = awaiting(calls.review)
    delete = awaiting(calls.delete)
    search = awaiting(calls.search)
    context = awaiting(calls.context)
    timeline = awaiting(calls.timeline)
    stats = awaiting(calls.stats)
    sessions = awaiting(session_calls.sessions)
    start_session = awaiting(session_calls.start_session)
    append_messages = awaiting(session_calls.append_messages)
    end_session = awaiting(session_calls.end_session)
