"""SQL for memory stores and their entries: live memories, with what their last versions tell."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from ..model.erasure import MAX_STEP, ErasureId
from ..model.memory import MemoryId
from ..model.space import Space, StoreId
from ..model.stores import Entry, EntryFilter, EntryId, Page, Slice, Store, StoreFilter, VersionId
from .kinds import in_no_session
from .liveness import live
from .memories import SpaceTable
from .revisions import erase_revisions
from .rows import (
    count,
    instant,
    json_of,
    micros,
    optional_instant,
    pairs_of,
    portion,
    reads,
    sliced,
)
from .table import Cursor, Index, Table, bounds, window, within

AFTER_SLASH = chr(ord("/") + 1)
LAST = "\U0010ffff" * 257  # after every path: none has as many signs of so many bytes
STORE = """space_id, uid, name, description, metadata, entries, size, created_at, updated_at,
           archived_at"""
ENTRY = """m.id, m.uid, t.uid, m.key, v.size, v.sha256, m.revision, v.uid, m.extras,
           m.created_at, m.updated_at"""


@dataclass(eq=False)
class StoreTable(Table):
    """Stores; a deleted one is visible only to the methods that erase it."""

    _index: Index
    _spaces: SpaceTable

    def add(self, store: Store) -> None:
        """Insert a store, with its space."""
        space, area = self._spaces.add(Space.of_store(store.id))
        created_at = micros(store.created_at)
        self._insert("stores", space_id=space, created_at=created_at, **_row(store))
        self._index.prepare(area)  # a search may come before anything is written

    def get(self, store: StoreId) -> Store | None:
        """The store, archived or not."""
        return self._first(
            _store, f"SELECT {STORE} FROM stores WHERE uid = :uid AND erasure_id IS NULL", uid=store
        )

    def replace(self, store: Store) -> None:
        """Update its name, description, metadata and instants."""
        self._execute(
            """UPDATE stores
                  SET name = :name, description = :description, metadata = :metadata,
                      updated_at = :updated_at, archived_at = :archived_at
                WHERE uid = :uid""",
            **_row(store),
        )

    def grow(self, store: StoreId, entries: int, size: int) -> None:
        """Add to the counts of live entries and their bytes; negative to subtract."""
        self._execute(
            "UPDATE stores SET entries = entries + :entries, size = size + :size WHERE uid = :uid",
            uid=store,
            entries=entries,
            size=size,
        )

    def page(self, filter_: StoreFilter, at: Page) -> Slice[Store]:
        """A page of stores, by descending id."""
        archived = "" if filter_.with_archived else " AND archived_at IS NULL"
        rows = self._stream(
            f"""SELECT {STORE}
                  FROM stores
                 WHERE erasure_id IS NULL{archived}{within(filter_.created, "created_at")}
                       {window(at, "uid")}""",
            **bounds(at, filter_.created),
        )
        prefix = (filter_.name_prefix or "").casefold()
        # Row by row until the page is full: SQLite folds the case of ASCII alone.
        stores = self._intact(rows, _store)
        named = (store for store in stores if store.name.casefold().startswith(prefix))
        return sliced(named, at)

    def delete(self, store: StoreId, erasure: ErasureId) -> None:
        """Hide the store; its rows stay until the erasure is complete."""
        self._execute(
            "UPDATE stores SET erasure_id = :erasure WHERE uid = :uid", uid=store, erasure=erasure
        )

    def going(self) -> ErasureId | None:
        """An erasure whose rows are not all removed."""
        rows = self._execute(
            """SELECT space_id, erasure_id
                 FROM stores
                WHERE erasure_id IS NOT NULL
             ORDER BY erasure_id"""
        )
        return next(self._intact(rows, _going), None)

    def erase_history(self, erasure: ErasureId, limit: int) -> int:
        """Remove at most `limit` revisions of a deleted store; returns the count."""
        rows = self._execute(
            """SELECT v.memory_id, v.number
                 FROM stores t
                 JOIN versions v ON v.store_id = t.space_id
                WHERE t.erasure_id = :erasure
                LIMIT :limit""",
            erasure=erasure,
            limit=limit,
        ).fetchall()
        return erase_revisions(self._connection, rows)

    def some(self, erasure: ErasureId, limit: int) -> list[MemoryId]:
        """A batch of memories of a deleted store; fewer than the limit if they are long."""
        rows = self._execute(
            f"""SELECT m.id, length(m.content)
                  FROM stores t
                  JOIN memories m {self._sql.hint("memories_by_hash")} ON m.space_id = t.space_id
                 WHERE t.erasure_id = :erasure
                 LIMIT :limit""",
            erasure=erasure,
            limit=limit,
        )
        return [MemoryId(id_) for id_, _ in portion(rows, MAX_STEP, lambda row: int(row[1]))]

    def remove(self, erasure: ErasureId) -> None:
        """Remove a deleted store that has no memories left."""
        space = self._number(
            "SELECT space_id FROM stores WHERE erasure_id = :erasure", erasure=erasure
        )
        self._execute("DELETE FROM stores WHERE space_id = :space", space=space)
        self._execute("DELETE FROM spaces WHERE id = :space", space=space)


@dataclass(eq=False)
class EntryTable(Table):
    """Entries: the live memories of stores, without contents except from `get`."""

    _now: datetime

    def _execute(self, statement: str, **parameters: object) -> Cursor:
        return super()._execute(statement, now=micros(self._now), **parameters)

    def get(self, store: StoreId, entry: EntryId) -> Entry | None:
        """The entry, with its content."""
        rows = self._execute(
            f"SELECT {ENTRY}, m.content FROM {self._live} AND m.uid = :uid", store=store, uid=entry
        )
        return next(map(_entry, rows), None)

    def at(self, store: StoreId, path: str) -> Entry | None:
        return next(map(_entry, self._where("m.key = :path", store=store, path=path)), None)

    def beside(self, store: StoreId, path: str) -> list[Entry]:
        """The entries at ancestors of a path, and at most two below it."""
        steps = path.split("/")
        above = ["/".join(steps[:count]) for count in range(1, len(steps))]
        held = (self.at(store, shorter) for shorter in above)
        below = self._where(
            "m.key >= :first AND m.key < :end ORDER BY m.key LIMIT 2",
            store=store,
            first=f"{path}/",
            end=path + AFTER_SLASH,
        )
        return [*filter(None, held), *map(_entry, below)]

    def page(self, store: StoreId, filter_: EntryFilter, at: Page) -> Slice[Entry]:
        """A page of entries, by descending id."""
        prefix = filter_.path_prefix or ""
        begins = " AND substr(m.key, 1, CAST(:length AS INTEGER)) = :prefix" if prefix else ""
        rows = self._execute(
            f"""SELECT {ENTRY}, NULL
                  FROM {self._live}{begins}{within(filter_.created, "m.created_at")}
                       {window(at, "m.uid")}
                 LIMIT :most""",
            store=store,
            prefix=prefix,
            length=len(prefix),
            **bounds(at, filter_.created),
        )
        return sliced(self._intact(rows, _entry), at)

    def from_path(self, store: StoreId, first: str, prefix: str, limit: int) -> Iterator[Entry]:
        """Entries below a prefix from path `first` on, streamed in code point order.

        The prefix is empty or ends with a slash.
        """
        rows = self._where(
            "m.key >= :first AND m.key < :end ORDER BY m.key LIMIT :limit",
            store=store,
            first=max(first, prefix),
            end=prefix[:-1] + AFTER_SLASH if prefix else LAST,
            limit=limit,
        )
        return self._intact(rows, _entry)

    @property
    def _live(self) -> str:
        # The store leads. The newest version always has a size and a hash of its own.
        return f"""stores t
                   {self._sql.leads} memories m ON m.space_id = t.space_id
                        AND {live("m")} AND {in_no_session("m")}
                   JOIN versions v ON v.memory_id = m.id AND v.number = m.revision
                  WHERE t.uid = :store AND t.erasure_id IS NULL"""

    def _where(self, condition: str, **values: object) -> Cursor:
        return self._execute(f"SELECT {ENTRY}, NULL FROM {self._live} AND {condition}", **values)


@reads("stores")
def _going(_: int, erasure: str) -> ErasureId:
    return ErasureId(erasure)


@reads("stores")
def _store(  # noqa: PLR0913, PLR0917 - its columns
    _: int, uid: str, name: str, description: str, metadata: str, entries: int, size: int,
    created_at: int, updated_at: int, archived_at: int | None,
) -> Store:  # fmt: skip
    return Store(
        id=StoreId(uid),
        name=name,
        description=description,
        metadata=pairs_of(metadata),
        entries=count(entries),
        size=count(size),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
        archived_at=optional_instant(archived_at),
    )


def _row(store: Store) -> dict[str, object]:
    return {
        "uid": store.id,
        "name": store.name,
        "description": store.description,
        "metadata": json_of(store.metadata),
        "updated_at": micros(store.updated_at),
        "archived_at": None if store.archived_at is None else micros(store.archived_at),
    }


@reads("memories")
def _entry(  # noqa: PLR0913, PLR0917 - the columns of ENTRY and its content, or NULL in its place
    id_: int, uid: str, store: str, path: str, size: int, sha256: str, number: int, version: str,
    metadata: str, created_at: int, updated_at: int, content: str | None,
) -> Entry:  # fmt: skip
    return Entry(
        id=EntryId(uid),
        memory=MemoryId(id_),
        store=StoreId(store),
        path=path,
        content=content,
        size=count(size),
        sha256=sha256,
        number=count(number),
        version=VersionId(version),
        metadata=pairs_of(metadata),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
    )
