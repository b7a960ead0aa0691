"""What an agent reads of its memory; the service never keeps it waiting for long."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from .. import AsyncMemoryClient, Context, MemoryServiceError
from . import spans
from .conversation.messages import ToolCall, require
from .hooks import Question

MOST_MEMORIES = 50  # that a turn may be reminded of

# What Unicode has without a shape (Default_Ignorable_Code_Point), as in a class of a pattern.
_UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_WIDE = ord("\N{FULLWIDTH LATIN SMALL LETTER A}") - ord("a")
_NAME = f"[{_UNSEEN}]*".join(f"[{letter}{chr(ord(letter) + _WIDE)}]" for letter in "memory")
_TAG = re.compile(
    rf"[<\ufe64\uff1c](?=[\s/\uff0f{_UNSEEN}]*{_NAME}[\s{_UNSEEN}]*[:\ufe55\uff1a])", re.IGNORECASE
)
_ITEM = re.compile(rf"(?<=[\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029])(?=[{_UNSEEN}]*- )")

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


def injected(context: Context) -> str:
    """The summaries of sessions and the memories, each kind in a block; a kind without any in none.

    As the platform's runtime has it, byte for byte, but for stored text that
    looks like a part of the blocks, also in wide letters or with characters in
    it that nobody sees: its tags begin with `&lt;`, and a line in it that begins
    as an item does is indented, so that it is a part of its own item.
    """
    memories = (f"[{line.type}] {line.title}: {line.content}" for line in context.observations)
    return _block("memory:sessions", context.summaries) + _block("memory:context", memories)


def _block(tag: str, items: Iterable[str]) -> str:
    lines = "".join(f"- {_inside(item)}\n" for item in items)
    return f"<{tag}>\n{lines}</{tag}>\n" if lines else ""


def _inside(text: str) -> str:
    return _ITEM.sub("  ", _TAG.sub("&lt;", text))
