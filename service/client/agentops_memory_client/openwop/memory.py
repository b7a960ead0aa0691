"""Memory of workflow runs, awaited: the core of the blocking one, too."""

from collections.abc import Sequence
from datetime import datetime

from . import calls
from .entries import AsyncEntries, if_there
from .models import EventPage, MemoryEntry, Provenance, RankedEntry, RefPage
from .runs import AsyncRun


class AsyncOpenWopMemory(AsyncEntries):
    """Memory refs of a tenant, as a host uses them; what is read is as it is now.

    Every method refuses with a MemoryServiceError, whose `code` is the protocol's
    and whose text holds nothing of an entry.
    """

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
        if not (calls.is_name(memory_ref) and calls.is_name(memory_id)):
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
        if not calls.is_name(memory_ref):
            return ()
        return await self._exchange.send(
            calls.search_entries(memory_ref, query, tag=tag, limit=limit, token_budget=token_budget)
        )

    async def provenance(self, memory_ref: str, memory_id: str) -> Provenance | None:
        """Who wrote the entry, of what it was made, and what replaces it; None if there is none."""
        if not (calls.is_name(memory_ref) and calls.is_name(memory_id)):
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
