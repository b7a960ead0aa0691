"""The OpenWOP client: memory of workflow runs, for hosts that mount the service.

`MemoryClient.openwop` is an `OpenWopMemory`, and `AsyncMemoryClient.openwop` an
`AsyncOpenWopMemory`. Hosts give a `MemoryAdapter` to the nodes of a workflow. Results are frozen
dataclasses, whose fields have the names and meanings of OpenWOP, in snake case.
"""

# A method below `@sends` needs no body: its signature declares the request and the result.
# mypy: disable-error-code="empty-body"
# ruff: noqa: A002, ARG002

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Concatenate, Generic, Literal, Protocol, Self, TypeVar, get_args

from pydantic import AwareDatetime, ConfigDict
from pydantic.alias_generators import to_camel

from .contract import models as m, service
from .contract.service import UNSET, Awaited, Blocking, Call, Method, P, Sender, T, plain, send_as

__all__ = [
    "AsyncEntries", "AsyncOpenWopMemory", "AsyncRun", "Compaction", "Consolidation",
    "Distillation", "Entries", "EventPage", "Forgotten", "MemoryAdapter", "MemoryEntry", "Merge",
    "OpenWopMemory", "Provenance", "RankedEntry", "Run", "RunEvent", "Undone", "WrittenBy",
    "memory_degradation",
]  # fmt: skip

LONG_TERM = "long-term"  # the value of memoryBackends for the dimension long-term-durability


class Noun(m.Noun):
    """Base of results whose JSON has camel-case names."""

    __pydantic_config__: ClassVar = ConfigDict(alias_generator=to_camel)


class MemoryEntry(Noun):
    """An entry of a memory ref, which never changes; the id is unique within the ref."""

    id: str
    content: str
    tags: tuple[str, ...]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None


class RankedEntry(Noun):
    entry: MemoryEntry
    rank: float  # lower is better


class WrittenBy(Noun):
    run_id: str | None = None
    node_id: str | None = None
    agent_id: str | None = None


class Provenance(Noun):
    """The origin of an entry: its writer, its sources, and the entries that supersede it."""

    memory_ref: str
    memory_id: str
    written_by: WrittenBy
    method: str  # put, or the kind of pass that derived the entry
    derived_from: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    seen: int
    last_seen_at: AwareDatetime


class RunEvent(Noun):
    """An event of a run, without content of memory; a run's sequence numbers have no gaps."""

    event_id: str
    run_id: str
    type: str
    payload: Mapping[str, Any] = field(hash=False)
    timestamp: AwareDatetime
    sequence: int
    node_id: str | None = None


class EventPage(Noun):
    events: tuple[RunEvent, ...]
    next: str  # never None: pass it as `after` later to get newer events


class Compaction(Noun):
    run_id: str  # the id of the pass, for `undo`
    memory_ref: str
    output_id: str  # the id of the archive that replaces its sources
    source_ids: tuple[str, ...] | None = None  # None if there are more than are named
    source_count: int
    trigger: str
    byte_size: int


class Distillation(Compaction):
    """The outcome of a distillation; `created` is False if the archive existed already."""

    token_budget: int
    tokens_used: int
    archive_checksum: str  # SHA-256 of the archive's text
    created: bool


class Merge(Noun):
    """A text that replaces 2 to 100 entries, named by their ids."""

    ids: Sequence[str]
    content: str
    tags: Sequence[str] = ()


class Consolidation(Noun):
    """The outcome of a consolidation, with the number of listed entries before and after it."""

    run_id: str
    memory_ref: str
    input_count: int
    output_count: int
    merged_ids: tuple[str, ...] | None = None  # None if there are more than are named
    trigger: str


class Undone(Noun):
    """The numbers of entries that undoing a pass restored and removed."""

    run_id: str
    restored: int
    removed: int


class Forgotten(Noun):
    """What was, or would be, erased of a subject; `restored` counts entries listed again."""

    subject: str = field(repr=False)  # hidden, so that no log shows a forgotten subject
    entries: int
    archives: int
    restored: int
    commitments: int
    erasure_id: str | None = None  # of the receipt; None if nothing was erased
    dry_run: bool = False


def memory_degradation(
    shape: Mapping[str, Any], advertisement: Mapping[str, Any]
) -> dict[str, bool | list[str]]:
    """Return what a host lacks of an agent's `memoryShape`, as inventory fields (RFC 0080).

    `advertisement` is the host's discovery document, or its `capabilities`. The result is empty if
    nothing is missing, else has `memoryDegraded` and `degradedMemoryDimensions` in RFC order.
    """
    memory = _family(advertisement, "memory")
    backends = _family(advertisement, "agents").get("memoryBackends")
    reads = memory.get("supported") is True
    has = {
        "read": reads,
        "write": reads and memory.get("writable") is not False,
        "long-term-durability": isinstance(backends, list | tuple) and LONG_TERM in backends,
    }
    uses = {it for it in ("scratchpad", "conversation", "longTerm") if shape.get(it) is True}
    required = [*has] if "longTerm" in uses else ["read", "write"] if uses else []
    lacking = [name for name in required if not has[name]]
    return {"memoryDegraded": True, "degradedMemoryDimensions": lacking} if lacking else {}


def _family(host: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a capability family from the root or, for older hosts, from `capabilities`."""
    wrapper = host.get("capabilities")
    parents = (host, wrapper if isinstance(wrapper, Mapping) else {})
    return next((it[name] for it in parents if isinstance(it.get(name), Mapping)), {})


Json = dict[str, Any]
Answer = str | Callable[[Json], object]  # the member of a response to return, or a function of it

BASE = ("v1", "host", "agentops-memory")
NO_ENTRY = "memory entry not found"  # the service's message for any missing entry
MAX_NAME = 256  # code points of a ref or of an entry's id


class Part(Sender):
    """Base of the parts of the OpenWOP client."""

    _exchange: Any

    def __init__(self, exchange: Any, run_id: str | None = None) -> None:
        self._exchange, self._run_id = exchange, run_id

    async def _send(self, call: Call[T], /) -> T:
        absent, names = call.absent, (call.path[-1], *call.query.get("memoryRef", ()))
        if absent is not UNSET and not all(map(_is_name, names)):
            return absent
        try:
            return await super()._send(call)
        except m.NotFound as error:
            if absent is UNSET or str(error) != NO_ENTRY:
                raise
            return absent


def sends(
    verb: str, path: str, *, answer: Answer = "", absent: Any = UNSET,
    timeout: timedelta | None = None,
) -> Callable[[Callable[Concatenate[Any, P], T]], Method[P, T]]:  # fmt: skip
    """Declare a method of a Part by its signature, as `service.sends` does.

    `absent` is returned if the entry does not exist, or if no entry can have the name.
    """

    def declare(declaration: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
        returned = inspect.signature(declaration).return_annotation
        read = reader(get_args(returned)[0] if absent is None else returned, answer)
        whole = "/".join([*BASE, path])
        return service.sends(
            whole, verb, whole, read=read, absent=absent, timeout=timeout, rename=to_camel
        )(declaration)

    return declare


def reader(kind: type[T], answer: Answer = "") -> m.Reader[T]:
    """Return a reader of a JSON response."""

    def read(body: bytes, _: m.Headers) -> T:
        document = m.json_object(body)
        if callable(answer):
            return m.read_as(kind, answer(document))
        return m.read_as(kind, document.get(answer) if answer else document)

    return read


def posted(*steps: str, body: Json, read: m.Reader[T], headers: m.Headers | None = None) -> Call[T]:
    """Return the Call that posts a body, by default with an idempotency key."""
    return Call(
        operation="/".join(steps), method="POST", path=(*BASE, *steps), body=body, read=read,
        headers=service.key_header(None) if headers is None else headers,
    )  # fmt: skip


def _is_name(text: str) -> bool:
    """Whether a ref or an entry can have this name, and a URL can carry it unchanged."""
    return 0 < len(text) <= MAX_NAME and "\0" not in text and not service.SURROGATE.search(text)


LONG_TIMEOUT = timedelta(minutes=2)  # of requests that read a whole ref, or all refs
SECRETS_LOST = "run_secrets_lost"

RunEnd = Literal["completed", "failed", "cancelled"]


def register_secret(run_id: str, secret_id: str, value: str) -> Call[bool]:
    """Return the Call that registers a secret; without a key, whose record would keep a digest."""
    body, read = {"secretId": secret_id, "value": value}, reader(bool, "registered")
    return posted("runs", run_id, "secrets", body=body, read=read, headers={})


def _ranked(answer: Json) -> list[Json]:
    entries = m.read_as(list[Any], answer.get("entries"))
    ranks = m.read_as(list[Any], answer.get("ranks"))
    if len(entries) != len(ranks):
        raise m.UnexpectedAnswer("The service returned entries and ranks that do not match.")
    return [{"entry": it, "rank": rank} for it, rank in zip(entries, ranks, strict=True)]


def _pass_outcome(answer: Json) -> Json:
    """Merge the payload of the pass's event into the response."""
    payload = m.read_as(Json, m.read_as(Json, answer.get("event")).get("payload"))
    return answer | payload | m.read_as(Json, payload.get("distillation", {}))


class MemoryAdapter(Protocol):
    """Read access for nodes; a ref that is unknown, malformed or another tenant's is empty."""

    def list(
        self, memory_ref: str, *, limit: int | None = None, tag: str | None = None,
        token_budget: int | None = None,
    ) -> Sequence[MemoryEntry]:  # fmt: skip
        """Return entries of the ref, newest first, of `token_budget` code points at most."""

    def get(self, memory_ref: str, memory_id: str) -> MemoryEntry | None:
        """Return the entry, or None if it does not exist."""


class _Entries(Part):
    @sends("GET", "memory", answer="entries", absent=())
    def list(
        self, memory_ref: str, *, limit: int | None = None, tag: str | None = None,
        token_budget: int | None = None, before: str | None = None,
    ) -> tuple[MemoryEntry, ...]:  # fmt: skip
        """Return entries that are not superseded, newest first; with `before`, an id, older ones.

        At most 500 (default 100), and 2 MiB. `token_budget` is the maximum of code points of
        all contents together; an entry that does not fit is skipped.
        """

    @sends("GET", "memory/{memory_id}", answer="entry", absent=None)
    def get(self, memory_ref: str, memory_id: str) -> MemoryEntry | None:
        """Return the entry, even if it is superseded, or None if it does not exist."""


class Entries(Blocking, _Entries, MemoryAdapter):
    """Entries of memory refs, as of the run's snapshot; implements `MemoryAdapter`."""


class AsyncEntries(Awaited, _Entries):
    """Like `Entries`, for asyncio."""


class _Writes(Part):
    agent_id: str | None = None

    @sends("POST", "memory", answer="entry")
    def put(  # noqa: PLR0913 - the fields of an entry, each by its name
        self, memory_ref: str, content: str, *, tags: Sequence[str] = (),
        expires_at: datetime | None = None, ttl_seconds: int | None = None,
        supersedes: Sequence[str] = (), id: str | None = None, node_id: str | None = None,
        agent_id: str | None = None, idempotency_key: str | None = None,
    ) -> MemoryEntry:  # fmt: skip
        """Put an entry, which never changes; return it as it is stored, without secrets.

        Limits: 65,536 bytes of content, and 50 tags of 256 characters. With an `id` of your choice
        an equal entry is stored once. Invalid names every fault; Denied for another tenant's ref;
        Conflict (`memory_id_conflict`) for another entry's id, or if a superseded entry is gone.

        In a run it is recorded in the run's log, and `agent_id` defaults to the run's. Secrets that
        the service has lost are registered again.
        """
        return send_as(agent_id=agent_id or self.agent_id)

    @sends("DELETE", "memory/{memory_id}", answer="removed", absent=False)
    def delete(
        self, memory_ref: str, memory_id: str, *, idempotency_key: str | None = None
    ) -> bool:
        """Delete an entry; return False if it does not exist. Runs already open still see it.

        A deletion by a run is recorded in the run's log.
        """


class _Run(_Writes):
    _entries: type[_Entries]

    def __init__(
        self, exchange: Any, run_id: str, agent_id: str | None, workflow_id: str | None,
        memory_refs: Sequence[str],
    ) -> None:  # fmt: skip
        super().__init__(exchange, run_id)
        self.id = run_id
        self.agent_id, self.workflow_id, self.memory_refs = agent_id, workflow_id, memory_refs
        self.memory = self._entries(exchange, run_id)
        self._secrets: dict[tuple[str, str], None] = {}  # an ordered set of (id, value)
        self._is_over = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @Method
    async def open(self) -> None:
        """Open the run, or resume it. Call this instead of `with` if the run may stay open."""
        body = {
            "runId": self.id, "agentId": self.agent_id, "workflowId": self.workflow_id,
            "memoryRefs": plain(self.memory_refs),
        }  # fmt: skip
        await self._change(body={name: it for name, it in body.items() if it is not None})

    @Method
    async def end(self, status: RunEnd = "completed") -> None:
        """End the run, which refuses later writes. Conflict if it ended with another status."""
        await self._change(self.id, "end", body={"status": status})
        self._is_over = True
        self._secrets.clear()

    async def _change(self, *steps: str, body: Json) -> None:
        call = posted("runs", *steps, body=body, read=reader(str, "runId"))
        if await self._send(call) != self.id:
            raise m.UnexpectedAnswer("The service returned another run.")

    @Method
    async def secret(self, secret_id: str, value: str) -> bool:
        """Register a value to be stored as `[REDACTED:<secret_id>]` until the run ends.

        Return False for a value under 8 characters, which is not redacted. Register a value before
        you put content that may contain it, and again in a process that resumes the run. TooMany if
        the values of the tenant's runs exceed their limit of bytes.
        """
        self._secrets[secret_id, value] = None  # kept even if the response is lost
        try:
            return await super()._send(register_secret(self.id, secret_id, value))
        except m.Invalid:
            del self._secrets[secret_id, value]
            raise

    async def _send(self, call: Call[T], /) -> T:
        """Send the call; if the service has lost the secrets, register them and send it again."""
        try:
            return await super()._send(call)
        except m.Conflict as refusal:
            if refusal.code != SECRETS_LOST or not self._secrets:
                raise
        for secret_id, value in tuple(self._secrets):
            await self._exchange.send(register_secret(self.id, secret_id, value))
        return await super()._send(call)

    async def _leave(self, exception: BaseException | None) -> None:
        """End the run if it is open; a failure to end it never hides the exception."""
        if self._is_over:
            return
        try:
            await _Run.end.awaited(self, "completed" if exception is None else "failed")
        except m.MemoryServiceError as failure:
            if exception is None:
                raise
            exception.add_note(f"The run could not be ended: {failure}")


class Run(Blocking, _Run):
    """A run of a workflow; `memory` is its snapshot: memory as it was when the run started.

    `with` opens the run and ends it as `completed`, or as `failed` on an exception. After a crash
    of the host, open it again with the same id and fields to resume it; Conflict if it has ended or
    has other fields. Its secrets stay in this object until it ends, and appear nowhere.
    """

    memory: Entries
    _entries = Entries

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, _kind: object, exception: BaseException | None, _trace: object) -> None:
        service.run_now(self._leave(exception))


class AsyncRun(Awaited, _Run):
    """Like `Run`, for `async with`."""

    memory: AsyncEntries
    _entries = AsyncEntries

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, _kind: object, exception: BaseException | None, _trace: object
    ) -> None:
        await self._leave(exception)


SomeRun = TypeVar("SomeRun", bound=_Run)


class _Memory(_Entries, _Writes, Generic[SomeRun]):
    _run: type[SomeRun]

    def run(
        self, run_id: str, *, agent_id: str | None = None, workflow_id: str | None = None,
        memory_refs: Sequence[str] = (),
    ) -> SomeRun:  # fmt: skip
        """Return a run to use in `with`; nothing is sent before. At most 32 refs."""
        return self._run(self._exchange, run_id, agent_id, workflow_id, memory_refs)

    @sends("GET", "search", answer=_ranked, absent=())
    def search(
        self, memory_ref: str, query: str, *, tag: str | None = None, limit: int | None = None,
        token_budget: int | None = None,
    ) -> tuple[RankedEntry, ...]:  # fmt: skip
        """Find entries by words (500 characters at most), best first; at most 100 (default 10)."""
        return send_as(q=query[: service.MAX_PROMPT], query=None)

    @sends("GET", "provenance/{memory_id}", absent=None)
    def provenance(self, memory_ref: str, memory_id: str) -> Provenance | None:
        """Return the writer, sources and superseders of an entry, or None if it does not exist."""

    @sends("GET", "events")
    def events(
        self, after: str | None = None, *, limit: int | None = None, type: str | None = None,
    ) -> EventPage:  # fmt: skip
        """Return events of all runs after a page's `next`; at most 1,000 (default 100)."""

    @sends("POST", "compact", answer=_pass_outcome, timeout=LONG_TIMEOUT)
    def compact(
        self, memory_ref: str, *, content: str | None = None, keep_sources: bool = False,
        idempotency_key: str | None = None,
    ) -> Compaction:  # fmt: skip
        """Supersede the oldest entries (at most 500) by one archive of `content` or an extract.

        Pinned entries stay, and with `keep_sources` all stay listed. Conflict
        (`nothing_to_compact`) for fewer than two.
        """

    @sends("POST", "distill", answer=_pass_outcome, timeout=LONG_TIMEOUT)
    def distill(
        self, memory_ref: str, *, token_budget: int | None = None, content: str | None = None,
        recursive: bool = False, expires_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Distillation:  # fmt: skip
        """Write an archive of the entries, which stay; `recursive` includes other archives.

        The archive has `content` or an extract. The budget (default 100,000 tokens of four bytes)
        covers sources and archive. Conflict if there is nothing to distill; Invalid if the budget
        is too small (`token_budget_exceeded`), with `minimumRequired` in `details`.
        """

    @sends("POST", "consolidate", answer=_pass_outcome, timeout=LONG_TIMEOUT)
    def consolidate(
        self, memory_ref: str, *, merges: Sequence[Merge] = (), idempotency_key: str | None = None
    ) -> Consolidation:
        """Supersede repeated entries, and older ones with the same `key:` and `subject:` tags.

        Before that, each merge replaces its entries; Conflict if one of them is gone.
        """
        return send_as(merges=[
            {"ids": plain(it.ids), "content": it.content, "tags": plain(it.tags)} for it in merges
        ])  # fmt: skip

    @sends("POST", "passes/{run_id}/undo", timeout=LONG_TIMEOUT)
    def undo(self, run_id: str, *, idempotency_key: str | None = None) -> Undone:
        """Undo a pass. NotFound if it does not exist; Conflict if it cannot be undone."""

    @sends("POST", "forget", timeout=LONG_TIMEOUT)
    def forget(
        self, subject: str, *, dry_run: bool = False, idempotency_key: str | None = None
    ) -> Forgotten:
        """Erase a subject in all refs: its entries, and archives and merges made from them.

        These are entries tagged `subject:<subject>`, and the ref of this name. With `dry_run` they
        are counted, and nothing changes. Denied without the role admin.
        """


class OpenWopMemory(Entries, _Memory[Run]):
    """The memory refs of a tenant, for a host; reads see the current state.

    Implements `MemoryAdapter`. Methods raise a MemoryServiceError if they fail; its `code` is
    OpenWOP's, and its message quotes no entry.
    """

    _run = Run


class AsyncOpenWopMemory(AsyncEntries, _Memory[AsyncRun]):
    """Like `OpenWopMemory`, for asyncio."""

    _run = AsyncRun
