"""OpenWOP in Python: memory of workflow runs, for hosts that mount the service.

`MemoryClient.openwop` is an `OpenWopMemory`, `AsyncMemoryClient.openwop` an
`AsyncOpenWopMemory`. A node of a workflow gets a `MemoryAdapter`.
"""

# The signature of a method that `sends` is what it does, in the protocol's words.
# mypy: disable-error-code="empty-body"
# ruff: noqa: A002, ARG002, F405

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from ..contract.models import Conflict, Invalid, MemoryServiceError, UnexpectedAnswer, read_as
from ..contract.service import MAX_PROMPT, Awaited, Blocking, Call, Method, T, also, finished, plain
from ..transport import Exchange
from . import models
from .models import *  # noqa: F403 - what is answered, which is public
from .models import Json, Part, call_of, sends

__all__ = [
    "AsyncCommitments", "AsyncEntries", "AsyncMemoryAdapter", "AsyncOpenWopMemory",
    "AsyncProposals", "AsyncRun", "Commitments", "Entries", "MemoryAdapter", "OpenWopMemory",
    "Proposals", "Run",
]  # fmt: skip
__all__ += models.__all__

AT_LENGTH = timedelta(minutes=2)  # for what reads a whole ref, or looks through all of them
SECRETS_LOST = "run_secrets_lost"

CommitmentState = Literal["armed", "fired", "cancelled"]
ArtifactKind = Literal["agent-pack", "workflow-chain-pack", "prompt-template", "automation"]
ProposalState = Literal["draft", "revised", "applied", "rejected", "archived"]
RunEnd = Literal["completed", "failed", "cancelled"]


def register_secret(run_id: str, secret_id: str, value: str) -> Call[bool]:
    """A value to be registered; without an idempotency key, since not even its digest is kept."""
    fields = {"run_id": run_id, "secret_id": secret_id, "value": value}
    call = call_of(bool, "POST", "runs/{run_id}/secrets", fields, answer="registered")
    return replace(call, headers={})


def _of_run(answer: Json, sent: Mapping[str, Any]) -> None:
    """Nothing of a run's state, of which all but the id is known."""
    if answer.get("runId") != sent["run_id"]:
        raise UnexpectedAnswer("The service returned another run.")


def _ranked(answer: Json, _: object) -> list[Json]:
    entries = read_as(list[Any], answer.get("entries"))
    ranks = read_as(list[Any], answer.get("ranks"))
    if len(entries) != len(ranks):
        raise UnexpectedAnswer("The service returned entries and ranks that do not match.")
    return [{"entry": it, "rank": rank} for it, rank in zip(entries, ranks, strict=True)]


def _done(answer: Json, _: object) -> Json:
    """What a pass did, which its event tells."""
    payload = read_as(Json, read_as(Json, answer.get("event")).get("payload"))
    return answer | payload | read_as(Json, payload.get("distillation", {}))


def _merge(merge: object) -> Json:
    if not isinstance(merge, Merge):
        raise Invalid('Each merge must be a Merge, such as Merge(ids=["a", "b"], content="Both.").')
    return {"ids": plain(merge.ids), "content": merge.content, "tags": plain(merge.tags)}


class MemoryAdapter(Protocol):
    """Memory as a node reads it; a ref that is unknown, malformed or another's has no entries."""

    def list(
        self, memory_ref: str, *, limit: int | None = None, tag: str | None = None,
        token_budget: int | None = None,
    ) -> Sequence[MemoryEntry]:  # fmt: skip
        """Entries of the ref, newest first: with this tag, and within so many code points."""

    def get(self, memory_ref: str, memory_id: str) -> MemoryEntry | None:
        """The entry of the ref; None if there is none."""


class AsyncMemoryAdapter(Protocol):
    """The same, for nodes that await."""

    async def list(
        self, memory_ref: str, *, limit: int | None = None, tag: str | None = None,
        token_budget: int | None = None,
    ) -> Sequence[MemoryEntry]: ...  # fmt: skip

    async def get(self, memory_ref: str, memory_id: str) -> MemoryEntry | None: ...


class _Entries(Part):
    @sends("GET", "memory", answer="entries", absent=())
    def list(
        self, memory_ref: str, *, limit: int | None = None, tag: str | None = None,
        token_budget: int | None = None, before: str | None = None,
    ) -> tuple[MemoryEntry, ...]:  # fmt: skip
        """Entries that no other supersedes, newest first; with `before`, those older than that one.

        At most 500, or 100 by default, and as many as 2 MiB hold. A `token_budget` bounds
        the code points of all contents; what alone exceeds it is left out.
        """

    @sends("GET", "memory/{memory_id}", answer="entry", absent=None)
    def get(self, memory_ref: str, memory_id: str) -> MemoryEntry | None:
        """The entry, also one that another supersedes; None if there is none."""


class Entries(Blocking, _Entries, MemoryAdapter):
    """Entries of memory refs, as a run's snapshot has them; a `MemoryAdapter`."""


class AsyncEntries(Awaited, _Entries, AsyncMemoryAdapter):
    """Entries of memory refs, as a run's snapshot has them; an `AsyncMemoryAdapter`."""


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
        self._secrets: dict[tuple[str, str], None] = {}  # of an id, and one of its values
        self._is_over = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @sends("POST", "runs", answer=_of_run)
    def open(self) -> None:
        """Open the run, or continue with it. For a run that may be left open, without `with`."""
        return also(  # type: ignore[return-value]
            agent_id=self.agent_id, workflow_id=self.workflow_id, memory_refs=self.memory_refs
        )

    @Method
    async def end(self, status: RunEnd = "completed") -> None:
        """End the run, which takes no write afterwards. Conflict if it ended otherwise."""
        fields = {"run_id": self.id, "status": status}
        await self._ask(call_of(NoneType, "POST", "runs/{run_id}/end", fields, answer=_of_run))
        self._is_over = True
        self._secrets.clear()

    @Method
    async def secret(self, secret_id: str, value: str) -> bool:
        """Let a value be stored as `[REDACTED:<secret_id>]` until the run ends.

        False for one under 8 characters, which stays. To be said before anything that could hold
        it is put, and again by a process that resumes the run. TooMany if the tenant's runs hold
        as many bytes of values as they may.
        """
        self._secrets[secret_id, value] = None  # known, also if the answer is lost
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
        """Put an entry as `OpenWopMemory.put`; the run's agent writes it unless another is named.

        The run's log records it. A service that has lost the run's secrets gets them again.
        """
        return also(agent_id=agent_id or self.agent_id)

    @sends("DELETE", "memory/{memory_id}", answer="removed", absent=False)
    def delete(
        self, memory_ref: str, memory_id: str, *, idempotency_key: str | None = None
    ) -> bool:
        """Delete an entry, for all but runs that are open; False if there is none.

        What a run deletes its log tells of, and its own snapshot still has.
        """

    async def _ask(self, call: Call[T], /) -> T:
        """The answer, also to a write that is refused as the service has lost the secrets."""
        try:
            return await super()._ask(call)
        except Conflict as refusal:
            if refusal.code != SECRETS_LOST or not self._secrets:
                raise
        for secret_id, value in tuple(self._secrets):
            await self._exchange.send(register_secret(self.id, secret_id, value))
        return await super()._ask(call)

    async def _leave(self, exception: BaseException | None) -> None:
        """End the run, unless that was done; a failure to do so never hides the exception."""
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

    `with` opens it and ends it `completed`, or `failed` on an exception. One whose host was killed
    continues when it is opened again with the same id and fields; Conflict if it has ended, or has
    others. Secrets are kept in this object until its end, and appear nowhere.
    """

    memory: Entries
    _entries = Entries

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, _kind: object, exception: BaseException | None, _trace: object) -> None:
        finished(self._leave(exception))


class AsyncRun(Awaited, _Run):
    """As `Run`, for `async with`."""

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
    """Commitments of a tenant; `OpenWopMemory.events` reports those that fire."""

    @sends("POST", "commitments")
    def create(
        self, memory_ref: str, memory_id: str, *, due_at: datetime | None = None,
        tag: str | None = None, idempotency_key: str | None = None,
    ) -> Commitment:  # fmt: skip
        """Arm an entry: it fires once, at `due_at`, or when another entry of the ref has the tag.

        An equal one that is armed is answered again. Invalid for a time that is past; NotFound if
        there is no entry; Refused (`too_many_commitments`) if the ref has as many as it may.
        """
        if (due_at is None) is (tag is None):
            raise Invalid("A commitment needs either due_at or a tag, and not both.")
        return also(condition="predicate" if due_at is None else "time")

    @sends("GET", "commitments")
    def list(
        self, memory_ref: str | None = None, *, state: CommitmentState | None = None,
        limit: int | None = None, after: str | None = None,
    ) -> CommitmentPage:  # fmt: skip
        """Commitments of the ref, or of all, oldest first: at most 1,000, or 100 by default."""

    @sends("GET", "commitments/{commitment_id}")
    def get(self, commitment_id: str) -> Commitment:
        """The commitment. NotFound if there is none."""

    @sends("DELETE", "commitments/{commitment_id}")
    def cancel(self, commitment_id: str, *, idempotency_key: str | None = None) -> Commitment:
        """Let it not fire; one that has fired stays `fired`. NotFound if there is none."""


class Commitments(Blocking, _Commitments):
    __doc__ = _Commitments.__doc__


class AsyncCommitments(Awaited, _Commitments):
    __doc__ = _Commitments.__doc__


class _Proposals(Part):
    """Proposals of a tenant, and the artifacts of those that were applied."""

    @sends("POST", "proposals")
    def create(
        self, kind: ArtifactKind, artifact: dict[str, Any], *, source_run_ids: Sequence[str],
        synthesizer_model: str | None = None, title: str | None = None,
        rationale: str | None = None, idempotency_key: str | None = None,
    ) -> Proposal:  # fmt: skip
        """Propose an artifact, an object of JSON of at most 262,144 bytes; it installs nothing."""
        made_of = {"sourceRunIds": plain(source_run_ids)}
        if synthesizer_model is not None:
            made_of["synthesizerModel"] = synthesizer_model
        return also(provenance=made_of, source_run_ids=None, synthesizer_model=None)

    @sends("GET", "proposals")
    def list(
        self, *, state: ProposalState | None = None, kind: ArtifactKind | None = None,
        limit: int | None = None, after: str | None = None,
    ) -> ProposalPage:  # fmt: skip
        """Proposals, oldest first: at most 1,000, or 100 by default."""

    @sends("GET", "proposals/{proposal_id}")
    def get(self, proposal_id: str) -> Proposal:
        """The proposal. NotFound if there is none."""

    @sends("PATCH", "proposals/{proposal_id}")
    def revise(
        self, proposal_id: str, *, title: str | None = None, rationale: str | None = None,
        artifact: dict[str, Any] | None = None, idempotency_key: str | None = None,
    ) -> Proposal:  # fmt: skip
        """Change the fields that are set; Conflict if it is applied, rejected or archived."""

    @sends("POST", "proposals/{proposal_id}/apply", answer="installedArtifactRef")
    def apply(self, proposal_id: str, *, idempotency_key: str | None = None) -> str:
        """Install the artifact; the ref under which its bytes are. Denied without the role admin.

        Invalid (`artifact_invalid`) if it lacks what its kind needs; Conflict if it is rejected or
        archived.
        """

    @sends("POST", "proposals/{proposal_id}/reject")
    def reject(self, proposal_id: str, *, idempotency_key: str | None = None) -> Proposal:
        """Refuse the proposal for good. Conflict if it is applied or archived."""

    @sends("DELETE", "proposals/{proposal_id}")
    def archive(self, proposal_id: str, *, idempotency_key: str | None = None) -> Proposal:
        """Put the proposal away; of an applied one the artifact is withdrawn."""

    @sends("GET", "artifacts")
    def artifacts(
        self, *, kind: ArtifactKind | None = None, limit: int | None = None,
        after: str | None = None,
    ) -> ArtifactPage:  # fmt: skip
        """What is installed, of proposals that are applied: at most 1,000, or 100 by default."""

    @sends("GET", "artifacts/{installed_artifact_ref}")
    def artifact(self, installed_artifact_ref: str) -> bytes:
        """The bytes of an installed artifact, as they were stored. NotFound if there is none."""


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
        """A run of a workflow, for a `with` block; nothing is sent yet. At most 32 refs."""
        return self._run(self._exchange, run_id, agent_id, workflow_id, memory_refs)

    @sends("POST", "memory", answer="entry")
    def put(  # noqa: PLR0913 - the fields of an entry, each by its name
        self, memory_ref: str, content: str, *, tags: Sequence[str] = (),
        expires_at: datetime | None = None, ttl_seconds: int | None = None,
        supersedes: Sequence[str] = (), id: str | None = None, idempotency_key: str | None = None,
    ) -> MemoryEntry:  # fmt: skip
        """Put an entry, which never changes, and answer it as it is stored: without secrets.

        Content: at most 65,536 bytes; tags: 50 of 256 characters. The same one again under an
        `id` of yours is the first. Invalid names every fault; Denied for another tenant's ref;
        Conflict for another entry's id (`memory_id_conflict`), or if what it supersedes is gone.
        """

    delete = _Run.delete

    @sends("GET", "search", answer=_ranked, absent=())
    def search(
        self, memory_ref: str, query: str, *, tag: str | None = None, limit: int | None = None,
        token_budget: int | None = None,
    ) -> tuple[RankedEntry, ...]:  # fmt: skip
        """Entries by their words (the first 500 characters), best first: 100, or 10 by default."""
        return also(q=query[:MAX_PROMPT], query=None)

    @sends("GET", "provenance/{memory_id}", absent=None)
    def provenance(self, memory_ref: str, memory_id: str) -> Provenance | None:
        """Who wrote the entry, of what it was made, and what replaces it; None if there is none."""

    @sends("GET", "refs")
    def refs(self, *, limit: int | None = None, after: str | None = None) -> RefPage:
        """Refs that hold entries, in code point order: at most 1,000, or 100 by default."""

    @sends("GET", "events")
    def events(
        self, after: str | None = None, *, limit: int | None = None, type: str | None = None,
    ) -> EventPage:  # fmt: skip
        """What happened in all runs after a page's `next`: at most 1,000, or 100 by default."""

    @sends("POST", "compact", answer=_done, within=AT_LENGTH)
    def compact(
        self, memory_ref: str, *, content: str | None = None, keep_sources: bool = False,
        idempotency_key: str | None = None,
    ) -> Compaction:  # fmt: skip
        """Let an archive, an extract or `content`, take the place of the oldest 500 entries.

        What is pinned stays. Conflict if there are not two entries (`nothing_to_compact`).
        """

    @sends("POST", "distill", answer=_done, within=AT_LENGTH)
    def distill(
        self, memory_ref: str, *, token_budget: int | None = None, content: str | None = None,
        recursive: bool = False, expires_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Distillation:  # fmt: skip
        """Put an archive of the entries beside them; with `recursive`, also of archives.

        It is an extract, or `content`. The budget, of 100,000 tokens of four bytes unless told, is
        for what is read and written. Conflict for `nothing_to_distill`; Invalid for a budget that
        is too small (`token_budget_exceeded`), whose `details` have the `minimumRequired`.
        """

    @sends("POST", "consolidate", answer=_done, within=AT_LENGTH)
    def consolidate(
        self, memory_ref: str, *, merges: Sequence[Merge] = (), idempotency_key: str | None = None
    ) -> Consolidation:
        """Let entries be replaced that others say as well, or that are stale by their `key:`.

        First each of the merges takes the place of its entries: Conflict if one of these is gone.
        """
        return also(merges=[_merge(it) for it in merges])

    @sends("POST", "passes/{run_id}/undo", within=AT_LENGTH)
    def undo(self, run_id: str, *, idempotency_key: str | None = None) -> Undone:
        """Take back what a pass did. NotFound if there is none; Conflict if it cannot be undone."""

    @sends("GET", "index", answer=lambda answer, _: answer | {"document": answer})
    def index(self, memory_ref: str) -> MemoryIndex:
        """The archives of the ref, newest first: at most 200, without their content."""

    @sends("POST", "forget", within=AT_LENGTH)
    def forget(
        self, subject: str, *, dry_run: bool = False, idempotency_key: str | None = None
    ) -> Forgotten:
        """Erase what is of a subject in all refs, and whatever was derived of it.

        That is what is tagged `subject:<subject>`, and the ref of this name. With `dry_run` it is
        counted, and nothing changes. Denied without the role admin.
        """

    @sends("GET", "erasures/{erasure_id}")
    def erasure(self, erasure_id: str) -> Erasure:
        """The receipt of a forgetting, which tells nothing of what it was. NotFound if none."""


class OpenWopMemory(Entries, _Memory[Run]):
    """Memory refs of a tenant, as a host uses them; what is read is as it is now.

    A `MemoryAdapter`. Every method refuses with a MemoryServiceError, whose `code` is
    the protocol's and whose text holds nothing of an entry.
    """

    _run = Run

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.commitments, self.proposals = Commitments(exchange), Proposals(exchange)


class AsyncOpenWopMemory(AsyncEntries, _Memory[AsyncRun]):
    """As `OpenWopMemory`, and an `AsyncMemoryAdapter`."""

    _run = AsyncRun

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.commitments, self.proposals = AsyncCommitments(exchange), AsyncProposals(exchange)
