"""Recall for an agent: memories as text for its prompt, with a timeout."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from .. import AsyncMemoryClient, Context, MemoryServiceError
from ..contract.ages import age_suffix
from ..contract.models import Line
from . import spans
from .conversation import ToolCall, require
from .hooks import Question

MOST_MEMORIES = 50  # in a turn

# Unicode's Default_Ignorable_Code_Point, for a character class.
_INVISIBLE = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_WIDE = ord("\N{FULLWIDTH LATIN SMALL LETTER A}") - ord("a")
_NAME = f"[{_INVISIBLE}]*".join(f"[{letter}{chr(ord(letter) + _WIDE)}]" for letter in "memory")
_TAG = re.compile(
    rf"[<\ufe64\uff1c](?=[\s/\uff0f{_INVISIBLE}]*{_NAME}[\s{_INVISIBLE}]*[:\ufe55\uff1a])",
    re.IGNORECASE,
)
_ITEM = re.compile(rf"(?<=[\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029])(?=[{_INVISIBLE}]*- )")

T = TypeVar("T")

log = logging.getLogger("agentops_memory.runtime.reminder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminder:
    """Reads the memories of one project; a timeout or failure is a warning in the log."""

    client: AsyncMemoryClient
    project: str
    limit: int  # of memories in a turn; 0 sends no request
    timeout: timedelta  # of one request
    ages: bool = False  # behind each title

    def __post_init__(self) -> None:
        require("limit", self.limit, int)
        require("patience", self.timeout, timedelta)
        require("ages", self.ages, bool)
        if not 0 <= self.limit <= MOST_MEMORIES:
            raise ValueError(f"A turn is reminded of 0 to {MOST_MEMORIES} memories.")

    async def context(
        self, prompt: str, attributes: spans.Attributes, *, after: Callable[[], Awaitable[None]]
    ) -> str:
        """The memories for a prompt, as text; `after` runs first, within the same timeout."""
        if not self.limit:
            return ""

        async def fetch() -> Context:
            await after()
            return await self.client.context(
                project=self.project, query=prompt, limit=self.limit, ages=self.ages
            )

        with spans.span("runtime.fetch_context", attributes) as span:
            found = await self._answer(span, fetch())
            if found is None:
                return ""
            spans.counted(span, "memory.context.result_count", len(found.observations))
            return injected(found)

    async def look_up(
        self, call: ToolCall, question: Question, attributes: spans.Attributes
    ) -> None:
        """Search before a tool runs; the hits are events of the span alone."""
        attributes = {**attributes, "gen_ai.tool.name": call.name}
        with spans.span("runtime.search", attributes) as span:
            search = self.client.search(question.query, project=self.project, limit=question.limit)
            hits = await self._answer(span, search)
            if hits is not None:
                spans.found(span, hits)

    async def _answer(self, span: spans.Span, request: Awaitable[T]) -> T | None:
        """The service's answer; None after a failure or a timeout."""
        try:
            async with asyncio.timeout(self.timeout.total_seconds()):
                return await request
        except (MemoryServiceError, TimeoutError) as failure:
            spans.failed(span, failure)
            reason = str(failure) or "The service does not answer in time."
            log.warning("nothing is remembered now", extra={"reason": reason})
            return None


def injected(context: Context) -> str:
    """The summaries of sessions and the memories, a block each; an empty block is left out.

    The format of the platform's runtime, byte for byte, except for an age behind a
    title, where the service was asked for ages, and for stored text
    that imitates the blocks, also in full-width letters or with invisible
    characters: its tags begin with `&lt;`, and its lines that look like items are
    indented.
    """
    memories = map(_memory, context.observations)
    return _block("memory:sessions", context.summaries) + _block("memory:context", memories)


def _memory(line: Line) -> str:
    age = "" if line.age is None else age_suffix(line.age)
    return f"[{line.type}] {line.title}{age}: {line.content}"


def _block(tag: str, items: Iterable[str]) -> str:
    lines = "".join(f"- {_inside(item)}\n" for item in items)
    return f"<{tag}>\n{lines}</{tag}>\n" if lines else ""


def _inside(text: str) -> str:
    return _ITEM.sub("  ", _TAG.sub("&lt;", text))
