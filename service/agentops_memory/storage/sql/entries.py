"""SQL for entries: the live memories of stores, with what their newest versions tell."""

from collections.abc import Iterator

from ...domain.model.space import StoreId
from ...domain.model.stores import EntriesSeen, Entry, EntryId, Page, Slice
from .paging import bounds, sliced, window, within
from .rows import ENTRY, entry_of
from .table import Table

AFTER_SLASH = chr(ord("/") + 1)
LAST = "\U0010ffff" * 257  # after every path: none has as many signs of so many bytes


class Entries(Table):
    """The entries of one transaction."""

    def get(self, store: StoreId, entry: EntryId) -> Entry | None:
        row = self._execute(
            f"SELECT {ENTRY}, m.content FROM {self._live} AND m.uid = :uid", store=store, uid=entry
        ).fetchone()
        return None if row is None else entry_of(row)

    def at(self, store: StoreId, path: str) -> Entry | None:
        return next(iter(self._where("m.key = :path", store=store, path=path)), None)

    def beside(self, store: StoreId, path: str) -> list[Entry]:
        steps = path.split("/")
        above = ["/".join(steps[:count]) for count in range(1, len(steps))]
        held = (self.at(store, shorter) for shorter in above)
        below = self._where(
            "m.key >= :first AND m.key < :end ORDER BY m.key LIMIT 2",
            store=store,
            first=f"{path}/",
            end=path + AFTER_SLASH,
        )
        return [*filter(None, held), *below]

    def page(self, store: StoreId, filter_: EntriesSeen, at: Page) -> Slice[Entry]:
        prefix = filter_.path_prefix or ""
        begins = " AND substr(m.key, 1, :length) = :prefix" if prefix else ""
        rows = self._execute(
            f"""SELECT {ENTRY}, NULL
                  FROM {self._live}{begins}{within(filter_.created, "m.created_at")}
                       {window(at, "m.uid")}""",
            store=store,
            prefix=prefix,
            length=len(prefix),
            **bounds(at, filter_.created),
        )
        return sliced(rows, at, entry_of)

    def from_path(self, store: StoreId, first: str, prefix: str, limit: int) -> Iterator[Entry]:
        end = prefix[:-1] + AFTER_SLASH if prefix else LAST
        rows = self._execute(
            f"""SELECT {ENTRY}, NULL
                  FROM {self._live} AND m.key >= :first AND m.key < :end
              ORDER BY m.key
                 LIMIT :limit""",
            store=store,
            first=max(first, prefix),
            end=end,
            limit=limit,
        )
        return map(entry_of, rows)

    @property
    def _live(self) -> str:
        # The store leads. The newest version always has a size and a hash of its own.
        return f"""stores t
                   {self._sql.leads} memories m ON m.space_id = t.space_id
                        AND m.deleted_at IS NULL AND m.session_id IS NULL
                   JOIN versions v ON v.memory_id = m.id AND v.number = m.revision
                  WHERE t.uid = :store AND t.erasure_id IS NULL"""

    def _where(self, condition: str, **values: object) -> list[Entry]:
        rows = self._execute(f"SELECT {ENTRY}, NULL FROM {self._live} AND {condition}", **values)
        return [entry_of(row) for row in rows]
