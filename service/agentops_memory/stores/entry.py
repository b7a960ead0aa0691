"""An entry: a live memory of a store at a path; created, read, listed, changed, deleted.

Each write is one transaction with its version.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from ..engine.engine import Transaction
from ..errors import Conflict, PathTaken, required
from ..memory.changes import Written
from ..memory.idempotency import once
from ..memory.limits import require_room
from ..memory.memories import MemoryTable
from ..memory.model.access import Caller
from ..memory.model.liveness import live
from ..memory.model.memory import ANY_STATE, ChangeKind, Expected, Memory, MemoryId, Text
from ..memory.model.rows import Column, RowMapper, micros
from ..memory.model.space import Space, StoreId, in_no_session
from ..memory.model.table import Sql
from ..memory.revisions import changed_at, created, revised
from ..recall.text.instants import uid_after
from ..recall.text.normalization import sha256_of
from ..record import Microseconds, Record
from . import store as rules
from .store import EntryId
from .version import MOST_WITH_CONTENT, add_version, erased, is_redacted

ENTRY_TYPE = "memory"  # of each memory in a store
AFTER_SLASH = chr(ord("/") + 1)
LAST = "\U0010ffff" * 257  # after every path: none has as many signs of so many bytes


class Entry(Record):
    """A memory of a store at its path; its content is absent where it was not read."""

    id: Annotated[rules.ShownEntry, Column("m.uid")]
    type: Literal["memory"] = "memory"
    memory: Annotated[MemoryId, Column("m.id"), Field(exclude=True)]
    store: Annotated[rules.ShownStore, Column("t.uid"), Field(serialization_alias="store_id")]
    path: Annotated[str, Column("m.key")]
    size: Annotated[int, Column("v.size")]  # bytes of the content in UTF-8
    # Their hash in hexadecimal.
    sha256: Annotated[str, Column("v.sha256"), Field(serialization_alias="content_sha256")]
    # Of its versions, from 1.
    number: Annotated[int, Column("m.revision"), Field(serialization_alias="version")]
    version: Annotated[rules.VersionId, Column("v.uid"), Field(exclude=True)]  # the newest
    metadata: Annotated[Mapping[str, str], Column("m.extras")]
    content: Annotated[str | None, Column("m.content")] = None
    created_at: Microseconds
    updated_at: Microseconds


class Stale(Conflict):
    """A precondition was not met by the memory as it is now."""

    code = "stale"

    def __init__(self, current: Memory) -> None:
        super().__init__("The memory has changed: it is not in the expected state.")
        self.current = current


async def create(
    serving: rules.Serving, caller: Caller, store: StoreId, body: rules.Body
) -> Written[Entry]:
    """Write a new entry; PathTaken, Archived."""
    return await serving.write(caller, _CREATE, body, store, serving.policy)


async def amend(
    serving: rules.Serving, caller: Caller, store: StoreId, entry: EntryId, body: rules.Body
) -> Written[Entry]:
    """Change an entry that is in the expected state; Stale, PathTaken, Archived."""
    of = store, entry, body.expected, serving.policy
    done = await serving.write(caller, _AMEND, body, *of)
    amended, has_erased = done.value
    if has_erased:
        serving.on_erased(caller)
    return Written(value=amended, redacted=done.redacted)


async def delete(
    serving: rules.Serving, caller: Caller, store: StoreId, entry: EntryId,
    expected: Expected = ANY_STATE,
) -> None:  # fmt: skip
    """Delete an entry that is in the expected state; its versions stay. Stale, Archived."""
    if await serving.engine.write(caller, _DELETE, store, entry, expected, serving.policy):
        serving.on_erased(caller)


def known_entry(tx: Transaction, store: StoreId, entry: EntryId) -> Entry:
    rules.known_store(tx, store)
    return required(_with_content(tx, store, entry), rules.NO_ENTRY)


def list_entries(
    tx: Transaction, /, store: StoreId, *, path_prefix: str | None = None, **of: Any
) -> rules.Slice[Entry]:
    """A page of entries without content, newest first."""
    rules.known_store(tx, store)
    page, prefix = rules.Page(**of), path_prefix or ""
    begins = "substr(m.key, 1, CAST(:length AS INTEGER)) = :prefix" if prefix else "TRUE"
    which = f"{begins}{page.window('m.uid', 'm.created_at')} LIMIT :most"
    values = {"store": store, "prefix": prefix, "length": len(prefix), **page.values}
    found = tx[Sql].filled(
        page.limit + 1, lambda most: _rows(tx, which, most=most, **values), _ENTRY
    )
    return page.sliced(found)


def tree(
    tx: Transaction, /, store: StoreId, *, limit: int, prefix: str = "", is_shallow: bool = False,
    after: str | None = None, with_content: bool = False,
) -> rules.Slice[Entry | str]:  # fmt: skip
    """Entries in the order of paths, below a prefix that is empty or ends with a slash.

    They come after an item. Where it is shallow, folders, which end with a slash, stand for what
    lies deeper.
    """
    rules.known_store(tx, store)
    most = min(limit, MOST_WITH_CONTENT) if with_content else limit
    first = prefix if after is None else _next(after)
    items: list[Entry | str] = []
    while (wanted := most + 1 - len(items)) > 0:
        rows = _from_path(tx, store, first, prefix)
        entries = islice(tx[Sql].intact(rows, _ENTRY), wanted)
        some = list(_until_a_folder(entries, prefix) if is_shallow else entries)
        items += some
        if not some or (len(some) < wanted and isinstance(some[-1], Entry)):
            break
        first = _next(some[-1])
    page_items = items[:most]
    if with_content:
        page_items = [
            it if isinstance(it, str) else _with_content(tx, store, it.id) or it
            for it in page_items
        ]
    return rules.Slice(page_items, len(items) > most)


def _until_a_folder(entries: Iterable[Entry], prefix: str) -> Iterator[Entry | str]:
    """The entries up to the first that a folder stands for, then this folder."""
    for entry in entries:
        segment, slash, _ = entry.path.removeprefix(prefix).partition("/")
        if slash:
            yield prefix + segment + slash
            return
        yield entry


def _next(item: Entry | str) -> str:
    """The lowest path after an item, and after everything in it if it is a folder."""
    path = item if isinstance(item, str) else item.path
    return path[:-1] + AFTER_SLASH if path.endswith("/") else path + "\x01"


def create_entry(
    tx: Transaction, store: StoreId, policy: rules.Policy, parts: rules.Parts
) -> Entry:
    rules.open_store(tx, store)
    require_room(tx)
    path, content = parts["path"], parts["content"]
    _require_free(tx, store, path, policy)
    new = Memory(
        uid=tx.new_uid(tx.now), session=None, space=Space.of_store(store), key=path,
        text=_text(path, content), last_seen_at=tx.now, created_at=tx.now, updated_at=tx.now,
        extras=parts.get("metadata", {}),
    )  # fmt: skip
    _add_version(tx, store, created(tx, new), ChangeKind.CREATED)
    rules.grow(tx, store, 1, rules.size_of(content))
    return known_entry(tx, store, EntryId(new.uid))


def amend_entry(
    tx: Transaction, store: StoreId, entry: EntryId, expected: Expected, policy: rules.Policy,
    parts: rules.Parts,
) -> tuple[Entry, bool]:  # fmt: skip
    """The entry as it is now, and whether a redacted version's bytes are to be erased."""
    before = known_entry(tx, store, entry)
    rules.open_store(tx, store)
    wanted, held = before.model_copy(update=parts), _memory(tx, before)
    if not (policy.done_is_done and wanted == before):
        require_state(held, expected)
    if wanted == before and not policy.unchanged_is_change:
        return before, False
    require_room(tx)
    if wanted.path != before.path:
        _require_free(tx, store, wanted.path, policy, but=entry)
    text, at = _text(wanted.path, wanted.content or ""), changed_at(tx, held.updated_at)
    after = replace(held, key=wanted.path, text=text, extras=wanted.metadata, updated_at=at)
    has_erased = _revise(tx, before, held, after, ChangeKind.UPDATED)
    return known_entry(tx, store, entry), has_erased


def delete_entry(
    tx: Transaction, store: StoreId, entry: EntryId, expected: Expected, policy: rules.Policy
) -> bool:
    """Whether a redacted version's bytes are to be erased."""
    before = known_entry(tx, store, entry)
    if policy.archived_keeps_entries:
        rules.open_store(tx, store)
    held = _memory(tx, before)
    require_state(held, expected)
    # The row keeps nothing of what the versions keep, or have lost.
    gone = replace(held, key=None, text=_text("", ""), extras={}, deleted_at=tx.now)
    return _revise(tx, before, held, gone, ChangeKind.DELETED)


_CREATE = once(create_entry, check=rules.known_store, about=lambda it: [it.memory])
_AMEND = once(amend_entry, check=rules.known_store, about=lambda it: [it[0].memory])
_DELETE = once(delete_entry, check=rules.require_stores)


def require_state(memory: Memory, expected: Expected) -> None:
    """Raise Stale unless the memory, read in the transaction of the write, is as expected."""
    if not expected.met_by(memory):
        raise Stale(memory)


def _revise(tx: Transaction, before: Entry, held: Memory, after: Memory, kind: ChangeKind) -> bool:
    """Write the entry's next state; whether a redacted version's bytes are to be erased."""
    after = revised(tx, held, after, kind)
    _add_version(tx, before.store, after, kind, before)
    is_deleted = kind is ChangeKind.DELETED
    more = rules.size_of(after.text.content) - before.size
    rules.grow(tx, before.store, -1 if is_deleted else 0, more)
    is_new_text = is_deleted or after.text.content != before.content
    if not (is_new_text and is_redacted(tx, before.memory, before.number)):
        return False
    erased(tx, before.memory)
    return True


def _add_version(
    tx: Transaction, store: StoreId, memory: Memory, kind: ChangeKind, before: Entry | None = None
) -> None:
    """Add a version for the memory's newest revision, ordered after the one before.

    Of a deletion it has the path alone.
    """
    uid, content = tx.new_uid(tx.now), memory.text.content
    if before is not None and uid <= before.version:  # another process made that one, or the clock
        uid = uid_after(before.version)
    is_deleted = kind is ChangeKind.DELETED
    add_version(
        tx, store, memory.id, uid=uid, number=memory.revision,
        path=before.path if is_deleted and before else memory.key,
        size=None if is_deleted else rules.size_of(content),
        sha256=None if is_deleted else sha256_of(content),
    )  # fmt: skip


def _require_free(
    tx: Transaction, store: StoreId, path: str, policy: rules.Policy, *, but: EntryId | None = None
) -> None:
    """Raise PathTaken if the path is another entry's; if paths do not nest, also above and below.

    Of those below, two are enough, as one may be the entry itself.
    """
    steps = path.split("/")
    above = () if policy.paths_nest else range(1, len(steps))
    paths = [path, *("/".join(steps[:count]) for count in above)]
    held: list[Any] = []
    for each in paths:
        held += _rows(tx, "m.key = :path", store=store, path=each)
    if not policy.paths_nest:
        held += islice(_from_path(tx, store, "", f"{path}/"), 2)
    for other in map(_ENTRY, held):
        if other.id != but:
            raise PathTaken("Another memory has this path.", other.id, other.path)


def _memory(tx: Transaction, entry: Entry) -> Memory:
    memory = tx[MemoryTable].in_store(entry.store, entry.id)
    assert memory is not None  # this transaction has just seen it
    return memory


def _text(path: str, content: str) -> Text:
    return Text(type=ENTRY_TYPE, title=path, content=content)


# The rows: live memories of stores, with what their newest versions say of them.

_ENTRY = RowMapper(Entry, "memories", "m.id", alias="m.")


def _rows(tx: Transaction, condition: str, **values: object) -> Iterable[Any]:
    return tx[Sql].run(_selecting(tx, condition), now=micros(tx.now), **values)


def _selecting(tx: Transaction, condition: str, but: str = "content") -> str:
    # The store leads. The newest version always has a size and a hash of its own.
    return f"""SELECT {_ENTRY.but(but)}
                 FROM stores t
                {tx[Sql].dialect.leads} memories m
                      ON m.space_id = t.space_id AND {live("m")} AND {in_no_session("m")}
                 JOIN versions v ON v.memory_id = m.id AND v.number = m.revision
                WHERE t.uid = :store AND t.erasure_id IS NULL AND {condition}"""


def _with_content(tx: Transaction, store: StoreId, entry: EntryId) -> Entry | None:
    statement = _selecting(tx, "m.uid = :uid", but="")
    return tx[Sql].first(_ENTRY, statement, store=store, uid=entry, now=micros(tx.now))


def _from_path(tx: Transaction, store: StoreId, first: str, prefix: str) -> Iterable[Any]:
    """Entries below a prefix from path `first` on, in code point order.

    The prefix is empty or ends with a slash.
    """
    return tx[Sql].stream(
        _selecting(tx, "m.key >= :first AND m.key < :end ORDER BY m.key"),
        now=micros(tx.now), store=store, first=max(first, prefix),
        end=prefix[:-1] + AFTER_SLASH if prefix else LAST,
    )  # fmt: skip
