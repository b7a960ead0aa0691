"""What all nouns of OpenWOP share: `Serving`, operations, fields of bodies, and rules of refs.

The rules say which refs are valid, what hosts may write to a ref, and which entries a ref has now
or in a snapshot (OpenWOP CTI-1, SR-1, RFC 0004 §A).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Annotated, Any, NewType, TypeVar
from urllib.parse import unquote_to_bytes
from weakref import WeakValueDictionary

from pydantic import AfterValidator, BaseModel, Field
from pydantic.alias_generators import to_camel, to_snake
from starlette.requests import Request
from starlette.responses import Response

from ..engine.engine import Audit, Engine, Transaction, noop
from ..errors import BadFields, Conflict, Denied
from ..http import bodies
from ..http.bodies import Arguments, Param, row_limit
from ..http.gate import current_caller
from ..http.protocol import REDACTED, Operation
from ..http.query import ENTRY, fitting, instant, public_id
from ..light import dataclass, field, replace
from ..memory.access import Caller, Role, TenantId
from ..memory.memory import MemoryId, Text, expired, superseded_in_ref
from ..memory.redactor import Redaction, Redactor
from ..memory.rows import MOST, Column
from ..memory.saves import Written
from ..memory.space import MemoryRef
from ..recall.query import TIMEOUT
from ..recall.text import REPLACEMENT, clean, has_controls
from ..record import Record, shape
from ..secrets.assignments import MARK
from ..secrets.redaction import LONGEST_NAME, VALUE
from ..telemetry import Cut, annotate, count
from ..telemetry.metrics import COMMITMENTS_FIRED

T = TypeVar("T")

RefEntryId = NewType("RefEntryId", str)
"""The id that the host chose, or `mem_` and the digits of the stable id."""

Offset = NewType("Offset", int)
"""An event's offset in the log of all runs; the order of commits, independent of clocks."""

JsonObject = Mapping[str, object]

LONGEST_REF = LONGEST_ID = 256  # code points
LONGEST_TAG = 256
MAX_CONTENT = 65_536  # bytes of UTF-8
MAX_READ = 2 * 1024 * 1024  # bytes of contents read for one answer; an answer holds less
ARCHIVE, DISTILLED, COMPACTED = "archive", "distilled", "compacted-from:"  # tags of the service

NO_ENTRY = "memory entry not found"  # also of an entry that the caller must not know of
NOWHERE = MemoryRef("")  # stands for a ref that cannot have entries
SERVICE_ID = re.compile(r"(?:mem|archive)_[0-9a-f]{32}", re.ASCII)  # ids that the service assigns
_OWNERS = re.compile(
    r"(?:workspaces|tenants)/(?P<folder>[^/]*)/"
    r"|tenant:(?P<label>[^:/]*)(?:[:/]|$)"
    r"|mem_tenant:(?P<pair>.*?)_agent:",
    re.DOTALL,
)
_SEPARATORS = re.compile(r"[/\\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of memory just after an event.

    It holds the entries up to the memory `high`, except those deleted before the event. A
    deletion is marked with the last event before it.
    """

    offset: Annotated[Offset, Column("log_offset")]
    high: MemoryId
    at: datetime


class MemoryChanged(Conflict):
    code, sentence = "memory_changed", "An entry that the request names is not live."


class ScreenOutdated(Exception):
    """A secret was registered after the text was screened and before it was written."""


# The screen rewrites secrets in all that hosts write, in each form that secrets have (SR-1).

# A reference to a secret that a host resolves; a host's marker of a redacted secret; and keys in
# the shape of OpenAI's, which may be shorter in this protocol than elsewhere.
_RESOLVED = re.compile(r"\[BYOK:[^\]]*\]")
_MARKED = re.compile(r"<REDACTED:([^>]*)>")
_KEY = re.compile(r"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Screen:
    """Rewrites secrets in what one request writes; its redactor counts them."""

    redactor: Redactor

    def text(self, text: str) -> str:
        """Return the text without secrets; it may be longer than the original."""
        clean, number = mark_secrets(self.redactor.whole(text))
        if not number:
            return clean
        self.redactor.kinds[VALUE] += number
        return self.redactor.whole(clean)  # a new marker may complete another secret

    def changes(self, name: str) -> bool:
        """Return whether a name holds a secret."""
        return Screen(Redactor(self.redactor.rules)).text(name) != name

    def content(self, content: str) -> str:
        """Return the content without secrets, cut to the maximum length."""
        clean = self.text(content)
        return clean if clean == content else clean.encode()[:MAX_CONTENT].decode(errors="ignore")

    def tags(self, tags: Iterable[str]) -> tuple[str, ...]:
        """Return the tags without secrets or duplicates."""
        return tuple(dict.fromkeys(self.text(tag)[:LONGEST_TAG] for tag in tags))


def mark_secrets(text: str) -> tuple[str, int]:
    """Replace hosts' references, markers and keys by our markers; return the text and count."""
    number = 0
    for pattern, kind in _FORMS:
        text, times = pattern.subn(kind, text)
        number += times
    return text, number


def screened(redactor: Redactor, text: Text) -> Text:
    """Return the text of an entry's memory without secrets."""
    screen = Screen(redactor)
    return replace(text, content=screen.content(text.content), tags=screen.tags(text.tags))


def _marker(match: re.Match[str]) -> str:
    return f"{MARK}{_UNSAFE.sub('-', match[1])[:LONGEST_NAME] or 'value'}]"


_FORMS = ((_RESOLVED, f"{MARK}byok]"), (_MARKED, _marker), (_KEY, f"{MARK}openai-key]"))


# Which ids, refs and names are valid; none of these checks reads storage.
def ref_entry_id(uid: str, name: str | None) -> RefEntryId:
    """Return the public id of an entry from its stable id and the name that its host chose."""
    return RefEntryId(name or public_id(ENTRY, uid))


def is_malformed(ref: str) -> bool:
    """Return whether a text is not a valid ref for any caller."""
    too_long = not 0 < len(ref) <= LONGEST_REF
    return too_long or has_controls(ref) or ".." in _SEPARATORS.split(ref)


def require_ref(ref: MemoryRef, tenant: TenantId, screen: Screen, field: str = "memoryRef") -> None:
    """Raise BadFields for an invalid ref, and Denied for another tenant's."""
    if is_malformed(ref) or screen.changes(ref):
        raise BadFields([(field, "is not a memory ref")])
    if _is_foreign(ref, tenant):
        raise Denied("This ref names another tenant.")


def _is_foreign(ref: str, tenant: TenantId) -> bool:
    owner = _OWNERS.match(ref)
    return owner is not None and owner[owner.lastgroup or 0].lower() != tenant


def require_plain(screen: Screen, **names: str | None) -> None:
    """Raise BadFields for names that hold a secret, as a name cannot be rewritten."""
    faults = [(field, "holds a secret") for field, it in names.items() if it and screen.changes(it)]
    if faults:
        raise BadFields(faults)


class KeyedLocks:
    """The locks of one service; a lock exists only while it is held or awaited."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()

    def of(self, caller: Caller, *names: str) -> asyncio.Lock:
        """Return the lock of something that the caller's tenant has."""
        return self._locks.setdefault((caller.tenant, *names), asyncio.Lock())


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The dependencies that the operations of all nouns share.

    An invalid ref, or another tenant's, has no entries; what does not exist raises NotFound. An
    audited change is audited first, and not made if auditing fails.
    """

    engine: Engine
    redaction: Redaction
    audit: Audit
    clock: Callable[[], datetime]
    timeout: timedelta = TIMEOUT  # how long one search may take
    keep_archives: timedelta = timedelta()  # 0 keeps them permanently
    is_consolidating: bool = False  # whether a scheduled job consolidates changed refs
    on_due: Callable[[Caller], object] = noop  # called when due commitments may be left
    on_erased: Callable[[Caller], None] = noop
    pass_ended: Callable[[str, str], object] = noop  # called with (kind, outcome)
    locks: KeyedLocks = field(default_factory=KeyedLocks)

    def screen(self, caller: Caller) -> Screen:
        """Return a screen with the caller's current rules."""
        return Screen(Redactor(self.redaction.rules(caller)))

    def readable(self, caller: Caller, ref: str) -> MemoryRef:
        """Return the ref, or NOWHERE if the ref cannot have entries for this caller."""
        is_invalid = is_malformed(ref) or self.screen(caller).changes(ref)
        return NOWHERE if is_invalid or _is_foreign(ref, caller.tenant) else MemoryRef(ref)

    async def write(
        self, caller: Caller, screen: Screen, work: Callable[..., T], *arguments: object
    ) -> T:
        """Run a transaction; raises ScreenOutdated if registered secrets changed since `screen`."""

        @wraps(work)
        def checked(tx: Transaction, *arguments: object) -> T:
            if self.redaction.rules(caller).values != screen.redactor.rules.values:
                raise ScreenOutdated
            return work(tx, *arguments)

        return await self.engine.write(caller, checked, *arguments)

    async def written(
        self, caller: Caller, work: Callable[..., T],
        clean: Callable[[Screen], Awaitable[Sequence[object]]],
    ) -> Written[T]:  # fmt: skip
        """Run `work` in a transaction, with the arguments that `clean` returns for a screen.

        If a secret is registered meanwhile, both are repeated with a new screen.
        """
        while True:
            screen = self.screen(caller)
            arguments = await clean(screen)
            with suppress(ScreenOutdated):
                done = await self.write(caller, screen, work, *arguments)
                return Written(value=done, redacted=screen.redactor.count)


def reading(work: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Return the work of an operation that only runs `work` in a read transaction."""
    return lambda serving, caller, **values: serving.engine.read(caller, work, **values)


def first_fitting(
    listed: Iterable[tuple[T, int, int]], limit: int, budget: int | None = None, *,
    room: int = MAX_READ,
) -> tuple[list[T], bool]:  # fmt: skip
    """Return the first items that fit, and whether a next page would have more.

    `listed` has items with the bytes and code points of their contents. An item that alone exceeds
    the budget is left out; of the others, the longest prefix within the budget is returned
    (RFC 0113). `room` bounds the bytes.
    """
    chosen, most = list[T](), MOST if budget is None else budget
    left = most
    for each, size, length in listed:
        if length > most:
            continue
        room, left = room - size, left - length
        if len(chosen) == limit or room < 0 or left < 0:
            return chosen, True
        chosen.append(each)
    return chosen, False


# Conditions on `ref_entries e`: which entries a ref has, now or in a snapshot.
def undeleted_at(alias: str) -> str:
    """Return SQL: the entry was not deleted at the event; a later deletion does not count."""
    deleted_after = f"{alias}.deleted_after"
    return f"({deleted_after} IS NULL OR {deleted_after} BETWEEN :offset AND {2 * MOST})"


def put_by(alias: str) -> str:
    """Return SQL: the entry was put up to the event; a renewed one counts from its first put."""
    return f"coalesce({alias}.renews, {alias}.memory_id) <= :high"


def present(at: Snapshot | None, alias: str = "e") -> str:
    """Return SQL: the entry is neither deleted nor expired."""
    unexpired = f"NOT {expired(f'{alias}.memory_id')}"
    if at is None:
        return f"{alias}.deleted_after IS NULL AND {unexpired}"
    return f"{put_by(alias)} AND {undeleted_at(alias)} AND {unexpired}"


def superseded(at: Snapshot | None) -> str:
    """Return SQL: an entry that is present supersedes this one."""
    if at is None:
        return superseded_in_ref("e.memory_id")
    return f"""EXISTS (SELECT 1
                         FROM ref_supersessions x
                         JOIN ref_entries n ON n.memory_id = x.newer_id
                        WHERE x.older_id = e.memory_id AND x.made_after < :offset
                              AND (x.ended_after IS NULL OR x.ended_after >= :offset)
                              AND {present(at, "n")})"""


def values(at: Snapshot | None) -> Mapping[str, object]:
    """Return the parameters of the conditions, except `:now`."""
    return {} if at is None else {"offset": at.offset, "high": at.high}


LONGEST_RUN, LONGEST_NODE = 128, 128  # code points
MAX_TAGS = 50


class CamelBody(bodies.Body, alias_generator=to_camel, populate_by_name=True):
    """The base of bodies, whose names are camelCase on the wire."""


def _tags(tags: list[str]) -> list[str]:
    kept = list(dict.fromkeys(filter(None, tags)))
    if len(kept) > MAX_TAGS:
        raise bodies.fault(f"must have at most {MAX_TAGS} items")
    archives = (ARCHIVE, DISTILLED)
    if any(tag in archives or tag.startswith(COMPACTED) for tag in kept):
        raise bodies.fault("must not have a tag reserved for the service")
    return kept


Exact = bodies.must(lambda text: clean(text) == text, "must have no NUL and no lone surrogate")
Printable = bodies.must(lambda text: not has_controls(text), "must not contain control characters")
ZonedText = bodies.must(
    lambda text: instant(text, needs_offset=True) is not None,
    "must be an RFC 3339 time with an offset",
)
Zoned = Annotated[bodies.Instant, ZonedText]
MemoryRefText = Annotated[
    MemoryRef, Exact, bodies.must(lambda text: not is_malformed(text), "is not a memory ref"),
    Field(
        json_schema_extra={"minLength": 1, "maxLength": LONGEST_REF}, examples=["mem://notes"]
    ),
]  # fmt: skip
EntryName = Annotated[RefEntryId, Field(min_length=1, max_length=LONGEST_ID), Exact, Printable]
OwnName = Annotated[
    EntryName,
    bodies.must(lambda name: not SERVICE_ID.fullmatch(name), "is reserved for the service"),
]
RunName = Annotated[
    str, Field(min_length=1, max_length=LONGEST_RUN), Exact, Printable,
    bodies.must(lambda name: "/" not in name, "must have no slash"),
]  # fmt: skip
Node = Annotated[str, Field(min_length=1, max_length=LONGEST_NODE), Exact, Printable]
AgentName = Annotated[str, Field(min_length=3, max_length=LONGEST_ID), Exact, Printable]
PlainName = Annotated[str, Field(min_length=1, max_length=LONGEST_ID), Exact, Printable]
Tags = Annotated[list[Annotated[str, Field(max_length=LONGEST_TAG), Exact]], AfterValidator(_tags)]
ContentText = Annotated[
    str, Exact, bodies.must(lambda text: text.strip() != "", "must not be blank"),
    bodies.must(
        lambda text: len(text.encode()) <= MAX_CONTENT,
        f"must have at most {MAX_CONTENT:,} bytes of UTF-8",
    ),
]  # fmt: skip

BASE = "/v1/host/agentops-memory"
LONGEST_BODY = 1024 * 1024  # bytes
DEFAULT_ROWS, MOST_LISTED = 100, 1000  # rows of a list: default and maximum
SPAN_ATTRIBUTES = {  # by argument; only names, and without secrets
    "memory_ref": "memory.ref",
    "run_id": "openwop.run_id",
    "node_id": "openwop.node_id",
    "memory_id": "memory.entry.id",
}
LONGEST_IN_SPAN = 100  # code points

BODIES = bodies.Bodies(refusal=bodies.bad_fields, limit=LONGEST_BODY)

_IN_PATH = re.compile(r"{(\w+)")


class Query(Arguments):
    """Parses the exact texts of query parameters."""

    def text(self, name: str, *, allows_nul: bool = False) -> str | None:
        try:
            return bodies.exact_parameter(self.request, name, allows_nul=allows_nul)
        except ValueError:
            self.fault(name, "must be UTF-8 without NUL")
            return None

    def ref(self, name: str) -> str | None:
        """Return a ref to read; one with NUL has no entries, as any malformed ref (CTI-1)."""
        return self.text(name, allows_nul=True)


limit = partial(row_limit, default=DEFAULT_ROWS, most=MOST_LISTED, least=0)


@dataclass(frozen=True, slots=True)
class Page:
    """A list under a name; one answer holds as many items as fit.

    If items are left, `next` is the cursor of the last item that was sent.
    """

    name: str
    items: Sequence[Record]
    cursor: Callable[[Any], str] | None = None
    has_more: bool = False  # whether more items follow `items`
    more: Callable[[int], Mapping[str, object]] = lambda _: {}
    """Returns the other fields of the answer for the number of items that were sent."""

    def beside(self, sent: int) -> dict[str, object]:
        """Return the fields of an answer with `sent` items, other than the list."""
        fields = dict(self.more(sent))
        if self.cursor and sent and (self.has_more or sent < len(self.items)):
            fields["next"] = self.cursor(self.items[sent - 1])
        return fields


def first_page(
    name: str, rows: Callable[..., Sequence[Record]], cursor: Callable[[Any], str]
) -> Callable[..., Awaitable[Page]]:
    """Return the work of a list; `rows` reads one row more than the limit in a transaction."""

    async def work(serving: Serving, caller: Caller, *, limit: int, **which: Any) -> Page:
        listed = await serving.engine.read(caller, rows, limit=limit + 1, **which)
        return Page(name, listed[:limit], cursor, len(listed) > limit)

    return work


def listed(item: type[Record], name: str, docs: str) -> type[Record]:
    """Return the schema of a `Page` of items."""
    items: dict[str, Any] = {name: [item]}
    return shape(f"Listed{name.capitalize()}", docs, optional={"next": str}, **items)


def op(  # noqa: PLR0913 - all that an operation is
    serving: Serving, method: str, path: str, name: str, summary: str,
    work: Callable[..., Awaitable[Record | Written[Any] | Page]], *, role: Role | None = None,
    body: type[BaseModel] | None = None, body_required: bool = True, takes_key: bool | None = None,
    query: Sequence[Param] = (), **more: Any,
) -> Operation:  # fmt: skip
    """Return an operation. It calls `work` with `serving`, the authorized caller, and by name the
    path parameters, the query parameters (in snake_case) and the `body`.

    By default GET is for readers; other methods are for writers and take an idempotency key. A path
    with parameters may be refused with 404.
    """
    is_write, in_path = method != "GET", _IN_PATH.findall(path)
    keyed = is_write if takes_key is None else takes_key
    needed = role or (Role.WRITER if is_write else Role.READER)
    refusals = (*((404,) if in_path else ()), *more.pop("refusals", ()))
    status, status_if_new = more.get("status", 200), more.get("status_if_new")

    async def handle(request: Request) -> Response:
        values: dict[str, Any] = {to_snake(it): text_in_path(request, it) for it in in_path}
        if body is not None:
            values["body"] = await BODIES.read(request, body, empty=not body_required)
        values |= Query(request).parsed(query)
        for argument, attribute in SPAN_ATTRIBUTES.items():
            if value := values.get(argument) or getattr(values.get("body"), argument, None):
                annotate({attribute: Cut(value, LONGEST_IN_SPAN)})
        if keyed:
            caller = await BODIES.caller(request, holder=f"openwop {name}")
        else:
            caller = current_caller(request)
        # The gate checked the same; a right may have been revoked since.
        caller.require(needed, more.get("scope"))
        caller.require_refs()
        done = await work(serving, caller, **values)
        if isinstance(done, Page):
            return _page(done)
        if isinstance(done, Record):
            return Response(done.json_bytes(), status, media_type=bodies.JSON)
        if not caller.is_replay:
            count(COMMITMENTS_FIRED, "predicate", by=done.fired)
        headers = {REDACTED: str(done.redacted)} if done.redacted else {}
        code = status_if_new if done.is_new and status_if_new else status
        return Response(done.value.json_bytes(), code, headers, media_type=bodies.JSON)

    return Operation(
        method=method, path=path, name=f"openwop_{name}", summary=summary, handler=handle,
        role=needed, body=body, body_required=body_required, takes_key=keyed, query=query,
        refusals=refusals, **more,
    )  # fmt: skip


def text_in_path(request: Request, name: str) -> str:
    """Return the exact path parameter; raises BadFields if it is not UTF-8."""
    text: str = request.path_params[name]
    if REPLACEMENT in text:  # it stands for bytes that are not UTF-8, unless the caller sent it
        sent = unquote_to_bytes(request.scope["raw_path"])
        if sent.decode(errors="replace") != sent.decode(errors="surrogateescape"):
            raise BadFields([(name, "must be UTF-8")])
    return text


def _page(page: Page) -> Response:
    items = fitting(it.json_bytes() for it in page.items)
    annotate({"memory.result_count": len(items)})
    others = page.beside(len(items))
    listed = b'{"%b":[%b]' % (page.name.encode(), b",".join(items))
    return Response(
        listed + (b"," + bodies.written(others)[1:] if others else b"}"), media_type=bodies.JSON
    )
