"""Entries of memory stores: created, read, listed, changed under a precondition, deleted.

Each write is one transaction with its version.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from ...engine.callbacks import noop
from ...engine.engine import Engine, Transaction
from ...errors import Conflict, PathTaken
from ...memory.idempotency import once
from ...memory.limits import require_room
from ...memory.model.access import Caller, Role
from ...memory.model.memory import ANY_STATE, ChangeKind, Expected, Memory, Text
from ...memory.model.space import Space, StoreId
from ...memory.model.stores import (
    ENTRY_TYPE,
    Entry,
    EntryChange,
    EntryDraft,
    EntryFilter,
    EntryId,
    Page,
    Slice,
    Version,
    VersionId,
    Written,
)
from ...memory.redactor import Redactor, RulesOf, default_rules
from ...memory.sql.memories import MemoryTable
from ...memory.sql.revisions import VersionTable
from ...memory.sql.stores import EntryTable, StoreTable
from ...memory.writes import changed_at, created, revised
from ...recall.text.ids import uid_after
from ...recall.text.normalization import sha256_of
from .rules import (
    Policy,
    clean_change,
    clean_draft,
    known_entry,
    known_store,
    open_store,
    require_known,
    size_of,
)
from .versions import erased


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A page of a listing by path: what lies below a prefix, after an item.

    The prefix is empty or ends with a slash. A shallow listing shows folders, which end
    with a slash, for what lies deeper.
    """

    prefix: str = ""
    is_shallow: bool = False
    after: str | None = None
    limit: int
    with_content: bool = False


def tree(tx: Transaction, store: StoreId, branch: Branch) -> Slice[Entry | str]:
    known_store(tx, store)
    first = branch.prefix if branch.after is None else _next(branch.after)
    items: list[Entry | str] = []
    while (wanted := branch.limit + 1 - len(items)) > 0:
        entries = tx[EntryTable].from_path(store, first, branch.prefix, wanted)
        some = list(_until_a_folder(entries, branch))
        items += some
        if not some or (len(some) < wanted and isinstance(some[-1], Entry)):
            break
        first = _next(some[-1])
    shown = items[: branch.limit]
    if branch.with_content:
        shown = [
            it if isinstance(it, str) else tx[EntryTable].get(store, it.id) or it for it in shown
        ]
    return Slice(tuple(shown), len(items) > branch.limit)


def _until_a_folder(entries: Iterable[Entry], branch: Branch) -> Iterator[Entry | str]:
    """The entries up to the first that a folder stands for, then this folder."""
    for entry in entries:
        segment, slash, _ = entry.path.removeprefix(branch.prefix).partition("/")
        if branch.is_shallow and slash:
            yield branch.prefix + segment + slash
            return
        yield entry


def _next(item: Entry | str) -> str:
    """The lowest path after an item, and after everything in it if it is a folder."""
    path = item if isinstance(item, str) else item.path
    return path[:-1] + chr(ord("/") + 1) if path.endswith("/") else path + "\x01"


class Stale(Conflict):
    """A precondition was not met by the memory as it is now."""

    code = "stale"

    def __init__(self, current: Memory) -> None:
        super().__init__("The memory has changed: it is not in the expected state.")
        self.current = current


def require_state(memory: Memory, expected: Expected) -> None:
    """Raise Stale unless the memory, read in the transaction of the write, is as expected."""
    if not expected.met_by(memory):
        raise Stale(memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Entries of one service, under a dialect's policy.

    Denied for callers without access to every project; NotFound for unknown ids, and for an
    entry of another store.
    """

    engine: Engine
    policy: Policy
    rules: RulesOf = default_rules
    on_erased: Callable[[Caller], None] = noop

    async def create(self, caller: Caller, store: StoreId, draft: EntryDraft) -> Written[Entry]:
        """Write a new entry; PathTaken, Archived."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        clean = await asyncio.to_thread(clean_draft, redactor, draft)
        work = once(create_entry, check=require_known, about=lambda it: [it.memory])
        entry = await self.engine.write(caller, work, store, clean, self.policy)
        return Written(value=entry, redacted=redactor.count)

    async def get(self, caller: Caller, store: StoreId, entry: EntryId) -> Entry:
        """The entry, with its content."""
        caller.require(Role.READER)
        return await self.engine.read(caller, known_entry, store, entry)

    async def list(
        self, caller: Caller, store: StoreId, filter_: EntryFilter, page: Page
    ) -> Slice[Entry]:
        """A page of entries without content, newest first."""
        caller.require(Role.READER)
        return await self.engine.read(caller, list_entries, store, filter_, page)

    async def tree(self, caller: Caller, store: StoreId, branch: Branch) -> Slice[Entry | str]:
        """Entries in order of path; a text stands for the folder of those that lie deeper."""
        caller.require(Role.READER)
        return await self.engine.read(caller, tree, store, branch)

    async def amend(
        self,
        caller: Caller,
        store: StoreId,
        entry: EntryId,
        change: EntryChange,
        expected: Expected = ANY_STATE,
    ) -> Written[Entry]:
        """Change an entry that meets the precondition; Stale, PathTaken, Archived."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        clean = await asyncio.to_thread(clean_change, redactor, change)
        work = once(amend_entry, check=require_known, about=lambda it: [it[0].memory])
        amended, has_erased = await self.engine.write(
            caller, work, store, entry, clean, expected, self.policy
        )
        if has_erased:
            self.on_erased(caller)
        return Written(value=amended, redacted=redactor.count)

    async def delete(
        self, caller: Caller, store: StoreId, entry: EntryId, expected: Expected = ANY_STATE
    ) -> None:
        """Delete an entry that meets the precondition; its versions stay. Stale, Archived."""
        caller.require(Role.WRITER)
        work = once(delete_entry, check=lambda tx, *_: tx.caller.require_stores())
        if await self.engine.write(caller, work, store, entry, expected, self.policy):
            self.on_erased(caller)


def list_entries(tx: Transaction, store: StoreId, filter_: EntryFilter, page: Page) -> Slice[Entry]:
    known_store(tx, store)
    return tx[EntryTable].page(store, filter_, page)


def create_entry(tx: Transaction, store: StoreId, draft: EntryDraft, policy: Policy) -> Entry:
    open_store(tx, store)
    require_room(tx)
    _require_free(tx, store, draft.path, policy)
    new = Memory(
        uid=tx.new_uid(tx.now),
        session=None,
        space=Space.of_store(store),
        key=draft.path,
        text=_text(draft.path, draft.content),
        last_seen_at=tx.now,
        created_at=tx.now,
        updated_at=tx.now,
        extras=draft.metadata,
    )
    _add_version(tx, store, created(tx, new), ChangeKind.CREATED)
    tx[StoreTable].grow(store, 1, size_of(draft.content))
    return known_entry(tx, store, EntryId(new.uid))


def amend_entry(
    tx: Transaction,
    store: StoreId,
    entry: EntryId,
    change: EntryChange,
    expected: Expected,
    policy: Policy,
) -> tuple[Entry, bool]:
    """The entry as it is now, and whether a redacted version's bytes are to be erased."""
    before = known_entry(tx, store, entry)
    open_store(tx, store)
    wanted, held = change.applied_to(before), _memory(tx, before)
    if not (policy.done_is_done and wanted == before):
        require_state(held, expected)
    if wanted == before and not policy.unchanged_is_change:
        return before, False
    require_room(tx)
    if wanted.path != before.path:
        _require_free(tx, store, wanted.path, policy, but=entry)
    text, at = _text(wanted.path, wanted.content or ""), changed_at(tx, held)
    after = replace(held, key=wanted.path, text=text, extras=wanted.metadata, updated_at=at)
    has_erased = _revise(tx, before, held, after, ChangeKind.UPDATED)
    return known_entry(tx, store, entry), has_erased


def delete_entry(
    tx: Transaction, store: StoreId, entry: EntryId, expected: Expected, policy: Policy
) -> bool:
    """Whether a redacted version's bytes are to be erased."""
    before = known_entry(tx, store, entry)
    if policy.archived_keeps_entries:
        open_store(tx, store)
    held = _memory(tx, before)
    require_state(held, expected)
    # The row keeps nothing of what the versions keep, or have lost.
    gone = replace(held, key=None, text=_text("", ""), extras={}, deleted_at=tx.now)
    return _revise(tx, before, held, gone, ChangeKind.DELETED)


def _revise(tx: Transaction, before: Entry, held: Memory, after: Memory, kind: ChangeKind) -> bool:
    """Write the entry's next state; whether a redacted version's bytes are to be erased."""
    after = revised(tx, held, after, kind)
    _add_version(tx, before.store, after, kind, before=before)
    is_deleted = kind is ChangeKind.DELETED
    tx[StoreTable].grow(
        before.store, -1 if is_deleted else 0, size_of(after.text.content) - before.size
    )
    is_new_text = is_deleted or after.text.content != before.content
    if not (is_new_text and tx[VersionTable].is_redacted(before.memory, before.number)):
        return False
    erased(tx, before.memory)
    return True


def _add_version(
    tx: Transaction,
    store: StoreId,
    memory: Memory,
    deed: ChangeKind,
    *,
    before: Entry | None = None,
) -> None:
    """Add a version for the memory's newest revision, ordered after the one before."""
    is_deleted = deed is ChangeKind.DELETED
    uid = tx.new_uid(tx.now)
    if before is not None and uid <= before.version:  # another process made that one, or the clock
        uid = uid_after(before.version)
    tx[VersionTable].add(
        Version(
            id=VersionId(uid),
            store=store,
            entry=EntryId(memory.uid),
            memory=memory.id,
            number=memory.revision,
            deed=deed,
            path=before.path if is_deleted and before else memory.key,
            size=None if is_deleted else size_of(memory.text.content),
            sha256=None if is_deleted else sha256_of(memory.text.content),
            at=memory.deleted_at or memory.updated_at,
            author=tx.caller.key,
        )
    )


def _require_free(
    tx: Transaction, store: StoreId, path: str, policy: Policy, *, but: EntryId | None = None
) -> None:
    held = tx[EntryTable].at(store, path)
    others = [held] if held else []
    if not policy.paths_nest:
        others += tx[EntryTable].beside(store, path)
    for other in others:
        if other.id != but:
            raise PathTaken("Another memory holds this path.", other.id, other.path)


def _memory(tx: Transaction, entry: Entry) -> Memory:
    memory = tx[MemoryTable].in_store(entry.store, entry.id)
    assert memory is not None  # this transaction has just seen it
    return memory


def _text(path: str, content: str) -> Text:
    return Text(type=ENTRY_TYPE, title=path, content=content)
