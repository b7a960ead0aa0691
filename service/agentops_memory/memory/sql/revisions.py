"""SQL for the record of changes: the revisions of memories, and the versions of entries."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..model.access import KeyId
from ..model.erasure import MAX_STEP
from ..model.memory import ChangeKind, Memory, MemoryId, Revision, Text
from ..model.space import StoreId
from ..model.stores import EntryId, Page, Past, Slice, Version, VersionFilter, VersionId
from .rows import (
    count,
    instant,
    micros,
    optional_instant,
    portion,
    reads,
    sliced,
    text_row,
    texts_of,
)
from .table import Connection, Table, bounds, window, within

REVISION = "id, number, deed, at, type, title, content, tags"
VERSION = """v.uid, t.uid, m.uid, v.memory_id, v.number, r.deed, v.path, v.size, v.sha256, r.at,
             v.author, v.redacted_at, v.redacted_by"""
# The newest revision has no text of its own: the memory's row is its text.
CONTENT = """CASE WHEN v.redacted_at IS NOT NULL OR r.deed = 'deleted' THEN NULL
                  WHEN r.type IS NULL THEN m.content
                  ELSE r.content
             END"""
# What leads: the store's versions in the order of their ids, or those of one entry alone.
OF_STORE = "v.store_id = t.space_id"
OF_ENTRY = """v.memory_id = (SELECT id FROM memories WHERE uid = :entry)
              AND +v.store_id = t.space_id"""


class RevisionTable(Table):
    """The revisions of memories; the newest one is the current state."""

    def add(self, memory: MemoryId, revision: Revision, *, is_only: bool = False) -> None:
        """Record a change; its text stays with the memory until the next one.

        If it is the only one that is kept, it takes the place of the one before.
        """
        number, deed, at = revision.number, revision.deed.value, micros(revision.at)
        if is_only:
            change = "UPDATE revisions SET number = :number, deed = :deed, at = :at"
            self._execute(
                f"{change} WHERE memory_id = :id", id=memory, number=number, deed=deed, at=at
            )
        else:
            self._insert("revisions", memory_id=memory, number=number, deed=deed, at=at)

    def keep(self, memory: Memory) -> None:
        """Copy the memory's text to its newest revision, unless redacted, before a change."""
        self._execute(
            """UPDATE revisions
                  SET type = :type, title = :title, content = :content, tags = :tags
                WHERE memory_id = :memory_id AND number = :number AND deed <> 'deleted'
                      AND type IS NULL""",
            memory_id=memory.id,
            number=memory.revision,
            **text_row(memory.text),
        )

    def absorb(self, memory: MemoryId, older: Revision) -> None:
        """Insert an older state before the newest revision, whose number grows by one."""
        self._execute(
            "UPDATE revisions SET number = number + 1 WHERE memory_id = :id AND number = :number",
            id=memory,
            number=older.number,
        )
        self._execute("UPDATE memories SET revision = revision + 1 WHERE id = :id", id=memory)
        self._insert(
            "revisions",
            memory_id=memory,
            number=older.number,
            deed=older.deed.value,
            at=micros(older.at),
            **(text_row(older.text) if older.text else {}),
        )

    def holds(self, memory: Memory, state: Memory) -> bool:
        """Whether a revision equals the state in text and second."""
        text = state.text
        rows = self._execute(
            """SELECT r.id, coalesce(t.tags, :own_tags)
                 FROM revisions r
                 LEFT JOIN revisions t
                   ON t.memory_id = r.memory_id
                      AND t.number = (SELECT min(number)
                                        FROM revisions
                                       WHERE memory_id = r.memory_id AND number >= r.number
                                             AND type IS NOT NULL)
                WHERE r.memory_id = :memory_id AND r.deed <> 'deleted'
                      AND r.at >= :second AND r.at < :second + 1000000
                      AND coalesce(t.type, :own_type) = :type
                      AND coalesce(t.title, :own_title) = :title
                      AND coalesce(t.content, :own_content) = :content""",
            memory_id=memory.id,
            second=micros(state.updated_at.replace(microsecond=0)),
            **text_row(text),
            **{f"own_{name}": value for name, value in text_row(memory.text).items()},
        )
        return text.tags in self._intact(rows, _tags)

    def count(self, memory: Memory) -> int:
        """The count of kept revisions."""
        return self._number(
            "SELECT count(*) FROM revisions WHERE memory_id = :memory_id", memory_id=memory.id
        )

    def newest(self, memory: Memory) -> list[Revision]:
        """The kept revisions, newest first, each with its text."""
        rows = self._execute(
            f"SELECT {REVISION} FROM revisions WHERE memory_id = :id ORDER BY number DESC",
            id=memory.id,
        )
        # None is left out: the texts of the older ones would be others.
        return list(_with_texts(map(_revision, rows), memory))

    def rewrite(self, memory: MemoryId, number: int, text: Text) -> None:
        """Replace the text of a revision that has its own copy."""
        self._execute(
            """UPDATE revisions
                  SET type = :type, title = :title, content = :content, tags = :tags
                WHERE memory_id = :memory_id AND number = :number AND type IS NOT NULL""",
            memory_id=memory,
            number=number,
            **text_row(text),
        )


class VersionTable(Table):
    """Versions: the revisions of entries."""

    def add(self, version: Version) -> None:
        """Insert the version of the revision with this number."""
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
        """The version, with its content if it has one."""
        return self._first(
            _version,
            f"SELECT {VERSION}, {CONTENT} FROM {self._joined(OF_STORE)} AND v.uid = :uid",
            store=store,
            uid=version,
        )

    def page(self, store: StoreId, filter_: VersionFilter, at: Page) -> Slice[Version]:
        """A page of versions, by descending id."""
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
                       {window(at, "v.uid")}
                 LIMIT :most""",
            store=store,
            entry=filter_.entry,
            **{f"value_{at}": value for at, value in enumerate(given.values())},
            **bounds(at, filter_.created),
        )
        return sliced(self._intact(rows, _version), at)

    def redact(self, version: Version) -> None:
        """Update a version, and remove its revision's text."""
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
        """Earlier versions with own texts, of all stores, in this order; fewer if long."""
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
        return portion(self._intact(rows, _past), MAX_STEP, lambda past: len(past.text.content))

    def measure(self, memory: MemoryId, number: int, size: int, sha256: str) -> None:
        """Update the size and the hash of a version."""
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
        """Whether the version was redacted."""
        return self._exists(
            """SELECT 1
                 FROM versions
                WHERE memory_id = :memory AND number = :number AND redacted_at IS NOT NULL""",
            memory=memory,
            number=number,
        )

    def _joined(self, leading: str) -> str:
        return f"""stores t
                   {self._sql.leads} versions v ON {leading}
                   {self._sql.leads} revisions r
                         ON r.memory_id = v.memory_id AND r.number = v.number
                   {self._sql.leads} memories m ON m.id = v.memory_id
                   WHERE t.uid = :store AND t.erasure_id IS NULL"""


def erase_revisions(connection: Connection, revisions: Iterable[tuple[MemoryId, int]]) -> int:
    """Erase revisions, each by its memory and number, with their versions; how many those are."""
    rows = [{"memory": memory, "number": number} for memory, number in revisions]
    for table in ("versions", "revisions"):
        connection.executemany(
            f"DELETE FROM {table} WHERE memory_id = :memory AND number = :number", rows
        )
    return len(rows)


@reads("revisions")
def _tags(_: int, tags: str) -> tuple[str, ...]:
    return texts_of(tags)


@reads("revisions")
def _revision(  # noqa: PLR0917 - its columns
    _: int, number: int, deed: str, at: int, type_: str | None, title: str | None,
    content: str | None, tags: str | None,
) -> Revision:  # fmt: skip
    text = None
    if not (type_ is None or title is None or content is None or tags is None):
        text = Text(type=type_, title=title, content=content, tags=texts_of(tags))
    return Revision(number=count(number), deed=ChangeKind(deed), at=instant(at), text=text)


def _with_texts(revisions: Iterable[Revision], memory: Memory) -> Iterator[Revision]:
    """Revisions, newest first; one without a text has the next newer."""
    text = memory.text
    for it in revisions:
        text = it.text or text
        yield replace(it, text=None if it.deed is ChangeKind.DELETED else text)


@reads("versions")
def _version(  # noqa: PLR0913, PLR0917 - the columns of VERSION and its content, or NULL in its place
    uid: str, store: str, entry: str, memory: int, number: int, deed: str, path: str | None,
    size: int | None, sha256: str | None, at: int, author: str | None, redacted_at: int | None,
    redacted_by: str | None, content: str | None,
) -> Version:  # fmt: skip
    return Version(
        id=VersionId(uid),
        store=StoreId(store),
        entry=EntryId(entry),
        memory=MemoryId(memory),
        number=count(number),
        deed=ChangeKind(deed),
        path=path,
        size=None if size is None else count(size),
        sha256=sha256,
        content=content,
        at=instant(at),
        author=None if author is None else KeyId(author),
        redacted_at=optional_instant(redacted_at),
        redacted_by=None if redacted_by is None else KeyId(redacted_by),
    )


@reads("memories")
def _past(  # noqa: PLR0917 - its columns
    id_: int, store: str, entry: str, number: int, type_: str, title: str, content: str
) -> Past:
    return Past(
        memory=MemoryId(id_),
        store=StoreId(store),
        entry=EntryId(entry),
        number=number,
        text=Text(type=type_, title=title, content=content),
    )
