"""Entries of stores and their versions: create, read, list, change, delete, redact.

A write and its version are one transaction. The versions of deleted entries stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_serializer

from ..engine.engine import Transaction, audited
from ..errors import AlreadyDone, Conflict, PathTaken, StillCurrent, required
from ..memory import rows
from ..memory.access import Caller, KeyId
from ..memory.erasure import MAX_STEP, ReceiptTable
from ..memory.idempotency import is_due, once
from ..memory.memories import MemoryTable
from ..memory.memory import ANY_STATE, ChangeKind, Expected, Memory, MemoryId, Text, live
from ..memory.redactor import require_room
from ..memory.rows import UNSTORED, Column, RowMapper, changed_at, uid_after
from ..memory.saves import created, revised
from ..memory.space import ErasureKind, Space, StoreId, in_no_session
from ..memory.table import Sql
from ..recall.text import sha256_of
from ..record import Microseconds, Record
from . import store as rules
from .store import EntryId, VersionId

MAX_WITH_CONTENT = 20  # items of a page that includes contents


class Version(Record):
    """One change of a memory.

    A deletion has no size, hash or content. A redacted version has no content; its path, size
    and hash are empty if they were removed as well.
    """

    id: Annotated[rules.ShownVersion, Column("v.uid")]
    type: Literal["memory_version"] = "memory_version"
    store: Annotated[rules.ShownStore, Column("t.uid"), Field(serialization_alias="store_id")]
    entry: Annotated[rules.ShownEntry, Column("m.uid"), Field(serialization_alias="entry_id")]
    memory: Annotated[MemoryId, Column("v.memory_id"), Field(exclude=True)]
    number: int = Field(exclude=True)
    path: Annotated[str, Column("coalesce(v.path, '')"), Field(serialization_alias="entry_path")]
    size: Annotated[int, Column("coalesce(v.size, 0)")]
    sha256: Annotated[
        str, Column("coalesce(v.sha256, '')"), Field(serialization_alias="content_sha256")
    ]
    kind: Annotated[ChangeKind, Column("r.deed"), Field(serialization_alias="action")]
    redacted: Annotated[bool, UNSTORED] = False  # serialized from `redacted_at`
    redacted_at: Microseconds | None = None
    # The newest revision has no text of its own: its text is in the memory's row.
    content: Annotated[
        str | None,
        Column("""CASE WHEN v.redacted_at IS NOT NULL OR r.deed = 'deleted' THEN NULL
                       WHEN r.type IS NULL THEN m.content
                       ELSE r.content
                  END"""),
    ] = None
    at: Annotated[Microseconds, Column("r.at"), Field(serialization_alias="created_at")]
    author: KeyId | None = Field(default=None, exclude=True)
    redacted_by: KeyId | None = Field(default=None, exclude=True)

    @field_serializer("redacted")
    def _redacted(self, _: bool) -> bool:
        return self.redacted_at is not None

    def about(self) -> dict[str, Any]:
        ids = rules.about(store=self.store, entry=self.entry, version=self.id)
        return ids | {"memory.version.action": self.kind.value}


class Past(NamedTuple):
    """The text of an earlier version of an entry, live or deleted."""

    memory: MemoryId
    store: StoreId
    entry: EntryId
    number: int
    text: Text


async def redact(
    serving: rules.Serving, caller: Caller, store: StoreId, version: VersionId
) -> Version:
    """Remove a version's content permanently, in archived stores too.

    Raises AlreadyDone or StillCurrent. The bytes are erased within seconds, unless the entry's
    current text is the same.
    """
    args = store, version, serving.policy
    if await serving.engine.read(caller, lambda tx: is_due(tx) and bool(_redacted(tx, *args))):
        await audited(serving.audit, caller, "version.redacted", store=store, version=version)
    redacted = await serving.engine.write(caller, _REDACT, *args)
    serving.on_erased(caller)
    return redacted


def known_version(tx: Transaction, store: StoreId, version: VersionId) -> Version:
    """Return the version, with its content if it has one."""
    rules.known_store(tx, store)
    statement = f"SELECT {VERSION} FROM {_joined(tx, OF_STORE)} AND v.uid = :uid"
    row = tx[Sql].first(VERSION, statement, store=store, uid=version)
    return required(row, rules.NO_VERSION)


def list_versions(
    tx: Transaction, /, store: StoreId, *, limit: int, with_content: bool = False,
    entry: EntryId | None = None, kind: ChangeKind | None = None, author: KeyId | None = None,
    **window: Any,
) -> rules.Slice[Version]:  # fmt: skip
    """Return a page of versions of one entry or of all, newest first."""
    rules.known_store(tx, store)
    page = rules.Page(limit=min(limit, MAX_WITH_CONTENT) if with_content else limit, **window)
    leading = OF_STORE if entry is None else OF_ENTRY
    of_kind = "" if kind is None else " AND r.deed = :kind"
    of_author = "" if author is None else " AND v.author = :author"
    statement = f"""SELECT {VERSION.but("" if with_content else "content")}
                      FROM {_joined(tx, leading)}{of_kind}{of_author}{page.window("v.uid", "r.at")}
                     LIMIT :most"""
    values = {"store": store, "entry": entry, "kind": kind, "author": author, **page.values}
    versions = tx[Sql].filled(
        page.limit + 1, lambda most: tx[Sql].run(statement, most=most, **values), VERSION
    )
    return page.sliced(versions)


def redact_version(
    tx: Transaction, store: StoreId, version: VersionId, policy: rules.Policy
) -> Version:
    redacted = _redacted(tx, store, version, policy)
    if redacted is None:
        return known_version(tx, store, version)
    tx[Sql].update("versions", "uid", {
        "uid": version, "path": redacted.path or None, "sha256": redacted.sha256 or None,
        "size": redacted.size if redacted.sha256 else None,
        "redacted_at": rows.optional_micros(redacted.redacted_at),
        "redacted_by": redacted.redacted_by,
    })  # fmt: skip
    # Empty, not NULL: the next change fills NULL with the memory's text.
    tx[Sql].run(
        """UPDATE revisions
              SET type = '', title = '', content = '', tags = '[]'
            WHERE memory_id = :memory AND number = :number""",
        memory=redacted.memory, number=redacted.number,
    )  # fmt: skip
    record_redaction(tx, redacted.memory)
    return redacted


_REDACT = once(redact_version, check=rules.known_store, about=lambda it: [it.memory])


def _redacted(
    tx: Transaction, store: StoreId, version: VersionId, policy: rules.Policy
) -> Version | None:
    """Return the version after redaction, or None if nothing would change."""
    before = known_version(tx, store, version)
    if before.redacted_at is not None and policy.rejects_repeats:
        raise AlreadyDone("The version is already redacted.")
    if not policy.may_redact_current and tx[Sql].exists(
        f"""SELECT 1
              FROM memories m
             WHERE m.id = :memory AND m.revision = :number
                   AND {live("m")} AND {in_no_session("m")}""",
        memory=before.memory, number=before.number,
    ):  # fmt: skip
        raise StillCurrent(
            "The version is its memory's current one; change or delete the memory first."
        )
    changes: dict[str, object] = {"content": None}
    if policy.redaction_clears_all:  # of versions that the other dialect redacted, too
        changes |= {"path": "", "size": 0, "sha256": ""}
    if before.redacted_at is None:
        changes |= {"redacted_at": tx.now, "redacted_by": tx.caller.key}
    redacted = before.model_copy(update=changes)
    return None if redacted == before else redacted


def record_redaction(tx: Transaction, memory: MemoryId) -> None:
    """Record that the bytes of a memory's earlier text must be erased."""
    tx[MemoryTable].must_scrub(memory)
    tx[ReceiptTable].add(ErasureKind.REDACTION, memories=(memory,), revisions=1)


def past(tx: Transaction, after: tuple[MemoryId, int], limit: int) -> list[Past]:
    """Return the next versions with texts of their own, of all stores; fewer if they are long."""
    leads, (memory, number) = tx[Sql].dialect.leads, after
    texts = tx[Sql].run(
        f"""SELECT v.memory_id, t.uid, m.uid, v.number, r.type, r.title, r.content
              FROM versions v
             {leads} stores t ON t.space_id = v.store_id
             {leads} revisions r ON r.memory_id = v.memory_id AND r.number = v.number
             {leads} memories m ON m.id = v.memory_id
             WHERE (v.memory_id, v.number) > (:memory, :number)
                   AND r.type <> '' AND t.erasure_id IS NULL
          ORDER BY v.memory_id, v.number
             LIMIT :limit""",
        memory=memory, number=number, limit=limit,
    )  # fmt: skip
    return rows.portion(tx[Sql].intact(texts, _past), MAX_STEP, lambda past: len(past.text.content))


def measure(tx: Transaction, memory: MemoryId, number: int, size: int, sha256: str) -> None:
    """Update the size and the hash of a version."""
    tx[Sql].run(
        """UPDATE versions
              SET size = :size, sha256 = :sha256
            WHERE memory_id = :memory AND number = :number""",
        memory=memory, number=number, size=size, sha256=sha256,
    )  # fmt: skip


VERSION = RowMapper(Version, "versions", "v.uid", alias="v.")
# What a query reads first: a store's versions by id, or the versions of one entry.
OF_STORE = "v.store_id = t.space_id"
OF_ENTRY = """v.memory_id = (SELECT id FROM memories WHERE uid = :entry)
              AND +v.store_id = t.space_id"""


def _joined(tx: Transaction, leading: str) -> str:
    leads = tx[Sql].dialect.leads
    return f"""stores t
               {leads} versions v ON {leading}
               {leads} revisions r ON r.memory_id = v.memory_id AND r.number = v.number
               {leads} memories m ON m.id = v.memory_id
               WHERE t.uid = :store AND t.erasure_id IS NULL"""


@rows.reads("memories")
def _past(  # noqa: PLR0917 - one parameter per column
    id_: int, store: str, entry: str, number: int, type_: str, title: str, content: str
) -> Past:
    text = Text(type=type_, title=title, content=content)
    return Past(MemoryId(id_), StoreId(store), EntryId(entry), number, text)


ENTRY_TYPE = "memory"  # the type of every memory in a store
AFTER_SLASH = chr(ord("/") + 1)
LAST = "\U0010ffff" * 257  # sorts after every path: its 4-byte characters exceed MAX_PATH


class Entry(Record):
    """A memory of a store at its path; its content may be absent."""

    id: Annotated[rules.ShownEntry, Column("m.uid")]
    type: Literal["memory"] = "memory"
    memory: Annotated[MemoryId, Column("m.id"), Field(exclude=True)]
    store: Annotated[rules.ShownStore, Column("t.uid"), Field(serialization_alias="store_id")]
    path: Annotated[str, Column("m.key")]
    size: Annotated[int, Column("v.size")]  # bytes of the content in UTF-8
    # SHA-256 of the content, in hexadecimal.
    sha256: Annotated[str, Column("v.sha256"), Field(serialization_alias="content_sha256")]
    # The number of the current version, from 1.
    number: Annotated[int, Column("m.revision"), Field(serialization_alias="version")]
    version: Annotated[rules.VersionId, Column("v.uid"), Field(exclude=True)]  # its id
    metadata: Annotated[Mapping[str, str], Column("m.extras")]
    content: Annotated[str | None, Column("m.content")] = None
    created_at: Microseconds
    updated_at: Microseconds

    def about(self) -> dict[str, Any]:
        ids = rules.about(store=self.store, entry=self.id, version=self.version)
        return ids | {"memory.entry.size": self.size, "memory.entry.version": self.number}


class Stale(Conflict):
    """The memory does not meet the precondition of a change."""

    code, sentence = "stale", "The memory has changed: it is not in the expected state."


def known_entry(tx: Transaction, store: StoreId, entry: EntryId) -> Entry:
    rules.known_store(tx, store)
    return required(_with_content(tx, store, entry), rules.NO_ENTRY)


def list_entries(
    tx: Transaction, /, store: StoreId, *, path_prefix: str | None = None, **window: Any
) -> rules.Slice[Entry]:
    """Return a page of entries without content, newest first."""
    rules.known_store(tx, store)
    page, prefix = rules.Page(**window), path_prefix or ""
    begins = "substr(m.key, 1, CAST(:length AS INTEGER)) = :prefix" if prefix else "TRUE"
    which = f"{begins}{page.window('m.uid', 'm.created_at')} LIMIT :most"
    values = {"store": store, "prefix": prefix, "length": len(prefix), **page.values}
    entries = tx[Sql].filled(
        page.limit + 1, lambda most: _rows(tx, which, most=most, **values), _ENTRY
    )
    return page.sliced(entries)


def tree(
    tx: Transaction, /, store: StoreId, *, limit: int, prefix: str = "", is_shallow: bool = False,
    after: str | None = None, with_content: bool = False,
) -> rules.Slice[Entry | str]:  # fmt: skip
    """Return entries in the order of paths, below a prefix that is empty or ends with a slash.

    The page begins after the item `after`. If it is shallow, deeper entries are represented by
    their folders, which end with a slash.
    """
    rules.known_store(tx, store)
    most = min(limit, MAX_WITH_CONTENT) if with_content else limit
    first: str | None = prefix if after is None else _next(after)
    items: list[Entry | str] = []
    while first is not None and len(items) <= most:
        rows = _from_path(tx, store, first, prefix)
        first = None
        for entry in islice(tx[Sql].intact(rows, _ENTRY), most + 1 - len(items)):
            segment, slash, _ = entry.path.removeprefix(prefix).partition("/")
            if is_shallow and slash:  # the folder represents all entries in it
                folder = prefix + segment + slash
                items.append(folder)
                first = _next(folder)
                break
            items.append(entry)
    page_items = items[:most]
    if with_content:
        page_items = [
            it if isinstance(it, str) else _with_content(tx, store, it.id) or it
            for it in page_items
        ]
    return rules.Slice(page_items, len(items) > most)


def _next(path: str) -> str:
    """Return the lowest path after an item and, if it is a folder, after all entries in it."""
    return path[:-1] + AFTER_SLASH if path.endswith("/") else path + "\x01"


def create_entry(
    tx: Transaction, store: StoreId, policy: rules.Policy, parts: rules.Parts
) -> Entry:
    """Create an entry; raise PathTaken or Archived."""
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
    """Change an entry; return it, and whether bytes of a redacted version must be erased.

    Raise Stale, PathTaken or Archived.
    """
    before = known_entry(tx, store, entry)
    rules.open_store(tx, store)
    amended, memory = before.model_copy(update=parts), _memory(tx, before)
    may_conflict = not (policy.ignores_conflict_if_equal and amended == before)
    if may_conflict and not expected.met_by(memory):
        raise Stale
    if amended == before and not policy.noop_creates_version:
        return before, False
    require_room(tx)
    if amended.path != before.path:
        _require_free(tx, store, amended.path, policy, but=entry)
    text, at = _text(amended.path, amended.content or ""), changed_at(memory.updated_at, tx.now)
    after = replace(memory, key=amended.path, text=text, extras=amended.metadata, updated_at=at)
    has_erased = _revise(tx, before, memory, after, ChangeKind.UPDATED)
    return known_entry(tx, store, entry), has_erased


def delete_entry(
    tx: Transaction, store: StoreId, entry: EntryId, policy: rules.Policy,
    expected: Expected = ANY_STATE,
) -> tuple[None, bool]:  # fmt: skip
    """Delete an entry, but not its versions; return whether bytes must be erased.

    Raise Stale or Archived.
    """
    before = known_entry(tx, store, entry)
    if policy.archived_forbids_deletes:
        rules.open_store(tx, store)
    memory = _memory(tx, before)
    if not expected.met_by(memory):
        raise Stale
    # The row is cleared: the text is in the versions, unless it was redacted there.
    deleted = replace(memory, key=None, text=_text("", ""), extras={}, deleted_at=tx.now)
    return None, _revise(tx, before, memory, deleted, ChangeKind.DELETED)


CREATE = once(create_entry, check=rules.known_store, about=lambda it: [it.memory])
AMEND = once(amend_entry, check=rules.known_store, about=lambda it: [it[0].memory])
DELETE = once(delete_entry, check=rules.require_stores)


def _revise(
    tx: Transaction, before: Entry, memory: Memory, after: Memory, kind: ChangeKind
) -> bool:
    """Write the entry's state; return whether bytes of a redacted version must be erased."""
    after = revised(tx, memory, after, kind)
    _add_version(tx, before.store, after, kind, before)
    is_deleted = kind is ChangeKind.DELETED
    growth = rules.size_of(after.text.content) - before.size
    rules.grow(tx, before.store, -1 if is_deleted else 0, growth)
    is_new_text = is_deleted or after.text.content != before.content
    has_erased = is_new_text and tx[Sql].exists(
        """SELECT 1
             FROM versions
            WHERE memory_id = :memory AND number = :number AND redacted_at IS NOT NULL""",
        memory=before.memory, number=before.number,
    )  # fmt: skip
    if has_erased:
        record_redaction(tx, before.memory)
    return has_erased


def _add_version(
    tx: Transaction, store: StoreId, memory: Memory, kind: ChangeKind, before: Entry | None = None
) -> None:
    """Add the version of the newest revision; the version of a deletion has only the path."""
    uid, content = tx.new_uid(tx.now), memory.text.content
    if before is not None and uid <= before.version:  # another clock is ahead
        uid = uid_after(before.version)
    is_deleted = kind is ChangeKind.DELETED
    tx[Sql].run(
        """INSERT INTO versions (uid, store_id, memory_id, number, path, size, sha256, author)
           SELECT :uid, space_id, :memory, :number, :path, :size, :sha256, :author
             FROM stores
            WHERE uid = :store""",
        store=store, memory=memory.id, author=tx.caller.key, uid=uid, number=memory.revision,
        path=before.path if is_deleted and before else memory.key,
        size=None if is_deleted else rules.size_of(content),
        sha256=None if is_deleted else sha256_of(content),
    )  # fmt: skip


def _require_free(
    tx: Transaction, store: StoreId, path: str, policy: rules.Policy, *, but: EntryId | None = None
) -> None:
    """Raise PathTaken if another entry has the path or, unless paths nest, one above or below.

    Two entries below are enough to read, as one may be the entry itself.
    """
    steps = path.split("/")
    above = () if policy.paths_nest else range(1, len(steps))
    paths = [path, *("/".join(steps[:count]) for count in above)]
    taken = [row for it in paths for row in _rows(tx, "m.key = :path", store=store, path=it)]
    if not policy.paths_nest:
        taken += islice(_from_path(tx, store, "", f"{path}/"), 2)
    for other in map(_ENTRY, taken):
        if other.id != but:
            raise PathTaken("Another memory has this path.", other.id, other.path)


def _memory(tx: Transaction, entry: Entry) -> Memory:
    memory = tx[MemoryTable].in_store(entry.store, entry.id)
    assert memory is not None  # this transaction has just read it
    return memory


def _text(path: str, content: str) -> Text:
    return Text(type=ENTRY_TYPE, title=path, content=content)


# Rows: live memories of stores, joined with their newest versions.

_ENTRY = RowMapper(Entry, "memories", "m.id", alias="m.")


def _rows(tx: Transaction, condition: str, **values: object) -> Iterable[Any]:
    return tx[Sql].run(_selecting(tx, condition), **values)


def _selecting(tx: Transaction, condition: str, but: str = "content") -> str:
    # The store is read first. A live entry's newest version always has a size and a hash.
    return f"""SELECT {_ENTRY.but(but)}
                 FROM stores t
                {tx[Sql].dialect.leads} memories m
                      ON m.space_id = t.space_id AND {live("m")} AND {in_no_session("m")}
                 JOIN versions v ON v.memory_id = m.id AND v.number = m.revision
                WHERE t.uid = :store AND t.erasure_id IS NULL AND {condition}"""


def _with_content(tx: Transaction, store: StoreId, entry: EntryId) -> Entry | None:
    statement = _selecting(tx, "m.uid = :uid", but="")
    return tx[Sql].first(_ENTRY, statement, store=store, uid=entry)


def _from_path(tx: Transaction, store: StoreId, first: str, prefix: str) -> Iterable[Any]:
    """Stream rows of entries below a prefix, "" or with a slash at its end, from `first` on."""
    return tx[Sql].stream(
        _selecting(tx, "m.key >= :first AND m.key < :end ORDER BY m.key"),
        store=store, first=max(first, prefix),
        end=prefix[:-1] + AFTER_SLASH if prefix else LAST,
    )  # fmt: skip
