"""Entries of memory refs, read: what both of OpenWOP's readers are made of."""

from ..contract.call import Call, T
from ..contract.errors import NotFound
from ..transport.exchange import Exchange
from . import calls
from .models import MemoryEntry
from .part import AsyncPart
from .question import is_name


class AsyncEntries(AsyncPart):
    """Entries of memory refs as they are now or, of a run, as they were when it started.

    An `AsyncMemoryAdapter`. A ref that is unknown, malformed or another tenant's has
    no entries; other refusals are a `MemoryServiceError`.
    """

    def __init__(self, exchange: Exchange, run_id: str | None = None) -> None:
        super().__init__(exchange)
        self._run_id = run_id

    async def list(
        self,
        memory_ref: str,
        *,
        limit: int | None = None,
        tag: str | None = None,
        token_budget: int | None = None,
        before: str | None = None,
    ) -> tuple[MemoryEntry, ...]:
        """Entries that no other supersedes, newest first; with `before`, those older than that one.

        At most 500, or 100 unless told, and as many as 2 MiB hold. A `token_budget`
        bounds the code points of all contents together; what alone exceeds it is left out.
        """
        if not is_name(memory_ref):
            return ()
        return await self._exchange.send(
            calls.list_entries(
                memory_ref, limit=limit, tag=tag, token_budget=token_budget, before=before,
                run_id=self._run_id,
            )
        )  # fmt: skip

    async def get(self, memory_ref: str, memory_id: str) -> MemoryEntry | None:
        """The entry, also one that another supersedes; None if there is none."""
        if not (is_name(memory_ref) and is_name(memory_id)):
            return None
        call = calls.get_entry(memory_ref, memory_id, run_id=self._run_id)
        return await if_there(self._exchange, call)


async def if_there(exchange: Exchange, call: Call[T]) -> T | None:
    """The answer; None if the entry is not there. NotFound if something else is not."""
    try:
        return await exchange.send(call)
    except NotFound as refusal:
        if str(refusal) != calls.NO_ENTRY:
            raise
        return None
