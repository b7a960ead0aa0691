"""SQL for entries: the live memories of stores, with what their newest versions tell."""

from collections.abc import Iterator
from typing import Any

from ....domain.model.memory import MemoryId
from ....domain.model.space import StoreId
from ....domain.model.stores import EntriesSeen, Entry, EntryId, Page, Slice, VersionId
from ..base.paging import bounds, ends, sliced, window, within
from ..base.table import Table, count, instant, map_of

COLUMNS = """m.uid, m.id, t.uid, m.key, v.size, v.sha256, m.revision, v.uid, m.extras,
             m.created_at, m.updated_at"""
# CROSS JOIN: the store leads. The newest version always tells a size and a hash of its own.
LIVE = """stores t
          CROSS JOIN memories m ON m.space_id = t.space_id AND m.deleted_at IS NULL
               AND m.session_id IS NULL
          JOIN versions v ON v.memory_id = m.id AND v.number = m.revision
         WHERE t.uid = :store AND t.erasure_id IS NULL"""
AFTER_SLASH = chr(ord("/") + 1)
LAST = "\U0010ffff" * 257  # after every path: none has as many signs of so many bytes


class Entries(Table):
    """The entries of one transaction."""

    def get(self, store: StoreId, entry: EntryId) -> Entry | None:
        row = self._execute(
            f"SELECT {COLUMNS}, m.content FROM {LIVE} AND m.uid = :uid", store=store, uid=entry
        ).fetchone()
        return None if row is None else _entry(row)

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

    def page(self, store: StoreId, seen: EntriesSeen, at: Page) -> Slice[Entry]:
        prefix = seen.path_prefix or ""
        begins = " AND substr(m.key, 1, :length) = :prefix" if prefix else ""
        rows = self._execute(
            f"""SELECT {COLUMNS}, NULL
                  FROM {LIVE}{begins}{within(seen.created, "m.created_at")}
                       {window(at, "m.uid")}""",
            store=store,
            prefix=prefix,
            length=len(prefix),
            **bounds(at),
            **ends(seen.created),
        )
        return sliced(rows, at, _entry)

    def from_path(self, store: StoreId, first: str, prefix: str, limit: int) -> Iterator[Entry]:
        end = prefix[:-1] + AFTER_SLASH if prefix else LAST
        rows = self._execute(
            f"""SELECT {COLUMNS}, NULL
                  FROM {LIVE} AND m.key >= :first AND m.key < :end
              ORDER BY m.key
                 LIMIT :limit""",
            store=store,
            first=max(first, prefix),
            end=end,
            limit=limit,
        )
        return map(_entry, rows)

    def _where(self, condition: str, **values: object) -> list[Entry]:
        rows = self._execute(f"SELECT {COLUMNS}, NULL FROM {LIVE} AND {condition}", **values)
        return [_entry(row) for row in rows]


def _entry(row: Any) -> Entry:
    (uid, id_, store, path, size, sha256, number, version, metadata, created_at, updated_at,
     content) = row  # fmt: skip
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
        metadata=map_of(metadata),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
    )
