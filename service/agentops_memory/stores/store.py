"""Memory stores: their operations, rows and limits, and the rules in which the dialects differ.

A store is a space without a project. Its memories are entries at paths, with versions. A dialect
declares its operations; their handlers are derived from the parameters.
"""

import re
from asyncio import to_thread
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from inspect import iscoroutinefunction, signature
from itertools import islice
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, field_serializer
from starlette.requests import Request
from starlette.responses import Response

from ..engine.engine import Audit, Engine, Transaction, audited, noop
from ..errors import AlreadyDone, Archived, Invalid, required
from ..http import bodies
from ..http.bodies import FLAGS, WRITTEN, Arguments, Bodies, Reading, parsing, written
from ..http.gate import LARGE, current_caller
from ..http.protocol import REDACTED, Operation
from ..http.query import ENTRY, STORE, VERSION, instant, known_uid, public_id
from ..light import dataclass
from ..memory import rows
from ..memory.access import Caller, Role
from ..memory.erasure import MAX_STEP, ErasureId, ReceiptTable
from ..memory.idempotency import IdempotencyTable, is_due, once
from ..memory.memories import MemoryTable, SpaceTable
from ..memory.memory import ANY_STATE, Expected, MemoryId
from ..memory.redactor import NO_STORE, Redactor, RulesOf, aside, require_room
from ..memory.rows import Column, RowMapper, optional_micros, reads
from ..memory.saves import RevisionTable, Written
from ..memory.space import ErasureKind, Space, StoreId
from ..memory.table import Sql
from ..recall.text import has_controls
from ..record import Microseconds, Record, shape
from ..telemetry import annotate

T = TypeVar("T")

EntryId = NewType("EntryId", str)
VersionId = NewType("VersionId", str)

ShownStore = Annotated[StoreId, PlainSerializer(partial(public_id, STORE), return_type=str)]
ShownEntry = Annotated[EntryId, PlainSerializer(partial(public_id, ENTRY), return_type=str)]
ShownVersion = Annotated[VersionId, PlainSerializer(partial(public_id, VERSION), return_type=str)]

MAX_NAME = 255  # characters; a policy may allow fewer
MAX_DESCRIPTION = 1024  # characters; these limits are those of the vendors' APIs
MAX_PAIRS = 16
MAX_PAIR_KEY = 64
MAX_PAIR_VALUE = 512
MAX_CONTENT = 102_400  # bytes of a content in UTF-8
MAX_PATH = 1024  # bytes of a path in UTF-8
MAX_SEGMENTS = 20

HISTORY = 64  # revisions of a deleted store erased in one transaction
BATCH = 200  # memories of a deleted store erased in one transaction; saves wait for it

PARTS = "name", "description", "path", "content", "metadata"
Parts = Mapping[str, Any]
"""The fields of a store or an entry to set, by name; absent fields stay as they are."""

STORABLE = bodies.must(
    lambda text: not re.search("[\\x00\\ud800-\\udfff]", text),
    "cannot contain NUL or a lone surrogate",
)


def few(pairs: int) -> BeforeValidator:
    """Reject an object with more pairs, before any of them is validated."""

    def checked(value: object) -> object:
        if isinstance(value, dict) and len(value) > pairs:
            raise bodies.fault(f"must have at most {pairs} pairs")
        return value

    return BeforeValidator(checked)


NO_ENTRY = "No such memory in this store."
NO_VERSION = "No such version in this store."


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Where the dialects differ."""

    paths_nest: bool  # both `a` and `a/b` may be entries
    noop_creates_version: bool  # an update that changes nothing creates a version
    ignores_conflict_if_equal: bool  # when the entry is already as requested
    rejects_repeats: bool  # archiving or redacting a second time fails
    archived_forbids_deletes: bool  # entries of an archived store cannot be deleted
    may_redact_current: bool  # a live entry's current version can be redacted
    redaction_clears_all: bool  # redaction removes the path, size and hash, too
    longest_name: int = MAX_NAME  # characters of a store's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The dependencies of a dialect's operations.

    Each operation raises Denied for callers without access to every project, and NotFound for
    unknown ids, including those of another store's entries and versions.
    """

    engine: Engine
    policy: Policy
    audit: Audit
    rules: RulesOf
    on_erased: Callable[[Caller], None] = noop

    async def write(
        self, caller: Caller, work: Callable[..., Any], names: Collection[str],
        body: "Body | None" = None, **values: object,
    ) -> Written[Any]:  # fmt: skip
        """Run `work` with those of the values that it names, and of a body's redacted parts.

        It may return whether bytes of a redacted version must be erased beside its result.
        """
        redacted, values["policy"] = 0, self.policy
        if body is not None:
            redactor = Redactor(self.rules(caller))
            size = sum(len(str(it)) for it in body.parts.values())
            parts = await aside(size, clean, redactor, body.parts, self.policy.longest_name)
            redacted, values["parts"], values["expected"] = redactor.count, parts, body.expected
        named = {name: it for name, it in values.items() if name in names}
        done = await self.engine.write(caller, work, **named)
        if isinstance(done, tuple):
            done, must_erase = done
            if must_erase:
                self.on_erased(caller)
        return Written(value=done, redacted=redacted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Selects a page of a list in descending order of ids, within a span of creation times.

    The page begins after an id, or ends before one; the object with that id may have been
    deleted. Both ends of the span are included.
    """

    limit: int
    after: str | None = None
    before: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None

    def window(self, id_: str, created_at: str) -> str:
        """Return SQL conditions on these columns, each beginning with AND, and ORDER BY."""
        first = "" if self.created_from is None else f" AND {created_at} >= :created_from"
        last = "" if self.created_to is None else f" AND {created_at} <= :created_to"
        if self.before is not None:
            return f"{first}{last} AND {id_} > :before ORDER BY {id_}"
        after = "" if self.after is None else f" AND {id_} < :after"
        return f"{first}{last}{after} ORDER BY {id_} DESC"

    @property
    def values(self) -> dict[str, object]:
        """The parameters of the SQL that `window` returns."""
        return {
            "after": self.after,
            "before": self.before,
            "created_from": optional_micros(self.created_from),
            "created_to": optional_micros(self.created_to),
        }

    def sliced(self, rows: Iterable[T]) -> "Slice[T]":
        """Return the page of `rows`, newest first; a row beyond the limit sets `has_more`."""
        read = list(islice(rows, self.limit + 1))
        items = read[: self.limit]
        newest_first = items if self.before is None else items[::-1]
        return Slice(newest_first, len(read) > self.limit)


@dataclass(frozen=True, slots=True)
class Slice(Generic[T]):
    """The items of a page, and whether there are more."""

    items: list[T]
    has_more: bool

    def about(self) -> dict[str, Any]:
        return {"memory.page.result_count": len(self.items)}


def require_stores(tx: Transaction, *_: object, **__: object) -> None:
    tx.caller.require_stores()


def require_path(path: str) -> str:
    """Return the path; raise Invalid unless it is relative, of 1 to 20 plain segments."""
    segments = path.split("/")
    if len(path.encode()) > MAX_PATH:
        raise Invalid(f"path has at most {MAX_PATH:,} bytes.")
    if len(segments) > MAX_SEGMENTS:
        raise Invalid(f"path has at most {MAX_SEGMENTS} segments.")
    if not {"", ".", ".."}.isdisjoint(segments):
        raise Invalid("No segment of path may be empty, '.' or '..'.")
    if has_controls(path):
        raise Invalid("path must not contain control characters.")
    return path


def size_of(content: str) -> int:
    """Return the size of a content in bytes of UTF-8."""
    return len(content.encode())


class Body(bodies.Body):
    """A request body with fields of a store or an entry."""

    @property
    def parts(self) -> Parts:
        return {name: it for name, it in self if name in PARTS and it is not None}

    @property
    def expected(self) -> Expected:
        """The state that the entry must be in, or the change is refused."""
        return ANY_STATE


def clean(redactor: Redactor, parts: Parts, longest_name: int = MAX_NAME) -> Parts:
    """Return the fields without secrets; raise Invalid if one exceeds its limit."""

    def cleaned(name: str, it: Any) -> object:
        match name:
            case "name":
                return redactor.text(it, longest_name)
            case "description":
                return redactor.text(it, MAX_DESCRIPTION)
            case "metadata":
                return clean_pairs(redactor, it)
            case "path":
                path = redactor.text(require_path(it), len(it) * MAX_PATH)
                return require_path(path)  # a placeholder may be longer than its secret
        if len(it) > MAX_CONTENT or size_of(it) > MAX_CONTENT:
            raise Invalid(f"content has at most {MAX_CONTENT:,} bytes.")
        return redactor.text_of_bytes(it, MAX_CONTENT)

    return {name: cleaned(name, it) for name, it in parts.items()}


def clean_pairs(redactor: Redactor, pairs: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without secrets. If keys become equal, a pair with a value wins."""
    return {
        redactor.text(key, MAX_PAIR_KEY): value and redactor.text(value, MAX_PAIR_VALUE)
        for key, value in sorted(pairs.items(), key=lambda pair: pair[1] is not None)
    }


class Store(Record):
    """A memory store."""

    id: Annotated[ShownStore, Column("uid")]
    type: Literal["memory_store"] = "memory_store"
    name: str
    description: str = ""
    status: Literal["active", "archived"] = "active"  # serialized from `archived_at`
    entries: int = Field(default=0, serialization_alias="entry_count")  # live entries
    size: int = Field(default=0, serialization_alias="total_size")  # bytes of live entries
    metadata: Mapping[str, str] = {}
    archived_at: Microseconds | None = None
    created_at: Microseconds
    updated_at: Microseconds

    @field_serializer("status")
    def _status(self, _: str) -> Literal["active", "archived"]:
        return "active" if self.archived_at is None else "archived"

    def about(self) -> dict[str, Any]:
        return {**about(store=self.id), "memory.store.entry_count": self.entries}


async def delete(serving: Serving, caller: Caller, store: StoreId) -> None:
    """Delete a store with all its entries and versions permanently.

    It is invisible at once; its rows and bytes are erased in the background.
    """
    if deleted := await serving.engine.read(
        caller, lambda tx: known_store(tx, store) if is_due(tx) else None
    ):
        about = {"store": store, "observations": deleted.entries}
        await audited(serving.audit, caller, "store.deleted", **about)
    await serving.engine.write(caller, _DELETE, store)
    serving.on_erased(caller)


def known_store(tx: Transaction, store: StoreId, *_: object, **__: object) -> Store:
    """Return the store, archived or not; raise Denied for callers who may not read stores."""
    tx.caller.require_stores()
    return required(tx[Sql].fetch(_STORE, "uid = :uid AND erasure_id IS NULL", uid=store), NO_STORE)


def open_store(tx: Transaction, store: StoreId) -> Store:
    """Return the store; raise Archived if it is read-only."""
    record = known_store(tx, store)
    if record.archived_at is not None:
        raise Archived("The memory store is archived and read-only.")
    return record


def create_store(tx: Transaction, parts: Parts) -> Store:
    """Create a store; names need not be unique."""
    tx.caller.require_stores()
    require_room(tx)
    id_ = StoreId(tx.new_uid(tx.now))
    store = Store(id=id_, created_at=tx.now, updated_at=tx.now, **parts)
    # Prepares the space's part of the index: a search may come before the first entry.
    space, _ = tx[SpaceTable].placed(Space.of_store(store.id))
    tx[Sql].insert("stores", space_id=space, **_STORE.values(store))
    return store


def list_stores(
    tx: Transaction, /, *, name: str | None = None, with_archived: bool = False, **page: Any
) -> Slice[Store]:
    """Return a page of stores, newest first; `name` is a prefix, compared ignoring case."""
    tx.caller.require_stores()
    return stores_of(tx, Page(**page), name, with_archived=with_archived)


def stores_of(
    tx: Transaction, page: Page, name: str | None = None, *, with_archived: bool = True
) -> Slice[Store]:
    archived = "" if with_archived else " AND archived_at IS NULL"
    which = f"erasure_id IS NULL{archived}{page.window('uid', 'created_at')}"
    rows = tx[Sql].stream(_STORE.selecting() + which, **page.values)
    prefix = (name or "").casefold()
    # Names are filtered here, until the page is full: SQLite folds the case of ASCII only.
    stores = tx[Sql].intact(rows, _STORE)
    return page.sliced(store for store in stores if store.name.casefold().startswith(prefix))


def amend_store(tx: Transaction, store: StoreId, parts: Parts) -> Store:
    """Change a store; a metadata key with a value is set, one with None is removed.

    Raise Archived if it is read-only.
    """
    before = open_store(tx, store)
    require_room(tx)
    patch: Mapping[str, str | None] = parts.get("metadata", {})
    kept = {key: value for key, value in before.metadata.items() if key not in patch}
    pairs = kept | {key: value for key, value in patch.items() if value is not None}
    if len(pairs) > MAX_PAIRS:
        raise Invalid(f"metadata has at most {MAX_PAIRS} pairs.")
    amended = before.model_copy(update={**parts, "metadata": pairs})
    return before if amended == before else replace_store(tx, amended, updated_at=tx.now)


def archive_store(tx: Transaction, store: StoreId, policy: Policy) -> Store:
    """Make a store read-only permanently; a repeat raises AlreadyDone if the policy says so."""
    before = known_store(tx, store)
    if before.archived_at is None:
        return replace_store(tx, before, updated_at=tx.now, archived_at=tx.now)
    if policy.rejects_repeats:
        raise AlreadyDone("The memory store is already archived.")
    return before


def replace_store(tx: Transaction, store: Store, **instants: datetime) -> Store:
    """Update a store's name, description, metadata and instants; `grow` updates its counts."""
    after = store.model_copy(update=instants)
    row = _STORE.values(after)
    del row["entries"], row["size"]
    tx[Sql].update("stores", "uid", row)
    return after


def grow(tx: Transaction, store: StoreId, entries: int, size: int) -> None:
    """Add to the counts of live entries and their bytes; negative to subtract."""
    tx[Sql].run(
        "UPDATE stores SET entries = entries + :entries, size = size + :size WHERE uid = :uid",
        uid=store, entries=entries, size=size,
    )  # fmt: skip


def delete_store(tx: Transaction, store: StoreId) -> None:
    """Hide the store; its rows stay until the erasure is complete."""
    known_store(tx, store)
    erasure = tx[ReceiptTable].add(ErasureKind.STORE, is_in_progress=True)
    tx[Sql].update("stores", "uid", {"uid": store, "erasure_id": erasure.id})
    tx[IdempotencyTable].erase_answers()


def is_store_going(tx: Transaction) -> bool:
    """Whether rows of a deleted store remain to be erased."""
    return _unfinished_erasure(tx) is not None


def _unfinished_erasure(tx: Transaction) -> ErasureId | None:
    rows = tx[Sql].run(
        """SELECT space_id, erasure_id
             FROM stores
            WHERE erasure_id IS NOT NULL
         ORDER BY erasure_id"""
    )
    return next(tx[Sql].intact(rows, _erasure), None)


def erase_some_of_store(tx: Transaction) -> None:
    """Erase a batch of a deleted store: first its revisions, then its memories, then its row."""
    sql, erasure = tx[Sql], _unfinished_erasure(tx)
    if erasure is None:
        return
    revisions = sql.run(
        """SELECT v.memory_id, v.number
             FROM stores t
             JOIN versions v ON v.store_id = t.space_id
            WHERE t.erasure_id = :erasure
            LIMIT :limit""",
        erasure=erasure, limit=HISTORY,
    ).fetchall()  # fmt: skip
    if revisions:
        tx[ReceiptTable].extend(erasure, (), tx[RevisionTable].erase(revisions))
        return
    some = sql.run(
        f"""SELECT m.id, length(m.content)
              FROM stores t
              JOIN memories m {sql.dialect.hint("memories_by_hash")} ON m.space_id = t.space_id
             WHERE t.erasure_id = :erasure
             LIMIT :limit""",
        erasure=erasure, limit=BATCH,
    )  # fmt: skip
    # Fewer memories than the limit if their contents are long.
    memories = [MemoryId(id_) for id_, _ in rows.portion(some, MAX_STEP, lambda row: int(row[1]))]
    if memories:
        tx[MemoryTable].erase_some(memories)
        tx[ReceiptTable].extend(erasure, memories, 0)  # their revisions were erased before
        return
    space = sql.number("SELECT space_id FROM stores WHERE erasure_id = :erasure", erasure=erasure)
    sql.run("DELETE FROM stores WHERE space_id = :space", space=space)
    sql.run("DELETE FROM spaces WHERE id = :space", space=space)
    tx[ReceiptTable].complete(erasure, 0)


CREATE, AMEND = once(create_store, check=require_stores), once(amend_store, check=known_store)
ARCHIVE, _DELETE = once(archive_store, check=known_store), once(delete_store, check=require_stores)


@reads("stores")
def _erasure(_: int, erasure: ErasureId) -> ErasureId:
    return erasure


_STORE = RowMapper(Store, "stores", "space_id")

# The kind of each id in a path, and the message if it is unknown, by argument.
KINDS = {
    "store": (STORE, NO_STORE), "entry": (ENTRY, NO_ENTRY), "version": (VERSION, NO_VERSION),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Param(bodies.Param):
    """A parameter of the path or the query."""

    is_in_path: bool = False
    shapes_response: bool = False  # passed to the response, not to the work


def in_path(name: str, into: str) -> Param:
    """Declare a stable id in the path; reading a malformed id raises NotFound."""
    kind, sentence = KINDS[into]
    return Param(
        name=name, help="", into=into, is_in_path=True,
        read=lambda arguments, name: known_uid(
            kind, arguments.request.path_params[name], sentence
        ),
    )  # fmt: skip


def in_query(name: str, into: str, read: Reading, help_: str, **more: Any) -> Param:
    return Param(name=name, into=into, read=read, help=help_, **more)


def created(problem: str, what: str, **options: Any) -> tuple[Param, Param]:
    """Declare the first and last creation time to list; `what` names their format."""
    first, last = (
        parsing(partial(instant, rounds_up=it, **options), problem) for it in (True, False)
    )
    return (
        in_query("created_at[gte]", "created_from", first, f"Created at this {what} or later.",
                 kind="instant"),
        in_query("created_at[lte]", "created_to", last, f"Created at this {what} or earlier.",
                 kind="instant"),
    )  # fmt: skip


ARCHIVED = in_query(
    "include_archived", "with_archived",
    parsing(lambda text: FLAGS.get(text.lower()), "must be true or false", absent=False),
    "`true` lists archived stores too.", kind="boolean",
)  # fmt: skip


def op(  # noqa: PLR0913, PLR0917 - all that an operation is
    serving: Serving, bodies: Bodies, arguments: type[Arguments],
    answered: Callable[..., Response], method: str, path: str, name: str, summary: str, role: Role,
    work: Callable[..., Any], takes: Sequence[Param] = (), *, body: type[Body] | None = None,
    body_required: bool = True, status: int = 200, **more: Any,
) -> Operation:  # fmt: skip
    """Declare an operation; the caller's role is checked again once the body is read.

    `work` gets by name the parameters in `takes`, read in this order, and the `body`. A
    coroutine function gets the serving and the caller first; others, a transaction. `answered`
    makes the response of a request, a result, a status, headers, and parameters of the response.
    A result's `about` is what its span says of it.
    """
    is_write = method != "GET"
    ids = [it.into for it in takes if it.is_in_path]
    names = signature(work).parameters

    async def handle(request: Request) -> Response:
        values = arguments(request).parsed(takes)
        annotate(about(**{name: values[name] for name in ids}))
        shape = {it.into: values.pop(it.into) for it in takes if it.shapes_response}
        if body is not None:
            values["body"] = await bodies.read(request, body, empty=not body_required)
        caller = await bodies.caller(request) if is_write else current_caller(request)
        caller.require(role)  # the gate checked the same role; it may have been revoked since
        headers = {}
        if iscoroutinefunction(work):
            result = await work(serving, caller, **values)
        elif is_write:
            result = await serving.write(caller, work, names, **values)
        else:
            result = await serving.engine.read(caller, work, **values)
        if isinstance(result, Written):
            headers = {REDACTED: str(result.redacted)} if result.redacted else {}
            result = result.value
        if hasattr(result, "about"):
            annotate(result.about())
        items = result.items if isinstance(result, Slice) else ()
        if sum(len(getattr(it, "content", None) or "") for it in items) > LARGE:
            # In a thread, so that other requests have the event loop.
            return await to_thread(answered, request, result, status, headers, **shape)
        return answered(request, result, status, headers, **shape)

    return Operation(
        method=method, path=path, name=name, summary=summary, handler=handle, role=role, body=body,
        body_required=body_required, status=status, refusals=(404,) if ids else (),
        query=[it for it in takes if not it.is_in_path], headers=WRITTEN if body else {},
        takes_key=is_write, **more,
    )  # fmt: skip


def problem(name: str, docs: str, **more: type) -> type[Record]:
    """Return the schema of a dialect's refusals; an error may have `more` members."""
    error = shape(f"{name}Error", docs, optional=more, type=str, message=str)
    return shape(
        f"{name}Problem", "A refused request: the error, and the id of the request.",
        type=(Literal["error"], "error"), error=error, request_id=str,
    )  # fmt: skip


def problem_json(type_: str, message: str, request_id: str, **more: str) -> bytes:
    error = {"type": type_, "message": message, **more}
    return written({"type": "error", "error": error, "request_id": request_id})


def page_json(items: Iterable[bytes], **more: object) -> bytes:
    pieces = [part for item in items for part in (b",", item)]
    # Joined once: a page may have megabytes, and each copy of it blocks the event loop.
    return b"".join([b'{"data":[', *pieces[1:], b"],", written(more)[1:]])


def about(**ids: str) -> dict[str, Any]:
    """Return span attributes with the public ids of a store, an entry and a version."""
    return {f"memory.{name}.id": public_id(KINDS[name][0], id_) for name, id_ in ids.items()}
