"""The operations of AgentOps REST without HTTP, for agents and commands in this process."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agentops_memory_client.contract.models import Imported, ImportPlan, Progress, refused
from agentops_memory_client.contract.service import Call, MemoryService, regular

from .agentops.operations import AgentOps, RequestContext
from .agentops.wire import Rows
from .backend import audit_of, opened_engine
from .engine.engine import noop
from .errors import Refusal
from .light import KW_ONLY, Lazy, dataclass, field
from .memory.access import DEFAULT_TENANT, Caller, TenantId
from .memory.redactor import Redaction, RulesOf, exceptions_in
from .memory.space import project_name
from .recall.recall import Recall
from .recall.text import clean
from .secrets.redaction import hide_by
from .settings import Settings
from .telemetry import Telemetry, count, traced
from .telemetry.metrics import REDACTIONS

T = TypeVar("T")
StrPath = str | os.PathLike[str]
Clock = Callable[[], datetime]

utc_now: Clock = partial(datetime.now, UTC)  # the wall clock

if TYPE_CHECKING:
    from .agentops import models, transfer
    from .http import protocol
    from .memory import projects
else:  # only writes and refusals need them
    models, transfer, protocol, projects = (
        Lazy(__package__, it)
        for it in (".agentops.models", ".agentops.transfer", ".http.protocol", ".memory.projects")
    )

# Rows that a command's import stores in one transaction, and the pause after it, in which a service
# on the same file can save.
IMPORT_ROWS, IMPORT_PAUSE = 200, timedelta(milliseconds=25)


@dataclass(frozen=True, slots=True)
class LocalService(MemoryService):
    """The operations for one caller, who is looked up for each: a key may be revoked.

    A call reaches its operation once, so an idempotency key means nothing here.
    """

    caller: Callable[[], Caller]
    trace: Mapping[str, str] = field(default_factory=dict)  # the parent of the spans
    _: KW_ONLY
    agentops: AgentOps
    rules: RulesOf  # redaction of logs and spans
    telemetry: Telemetry

    async def _send(self, call: Call[T], /) -> T:
        with self._operation(call.operation) as caller:
            operation = getattr(self.agentops, call.operation)
            answer = await operation(_context(call, caller))
            count(REDACTIONS, by=getattr(answer, "redacted", 0))
            return cast(T, list(answer) if isinstance(answer, Rows) else answer)

    async def export(
        self, project: str | None = None, *, progress: Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        with _refusing():  # without a span, which cannot enclose the yields of a generator
            done, named = 0, project_name(clean(project or "")) or None
            async for piece in self.agentops.export(self.caller(), named):
                self.caller()  # raises if the key was revoked: then nothing more is sent
                yield piece
                done += len(piece)
                if progress:
                    progress(done, None)

    async def import_from(self, path: StrPath, *, progress: Progress | None = None) -> Imported:
        with self._operation("import"):
            async with self._document(path, progress) as (document, report):
                return await self.agentops.import_all(self.caller(), document, report)

    async def plan_import(self, path: StrPath, *, progress: Progress | None = None) -> ImportPlan:
        with self._operation("import"):
            async with self._document(path, progress) as (document, report):
                return await self.agentops.plan_import(self.caller(), document, report)

    @contextmanager
    def _operation(self, operation: str) -> Iterator[Caller]:
        with _refusing():
            caller = self.caller()
            hide_by(partial(self.rules, caller))
            with self.telemetry.operation(operation, self.trace):
                yield caller

    @asynccontextmanager
    async def _document(
        self, path: StrPath, progress: Progress | None
    ) -> "AsyncIterator[tuple[transfer.Document, transfer.Progress]]":
        """Yield the file as a checked document, and what reports the number of its rows done.

        OSError if it cannot be read.
        """
        with regular(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            document = transfer.Document(file, self.agentops.clock())
            await asyncio.to_thread(document.check)
            tell = progress or noop
            yield document, lambda rows: tell(size * rows // len(document), size)
            tell(size, size)


def _context(call: Call[Any], caller: Caller) -> RequestContext:
    """Return the request of a call, whose path is a noun, its id, and perhaps a part of it."""

    async def body() -> Mapping[str, object]:
        return call.body or {}

    async def caller_for_write() -> Caller:
        return caller

    return RequestContext(
        query=call.query, path_params=dict(zip(("", "id"), call.path, strict=False)), body=body,
        caller=lambda: caller, caller_for_write=caller_for_write,
        transcript=lambda: nullcontext(models.messages({"messages": [], **(call.body or {})})),
    )  # fmt: skip


@contextmanager
def _refusing() -> Iterator[None]:
    """Within, a refusal of the domain becomes an error of the contract."""
    try:
        yield
    except Refusal as refusal:
        raise refused(protocol.STATUS[refusal.code], str(refusal)) from refusal


def redaction_of(settings: Settings) -> Redaction:
    """Return the redaction, with the exceptions read from the file."""
    return Redaction(exceptions_in(settings.redaction_file), settings.max_run_secrets)


@asynccontextmanager
async def opened_here(
    settings: Settings, telemetry: Telemetry, tenant: TenantId = DEFAULT_TENANT, *,
    clock: Clock = utc_now,
) -> AsyncIterator[LocalService]:  # fmt: skip
    """Open a tenant's memories without a service: all of them, for anyone who may read the file.

    Others may use the file meanwhile. Bytes that are erased here leave the file when a service
    next maintains it.
    """
    rules = redaction_of(settings).rules
    async with opened_engine(settings, tenant, clock, is_limited=True) as opened:
        engine = traced(opened, telemetry)
        recall = Recall(engine=engine, timeout=settings.recall_limit)
        agentops = AgentOps(
            engine=engine, rules=rules, recall=recall, clock=clock,
            dedupe_window=settings.dedupe_window, periods=settings.review_after,
            transfer=lambda: transfer.Transfer(
                engine=engine, rules=rules, most=IMPORT_ROWS, pause=IMPORT_PAUSE
            ),
            projects=lambda: projects.Projects(engine=engine, audit=audit_of(settings, clock)),
        )  # fmt: skip
        caller = Caller(tenant=tenant)
        yield LocalService(lambda: caller, agentops=agentops, rules=rules, telemetry=telemetry)
