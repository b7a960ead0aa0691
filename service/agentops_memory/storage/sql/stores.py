"""SQL for memory stores."""

from ...domain.model.erasure import ErasureId
from ...domain.model.memory import MemoryId
from ...domain.model.space import Space, StoreId
from ...domain.model.stores import Page, Slice, Store, StoresSeen
from ...domain.ports.retention import MAX_STEP
from ...domain.text.normalization import REPLACEMENT
from .index import Index
from .memories import Spaces
from .paging import bounds, sliced, window, within
from .revisions import erase_revisions
from .rows import STORE, json_of, micros, portion, store_of
from .table import Connection, Dialect, Table


class Stores(Table):
    """The stores of one transaction."""

    def __init__(
        self, connection: Connection, dialect: Dialect, index: Index, spaces: Spaces
    ) -> None:
        super().__init__(connection, dialect)
        self._index = index
        self._spaces = spaces

    def add(self, store: Store) -> None:
        space, area = self._spaces.add(Space.of_store(store.id))
        self._execute(
            """INSERT INTO stores (space_id, uid, name, description, metadata, created_at,
                                   updated_at, archived_at)
               VALUES (:space, :uid, :name, :description, :metadata, :created_at,
                       :updated_at, :archived_at)""",
            space=space,
            created_at=micros(store.created_at),
            **_row(store),
        )
        self._index.prepare(area)  # a search may come before anything is written

    def get(self, store: StoreId) -> Store | None:
        row = self._execute(
            f"SELECT {STORE} FROM stores WHERE uid = :uid AND erasure_id IS NULL", uid=store
        ).fetchone()
        return None if row is None else store_of(row)

    def replace(self, store: Store) -> None:
        self._execute(
            """UPDATE stores
                  SET name = :name, description = :description, metadata = :metadata,
                      updated_at = :updated_at, archived_at = :archived_at
                WHERE uid = :uid""",
            **_row(store),
        )

    def grow(self, store: StoreId, entries: int, size: int) -> None:
        self._execute(
            """UPDATE stores
                  SET entries = entries + :entries, size = size + :size
                WHERE uid = :uid""",
            uid=store,
            entries=entries,
            size=size,
        )

    def page(self, filter_: StoresSeen, at: Page) -> Slice[Store]:
        archived = "" if filter_.with_archived else " AND archived_at IS NULL"
        rows = self._execute(
            f"""SELECT {STORE}
                  FROM stores
                 WHERE erasure_id IS NULL{archived}{within(filter_.created, "created_at")}
                       {window(at, "uid")}""",
            **bounds(at, filter_.created),
        )
        prefix = (filter_.name_prefix or "").casefold()
        # Row by row until the page is full: SQLite folds the case of ASCII alone.
        named = (row for row in rows if row[1].casefold().startswith(prefix))
        return sliced(named, at, store_of)

    def delete(self, store: StoreId, erasure: ErasureId) -> None:
        self._execute(
            "UPDATE stores SET erasure_id = :erasure WHERE uid = :uid", uid=store, erasure=erasure
        )

    def going(self) -> ErasureId | None:
        rows = self._execute("SELECT erasure_id FROM stores WHERE erasure_id IS NOT NULL")
        return next((ErasureId(id_) for (id_,) in rows if REPLACEMENT not in id_), None)

    def erase_history(self, erasure: ErasureId, limit: int) -> int:
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
        ((space,),) = self._execute(
            "SELECT space_id FROM stores WHERE erasure_id = :erasure", erasure=erasure
        )
        self._execute("DELETE FROM stores WHERE space_id = :space", space=space)
        self._execute("DELETE FROM spaces WHERE id = :space", space=space)


def _row(store: Store) -> dict[str, object]:
    return {
        "uid": store.id,
        "name": store.name,
        "description": store.description,
        "metadata": json_of(store.metadata),
        "updated_at": micros(store.updated_at),
        "archived_at": None if store.archived_at is None else micros(store.archived_at),
    }
