"""The OpenWOP client: memory of workflow runs, for hosts that mount the service.

`MemoryClient.openwop` is an `OpenWopMemory`, and `AsyncMemoryClient.openwop` an
`AsyncOpenWopMemory`. Hosts give a `MemoryAdapter` to the nodes of a workflow.
"""

# A method below `@sends` needs no body: its signature declares the request and the result.
# mypy: disable-error-code="empty-body"
# ruff: noqa: A002, ARG002, F405

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from ..contract.models import Conflict, Invalid, MemoryServiceError, T, UnexpectedAnswer, read_as
from ..contract.service import MAX_PROMPT, Awaited, Blocking, Call, Method, plain, run_now, send_as
from ..transport import Exchange
from . import models
from .models import *  # noqa: F403 - the public results
from .models import Json, Part, posted, reader, sends

__all__ = [
    "AsyncCommitments", "AsyncEntries", "AsyncOpenWopMemory",
    "AsyncProposals", "AsyncRun", "Commitments", "Entries", "MemoryAdapter", "OpenWopMemory",
    "Proposals", "Run",
]  # fmt: skip
__all__ += models.__all__

LONG_TIMEOUT = timedelta(minutes=2)  # of requests that read a whole ref, or all refs
SECRETS_LOST = "run_secrets_lost"

CommitmentState = Literal["armed", "fired", "cancelled"]
ArtifactKind = Literal["agent-pack", "workflow-chain-pack", "prompt-template", "automation"]
ProposalState = Literal["draft", "revised", "applied", "rejected", "archived"]
RunEnd = Literal["completed", "failed", "cancelled"]


def register_secret(run_id: str, secret_id: str, value: str) -> Call[bool]:
    """Return the Call that registers a secret; without a key, whose record would keep a digest."""
    body, read = {"secretId": secret_id, "value": value}, reader(bool, "registered")
    return posted("runs", run_id, "secrets", body=body, read=read, headers={})


def _ranked(answer: Json) -> list[Json]:
    entries = read_as(list[Any], answer.get("entries"))
    ranks = read_as(list[Any], answer.get("ranks"))
    if len(entries) != len(ranks):
        raise UnexpectedAnswer("The service returned entries and ranks that do not match.")
    return [{"entry": it, "rank": rank} for it, rank in zip(entries, ranks, strict=True)]


def _pass_outcome(answer: Json) -> Json:
    """Merge the payload of the pass's event into the response."""
    payload = read_as(Json, read_as(Json, answer.get("event")).get("payload"))
    return answer | payload | read_as(Json, payload.get("distillation", {}))


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


class _Run(Part):
    _entries: type[_Entries]

    def __init__(
        self, exchange: Exchange, run_id: str, agent_id: str | None, workflow_id: str | None,
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
            raise UnexpectedAnswer("The service returned another run.")

    @Method
    async def secret(self, secret_id: str, value: str) -> bool:
        """Register a value to be stored as `[REDACTED:<secret_id>]` until the run ends.

        Return False for a value under 8 characters, which is not redacted. Register a value before
        you put content that may contain it, and again in a process that resumes the run. TooMany if
        the values of the tenant's runs exceed their limit of bytes.
        """
        self._secrets[secret_id, value] = None  # kept even if the response is lost
        try:
            return await self._exchange.send(register_secret(self.id, secret_id, value))
        except Invalid:
            del self._secrets[secret_id, value]
            raise

    @sends("POST", "memory", answer="entry")
    def put(  # noqa: PLR0913 - the fields of an entry, each by its name
        self, memory_ref: str, content: str, *, tags: Sequence[str] = (),
        expires_at: datetime | None = None, ttl_seconds: int | None = None,
        supersedes: Sequence[str] = (), id: str | None = None, node_id: str | None = None,
        agent_id: str | None = None, idempotency_key: str | None = None,
    ) -> MemoryEntry:  # fmt: skip
        """Put an entry as `OpenWopMemory.put` does, and record it in the run's log.

        `agent_id` defaults to the run's. Secrets that the service has lost are registered again.
        """
        return send_as(agent_id=agent_id or self.agent_id)

    @sends("DELETE", "memory/{memory_id}", answer="removed", absent=False)
    def delete(
        self, memory_ref: str, memory_id: str, *, idempotency_key: str | None = None
    ) -> bool:
        """Delete an entry; return False if it does not exist. Runs already open still see it.

        A deletion by a run is recorded in the run's log.
        """

    async def _send(self, call: Call[T], /) -> T:
        """Send the call; if the service has lost the secrets, register them and send it again."""
        try:
            return await super()._send(call)
        except Conflict as refusal:
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
        except MemoryServiceError as failure:
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
        run_now(self._leave(exception))


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


class _Commitments(Part):
    """The commitments of a tenant; `OpenWopMemory.events` reports when one fires."""

    @sends("POST", "commitments")
    def create(
        self, memory_ref: str, memory_id: str, *, due_at: datetime | None = None,
        tag: str | None = None, idempotency_key: str | None = None,
    ) -> Commitment:  # fmt: skip
        """Commit to an entry: it fires once, at `due_at` or when a new entry of the ref has `tag`.

        Invalid for a time in the past; NotFound if the entry does not exist; Refused
        (`too_many_commitments`) at the ref's limit.
        """
        if (due_at is None) is (tag is None):
            raise Invalid("A commitment needs either due_at or a tag, and not both.")
        return send_as(condition="predicate" if due_at is None else "time")

    @sends("GET", "commitments")
    def list(
        self, memory_ref: str | None = None, *, state: CommitmentState | None = None,
        limit: int | None = None, after: str | None = None,
    ) -> CommitmentPage:  # fmt: skip
        """Return commitments of the ref, or of all, oldest first; at most 1,000 (default 100)."""

    @sends("GET", "commitments/{commitment_id}")
    def get(self, commitment_id: str) -> Commitment:
        """Return the commitment. NotFound if it does not exist."""

    @sends("DELETE", "commitments/{commitment_id}")
    def cancel(self, commitment_id: str, *, idempotency_key: str | None = None) -> Commitment:
        """Cancel a commitment unless it has fired. NotFound if it does not exist."""


class Commitments(Blocking, _Commitments):
    __doc__ = _Commitments.__doc__


class AsyncCommitments(Awaited, _Commitments):
    __doc__ = _Commitments.__doc__


class _Proposals(Part):
    """The proposals of a tenant, and the artifacts that were installed by applying them."""

    @sends("POST", "proposals")
    def create(
        self, kind: ArtifactKind, artifact: dict[str, Any], *, source_run_ids: Sequence[str],
        synthesizer_model: str | None = None, title: str | None = None,
        rationale: str | None = None, idempotency_key: str | None = None,
    ) -> Proposal:  # fmt: skip
        """Propose an artifact, a JSON object of at most 262,144 bytes; nothing is installed."""
        provenance = {"sourceRunIds": plain(source_run_ids)}
        if synthesizer_model is not None:
            provenance["synthesizerModel"] = synthesizer_model
        return send_as(provenance=provenance, source_run_ids=None, synthesizer_model=None)

    @sends("GET", "proposals")
    def list(
        self, *, state: ProposalState | None = None, kind: ArtifactKind | None = None,
        limit: int | None = None, after: str | None = None,
    ) -> ProposalPage:  # fmt: skip
        """Return proposals, oldest first; at most 1,000 (default 100)."""

    @sends("GET", "proposals/{proposal_id}")
    def get(self, proposal_id: str) -> Proposal:
        """Return the proposal. NotFound if it does not exist."""

    @sends("PATCH", "proposals/{proposal_id}")
    def revise(
        self, proposal_id: str, *, title: str | None = None, rationale: str | None = None,
        artifact: dict[str, Any] | None = None, idempotency_key: str | None = None,
    ) -> Proposal:  # fmt: skip
        """Change the passed fields. Conflict if it is applied, rejected or archived."""

    @sends("POST", "proposals/{proposal_id}/apply", answer="installedArtifactRef")
    def apply(self, proposal_id: str, *, idempotency_key: str | None = None) -> str:
        """Install the artifact, and return its ref for `artifact`. Denied without the role admin.

        Invalid (`artifact_invalid`) if the artifact lacks a field that its kind requires; Conflict
        if the proposal is rejected or archived.
        """

    @sends("POST", "proposals/{proposal_id}/reject")
    def reject(self, proposal_id: str, *, idempotency_key: str | None = None) -> Proposal:
        """Reject the proposal permanently. Conflict if it is applied or archived."""

    @sends("DELETE", "proposals/{proposal_id}")
    def archive(self, proposal_id: str, *, idempotency_key: str | None = None) -> Proposal:
        """Archive the proposal; if it is applied, uninstall its artifact."""

    @sends("GET", "artifacts")
    def artifacts(
        self, *, kind: ArtifactKind | None = None, limit: int | None = None,
        after: str | None = None,
    ) -> ArtifactPage:  # fmt: skip
        """Return the installed artifacts; at most 1,000 (default 100)."""

    @sends("GET", "artifacts/{installed_artifact_ref}")
    def artifact(self, installed_artifact_ref: str) -> bytes:
        """Return the stored bytes of an installed artifact. NotFound if it does not exist."""


class Proposals(Blocking, _Proposals):
    __doc__ = _Proposals.__doc__


class AsyncProposals(Awaited, _Proposals):
    __doc__ = _Proposals.__doc__


SomeRun = TypeVar("SomeRun", bound=_Run)


class _Memory(_Entries, Generic[SomeRun]):
    _run: type[SomeRun]

    def run(
        self, run_id: str, *, agent_id: str | None = None, workflow_id: str | None = None,
        memory_refs: Sequence[str] = (),
    ) -> SomeRun:  # fmt: skip
        """Return a run to use in `with`; nothing is sent before. At most 32 refs."""
        return self._run(self._exchange, run_id, agent_id, workflow_id, memory_refs)

    @sends("POST", "memory", answer="entry")
    def put(  # noqa: PLR0913 - the fields of an entry, each by its name
        self, memory_ref: str, content: str, *, tags: Sequence[str] = (),
        expires_at: datetime | None = None, ttl_seconds: int | None = None,
        supersedes: Sequence[str] = (), id: str | None = None, idempotency_key: str | None = None,
    ) -> MemoryEntry:  # fmt: skip
        """Put an entry, which never changes; return it as it is stored, without secrets.

        Limits: 65,536 bytes of content, and 50 tags of 256 characters. With an `id` of your choice
        an equal entry is stored once. Invalid names every fault; Denied for another tenant's ref;
        Conflict (`memory_id_conflict`) for another entry's id, or if a superseded entry is gone.
        """

    delete = _Run.delete

    @sends("GET", "search", answer=_ranked, absent=())
    def search(
        self, memory_ref: str, query: str, *, tag: str | None = None, limit: int | None = None,
        token_budget: int | None = None,
    ) -> tuple[RankedEntry, ...]:  # fmt: skip
        """Find entries by words (500 characters at most), best first; at most 100 (default 10)."""
        return send_as(q=query[:MAX_PROMPT], query=None)

    @sends("GET", "provenance/{memory_id}", absent=None)
    def provenance(self, memory_ref: str, memory_id: str) -> Provenance | None:
        """Return the writer, sources and superseders of an entry, or None if it does not exist."""

    @sends("GET", "refs")
    def refs(self, *, limit: int | None = None, after: str | None = None) -> RefPage:
        """Return refs that have entries, in code point order; at most 1,000 (default 100)."""

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

    @sends("GET", "index", answer=lambda answer: answer | {"document": answer})
    def index(self, memory_ref: str) -> MemoryIndex:
        """Return the archives of the ref, newest first, at most 200, without their content."""

    @sends("POST", "forget", timeout=LONG_TIMEOUT)
    def forget(
        self, subject: str, *, dry_run: bool = False, idempotency_key: str | None = None
    ) -> Forgotten:
        """Erase a subject in all refs: its entries, and archives and merges made from them.

        These are entries tagged `subject:<subject>`, and the ref of this name. With `dry_run` they
        are counted, and nothing changes. Denied without the role admin.
        """

    @sends("GET", "erasures/{erasure_id}")
    def erasure(self, erasure_id: str) -> Erasure:
        """Return the receipt of a `forget`, without the subject. NotFound if it does not exist."""


class OpenWopMemory(Entries, _Memory[Run]):
    """The memory refs of a tenant, for a host; reads see the current state.

    Implements `MemoryAdapter`. Methods raise a MemoryServiceError if they fail; its `code` is
    OpenWOP's, and its message quotes no entry.
    """

    _run = Run

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.commitments, self.proposals = Commitments(exchange), Proposals(exchange)


class AsyncOpenWopMemory(AsyncEntries, _Memory[AsyncRun]):
    """Like `OpenWopMemory`, for asyncio."""

    _run = AsyncRun

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.commitments, self.proposals = AsyncCommitments(exchange), AsyncProposals(exchange)
