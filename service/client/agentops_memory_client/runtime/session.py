"""The memory of a running agent: what it recalls, and what the service records of it."""

import asyncio
import logging
import os
import re
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar

from .. import AsyncMemoryClient, Context
from ..contract.ages import age_suffix
from ..contract.errors import MemoryServiceError
from . import spans, working_memory
from .backlog import Backlog, Report
from .conversation import ChatMessage, ToolCall, require
from .hooks import Question, ToolHooks
from .working_memory import CheckpointError, Operation, Unsent, WorkingMemory

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


def injected(context: Context) -> str:
    """The summaries of sessions and the memories, a block each; an empty block is left out.

    The format of the platform's runtime, byte for byte, except for an age behind a
    title, where the session shows ages, and for stored text
    that imitates the blocks, also in full-width letters or with invisible
    characters: its tags begin with `&lt;`, and its lines that look like items are
    indented.
    """
    memories = [
        f"[{it.type}] {it.title}{'' if it.age is None else age_suffix(it.age)}: {it.content}"
        for it in context.observations
    ]
    return _block("memory:sessions", context.summaries) + _block("memory:context", memories)


def _block(tag: str, items: Iterable[str]) -> str:
    inside = (_ITEM.sub("  ", _TAG.sub("&lt;", item)) for item in items)
    lines = "".join(f"- {item}\n" for item in inside)
    return f"<{tag}>\n{lines}</{tag}>\n" if lines else ""


MAX_PROJECT = 200  # code points
BATCH = 32  # messages in a write; of 5,000 bytes each, they fit into a request
TIMEOUT = timedelta(seconds=2)  # for memories: an agent rather answers without them
END_TIMEOUT = timedelta(seconds=10)

NO_HOOKS = ToolHooks()

log = logging.getLogger("agentops_memory.runtime.session")


class MemorySession:
    """The memory of one agent, in a project of the service behind `client`.

    It is open inside its `async with`, or from `open` to `end`, and has the id of
    its working memory, so that a restored one continues the same session. New
    messages are sent to the service at the end of each turn. With `checkpoint` the
    working memory is written to that path before, so that after a crash nothing
    is recorded twice.

    The service never blocks the agent. `patience` is the timeout for the memories
    of a turn, which are left out then, with a warning. Writes are sent in the
    background and retried; `report` lists those not accepted. `limit` is the
    number of memories in a turn, 0 to 50; 0 disables recall. With `ages` each tells
    how old it is.
    """

    def __init__(  # noqa: PLR0913 - what may be chosen of a session, each by its name
        self,
        client: AsyncMemoryClient,
        working: WorkingMemory | None = None,
        *,
        project: str,
        hooks: ToolHooks = NO_HOOKS,
        limit: int = 5,
        patience: timedelta = TIMEOUT,
        ages: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        require("client", client, AsyncMemoryClient)
        require("project", project, str)
        require("hooks", hooks, ToolHooks)
        if not project.strip() or len(project) > MAX_PROJECT:
            raise ValueError(f"The name of a project must have 1 to {MAX_PROJECT} characters.")
        self.working = WorkingMemory() if working is None else working
        require("working", self.working, WorkingMemory)
        require("limit", limit, int)
        require("patience", patience, timedelta)
        require("ages", ages, bool)
        if not 0 <= limit <= MOST_MEMORIES:
            raise ValueError(f"limit must be 0 to {MOST_MEMORIES} memories.")
        self.project, self._client, self._hooks = project, client, hooks
        self._limit, self._timeout, self._ages = limit, patience, ages
        self._path = None if checkpoint is None else Path(checkpoint)
        self._checkpoint_writer = _single_thread()
        self._backlog = Backlog(client, self.working)
        self._lookups: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, _kind: object, failure: BaseException | None, _trace: object) -> None:
        with _log_checkpoint_error(failure):
            await self.end()

    def open(self) -> None:
        """Begin to send writes, first those left by an earlier run; does not wait for them.

        RuntimeError if it is open, or another session with its working memory is.
        """
        if self._backlog.is_open:
            raise RuntimeError("The session is already open.")
        if self.working.is_recorded:
            raise RuntimeError("Another session is open with this working memory.")
        self._backlog.open(self._write_of_this_run("start_session"))
        if not self.working.sequence:  # another memory of the same session has its own keys
            self.working.sequence = secrets.randbits(48)
        self.working.is_recorded = True

    async def end(self, within: timedelta = END_TIMEOUT) -> Report:
        """Send what is left and end the session, waiting at most `within` for the service.

        Writes not accepted by then are in the report, and in the working memory for
        the next run. An ended session may be opened again, and continues.
        """
        require("within", within, timedelta)
        if self._backlog.is_open:
            try:
                await self._end(within)
            finally:
                # Its thread ends, once it has written what it is writing.
                self._checkpoint_writer.shutdown(wait=False)
                self._checkpoint_writer = _single_thread()
        return self.report

    @asynccontextmanager
    async def turn(self, prompt: str | None = None) -> AsyncIterator[str]:
        """A turn of the agent; yields the memories as text for the model.

        It begins with the prompt as the user's message; without one it continues
        the turn in progress. At its end the new messages are recorded.
        RuntimeError if the session is not open.
        """
        self._require_open()
        if prompt is not None:
            self.working.add(ChatMessage.user(prompt))
            self.working.turn += 1
        try:
            prompts = (it.content for it in reversed(self.working.messages) if it.role == "user")
            yield await self.context(next(prompts, ""))
        except BaseException as failure:
            with _log_checkpoint_error(failure):
                await self._tell(self._batches())
            raise
        await self._tell(self._batches())

    async def context(self, prompt: str) -> str:
        """The memories for a prompt, as text for the model; empty if the service does not answer.

        Unsent writes are sent before, for at most half of the timeout.
        """
        if not self._limit:
            return ""

        async def fetch() -> Context:
            await self._backlog.drain(self._timeout / 2)
            return await self._client.context(
                project=self.project, query=prompt, limit=self._limit, ages=self._ages
            )

        with spans.span("runtime.fetch_context", self._attributes()) as span:
            memories = await self._answer(span, fetch())
            if memories is None:
                return ""
            if span is not None:
                span.set_attribute("memory.context.result_count", len(memories.observations))
            return injected(memories)

    async def tell(self) -> None:
        """Record new messages: they are in the checkpoint before they are sent.

        RuntimeError if the session is not open.
        """
        self._require_open()
        await self._tell(self._batches())

    async def run_tool(self, call: ToolCall, run: Callable[[], Awaitable[str]]) -> str:
        """The output of `await run()`, with the hooks before and after it."""
        self.before_tool(call)
        output = await run()
        self.after_tool(call, output)
        return output

    def before_tool(self, call: ToolCall) -> None:
        """Search as the inject rules say, in the background; the results are in the trace alone."""
        question = self._hooks.question(call)
        if question is None or not self._backlog.is_open:
            return
        task = asyncio.create_task(self._look_up(call, question, self._attributes()))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    def after_tool(self, call: ToolCall, output: str) -> None:
        """Save a memory of the call as the save rules say, in the background."""
        capture = self._hooks.capture(call, output)
        if capture is None:
            return
        fields = self._fields() | asdict(capture) | {"tags": list(capture.tags)}
        write = Unsent.keyed("save", fields, spans.here(), call.id, self.working.turn)
        self._backlog.keep([write])
        self._backlog.send([write])

    async def checkpoint(self) -> None:
        """Write the working memory to its checkpoint, on another thread.

        CheckpointError or OSError on failure; the previous checkpoint is unchanged then.
        ValueError if the session has no path.
        """
        if self._path is None:
            raise ValueError("The session has no path for a checkpoint.")
        document = self.working.snapshot()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(
            self._checkpoint_writer, working_memory.write, self._path, document
        )

    @property
    def report(self) -> Report:
        """What the service has accepted by now, and what it has not."""
        return self._backlog.report

    def _require_open(self) -> None:
        """RuntimeError if it is not: nothing would be recorded."""
        if not self._backlog.is_open:
            raise RuntimeError("The session is not open: use it in `async with`, or open() it.")

    async def _end(self, within: timedelta) -> None:
        try:
            await self._tell([*self._batches(), self._write_of_this_run("end_session")])
        finally:
            try:
                await self._backlog.drain(within)
            finally:
                await self._close()
        if self._path is not None:
            await self.checkpoint()
        if self.working.unsent:
            log.warning(
                "not all messages were recorded", extra={"unsent": len(self.working.unsent)}
            )

    async def _look_up(
        self, call: ToolCall, question: Question, attributes: dict[str, str | int]
    ) -> None:
        attributes = {**attributes, "gen_ai.tool.name": call.name}
        with spans.span("runtime.search", attributes) as span:
            search = self._client.search(question.query, project=self.project, limit=question.limit)
            hits = await self._answer(span, search)
            if hits is not None:
                spans.add_hits(span, hits)

    async def _answer(self, span: spans.Span, request: Awaitable[T]) -> T | None:
        """The service's answer; None after a failure or a timeout, with a warning in the log."""
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                return await request
        except (MemoryServiceError, TimeoutError) as failure:
            spans.failed(span, failure)
            reason = str(failure) or "The service did not answer in time."
            log.warning("no memories for this turn", extra={"reason": reason})
            return None

    async def _tell(self, writes: list[Unsent]) -> None:
        self._backlog.keep(writes)
        try:
            if self._path is not None:
                await self.checkpoint()
        finally:
            self._backlog.send(writes)

    def _batches(self) -> list[Unsent]:
        pending = [asdict(message) for message in self.working.pending]
        self.working.pending.clear()
        writes = []
        for at in range(0, len(pending), BATCH):
            self.working.sequence += 1
            fields = self._fields() | {"messages": pending[at : at + BATCH]}
            key = self.working.sequence
            writes.append(Unsent.keyed("append_messages", fields, spans.here(), key))
        return writes

    def _write_of_this_run(self, operation: Operation) -> Unsent:
        """A write whose key is new in every run, so that the next run repeats it."""
        return Unsent(
            operation=operation, fields=self._fields(), key=str(uuid.uuid4()), trace=spans.here()
        )

    def _fields(self) -> dict[str, object]:
        return {"session_id": self.working.session_id, "project": self.project}

    async def _close(self) -> None:
        self.working.is_recorded = False
        for task in self._lookups:
            task.cancel()
        await self._backlog.close()
        await asyncio.gather(*self._lookups, return_exceptions=True)

    def _attributes(self) -> dict[str, str | int]:
        return {
            "memory.project": self.project,
            "memory.session.id": self.working.session_id,
            "memory.turn": self.working.turn,
        }


@contextmanager
def _log_checkpoint_error(failure: BaseException | None) -> Iterator[None]:
    """Inside, a checkpoint that cannot be written is logged rather than raised, after a failure."""
    try:
        yield
    except (OSError, CheckpointError) as fault:
        if failure is None:
            raise
        log.warning("the checkpoint could not be written", extra={"reason": str(fault)})


def _single_thread() -> ThreadPoolExecutor:
    """A thread that writes checkpoints in order, started by the first."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentops-memory-checkpoint")
