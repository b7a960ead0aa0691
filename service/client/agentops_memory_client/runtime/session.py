"""The memory of a running agent: it recalls memories, and records the conversation.

Its writes wait in a backlog until the service has accepted or refused them. The spans of its
requests contain no text of the conversation; the service's spans, which join them, contain text
with secrets removed.
"""

import asyncio
import json
import logging
import re
import secrets
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Self, TypeAlias

from .. import AsyncMemoryClient, Context, Message, SessionEnd, __version__
from ..client import HAS_TRACING, trace_headers
from ..contract.models import MemoryServiceError, MemoryServiceWarning, Noun, Refused, age_suffix
from ..contract.service import StrPath
from . import working_memory
from .hooks import Question, ToolHooks
from .working_memory import ChatMessage, CheckpointError, Operation, ToolCall, Unsent, WorkingMemory

if HAS_TRACING:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TITLE = 100  # code points of a title in a span event

Attributes = Mapping[str, str | int]
NONE: Attributes = {}
Span: TypeAlias = "trace.Span | None"  # None without OpenTelemetry's API


@contextmanager
def traced(
    name: str, attributes: Attributes, *, under: Mapping[str, str] | None = None
) -> Iterator[Span]:
    """Open a span in the current trace, or below the trace context headers `under`.

    The type of an exception is recorded on the span, and the exception propagates.
    """
    if not HAS_TRACING:
        yield None
        return
    tracer = trace.get_tracer("agentops_memory.runtime", __version__)
    context = None if under is None else TraceContextTextMapPropagator().extract(under)
    with tracer.start_as_current_span(
        name, context, attributes=dict(attributes),
        record_exception=False, set_status_on_exception=False,
    ) as running:  # fmt: skip
        try:
            yield running
        except Exception as failure:
            # Only its type, as its message may quote the conversation.
            kind = type(failure)
            name = f"{kind.__module__}.{kind.__qualname__}"
            running.add_event("exception", {"exception.type": name})
            running.set_status(trace.StatusCode.ERROR, kind.__name__)
            raise


FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)  # longest delay of writes after an outage ends
PERMANENT = (400, 409, 413)  # HTTP statuses after which a retry is refused, too
MOST_UNSENT = 1_000  # writes kept while the service is unreachable

backlog_log = logging.getLogger("agentops_memory.runtime.backlog")

_RUN_OPERATIONS = ("start_session", "end_session")


class Lost(Noun):
    """A write that was given up, with the reason."""

    write: Unsent
    reason: str


class Report(Noun):
    """The outcome of a session's writes."""

    ended: SessionEnd | None  # None until the service has accepted the end
    unsent: tuple[Unsent, ...]  # also in the working memory and its checkpoint
    lost: tuple[Lost, ...]  # the newest thousand


class Backlog:
    """Sends the unsent writes of a working memory, where they are kept, while it is open.

    They are sent one at a time; temporary failures are retried with backoff.
    """

    lock: asyncio.Lock  # while it is held, no other write is begun
    _wake: asyncio.Event  # set when there is a reason to send
    _idle: asyncio.Event  # set when all writes are settled, or an attempt failed

    def __init__(self, client: AsyncMemoryClient, working: WorkingMemory) -> None:
        self._client = client
        self._working = working
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._ended: SessionEnd | None = None
        self._lost: deque[Lost] = deque(maxlen=MOST_UNSENT)

    @property
    def is_open(self) -> bool:
        """Whether writes are being sent."""
        return self._task is not None

    @property
    def report(self) -> Report:
        return Report(ended=self._ended, unsent=tuple(self._working.unsent), lost=tuple(self._lost))

    def open(self, start: Unsent) -> None:
        """Send the start of this run, then the unsent writes of an earlier run (not start and end).

        RuntimeError without a running event loop; nothing changes then.
        """
        loop = asyncio.get_running_loop()
        older = [write for write in self._working.unsent if write.operation not in _RUN_OPERATIONS]
        self._working.unsent[:] = [start, *older]
        self._failures, self._ended = 0, None
        self.lock, self._wake, self._idle = asyncio.Lock(), asyncio.Event(), asyncio.Event()
        self._task = loop.create_task(self._send_all())

    async def close(self) -> None:
        """Stop sending; a request in progress may be executed. The next run sends the rest."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])  # raises only if the caller is cancelled

    def add(self, writes: Iterable[Unsent]) -> None:
        """Keep the writes until they are settled; beyond MOST_UNSENT the oldest are lost.

        They end a backoff in progress.
        """
        unsent = self._working.unsent
        unsent.extend(writes)
        while len(unsent) > MOST_UNSENT:
            oldest = unsent[1]  # the first may be in progress
            self._settle(oldest, f"More than {MOST_UNSENT} writes waited for the service.")
        if self.is_open:
            self._wake.set()

    async def drain(self, within: timedelta) -> None:
        """Wait until all writes are settled or an attempt fails, at most `within`."""
        if not self.is_open or not self._working.unsent:
            return
        self._idle.clear()
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                await self._idle.wait()

    async def _send_all(self) -> None:
        while True:
            self._wake.clear()
            is_settled = True
            while is_settled and self._working.unsent:
                async with self.lock:
                    write = self._working.unsent[0]
                is_settled = await self._is_settled(write)
            self._idle.set()
            pause = min(FIRST_PAUSE * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_settled else pause.total_seconds()):
                    await self._wake.wait()

    async def _is_settled(self, write: Unsent) -> bool:
        """Send the write; return False if it is to be sent again."""
        fields = dict(write.fields)
        try:
            if "messages" in fields:
                fields["messages"] = [Message(**message) for message in fields["messages"]]
            attributes = {"memory.operation": write.operation}
            with traced("runtime.deliver", attributes, under=write.trace):
                method = getattr(self._client, write.operation)
                outcome: object = await method(**fields, idempotency_key=write.key)
        except Exception as failure:  # noqa: BLE001 - the task must not end unnoticed
            if not _is_permanent(failure):
                self._failures += 1
                if self._failures == 1:
                    backlog_log.warning(
                        "the service does not accept writes; retrying",
                        extra={"reason": reason(failure), "unsent": len(self._working.unsent)},
                    )
                return False
            outcome = failure
        self._failures = 0
        self._settle(write, outcome)
        return True

    def _settle(self, write: Unsent, outcome: object) -> None:
        """Remove a write, with its result, or with an error or the reason why it is lost."""
        with suppress(ValueError):
            self._working.unsent.remove(write)
        if isinstance(outcome, SessionEnd):
            self._ended = outcome
        if isinstance(outcome, (Exception, str)):
            self._lost.append(Lost(write=write, reason=str(outcome)))
            why = outcome if isinstance(outcome, str) else reason(outcome)
            backlog_log.warning("a write is lost", extra={"deed": write.operation, "reason": why})


def reason(failure: Exception) -> str:
    """Return the message of a MemoryServiceError, or the type of any other exception."""
    return str(failure) if isinstance(failure, MemoryServiceError) else type(failure).__name__


def _is_permanent(failure: Exception) -> bool:
    """Whether a retry would fail, too: the write or its arguments are refused."""
    if isinstance(failure, Refused):
        return failure.status in PERMANENT
    # Programs can turn warnings into exceptions: the write is stored, and a retry would warn again.
    return isinstance(failure, (TypeError, MemoryServiceWarning))


MOST_MEMORIES = 50  # most memories of one turn

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


def injected(context: Context) -> str:
    """Render session summaries and memories as one block each; leave out an empty block.

    The format is that of the platform's runtime, byte for byte, with two exceptions: titles may
    have an age, and stored text cannot imitate the blocks, even with full-width letters or
    invisible characters: `<` of its tags becomes `&lt;`, and lines that look like items are
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
BATCH = 32  # messages per write; at 5,000 bytes each they fit into a request
TIMEOUT = timedelta(seconds=2)  # for memories; later an agent answers without them
END_TIMEOUT = timedelta(seconds=10)

NO_HOOKS = ToolHooks()

log = logging.getLogger("agentops_memory.runtime.session")


class MemorySession:
    """The memory of one agent, in a project of the service behind `client`.

    It is open inside its `async with`, or from `open` to `end`. Its id is that of the working
    memory, so that a restored working memory continues the same session. At the end of each turn
    new messages are sent to the service. With `checkpoint`, a path, the working memory is written
    there first, so that nothing is recorded twice after a crash.

    The service never blocks the agent. `patience` is the timeout for the memories of a turn; after
    it the turn has none, and a warning is logged. Writes are sent in the background and retried;
    `report` lists those not accepted. `limit` is the maximum of memories in a turn, 0 to 50; 0
    disables recall. `ages` adds the age of each memory.
    """

    def __init__(  # noqa: PLR0913 - each option of a session by its name
        self, client: AsyncMemoryClient, working: WorkingMemory | None = None, *, project: str,
        hooks: ToolHooks = NO_HOOKS, limit: int = 5, patience: timedelta = TIMEOUT,
        ages: bool = False, checkpoint: StrPath | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(client, AsyncMemoryClient):
            raise TypeError(f"client must be an AsyncMemoryClient, not {type(client).__name__}.")
        if not project.strip() or len(project) > MAX_PROJECT:
            raise ValueError(f"The name of a project must have 1 to {MAX_PROJECT} characters.")
        self.working = WorkingMemory() if working is None else working
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
        """Start sending in the background, first the unsent writes of an earlier run.

        RuntimeError if this session, or another with its working memory, is open.
        """
        if self._backlog.is_open:
            raise RuntimeError("The session is already open.")
        if self.working.is_recorded:
            raise RuntimeError("Another session is open with this working memory.")
        # A new key, here and at the end, so that the next run does it again.
        self._backlog.open(self._write("start_session", str(uuid.uuid4())))
        if not self.working.sequence:  # keys differ from other working memories of the session
            self.working.sequence = secrets.randbits(48)
        self.working.is_recorded = True

    async def end(self, within: timedelta = END_TIMEOUT) -> Report:
        """Send the rest and end the session; wait for the service at most `within`.

        Writes not accepted by then are in the report, and in the working memory for
        the next run. An ended session can be opened again, and continues.
        """
        if self._backlog.is_open:
            try:
                await self._end(within)
            finally:
                # The thread finishes the checkpoint that it is writing.
                self._checkpoint_writer.shutdown(wait=False)
                self._checkpoint_writer = _single_thread()
        return self.report

    @asynccontextmanager
    async def turn(self, prompt: str | None = None) -> AsyncIterator[str]:
        """Run a turn of the agent; yield the memories as text for the model.

        The prompt is added as the user's message; without a prompt the turn in progress continues.
        At the end new messages are recorded. RuntimeError if the session is not open.
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
                await self._tell()
            raise
        await self._tell()

    async def context(self, prompt: str) -> str:
        """Return the memories for a prompt, as text for the model; empty if the service fails.

        Unsent writes are sent first, for at most half of the timeout.
        """
        memories = Context()
        if self._limit:
            async with self._recalling("runtime.fetch_context") as span:
                await self._backlog.drain(self._timeout / 2)
                memories = await self._client.context(
                    project=self.project, query=prompt, limit=self._limit, ages=self._ages
                )
                if span is not None:
                    span.set_attribute("memory.context.result_count", len(memories.observations))
        return injected(memories)

    async def tell(self) -> None:
        """Record new messages: write the checkpoint, then send them in the background.

        RuntimeError if the session is not open.
        """
        self._require_open()
        await self._tell()

    async def run_tool(self, call: ToolCall, run: Callable[[], Awaitable[str]]) -> str:
        """Await `run()` and return its output, with the hooks before and after it."""
        self.before_tool(call)
        output = await run()
        self.after_tool(call, output)
        return output

    def before_tool(self, call: ToolCall) -> None:
        """Search as the inject rules say, in the background; only the trace has the results."""
        question = self._hooks.question(call)
        if question is None or not self._backlog.is_open:
            return
        task = asyncio.create_task(self._look_up(question, call.name))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    def after_tool(self, call: ToolCall, output: str) -> None:
        """Save the call's output as the save rules say, in the background."""
        capture = self._hooks.capture(call, output)
        if capture is None:
            return
        fields = asdict(capture) | {"tags": list(capture.tags)}  # as JSON has them
        self._backlog.add([self._write("save", call.id, self.working.turn, **fields)])

    async def checkpoint(self) -> None:
        """Write the working memory to the checkpoint file, on another thread.

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
        """The outcome of the writes so far."""
        return self._backlog.report

    def _require_open(self) -> None:
        if not self._backlog.is_open:
            raise RuntimeError("The session is not open: use it in `async with`, or open() it.")

    async def _end(self, within: timedelta) -> None:
        try:
            await self._tell(self._write("end_session", str(uuid.uuid4())))
        finally:
            try:
                await self._backlog.drain(within)
            finally:
                self.working.is_recorded = False
                for task in self._lookups:
                    task.cancel()
                await self._backlog.close()
                await asyncio.gather(*self._lookups, return_exceptions=True)
        if self._path is not None:
            await self.checkpoint()
        if self.working.unsent:
            log.warning(
                "not all messages were recorded", extra={"unsent": len(self.working.unsent)}
            )

    async def _look_up(self, question: Question, tool: str) -> None:
        async with self._recalling("runtime.search", {"gen_ai.tool.name": tool}) as span:
            hits = await self._client.search(
                question.query, project=self.project, limit=question.limit
            )
            if span is None:
                return
            span.set_attribute("memory.search.result_count", len(hits))
            for hit in hits:
                span.add_event("search.result", {
                    "memory.injected.observation_id": hit.id, "memory.injected.type": hit.type,
                    "memory.injected.title": hit.title[:TITLE], "memory.injected.rank": hit.rank,
                })  # fmt: skip

    @asynccontextmanager
    async def _recalling(self, name: str, more: Attributes = NONE) -> AsyncIterator[Span]:
        """Open a span with a timeout; a failure within it is logged as a warning."""
        attributes: Attributes = {
            "memory.project": self.project, "memory.session.id": self.working.session_id,
            "memory.turn": self.working.turn, **more,
        }  # fmt: skip
        try:
            with traced(name, attributes) as span:
                async with asyncio.timeout(self._timeout.total_seconds()):
                    yield span
        except (MemoryServiceError, TimeoutError) as failure:
            reason = str(failure) or "The service did not answer in time."
            log.warning("no memories for this turn", extra={"reason": reason})

    async def _tell(self, *more: Unsent) -> None:
        """Make writes of the new messages, write the checkpoint, then send them and `more`."""
        async with self._backlog.lock:
            pending = [asdict(message) for message in self.working.pending]
            self.working.pending.clear()
            writes = []
            for at in range(0, len(pending), BATCH):
                self.working.sequence += 1
                batch, number = pending[at : at + BATCH], self.working.sequence
                writes.append(self._write("append_messages", number, messages=batch))
            self._backlog.add([*writes, *more])
            if self._path is not None:
                await self.checkpoint()

    def _write(self, operation: Operation, *parts: object, **more: object) -> Unsent:
        """Return a write, whose key is the hash of its operation, fields and `parts`."""
        fields = {"session_id": self.working.session_id, "project": self.project, **more}
        text = json.dumps([operation, fields, *parts], sort_keys=True)
        key = sha256(text.encode()).hexdigest()
        return Unsent(operation=operation, fields=fields, key=key, trace=trace_headers())


@contextmanager
def _log_checkpoint_error(failure: BaseException | None) -> Iterator[None]:
    """After a failure, log a checkpoint that cannot be written rather than raise."""
    try:
        yield
    except (OSError, CheckpointError) as fault:
        if failure is None:
            raise
        log.warning("the checkpoint could not be written", extra={"reason": str(fault)})


def _single_thread() -> ThreadPoolExecutor:
    """Return an executor that writes checkpoints in order; the first one starts its thread."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentops-memory-checkpoint")
