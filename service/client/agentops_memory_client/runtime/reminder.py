"""What an agent reads of its memory; the service never keeps it waiting for long."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from .. import AsyncMemoryClient, Context, MemoryServiceError
from . import spans
from .hooks import Question
from .injection import injected
from .kinds import require
from .messages import ToolCall

MOST_MEMORIES = 50  # that a turn may be reminded of

T = TypeVar("T")

log = logging.getLogger("agentops_memory.runtime.reminder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminder:
    """Reads the memories of one project; what does not come in time is left out, with a warning."""

    client: AsyncMemoryClient
    project: str
    limit: int  # of memories for a turn; 0 asks for nothing
    patience: timedelta  # of one question

    def __post_init__(self) -> None:
        require("limit", self.limit, int)
        require("patience", self.patience, timedelta)
        if not 0 <= self.limit <= MOST_MEMORIES:
            raise ValueError(f"A turn is reminded of 0 to {MOST_MEMORIES} memories.")

    async def context(
        self, prompt: str, attributes: spans.Attributes, *, after: Callable[[], Awaitable[None]]
    ) -> str:
        """The memories for a prompt, as text for it; asked for `after` that, in the same time."""
        if not self.limit:
            return ""

        async def question() -> Context:
            await after()
            return await self.client.context(project=self.project, query=prompt, limit=self.limit)

        with spans.span("runtime.fetch_context", attributes) as span:
            found = await self._answer(span, question())
            if found is None:
                return ""
            spans.counted(span, "memory.context.result_count", len(found.observations))
            return injected(found)

    async def look_up(
        self, call: ToolCall, question: Question, attributes: spans.Attributes
    ) -> None:
        """Search before a tool runs: what is found is in the trace alone."""
        attributes = {**attributes, "gen_ai.tool.name": call.name}
        with spans.span("runtime.search", attributes) as span:
            search = self.client.search(question.query, project=self.project, limit=question.limit)
            hits = await self._answer(span, search)
            if hits is not None:
                spans.found(span, hits)

    async def _answer(self, span: spans.Span, question: Awaitable[T]) -> T | None:
        """What the service answers; None if it does not, or not in time."""
        try:
            async with asyncio.timeout(self.patience.total_seconds()):
                return await question
        except (MemoryServiceError, TimeoutError) as failure:
            spans.failed(span, failure)
            reason = str(failure) or "The service does not answer in time."
            log.warning("nothing is remembered now", extra={"reason": reason})
            return None
