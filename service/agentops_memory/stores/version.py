"""A version: one revision of an entry as a store shows it; read, listed, redacted.

The versions of deleted entries stay.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_serializer

from ..engine.callbacks import audited
from ..engine.engine import Transaction
from ..errors import AlreadyDone, StillCurrent, required
from ..memory.erasure import MAX_STEP, Erasure, ErasureId, ReceiptTable
from ..memory.idempotency import is_due, once
from ..memory.memories import MemoryTable
from ..memory.model import rows
from ..memory.model.access import Caller, KeyId
from ..memory.model.liveness import live
from ..memory.model.memory import ChangeKind, MemoryId, Text
from ..memory.model.rows import UNSTORED, Column
from ..memory.model.space import NO_PROJECT, ErasureKind, StoreId, in_no_session
from ..memory.model.table import Sql
from ..record import Microseconds, Record
from . import store as rules
from .store import EntryId, VersionId

MOST_WITH_CONTENT = 20  # items of a page


class Version(Record):
    """One change of a memory.

    A deletion has no size, hash or content. A redacted version has no content; its path, size
    and hash are empty if they were taken out as well.
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
    deed: Annotated[ChangeKind, Column("r.deed"), Field(serialization_alias="action")]
    redacted: Annotated[bool, UNSTORED] = False  # what it is sent as follows from the instant
    redacted_at: Microseconds | None = None
    # The newest revision has no text of its own: the memory's row is its text.
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
    """Remove a version's content for good, in archived stores too; AlreadyDone, StillCurrent.

    Its bytes are erased within seconds, unless the entry has the same text now.
    """
    of = store, version, serving.policy
    if await serving.engine.read(caller, is_to_redact, *of):
        await audited(serving.audit, caller, "version.redacted", store=store, version=version)
    redacted = await serving.engine.write(caller, _REDACT, *of)
    serving.on_erased(caller)
    return redacted


def known_version(tx: Transaction, store: StoreId, version: VersionId) -> Version:
    """The version, with its content if it has one."""
    rules.known_store(tx, store)
    found = tx[Sql].first(
        VERSION,
        f"SELECT {VERSION} FROM {_joined(tx, OF_STORE)} AND v.uid = :uid",
        store=store, uid=version,
    )  # fmt: skip
    return required(found, rules.NO_VERSION)


def list_versions(
    tx: Transaction, /, store: StoreId, *, limit: int, with_content: bool = False,
    entry: EntryId | None = None, deed: ChangeKind | None = None, author: KeyId | None = None,
    **of: Any,
) -> rules.Slice[Version]:  # fmt: skip
    """A page of versions of all entries, newest first."""
    rules.known_store(tx, store)
    page = rules.Page(limit=min(limit, MOST_WITH_CONTENT) if with_content else limit, **of)
    leading = OF_STORE if entry is None else OF_ENTRY
    of_deed = "" if deed is None else " AND r.deed = :deed"
    of_author = "" if author is None else " AND v.author = :author"
    statement = f"""SELECT {VERSION.but("" if with_content else "content")}
                      FROM {_joined(tx, leading)}{of_deed}{of_author}{page.window("v.uid", "r.at")}
                     LIMIT :most"""
    values = {"store": store, "entry": entry, "deed": deed, "author": author, **page.values}
    found = tx[Sql].filled(
        page.limit + 1, lambda most: tx[Sql].run(statement, most=most, **values), VERSION
    )
    return page.sliced(found)


def is_to_redact(tx: Transaction, store: StoreId, version: VersionId, policy: rules.Policy) -> bool:
    """Whether a redaction would change anything, or its refusal."""
    return is_due(tx) and _redacted(tx, store, version, policy) is not None


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
    # An empty copy of its own: the next change gives it none.
    tx[Sql].run(
        """UPDATE revisions
              SET type = '', title = '', content = '', tags = '[]'
            WHERE memory_id = :memory AND number = :number""",
        memory=redacted.memory, number=redacted.number,
    )  # fmt: skip
    erased(tx, redacted.memory)
    return redacted


_REDACT = once(redact_version, check=rules.known_store, about=lambda it: [it.memory])


def _redacted(
    tx: Transaction, store: StoreId, version: VersionId, policy: rules.Policy
) -> Version | None:
    """The version after redaction; None if nothing would change."""
    found = known_version(tx, store, version)
    if found.redacted_at is not None and policy.repeats_are_refused:
        raise AlreadyDone("The version is already redacted.")
    if not policy.current_is_redacted and _is_current(tx, found):
        raise StillCurrent(
            "The version is its memory's current one; change or delete the memory first."
        )
    changes: dict[str, object] = {"content": None}
    if policy.redaction_takes_all:  # also of one that the other dialect has redacted
        changes |= {"path": "", "size": 0, "sha256": ""}
    if found.redacted_at is None:
        changes |= {"redacted_at": tx.now, "redacted_by": tx.caller.key}
    redacted = found.model_copy(update=changes)
    return None if redacted == found else redacted


def _is_current(tx: Transaction, version: Version) -> bool:
    return tx[Sql].exists(
        f"""SELECT 1
              FROM memories m
             WHERE m.id = :memory AND m.revision = :number
                   AND {live("m")} AND {in_no_session("m")}""",
        memory=version.memory, number=version.number, now=rows.micros(tx.now),
    )  # fmt: skip


def erased(tx: Transaction, memory: MemoryId) -> None:
    """Record that the bytes of a memory's earlier text are to be erased."""
    tx[MemoryTable].must_scrub(memory)
    tx[ReceiptTable].add(
        Erasure(
            id=ErasureId(tx.new_uid(tx.now)), kind=ErasureKind.REDACTION, project=NO_PROJECT,
            memories=(memory,), revisions=1, erased_at=tx.now,
        )
    )  # fmt: skip


def add_version(tx: Transaction, store: StoreId, memory: MemoryId, **columns: object) -> None:
    """Insert the version of the memory's newest revision."""
    tx[Sql].run(
        """INSERT INTO versions (uid, store_id, memory_id, number, path, size, sha256, author)
           SELECT :uid, space_id, :memory, :number, :path, :size, :sha256, :author
             FROM stores
            WHERE uid = :store""",
        store=store, memory=memory, author=tx.caller.key, **columns,
    )  # fmt: skip


def is_redacted(tx: Transaction, memory: MemoryId, number: int) -> bool:
    """Whether the version was redacted."""
    return tx[Sql].exists(
        """SELECT 1
             FROM versions
            WHERE memory_id = :memory AND number = :number AND redacted_at IS NOT NULL""",
        memory=memory, number=number,
    )  # fmt: skip


def past(tx: Transaction, after: tuple[MemoryId, int], limit: int) -> list[Past]:
    """Earlier versions with own texts, of all stores, in this order; fewer if long."""
    leads, (memory, number) = tx[Sql].dialect.leads, after
    found = tx[Sql].run(
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
    texts = tx[Sql].intact(found, _past)
    return rows.portion(texts, MAX_STEP, lambda past: len(past.text.content))


def measure(tx: Transaction, memory: MemoryId, number: int, size: int, sha256: str) -> None:
    """Update the size and the hash of a version."""
    tx[Sql].run(
        """UPDATE versions
              SET size = :size, sha256 = :sha256
            WHERE memory_id = :memory AND number = :number""",
        memory=memory, number=number, size=size, sha256=sha256,
    )  # fmt: skip


VERSION = rows.RowMapper(Version, "versions", "v.uid", alias="v.")
# What leads: the store's versions in the order of their ids, or those of one entry alone.
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
def _past(  # noqa: PLR0917 - its columns
    id_: int, store: str, entry: str, number: int, type_: str, title: str, content: str
) -> Past:
    text = Text(type=type_, title=title, content=content)
    return Past(MemoryId(id_), StoreId(store), EntryId(entry), number, text)
