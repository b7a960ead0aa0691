"""The basis of all views: the visit of a browser, the page it gets, and their operations.

Stored text becomes HTML without markup of its own, in which no character is invisible.
"""

import asyncio
import hmac
import secrets
import shlex
import unicodedata
from bisect import bisect
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from difflib import SequenceMatcher
from functools import cache, cached_property, lru_cache, partial
from hashlib import sha256
from itertools import accumulate, groupby, takewhile
from operator import itemgetter
from pathlib import Path
from re import compile as pattern
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from markupsafe import Markup, escape
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

from agentops_memory_client.contract.models import JUST_NOW, Refused, age_words, size
from agentops_memory_client.contract.service import MemoryService

from ..agentops.operations import AgentOps, ReadContext
from ..engine.engine import Maintenance, Transaction
from ..errors import Denied, Invalid, Refusal
from ..http.app import Readiness
from ..http.bodies import MAX_BODY, query_of, whole_body
from ..http.gate import current_caller
from ..http.protocol import NoPath, Operation, Protocol, Refusals
from ..http.query import public_id, whole_number
from ..light import dataclass, field
from ..memory import projects
from ..memory.access import Caller, KeyId, KeyRing, Role
from ..memory.space import Project
from ..openintent.routes import AgentEntries
from ..openwop.api import Serving as OpenWop
from ..recall.text import clean, printable, runs
from ..settings import Settings
from ..telemetry import Metrics, trace_headers

if TYPE_CHECKING:
    from jinja2 import Environment


# Most bytes of HTML of a text, so that no page exceeds 300 KB; the REST response has all of it.
MOST, MOST_OF_LINE, MOST_OF_DIFF = 200_000, 4_000, 30_000
MOST_PAIRS = 1_000_000  # most pairs of pieces to compare; beyond, the whole text counts as changed
SNIPPET = 240  # characters of a memory in a list
AROUND = 240  # unchanged characters shown around a change

LINE_BREAKS = "\n\t"
_INVISIBLE = Markup('<span class="sign" title="{}">{}</span>')
_CLIPPED = Markup('<span class="clipped">… {} more characters; the JSON below has all of it</span>')
_ELEMENTS = {
    "": Markup("{}"), "mark": Markup("<mark>{}</mark>"),
    "del": Markup("<del>{}</del>"), "ins": Markup("<ins>{}</ins>"),
}  # fmt: skip
WORD = pattern(r"[^\W_]+")
_PIECES = pattern(r"\s*(?:\w+|[^\w\s]+)|\s+")  # words and signs, each with the blanks before it
TOKEN = "token"  # noqa: S105 - the name of a field
TOKEN_LIFETIME = timedelta(hours=12)  # a tab may stay open over a working day
MOST_FIELDS = 500
FOREIGN = "This form was sent from another site; nothing was done."
Form = ImmutableMultiDict[str, str]


def line(text: str, most: int = MOST_OF_LINE) -> Markup:
    """Render a text in one isolated line; a line break is shown as its code."""
    return Markup("<bdi>{}</bdi>").format(_clipped(text, most, ""))


def prose(text: str, most: int = MOST) -> Markup:
    """Render an isolated text with line breaks; if it is too long, its end is only counted."""
    return marked([("", text)], most)


def marked(parts: Iterable[tuple[str, str]], most: int = MOST) -> Markup:
    """Render an isolated text whose parts are (element, text), until it is too long."""
    html, size = list[Markup](), 0
    for element, text in parts:
        if size > most:
            break
        inside = _clipped(text, most - size)
        size += len(inside.encode())
        html.append(_ELEMENTS[element].format(inside))
    return Markup("<bdi>{}</bdi>").format(Markup().join(html))


def snippet(text: str, most: int = 2_000) -> Markup:
    start = " ".join(text[: 2 * SNIPPET].split())
    return line(start if len(start) <= SNIPPET else f"{start[:SNIPPET]}…", most)


def highlighted(text: str, matched: Collection[str], most: int = MOST) -> Markup:
    parts, end = list[tuple[str, str]](), 0
    for match in WORD.finditer(text):
        if match[0] in matched:
            parts += [("", text[end : match.start()]), ("mark", match[0])]
            end = match.end()
    return marked([*parts, ("", text[end:])], most)


def ago(at: datetime, now: datetime) -> Markup:
    """Render an instant as its age, or the time until it, followed by the instant itself."""
    seconds = (now - at).total_seconds()
    age = age_words(abs(seconds))
    if age != JUST_NOW:
        age = f"{age} ago" if seconds > 0 else f"in {age}"
    elif seconds < 0:
        age = "in less than a minute"
    utc = at.astimezone(UTC)
    template = Markup('<time datetime="{}">{} <span class="instant">{} UTC</span></time>')
    return template.format(f"{utc:%Y-%m-%dT%H:%M:%SZ}", age, f"{utc:%Y-%m-%d %H:%M}")


def compared(before: str, after: str, most: int = MOST_OF_DIFF) -> Markup:
    """Render a change word by word, with some unchanged text around it."""
    runs_of_one = groupby(_changes(before, after), key=itemgetter(0))
    parts = [(element, "".join(text for _, text in run)) for element, run in runs_of_one]
    for number, (element, text) in enumerate(parts):
        head = text[:AROUND] if number else ""
        tail = text[-AROUND:] if number < len(parts) - 1 else ""
        if not element and len(text) > len(head) + len(tail) + 1:
            parts[number] = "", f"{head} … {tail}"
    return marked(parts, most)


def _changes(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of two texts as (element, text): unchanged, deleted and inserted ones."""
    for lines in _blocks(before.splitlines(keepends=True), after.splitlines(keepends=True)):
        is_edited = all(lines) and lines[0] != lines[1]
        for old, new in _blocks(*map(_PIECES.findall, lines)) if is_edited else [lines]:
            its = [("", old)] if old == new else [("del", old), ("ins", new)]
            yield from (it for it in its if it[1])


def _blocks(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """Yield equal and different parts of two texts; one different part if they are too long."""
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    yield "".join(old[:start]), "".join(new[:start])
    tail = "".join(old[len(old) - end :])
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) * len(new) > MOST_PAIRS:
        yield "".join(old), "".join(new)
    else:
        for _, a, b, c, d in SequenceMatcher(None, old, new).get_opcodes():
            yield "".join(old[a:b]), "".join(new[c:d])
    yield tail, tail


def _common(old: list[str], new: list[str]) -> int:
    """Count the pieces with which both begin."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(old, new, strict=False)))


def _clipped(text: str, most: int, allowed: Collection[str] = LINE_BREAKS) -> Markup:
    """Escape at most so many bytes of the text, and add the number of omitted characters."""
    length = min(len(text), most)
    # Hostile text can take forty times its length.
    while (size := len((html := _escaped(text[:length], allowed)).encode())) > most:
        length = min(length * most // size, length - 1)
    omitted = len(text) - length
    return html + _CLIPPED.format(f"{omitted:,}") if omitted else html


def _escaped(text: str, allowed: Collection[str]) -> Markup:
    """Escape the text; each invisible character is shown by its code."""
    # A shortcut for most texts of lists, without which a page takes twice as long.
    if text.isascii() and text.isprintable():
        return escape(text)
    parts = list[Markup]()
    for is_visible, run in runs(text):
        if is_visible:
            parts.append(escape(run))
            continue
        for char, some in groupby(run):
            count = sum(1 for _ in some)
            parts.append(escape(char * count) if char in allowed else _codes(char, count))
    return Markup().join(parts)


@lru_cache(1024)
def _codes(char: str, count: int) -> Markup:
    code = f"U+{ord(char):04X}"
    name = unicodedata.name(char, "control character").lower()
    return _INVISIBLE.format(name, code if count == 1 else f"{code} * {count:,}")


async def read_form(request: Request) -> Form:
    """Parse the fields of a form, with line feeds as line breaks. Invalid for too many fields."""
    text = (await whole_body(request, MAX_BODY)).decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Invalid(f"A form must have at most {MOST_FIELDS} fields.") from None
    return ImmutableMultiDict([(name, with_line_feeds(clean(value))) for name, value in pairs])


def with_line_feeds(text: str) -> str:
    """Replace the carriage returns that a text area adds to line breaks."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def require_same_site(request: Request, _: Caller) -> None:
    """Raise Denied for a form that another site has sent, according to the browser."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if request.method == "POST" and site not in ("same-origin", "none"):
        raise Denied(FOREIGN)


P = ParamSpec("P")
T = TypeVar("T")

PREFIX = "/ui"
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY}
REFUSALS = Refusals(headers={401: {"WWW-Authenticate": 'Basic realm="console", charset="UTF-8"'}})
HERE = Path(__file__).parent
STATIC = {"console.css": "text/css", "console.js": "text/javascript"}

SUGGESTED = 20_000  # most bytes of HTML of the names that a field suggests
MOST_QUERY = 10_000  # most bytes of the query in a URL, which the links of a page repeat
# The links to the views, each of which has the paths below its link.
SECTIONS = {
    it: f"{PREFIX}/{it.lower()}"
    for it in ("Ask", "Memories", "Review", "Projects", "Sessions", "Documents", "Service")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """The operations that the views use, and the state of the running service."""

    agentops: AgentOps
    memories: Callable[[Callable[[], Caller], Mapping[str, str]], MemoryService]  # caller, trace
    clock: Callable[[], datetime]
    agents: AgentEntries
    refs: OpenWop
    readiness: Callable[[], Awaitable[Readiness]]
    maintenance: Maintenance
    settings: Settings
    metrics: Metrics
    keys: Callable[[], KeyRing]
    used: Mapping[KeyId, datetime]  # when each key was last used, since the start
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))  # of open services


class Parameters(dict[str, str]):
    """The parameters of a page for its template; an unset parameter is empty."""

    def __missing__(self, name: str) -> str:
        return ""


@dataclass()
class Visit:
    console: Console
    request: Request
    form: Form = field(default_factory=Form)

    @property
    def caller(self) -> Caller:
        return current_caller(self.request)

    @cached_property
    def memories(self) -> MemoryService:
        """The operations of AgentOps REST with the rights of this caller."""
        return self.console.memories(lambda: self.caller, trace_headers())

    @cached_property
    def query(self) -> "Parameters":
        """The first value of each parameter, without empty values."""
        params = query_of(self.request).items()
        return Parameters({name: text for name, (value, *_) in params if (text := clean(value))})

    def only(self, *names: str) -> dict[str, str]:
        """Return those of the named parameters that are set."""
        return {name: self.query[name] for name in names if name in self.query}

    @property
    def read_request(self) -> ReadContext:
        return ReadContext(query=query_of(self.request), caller=lambda: self.caller)

    def read_request_of(self, **query: object) -> ReadContext:
        texts = {name: [str(it)] for name, it in query.items()}
        return ReadContext(query=texts, caller=lambda: self.caller)

    async def read(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run a function in a read transaction of this caller."""
        return await self.console.agentops.engine.read(self.caller, work, *args, **named)

    def number(self, name: str) -> int:
        """Parse a number in the path; Invalid for any other text."""
        return whole_number(self.request.path_params[name], name)

    async def page(
        self, template: str, *rest_paths: str, status: int = 200, header: str = "", **values: object
    ) -> Response:
        """Render a page with the REST routes for the same data, as `path?query`.

        A header that these routes need is shown only in their curl commands.
        """
        caller, now = self.caller, self.console.clock()
        html = await asyncio.to_thread(  # other requests are served meanwhile
            _render, template, now=now, viewer=caller, query=self.query,
            path=self.request.scope["path"],
            token=self._token(int((now + TOKEN_LIFETIME).timestamp())), header=header,
            can_write=caller.role.includes(Role.WRITER),
            can_erase=caller.role.includes(Role.ADMIN), project=self.query["project"],
            rest_paths=[(each, self._curl(each, header)) for each in rest_paths], **values,
        )  # fmt: skip
        return HTMLResponse(html, status, HEADERS)

    def redirect(self, path: str, *, anchor: str = "", **query: object) -> Response:
        """Redirect the browser after a form, so that a reload does not repeat the change."""
        return RedirectResponse(address(path, **query) + anchor, status_code=303)

    def has_valid_token(self) -> bool:
        """Whether the form has an unexpired token of this caller."""
        until = self.form.get(TOKEN, "").partition("-")[0]
        if not (until.isascii() and until.isdigit()) or len(until) > 12:
            return False
        is_ours = hmac.compare_digest(self.form[TOKEN].encode(), self._token(int(until)).encode())
        return is_ours and int(until) > self.console.clock().timestamp()

    def _token(self, until: int) -> str:
        """Return the token that a form must contain, valid for this caller until it expires."""
        # Signed with the caller's own key, which every pod knows, also after a restart.
        headers, caller = self.request.headers, self.caller
        own = headers.get("authorization") or headers.get("x-api-key") or ""
        key = sha256(own.encode()).digest() if caller.key else self.console.secret
        message = f"console {caller.tenant} {until}".encode()
        return f"{until}-{hmac.new(key, message, sha256).hexdigest()}"

    def _curl(self, path: str, header: str) -> str:
        url = f"{self.request.scope['scheme']}://{self.request.headers.get('host', '')}{path}"
        key = '-H "Authorization: Bearer $MEMORY_API_KEY" ' if self.caller.key else ""
        key += f"-H {shlex.quote(header)} " if header else ""
        return f"curl {key}{shlex.quote(url)}"


def project_names(tx: Transaction) -> list[Project]:
    """Return the project names that a field suggests: as many as fit on a small page."""
    names = sorted(projects.names(tx, with_deleted=False))
    sizes = accumulate(len(f'<option value="{escape(it)}"></option>'.encode()) for it in names)
    return names[: bisect([*sizes], SUGGESTED)]


@dataclass(frozen=True, slots=True)
class View:
    """A route of the console, below /ui."""

    path: str
    name: str
    answer: Callable[[Visit], Awaitable[Response]]
    role: Role = Role.READER
    is_form: bool = False  # whether it receives a form

    def operation(self, console: Console) -> Operation:
        async def handle(request: Request) -> Response:
            visit = Visit(console, request)
            if len(request.scope["query_string"]) > MOST_QUERY:
                raise Invalid(f"The query of a URL must have at most {MOST_QUERY:,} bytes.")
            try:
                if self.is_form:
                    visit.form = await read_form(request)
                    if not visit.has_valid_token():
                        # The token expired, or the key changed: the form is shown again, filled in.
                        fields = visit.form.multi_items()
                        return await visit.page("again.html", status=403, fields=fields)
                return await self.answer(visit)
            except Refused as refusal:
                headers = REFUSALS.headers.get(refusal.status, {})
                return refused_page(refusal.status, str(refusal), headers)

        return Operation(
            method="POST" if self.is_form else "GET", path=f"{PREFIX}{self.path}",
            name=f"console_{self.name}", summary="A page of the console.", handler=handle,
            role=self.role, media_type="text/html",
        )  # fmt: skip


def address(path: str, /, **query: object) -> str:
    """Return a path with the parameters that are set."""
    params = {name: it for name, it in query.items() if it not in (None, "", False)}
    return f"{quote(path)}?{urlencode(params, doseq=True)}" if params else quote(path)


def _render(template: str, **values: object) -> str:
    return environment().get_template(template).render(values)


@cache
def environment() -> "Environment":
    # Loaded with the first page: a service without visits to its console does not need it.
    from jinja2 import Environment, FileSystemLoader  # noqa: PLC0415

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters |= {it.__name__: it for it in (ago, line, prose, snippet, printable)}
    made.filters |= {"number": lambda number: f"{number:,}", "size": partial(size, grouping=",")}
    made.globals |= {
        "sections": SECTIONS, "address": address, "compared": compared, "id_of": public_id,
    }  # fmt: skip
    return made


def refused_page(status: int, sentence: str, headers: Mapping[str, str] = {}) -> Response:
    html = _render("refused.html", status=status, sentence=sentence)
    return HTMLResponse(html, status, {**HEADERS, **headers})


def refused(refusal: Refusal, _: Scope) -> Response:
    return refused_page(REFUSALS.status(refusal.code), str(refusal), REFUSALS.headers_of(refusal))


async def static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise NoPath
    return FileResponse(HERE / "static" / name, media_type=STATIC[name])


STATIC_FILES = Operation(
    method="GET", path=f"{PREFIX}/static/{{name}}", name="console_static",
    summary="What the pages of the console load.", handler=static,
)  # fmt: skip

PROTOCOL = Protocol(
    title="Console", summary="Pages for people.", prefix=PREFIX, refusals=REFUSALS,
    refused=refused, require=require_same_site, has_forms=True,
)  # fmt: skip
