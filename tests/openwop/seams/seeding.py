"""Entries as no request may put them: at an end that is past, dated, or with what is secret.

What a test demands of reading must be there first.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from agentops_memory.engine.engine import Transaction
from agentops_memory.memory.access import Caller, Role
from agentops_memory.memory.idempotency import once
from agentops_memory.memory.redactor import require_room
from agentops_memory.memory.rows import whole_milliseconds
from agentops_memory.memory.saves import Written
from agentops_memory.memory.space import MemoryRef
from agentops_memory.openwop.api import RefEntryId, Screen, Serving, require_plain, require_ref
from agentops_memory.openwop.commitments import arm, conditions_of, note_awaited_tags, remove_entry
from agentops_memory.openwop.entries import RefEntry, RefTable, add_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class RefDraft:
    """An entry to be put."""

    ref: MemoryRef
    content: str
    tags: tuple[str, ...] = ()
    id: RefEntryId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """An entry of no run, with its end and its date; without one it is dated now."""

    draft: RefDraft
    ends: datetime | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeding:
    """Puts seeds. Denied for another tenant's ref, BadFields for what can be no name."""

    serving: Serving

    async def seed(self, caller: Caller, seeds: Sequence[Seed]) -> Written[int]:
        """Put all of them, screened, in one transaction; how many.

        An end may be past already, and a live entry that has the id of one is replaced. What
        has not ended arms commitments, and makes them due, as every put does.
        """
        work = once(count_seeded)

        async def clean(screen: Screen) -> Sequence[object]:
            _require_names(caller, screen, seeds)
            return (await asyncio.to_thread(_screened, screen, seeds),)

        done = await self.serving.written(caller, work, clean)
        self.serving.on_due(caller)
        return replace(done.value, redacted=done.redacted)

    async def clean(self, caller: Caller, texts: Sequence[str]) -> Sequence[str]:
        """The texts without secrets, as they would be put."""
        screen = self.serving.screen(caller)
        return await asyncio.to_thread(lambda: list(map(screen.content, texts)))

    async def plant(self, caller: Caller, seeds: Sequence[Seed]) -> Sequence[RefEntry]:
        """Put all of them as they are, whatever secret they hold; the entries."""
        _require_names(caller, self.serving.screen(caller), seeds)
        put = await self.serving.engine.write(caller, seed_entries, seeds)
        self.serving.on_due(caller)
        return put


def seed_entries(tx: Transaction, seeds: Sequence[Seed]) -> Sequence[RefEntry]:
    tx.caller.require_refs()
    require_room(tx)
    return [_seeded(tx, each) for each in seeds]


def count_seeded(tx: Transaction, seeds: Sequence[Seed]) -> Written[int]:
    return Written(value=len(seed_entries(tx, seeds)), is_new=True)


def _seeded(tx: Transaction, seed: Seed) -> RefEntry:
    draft, conditions = seed.draft, conditions_of(seed.draft.tags, tx.now)
    held = None if draft.id is None else tx[RefTable].get(draft.ref, draft.id)
    if held is not None:
        remove_entry(tx, held.memory)
    ends = None if seed.ends is None else whole_milliseconds(seed.ends)
    like: Any = None  # what a new entry takes of one whose place it has
    if seed.at is not None:
        like = SimpleNamespace(duplicates=1, last_seen_at=tx.now, created_at=seed.at)
    entry = add_entry(
        tx, draft.ref, draft.content, draft.tags, name=draft.id, expires_at=ends, like=like
    )  # fmt: skip
    if ends is None or ends > tx.now:
        note_awaited_tags(tx, draft.ref, entry)
        arm(tx, entry.memory, conditions)
    return entry


def _require_names(caller: Caller, screen: Screen, seeds: Sequence[Seed]) -> None:
    caller.require(Role.WRITER)
    caller.require_refs()
    for each in seeds:
        require_ref(each.draft.ref, caller.tenant, screen)
        require_plain(screen, id=each.draft.id)


def _screened(screen: Screen, seeds: Sequence[Seed]) -> Sequence[Seed]:
    def clean(draft: RefDraft) -> RefDraft:
        return replace(draft, content=screen.content(draft.content), tags=screen.tags(draft.tags))

    return [replace(each, draft=clean(each.draft)) for each in seeds]
