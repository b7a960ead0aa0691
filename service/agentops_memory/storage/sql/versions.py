"""SQL for versions: what stores tell of the revisions of their memories."""

from typing import Any

from ...domain.model.memory import MemoryId, Text
from ...domain.model.space import StoreId
from ...domain.model.stores import EntryId, Page, Past, Slice, Version, VersionId, VersionsSeen
from ...domain.ports.retention import MAX_STEP
from .paging import bounds, sliced, window, within
from .rows import VERSION, micros, portion, version_of
from .table import Table

# The newest revision has no text of its own: the memory's row is its text.
CONTENT = """CASE WHEN v.redacted_at IS NOT NULL OR r.deed = 'deleted' THEN NULL
                  WHEN r.type IS NULL THEN m.content
                  ELSE r.content
             END"""
# What leads: the store's versions in the order of their ids, or those of one entry alone.
OF_STORE = "v.store_id = t.space_id"
OF_ENTRY = """v.memory_id = (SELECT id FROM memories WHERE uid = :entry)
              AND +v.store_id = t.space_id"""


class Versions(Table):
    """The versions of one transaction."""

    def add(self, version: Version) -> None:
        self._execute(
            """INSERT INTO versions (uid, store_id, memory_id, number, path, size, sha256, author)
               SELECT :uid, space_id, :memory, :number, :path, :size, :sha256, :author
                 FROM stores
                WHERE uid = :store""",
            uid=version.id,
            store=version.store,
            memory=version.memory,
            number=version.number,
            path=version.path,
            size=version.size,
            sha256=version.sha256,
            author=version.author,
        )

    def get(self, store: StoreId, version: VersionId) -> Version | None:
        row = self._execute(
            f"SELECT {VERSION}, {CONTENT} FROM {self._joined(OF_STORE)} AND v.uid = :uid",
            store=store,
            uid=version,
        ).fetchone()
        return None if row is None else version_of(row)

    def page(self, store: StoreId, filter_: VersionsSeen, at: Page) -> Slice[Version]:
        given = {"r.deed": filter_.deed, "v.author": filter_.author}
        conditions = "".join(
            f" AND {column} = :value_{at}"
            for at, (column, value) in enumerate(given.items())
            if value is not None
        )
        leading = OF_STORE if filter_.entry is None else OF_ENTRY
        rows = self._execute(
            f"""SELECT {VERSION}, {CONTENT if filter_.with_content else "NULL"}
                  FROM {self._joined(leading)}{conditions}{within(filter_.created, "r.at")}
                       {window(at, "v.uid")}""",
            store=store,
            entry=filter_.entry,
            **{f"value_{at}": value for at, value in enumerate(given.values())},
            **bounds(at, filter_.created),
        )
        return sliced(rows, at, version_of)

    def redact(self, version: Version) -> None:
        self._execute(
            """UPDATE versions
                  SET path = :path, size = :size, sha256 = :sha256,
                      redacted_at = :at, redacted_by = :by
                WHERE uid = :uid""",
            uid=version.id,
            path=version.path,
            size=version.size,
            sha256=version.sha256,
            at=version.redacted_at and micros(version.redacted_at),
            by=version.redacted_by,
        )
        # An empty copy of its own: the next change gives it none.
        self._execute(
            """UPDATE revisions
                  SET type = '', title = '', content = '', tags = '[]'
                WHERE memory_id = :memory AND number = :number""",
            memory=version.memory,
            number=version.number,
        )

    def past(self, after: tuple[MemoryId, int], limit: int) -> list[Past]:
        memory, number = after
        rows = self._execute(
            f"""SELECT v.memory_id, t.uid, m.uid, v.number, r.type, r.title, r.content
                  FROM versions v
                 {self._sql.leads} stores t ON t.space_id = v.store_id
                 {self._sql.leads} revisions r
                       ON r.memory_id = v.memory_id AND r.number = v.number
                 {self._sql.leads} memories m ON m.id = v.memory_id
                 WHERE (v.memory_id, v.number) > (:memory, :number)
                       AND r.type <> '' AND t.erasure_id IS NULL
              ORDER BY v.memory_id, v.number
                 LIMIT :limit""",
            memory=memory,
            number=number,
            limit=limit,
        )
        return portion(map(_past, rows), MAX_STEP, lambda past: len(past.text.content))

    def measure(self, memory: MemoryId, number: int, size: int, sha256: str) -> None:
        self._execute(
            """UPDATE versions
                  SET size = :size, sha256 = :sha256
                WHERE memory_id = :memory AND number = :number""",
            memory=memory,
            number=number,
            size=size,
            sha256=sha256,
        )

    def is_redacted(self, memory: MemoryId, number: int) -> bool:
        row = self._execute(
            """SELECT 1
                 FROM versions
                WHERE memory_id = :memory AND number = :number AND redacted_at IS NOT NULL""",
            memory=memory,
            number=number,
        )
        return row.fetchone() is not None

    def _joined(self, leading: str) -> str:
        return f"""stores t
                   {self._sql.leads} versions v ON {leading}
                   {self._sql.leads} revisions r
                         ON r.memory_id = v.memory_id AND r.number = v.number
                   {self._sql.leads} memories m ON m.id = v.memory_id
                   WHERE t.uid = :store AND t.erasure_id IS NULL"""


def _past(row: Any) -> Past:
    id_, store, entry, number, type_, title, content = row
    return Past(
        memory=MemoryId(id_),
        store=StoreId(store),
        entry=EntryId(entry),
        number=number,
        text=Text(type=type_, title=title, content=content),
    )
