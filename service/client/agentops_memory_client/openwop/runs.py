"""A run of a workflow, awaited: opened, written to, ended once."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Self

from ..contract.call import Call, T
from ..contract.errors import Conflict, Invalid, MemoryServiceError
from ..transport.exchange import Exchange
from . import calls
from .entries import AsyncEntries, if_there
from .models import MemoryEntry
from .question import is_name

SECRETS_LOST = "run_secrets_lost"

RunEnd = Literal["completed", "failed", "cancelled"]


class AsyncRun:
    """A run of a workflow; `memory` is its snapshot: memory as it was when the run started.

    `async with` opens it and ends it `completed`, or `failed` on an exception. A run
    whose host was killed has no end: whoever opens it again, with the same id and
    fields, goes on with it, and with its snapshot. Conflict if it has ended, or
    has other fields. Secrets are kept in this object until its end, and shown nowhere.
    """

    def __init__(
        self,
        exchange: Exchange,
        run_id: str,
        *,
        agent_id: str | None,
        workflow_id: str | None,
        memory_refs: Sequence[str],
    ) -> None:
        self.id = run_id
        self.agent_id = agent_id
        self.workflow_id = workflow_id
        self.memory_refs = memory_refs
        self.memory = AsyncEntries(exchange, run_id)
        self._exchange = exchange
        self._secrets: dict[tuple[str, str], None] = {}  # of an id, and one of its values
        self._is_over = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, _kind: object, exception: BaseException | None, _traceback: object
    ) -> None:
        """End the run, unless that was done; a failure to do so never hides the exception."""
        if self._is_over:
            return
        if exception is None:
            await self.end("completed")
            return
        try:
            await self.end("failed")
        except MemoryServiceError as failure:
            exception.add_note(f"The run could not be ended: {failure}")

    async def open(self) -> None:
        """Open the run, or go on with it. For a run that may be left open, without `with`."""
        await self._exchange.send(
            calls.open_run(
                self.id, agent_id=self.agent_id, workflow_id=self.workflow_id,
                memory_refs=self.memory_refs,
            )
        )  # fmt: skip

    async def end(self, status: RunEnd = "completed") -> None:
        """End the run, which takes no write afterwards. Conflict if it ended otherwise."""
        await self._exchange.send(calls.end_run(self.id, status))
        self._is_over = True
        self._secrets.clear()

    async def secret(self, secret_id: str, value: str) -> bool:
        """Let a value be stored as `[REDACTED:<secret_id>]` until the run ends.

        False for one under 8 characters, which stays as it is. To be said before
        anything that could hold the value is put, and again by a process that resumes the run.
        TooMany while the runs of the tenant hold as many bytes of values as they may.
        """
        self._secrets[secret_id, value] = None  # known, also if the answer is lost
        try:
            return await self._register(secret_id, value)
        except Invalid:
            del self._secrets[secret_id, value]
            raise

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
        node_id: str | None = None,
        agent_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> MemoryEntry:
        """Put an entry as `OpenWopMemory.put`, and tell of it in the run's log.

        It is written by the node, and by the run's agent unless another is named. Where the
        service has lost the run's secrets, it is given them again, once.
        """
        call = calls.put_entry(
            memory_ref, content, tags=tags, expires_at=expires_at, ttl_seconds=ttl_seconds,
            supersedes=supersedes, id=id, idempotency_key=idempotency_key, run_id=self.id,
            node_id=node_id, agent_id=agent_id or self.agent_id,
        )  # fmt: skip
        return await self._with_secrets(call)

    async def delete(
        self, memory_ref: str, memory_id: str, *, idempotency_key: str | None = None
    ) -> bool:
        """Delete an entry, and tell of it in the run's log; False if there is none.

        The run's own snapshot still has it.
        """
        if not (is_name(memory_ref) and is_name(memory_id)):
            return False
        call = calls.delete_entry(
            memory_ref, memory_id, run_id=self.id, idempotency_key=idempotency_key
        )
        return await if_there(self._exchange, call) or False

    async def _with_secrets(self, call: Call[T]) -> T:
        """The answer to a write that is refused while the service has lost the secrets."""
        try:
            return await self._exchange.send(call)
        except Conflict as refusal:
            if refusal.code != SECRETS_LOST or not self._secrets:
                raise
        for secret_id, value in tuple(self._secrets):
            await self._register(secret_id, value)
        return await self._exchange.send(call)

    async def _register(self, secret_id: str, value: str) -> bool:
        return await self._exchange.send(calls.register_secret(self.id, secret_id, value))
