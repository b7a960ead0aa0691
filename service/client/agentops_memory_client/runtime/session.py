"""An agent's memory while it runs: what it is reminded of, and what is told of it."""

import asyncio
import logging
import os
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Self

from .. import AsyncMemoryClient
from . import checkpoint, spans
from .backlog import Backlog, Report
from .checkpoint import CheckpointError
from .conversation.messages import ChatMessage, ToolCall, require
from .hooks import ToolHooks
from .reminder import Reminder
from .unsent import Deed, Unsent
from .working_memory import WorkingMemory

MAX_PROJECT = 200  # code points
BATCH = 32  # messages told at once: of 5,000 bytes each, they fit into a request
PATIENCE = timedelta(seconds=2)
FAREWELL = timedelta(seconds=10)

NO_HOOKS = ToolHooks()

log = logging.getLogger("agentops_memory.runtime.session")


class MemorySession:
    """The memory of one agent, in a project of the service behind `client`.

    Open inside its `async with`, or from `open` to `end`. The session has the
    working memory's id, so that one which was restored goes on. All that is added
    to the working memory is told to the service, turn by turn. With `checkpoint`
    the working memory is written there at the end of every turn, before the
    service is told, so that after a crash nothing is told twice.

    The service never stops the agent. Memories are waited for as long as
    `patience`, and left out with a warning; writes wait for nothing, are sent
    again until the service has them, and `report` tells of the rest. `limit` is
    how many memories a turn is reminded of: 0 to 50, and none with 0.
    """

    def __init__(
        self,
        client: AsyncMemoryClient,
        working: WorkingMemory | None = None,
        *,
        project: str,
        hooks: ToolHooks = NO_HOOKS,
        limit: int = 5,
        patience: timedelta = PATIENCE,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        require("client", client, AsyncMemoryClient)
        require("project", project, str)
        require("hooks", hooks, ToolHooks)
        if not project.strip() or len(project) > MAX_PROJECT:
            raise ValueError(f"A project's name has 1 to {MAX_PROJECT} characters.")
        self.working = WorkingMemory() if working is None else working
        require("working", self.working, WorkingMemory)
        self.project = project
        self._reminder = Reminder(client=client, project=project, limit=limit, patience=patience)
        self._hooks = hooks
        self._path = None if checkpoint is None else Path(checkpoint)
        self._disk = _disk()
        self._backlog = Backlog(client, self.working)
        self._asides: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, _kind: object, failure: BaseException | None, _trace: object) -> None:
        with _behind(failure):
            await self.end()

    def open(self) -> None:
        """Begin to tell the service, with what an earlier run could not; waits for nothing.

        RuntimeError if it is open, or another session tells of its working memory.
        """
        if self._backlog.is_open:
            raise RuntimeError("The session is open.")
        if self.working.is_heard:
            raise RuntimeError("Another session is open with this working memory.")
        self._backlog.open(self._of_this_run("start_session"))
        if not self.working.sequence:  # another memory of the same session has its own keys
            self.working.sequence = secrets.randbits(48)
        self.working.is_heard = True

    async def end(self, within: timedelta = FAREWELL) -> Report:
        """End the session with all that was said, waiting so long for the service at most.

        What the service did not take is in the report, and in the working memory
        for the next run. A session that ended may be opened again, and goes on.
        """
        require("within", within, timedelta)
        if self._backlog.is_open:
            try:
                await self._end(within)
            finally:
                self._disk.shutdown(wait=False)  # its thread; what it is writing it writes
                self._disk = _disk()
        return self.report

    @asynccontextmanager
    async def turn(self, prompt: str | None = None) -> AsyncIterator[str]:
        """A turn of the agent; inside, the text that reminds it, for its prompt.

        It begins with the prompt as the user's message; without one, the turn
        goes on that was under way. When it is over, what was said is told.
        RuntimeError if the session is not open.
        """
        self._require_open()
        if prompt is not None:
            self.working.add(ChatMessage.user(prompt))
            self.working.turn += 1
        try:
            yield await self.context(self._asked())
        except BaseException as failure:
            with _behind(failure):
                await self._tell(self._batches())
            raise
        await self._tell(self._batches())

    async def context(self, prompt: str) -> str:
        """The memories for a prompt, as text for it; nothing, if the service does not answer.

        What is on its way to the service goes first, if it goes quickly.
        """
        return await self._reminder.context(prompt, self._attributes(), after=self._caught_up)

    async def tell(self) -> None:
        """Hand over what was said since; it is in the checkpoint before it is sent.

        RuntimeError if the session is not open.
        """
        self._require_open()
        await self._tell(self._batches())

    async def run_tool(self, call: ToolCall, run: Callable[[], Awaitable[str]]) -> str:
        """What the tool puts out, with the hooks before and after it."""
        self.before_tool(call)
        output = await run()
        self.after_tool(call, output)
        return output

    def before_tool(self, call: ToolCall) -> None:
        """Look up what the hooks want to know of before the call: for the trace; nobody waits."""
        question = self._hooks.question(call)
        if question is None or not self._backlog.is_open:
            return
        work = self._reminder.look_up(call, question, self._attributes())
        task = asyncio.create_task(work)
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    def after_tool(self, call: ToolCall, output: str) -> None:
        """Save what the hooks want to keep of the call; nobody waits."""
        capture = self._hooks.capture(call, output)
        if capture is None:
            return
        fields = self._fields() | asdict(capture) | {"tags": list(capture.tags)}
        write = Unsent.keyed("save", fields, spans.here(), call.id, self.working.turn)
        self._backlog.keep([write])
        self._backlog.send([write])

    async def checkpoint(self) -> None:
        """Write the working memory as it is to its checkpoint, on another thread.

        CheckpointError or OSError if that cannot be; the one before stays then.
        ValueError if the session was given no path.
        """
        if self._path is None:
            raise ValueError("The session has no path for a checkpoint.")
        document = self.working.snapshot()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._disk, checkpoint.write, self._path, document)

    @property
    def report(self) -> Report:
        """What the service has been told by now, and what it has not."""
        return self._backlog.report

    def _require_open(self) -> None:
        """Else what is said would be told to nobody."""
        if not self._backlog.is_open:
            raise RuntimeError("The session is not open: use it in `async with`, or open() it.")

    async def _end(self, within: timedelta) -> None:
        try:
            await self._tell([*self._batches(), self._of_this_run("end_session")])
        finally:
            try:
                await self._backlog.emptied(within)
            finally:
                await self._close()
        if self._path is not None:
            await self.checkpoint()
        self._warn_of_the_rest()

    async def _caught_up(self) -> None:
        await self._backlog.emptied(self._reminder.patience / 2)

    async def _tell(self, writes: list[Unsent]) -> None:
        self._backlog.keep(writes)
        try:
            if self._path is not None:
                await self.checkpoint()
        finally:
            self._backlog.send(writes)

    def _batches(self) -> list[Unsent]:
        """What was said since, as writes."""
        said = [asdict(message) for message in self.working.said]
        self.working.said.clear()
        return [self._batch(said[at : at + BATCH]) for at in range(0, len(said), BATCH)]

    def _batch(self, messages: list[dict[str, str]]) -> Unsent:
        self.working.sequence += 1
        fields = self._fields() | {"messages": messages}
        return Unsent.keyed("append_messages", fields, spans.here(), self.working.sequence)

    def _of_this_run(self, deed: Deed) -> Unsent:
        """A write that may be done once more, but not by the next run in this one's stead."""
        return Unsent(deed=deed, fields=self._fields(), key=str(uuid.uuid4()), trace=spans.here())

    def _fields(self) -> dict[str, object]:
        return {"session_id": self.working.session_id, "project": self.project}

    async def _close(self) -> None:
        """Nothing is sent from here on; what is looked up has had its time."""
        self.working.is_heard = False
        for task in self._asides:
            task.cancel()
        await self._backlog.close()
        await asyncio.gather(*self._asides, return_exceptions=True)

    def _warn_of_the_rest(self) -> None:
        if self.working.unsent:
            log.warning("not all is told", extra={"unsent": len(self.working.unsent)})

    def _asked(self) -> str:
        """What the user said last."""
        said = (m.content for m in reversed(self.working.messages) if m.role == "user")
        return next(said, "")

    def _attributes(self) -> dict[str, str | int]:
        return {
            "memory.project": self.project,
            "memory.session.id": self.working.session_id,
            "memory.turn": self.working.turn,
        }


@contextmanager
def _behind(failure: BaseException | None) -> Iterator[None]:
    """Inside, a checkpoint that cannot be written is told in the log, if there is a failure."""
    try:
        yield
    except (OSError, CheckpointError) as fault:
        if failure is None:
            raise
        log.warning("no checkpoint is written", extra={"reason": str(fault)})


def _disk() -> ThreadPoolExecutor:
    """Where checkpoints are written in their order; a thread only once there is one."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentops-memory-checkpoint")
