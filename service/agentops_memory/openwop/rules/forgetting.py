"""Forgetting a subject: what is about it goes, with all that was made of it (OpenWOP §11)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ...engine.callbacks import Audit, noop
from ...engine.engine import Engine, Ids, Transaction
from ...errors import NotFound
from ...memory.idempotency import IdempotentRequest, idempotent, is_due
from ...memory.model.access import Caller, Role
from ...memory.model.erasure import UNKNOWN_COPIES, Erasure, ErasureId, Receipt
from ...memory.model.kinds import ErasureKind
from ...memory.model.memory import MemoryId
from ...memory.model.space import NO_PROJECT
from ...memory.sql.memories import MemoryTable
from ...memory.sql.receipts import ReceiptTable
from ..model.passes import Forgotten, Found
from ..refs import Offset, Turns
from ..runs import Recorded, RunEventType, RunTable
from ..sql.subjects import SubjectTable

STEP = 200  # entries, or events, of one transaction; puts wait for it
LOGS = "the event logs of hosts"
OF_HOSTS = ErasureKind.SUBJECT, ErasureKind.REF  # what hosts may ask for


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """The subjects of one service. A change is audited first, and not made if that fails."""

    engine: Engine
    audit: Audit
    on_erased: Callable[[Caller], None] = noop
    _turns: Turns = field(default_factory=Turns)

    async def forget(
        self,
        caller: Caller,
        subject: str,
        *,
        dry_run: bool = False,
        idempotency: IdempotentRequest | None = None,
    ) -> Forgotten:
        """Erase every entry of the subject, in any ref, with what was made of any of them.

        What these stood for and is of others stands for itself again. When this answers,
        nothing of it is read any more; the bytes follow. What is put meanwhile stays. It may
        be done again: what a killed one has left then goes.
        """
        caller.require(Role.ADMIN)
        caller.require_refs()
        async with self._turns.of(caller):  # each entry counts once
            return await self._forget(caller, subject, dry_run, idempotency)

    async def _forget(
        self, caller: Caller, subject: str, dry_run: bool, idempotency: IdempotentRequest | None
    ) -> Forgotten:
        finish = idempotent(finish_forgetting, idempotency, again=forgotten_again, ids=ids_of)
        if not await self.engine.read(caller, is_due, idempotency):
            return await self.engine.write(caller, finish, subject, Forgotten())
        high, found, erasure = await self.engine.read(caller, first_look, subject)
        told = _told(found)
        if dry_run:
            return told
        if found.entries:
            said = {"tenant": caller.tenant, "erasure": erasure, **ids_of(told)}
            told = replace(told, erasure=erasure)
            await asyncio.to_thread(self.audit, caller, "memory.forgotten", **said)
        while found.entries:
            for start in range(0, len(found.entries), STEP):
                some = found.entries[start : start + STEP]
                await self.engine.write(caller, erase_some, some, erasure)
            found = await self.engine.read(caller, look, subject, high)  # made meanwhile
            told = _and(told, _told(found))
        await self._unname(caller, subject)
        told = await self.engine.write(caller, finish, subject, told)
        self.on_erased(caller)
        return told

    async def receipt(self, caller: Caller, erasure: ErasureId) -> Receipt:
        """The receipt of an erasure of entries; NotFound."""
        caller.require(Role.READER)
        caller.require_refs()
        found = await self.engine.read(caller, receipt_of, erasure)
        copies = (*self.engine.maintenance.copies(caller), *UNKNOWN_COPIES, LOGS)
        return Receipt(erasure=found, copies_not_reached=copies)

    async def _unname(self, caller: Caller, subject: str) -> None:
        """Let the log tell of the subject no more."""
        alias = await self.engine.write(caller, unname, subject)
        last = Offset(0)
        while events := await self.engine.read(caller, naming, subject, last):  # copied meanwhile
            for start in range(0, len(events), STEP):
                some = events[start : start + STEP]
                await self.engine.write(caller, unname_events, some, subject, alias)
            last = events[-1]


def first_look(tx: Transaction, subject: str) -> tuple[MemoryId, Found, ErasureId]:
    """The newest memory, what there is of the subject, and the id of a receipt."""
    high = tx[SubjectTable].newest()
    return high, tx[SubjectTable].found(subject, high), ErasureId(tx.new_uid(tx.now))


def look(tx: Transaction, subject: str, high: MemoryId) -> Found:
    return tx[SubjectTable].found(subject, high)


def erase_some(tx: Transaction, memories: Sequence[MemoryId], erasure: ErasureId) -> None:
    """Erase entries; the first time with a receipt, which then grows."""
    tx.caller.require_refs()
    revisions = tx[MemoryTable].erase_some(memories)
    if tx[ReceiptTable].get(erasure) is None:
        of_hosts = ErasureKind.SUBJECT
        tx[ReceiptTable].add(
            Erasure(id=erasure, kind=of_hosts, project=NO_PROJECT, erased_at=tx.now)
        )
    tx[ReceiptTable].extend(erasure, memories, revisions)


def unname(tx: Transaction, subject: str) -> str | None:
    alias = tx[SubjectTable].unname_ref(subject)
    if alias is not None:
        tx[SubjectTable].unname_runs(subject, alias)
    return alias


def naming(tx: Transaction, subject: str, after: Offset) -> Sequence[Offset]:
    return tx[SubjectTable].naming(subject, after)


def unname_events(
    tx: Transaction, events: Sequence[Offset], subject: str, alias: str | None
) -> None:
    tx[SubjectTable].unname_events(events, subject, alias)


def finish_forgetting(tx: Transaction, _: str, told: Forgotten) -> Forgotten:
    """Tell of what was erased. Its bytes, and those of its name, are gone after the next scrub."""
    tx.caller.require_refs()
    tx[ReceiptTable].add_of_agents(ErasureId(tx.new_uid(tx.now)))
    if told.erasure is not None:
        tx[ReceiptTable].extend(told.erasure, (), 0)
        payload = {"erasureId": told.erasure, "entries": told.entries + told.archives}
        tx[RunTable].record(RunEventType.FORGOTTEN, [Recorded(payload)])
    return told


def ids_of(told: Forgotten) -> Ids:
    counts = {
        "entries": told.entries,
        "archives": told.archives,
        "restored": told.restored,
        "commitments": told.commitments,
    }
    return counts if told.erasure is None else counts | {"erasure": told.erasure}


def forgotten_again(tx: Transaction, ids: Ids, _: str, __: Forgotten) -> Forgotten:
    tx.caller.require_refs()
    return Forgotten(
        entries=int(ids["entries"]),
        archives=int(ids["archives"]),
        restored=int(ids["restored"]),
        commitments=int(ids["commitments"]),
        erasure=ErasureId(str(ids["erasure"])) if "erasure" in ids else None,
    )


def receipt_of(tx: Transaction, erasure: ErasureId) -> Erasure:
    found = tx[ReceiptTable].get(erasure)
    if found is None or found.kind not in OF_HOSTS:
        raise NotFound("erasure not found")
    return found


def _and(told: Forgotten, more: Forgotten) -> Forgotten:
    return replace(
        told,
        entries=told.entries + more.entries,
        archives=told.archives + more.archives,
        restored=told.restored + more.restored,
        commitments=told.commitments + more.commitments,
    )


def _told(found: Found) -> Forgotten:
    return Forgotten(
        entries=len(found.entries) - found.archives,
        archives=found.archives,
        restored=found.restored,
        commitments=found.commitments,
    )
