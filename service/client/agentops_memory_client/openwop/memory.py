"""Memory of workflow runs, awaited: the core of the blocking one, too."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from ..contract.call import Call, instant
from ..contract.reading import Reader, T
from ..transport.exchange import Exchange
from . import calls, passes
from .commitments import AsyncCommitments
from .entries import AsyncEntries, if_there
from .models import EventPage, MemoryEntry, Provenance, RankedEntry, RefPage
from .part import sent
from .passes import (
    Compaction,
    Consolidation,
    Distillation,
    Erasure,
    Forgotten,
    MemoryIndex,
    Merge,
    Undone,
)
from .proposals import AsyncProposals
from .question import AT_LENGTH, asking, is_name, noun, parameters, telling
from .runs import AsyncRun


class AsyncOpenWopMemory(AsyncEntries):
    """Memory refs of a tenant, as a host uses them; what is read is as it is now.

    Every method refuses with a MemoryServiceError, whose `code` is the protocol's
    and whose text holds nothing of an entry.
    """

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.commitments = AsyncCommitments(exchange)
        self.proposals = AsyncProposals(exchange)

    def run(
        self,
        run_id: str,
        *,
        agent_id: str | None = None,
        workflow_id: str | None = None,
        memory_refs: Sequence[str] = (),
    ) -> AsyncRun:
        """A run of a workflow, to be used in `async with`; nothing is sent yet.

        Its id has 1 to 128 characters; it declares at most 32 refs.
        """
        return AsyncRun(
            self._exchange, run_id, agent_id=agent_id, workflow_id=workflow_id,
            memory_refs=memory_refs,
        )  # fmt: skip

    async def put(  # noqa: PLR0913 - the fields of an entry, each by its name
        self,
        memory_ref: str,
        content: str,
        *,
        tags: Sequence[str] = (),
        expires_at: datetime | None = None,
        ttl_seconds: int | None = None,
        supersedes: Sequence[str] = (),
        id: str | None = None,  # noqa: A002 - the protocol's word
        idempotency_key: str | None = None,
    ) -> MemoryEntry:
        """Put an entry, which never changes, and answer it as it is stored: without secrets.

        Content: at most 65,536 bytes; tags: 50 of 256 characters. It ends at `expires_at`, or
        after `ttl_seconds`. The same one again under an `id` of yours is the first.

        Invalid names every fault; Denied for another tenant's ref; Conflict if the id has
        another entry (`memory_id_conflict`), or what it supersedes is gone (`memory_changed`).
        """
        return await self._exchange.send(
            calls.put_entry(
                memory_ref, content, tags=tags, expires_at=expires_at, ttl_seconds=ttl_seconds,
                supersedes=supersedes, id=id, idempotency_key=idempotency_key,
            )
        )  # fmt: skip

    async def delete(
        self, memory_ref: str, memory_id: str, *, idempotency_key: str | None = None
    ) -> bool:
        """Delete an entry, for all but runs that are open; False if there is none."""
        if not (is_name(memory_ref) and is_name(memory_id)):
            return False
        call = calls.delete_entry(
            memory_ref, memory_id, run_id=None, idempotency_key=idempotency_key
        )
        return await if_there(self._exchange, call) or False

    async def search(
        self,
        memory_ref: str,
        query: str,
        *,
        tag: str | None = None,
        limit: int | None = None,
        token_budget: int | None = None,
    ) -> tuple[RankedEntry, ...]:
        """Entries of the ref by their words, best first: at most 100, or 10 unless told.

        The first 500 characters of the query count; Invalid for an empty one.
        """
        if not is_name(memory_ref):
            return ()
        return await self._exchange.send(
            calls.search_entries(memory_ref, query, tag=tag, limit=limit, token_budget=token_budget)
        )

    async def provenance(self, memory_ref: str, memory_id: str) -> Provenance | None:
        """Who wrote the entry, of what it was made, and what replaces it; None if there is none."""
        if not (is_name(memory_ref) and is_name(memory_id)):
            return None
        return await if_there(self._exchange, calls.provenance(memory_ref, memory_id))

    async def refs(self, *, limit: int | None = None, after: str | None = None) -> RefPage:
        """Refs that hold entries, in code point order: at most 1,000, or 100 unless told."""
        return await self._exchange.send(calls.refs(limit=limit, after=after))

    async def events(
        self,
        after: str | None = None,
        *,
        limit: int | None = None,
        type: str | None = None,  # noqa: A002 - the protocol's word
    ) -> EventPage:
        """What happened in all runs, in order of commit: at most 1,000, or 100 unless told.

        `after` is the `next` of the page before; no event is ever skipped or comes late.
        """
        return await self._exchange.send(calls.events(after=after, limit=limit, type=type))

    @sent
    def compact(
        self,
        memory_ref: str,
        *,
        content: str | None = None,
        keep_sources: bool = False,
        idempotency_key: str | None = None,
    ) -> Call[Compaction]:
        """Let one archive take the place of the oldest 500 entries, or stand beside them.

        It is an extract of them, or `content`. What is pinned stays. Conflict if there are
        not two entries (`nothing_to_compact`).
        """
        fields = {
            "memoryRef": memory_ref, "content": content, "keepSources": keep_sources or None,
        }  # fmt: skip
        return _passing("compact", fields, idempotency_key, passes.done(Compaction))

    @sent
    def distill(
        self,
        memory_ref: str,
        *,
        token_budget: int | None = None,
        content: str | None = None,
        recursive: bool = False,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Distillation]:
        """Put an archive of the entries beside them; with `recursive`, also of archives.

        It is an extract of them, or `content`. The budget, of 100,000 tokens of four bytes
        unless told, is for what is read and written together. The same once more is
        the archive that is there.

        Conflict if there is nothing (`nothing_to_distill`); Invalid for a budget that is too
        small (`token_budget_exceeded`), whose `details` have the `minimumRequired`.
        """
        fields = {
            "memoryRef": memory_ref, "tokenBudget": token_budget, "content": content,
            "recursive": recursive or None, "expiresAt": instant(expires_at),
        }  # fmt: skip
        return _passing("distill", fields, idempotency_key, passes.done(Distillation))

    @sent
    def consolidate(
        self,
        memory_ref: str,
        *,
        merges: Sequence[Merge] = (),
        idempotency_key: str | None = None,
    ) -> Call[Consolidation]:
        """Let entries be replaced that others say as well, or that are stale by their `key:`.

        First each of the merges takes the place of its entries: Conflict if one of them is
        not there (`memory_changed`). A second time nothing is left to do.
        """
        fields = {"memoryRef": memory_ref, "merges": passes.merged(merges) or None}
        return _passing("consolidate", fields, idempotency_key, passes.done(Consolidation))

    @sent
    def undo(self, run_id: str, *, idempotency_key: str | None = None) -> Call[Undone]:
        """Take back what a pass did, whole: what it wrote is gone, what it replaced is back.

        NotFound if there is no such pass; Conflict if it was undone, or what it wrote or
        replaced is gone (`pass_not_undoable`).
        """
        return telling(
            "undo", "passes", run_id, "undo", body={}, key=idempotency_key, within=AT_LENGTH,
            read=noun(Undone),
        )  # fmt: skip

    @sent
    def index(self, memory_ref: str) -> Call[MemoryIndex]:
        """The archives of the ref, newest first: at most 200, without their content."""
        return asking("index", "index", query=parameters(memoryRef=memory_ref), read=passes.indexed)

    @sent
    def forget(
        self, subject: str, *, dry_run: bool = False, idempotency_key: str | None = None
    ) -> Call[Forgotten]:
        """Erase what is of a subject in all refs, and whatever was derived of it.

        That is what is tagged `subject:<subject>`, and the ref of this name. What it
        replaced of others is back. With `dry_run` it is counted, and nothing changes.
        Denied without the role admin.
        """
        fields = {"subject": subject, "dryRun": dry_run or None}
        return _passing("forget", fields, idempotency_key, noun(Forgotten))

    @sent
    def erasure(self, erasure_id: str) -> Call[Erasure]:
        """The receipt of a forgetting, which tells nothing of what it was. NotFound if none."""
        return asking("get_erasure", "erasures", erasure_id, read=noun(Erasure))


def _passing(name: str, fields: Mapping[str, object], key: str | None, read: Reader[T]) -> Call[T]:
    """What may take its time: it reads a whole ref, or looks through all of them."""
    return telling(name, name, body=fields, key=key, within=AT_LENGTH, read=read)
