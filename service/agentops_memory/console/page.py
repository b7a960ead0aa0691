"""What a view is made of: the visit of a browser, its page, and how both are served."""

import asyncio
import hmac
import secrets
import shlex
from bisect import bisect
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import cache, cached_property
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from markupsafe import escape
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from agentops_memory_client.contract.errors import Refused
from agentops_memory_client.contract.service import MemoryService

from ..agentops.operations import AgentOps
from ..engine.engine import Transaction
from ..engine.maintenance import Maintenance
from ..errors import Denied, Invalid, Refusal
from ..http.bodies import MAX_BODY, query_of, whole_body
from ..http.gate import current_caller
from ..http.middleware import Readiness
from ..http.protocol import NoPath, Operation, Protocol, Refusals
from ..http.query import Query, public_id, whole_number
from ..light import dataclass, field
from ..memory.access import Caller, KeyId, Role
from ..memory.keys import KeyRing
from ..memory.memories import MemoryTable
from ..memory.sessions import SessionTable
from ..memory.space import Project
from ..openintent.memory import AgentEntries
from ..openwop.adapter import RefEntries
from ..recall.text import clean
from ..recall.visible import printable
from ..settings.settings import Settings
from ..telemetry import Metrics, trace_headers
from . import markup

if TYPE_CHECKING:
    from jinja2 import Environment


TOKEN = "token"  # noqa: S105 - the name of a field
LASTS = timedelta(hours=12)  # a tab may stay open over a working day
MOST_FIELDS = 500
FOREIGN = "This form was sent from another site; nothing was done."

Form = ImmutableMultiDict[str, str]


async def sent(request: Request) -> Form:
    """The fields of a form, with line breaks as texts have them. Invalid for what is none."""
    text = (await whole_body(request, MAX_BODY)).decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Invalid(f"A form has at most {MOST_FIELDS} fields.") from None
    return ImmutableMultiDict([(name, with_line_feeds(clean(value))) for name, value in pairs])


def with_line_feeds(text: str) -> str:
    """The text as a text area sends it, but for the carriage returns that it adds."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def require_own(request: Request, _: Caller) -> None:
    """Denied for what a browser says that another site has sent."""
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

SUGGESTED = 20_000  # bytes of HTML of the names that a field suggests
MOST_QUERY = 10_000  # bytes of the query in an address, as the links of a page repeat it
# What leads to each view, whose paths begin so.
SECTIONS = {
    it: f"{PREFIX}/{it.lower()}"
    for it in ("Ask", "Memories", "Review", "Projects", "Sessions", "Documents", "Service")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """What the views work on, and what is known of the service that runs."""

    agentops: AgentOps
    memories: Callable[[Callable[[], Caller], Mapping[str, str]], MemoryService]  # caller, trace
    clock: Callable[[], datetime]
    agents: AgentEntries
    refs: RefEntries
    readiness: Callable[[], Awaitable[Readiness]]
    maintenance: Maintenance
    settings: Settings
    metrics: Metrics
    keys: Callable[[], KeyRing]
    used: Mapping[KeyId, datetime]  # when each key was last used, since the start
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))  # of open services


class Parameters(dict[str, str]):
    """Those of a page, for its template, in which one that is not set is empty."""

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
        """The operations of AgentOps REST, as this caller may use them."""
        return self.console.memories(lambda: self.caller, trace_headers())

    @cached_property
    def query(self) -> "Parameters":
        """The parameters that are set, the first of each: an empty field is an absent one."""
        params = query_of(self.request).items()
        return Parameters({name: text for name, (value, *_) in params if (text := clean(value))})

    def only(self, *names: str) -> dict[str, str]:
        """Those of these parameters that are set."""
        return {name: self.query[name] for name in names if name in self.query}

    @property
    def question(self) -> "ReadRequest":
        return ReadRequest(self.caller, query_of(self.request))

    def question_of(self, **query: object) -> "ReadRequest":
        return ReadRequest(self.caller, {name: [str(it)] for name, it in query.items()})

    async def read(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """What a function of a transaction reads, of what this caller sees."""
        return await self.console.agentops.engine.read(self.caller, work, *args, **named)

    def number(self, name: str) -> int:
        """A number in the path; what is none names nothing."""
        return whole_number(self.request.path_params[name], name)

    async def page(
        self, template: str, *twins: str, status: int = 200, header: str = "", **values: object
    ) -> Response:
        """A page with its twins, the routes of REST that answer the same, as `path?query`.

        A header that they need is in their commands alone.
        """
        caller, now = self.caller, self.console.clock()
        html = await asyncio.to_thread(  # others are served meanwhile
            _render, template, now=now, viewer=caller, query=self.query,
            path=self.request.scope["path"],
            token=self._token(int((now + LASTS).timestamp())),
            can_write=caller.role.includes(Role.WRITER),
            can_erase=caller.role.includes(Role.ADMIN), project=self.query["project"],
            twins=[(each, self._curl(each, header)) for each in twins], header=header, **values,
        )  # fmt: skip
        return HTMLResponse(html, status, HEADERS)

    def see(self, path: str, *, anchor: str = "", **query: object) -> Response:
        """Where the browser goes once a form was done, so that to load again does nothing."""
        return RedirectResponse(address(path, **query) + anchor, status_code=303)

    def is_own(self) -> bool:
        """Whether its form has an unexpired token of this caller."""
        until = self.form.get(TOKEN, "").partition("-")[0]
        if not (until.isascii() and until.isdigit()) or len(until) > 12:
            return False
        same = hmac.compare_digest(self.form[TOKEN].encode(), self._token(int(until)).encode())
        return same and int(until) > self.console.clock().timestamp()

    def _token(self, until: int) -> str:
        """What a form must hold; valid for this caller until it expires."""
        # The key that the caller sends is known to each pod, before and after a restart.
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


@dataclass(frozen=True, slots=True)
class ReadRequest:
    asking: Caller
    query: Query

    def caller(self) -> Caller:
        return self.asking


def project_names(tx: Transaction) -> list[Project]:
    """The names that a field suggests: the first ones, as many as a small page has room for."""
    names = sorted(tx[MemoryTable].projects() | tx[SessionTable].projects())
    sizes = accumulate(len(f'<option value="{escape(it)}"></option>'.encode()) for it in names)
    return names[: bisect([*sizes], SUGGESTED)]


@dataclass(frozen=True, slots=True)
class View:
    """A route of the console, below /ui."""

    path: str
    name: str
    answer: Callable[[Visit], Awaitable[Response]]
    role: Role = Role.READER
    is_form: bool = False  # whether it takes what a form sends

    def operation(self, console: Console) -> Operation:
        async def handle(request: Request) -> Response:
            visit = Visit(console, request)
            if len(request.scope["query_string"]) > MOST_QUERY:
                raise Invalid(f"The query of an address has at most {MOST_QUERY:,} bytes.")
            try:
                if self.is_form:
                    visit.form = await sent(request)
                    if not visit.is_own():
                        # Open for too long, or its key is another: it comes back filled in.
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
    """A path with the parameters that are set."""
    params = {name: it for name, it in query.items() if it not in (None, "", False)}
    return f"{quote(path)}?{urlencode(params, doseq=True)}" if params else quote(path)


def _render(template: str, **values: object) -> str:
    return environment().get_template(template).render(values)


@cache
def environment() -> "Environment":
    # Loaded with the first page: a service that nobody looks at is spared it.
    from jinja2 import Environment, FileSystemLoader  # noqa: PLC0415

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    filters = (markup.ago, markup.line, markup.prose, markup.snippet, markup.size, printable)
    made.filters |= {it.__name__: it for it in filters} | {"number": lambda number: f"{number:,}"}
    made.globals |= {
        "sections": SECTIONS, "address": address, "compared": markup.compared, "id_of": public_id,
    }  # fmt: skip
    return made


def refused_page(status: int, sentence: str, headers: Mapping[str, str] = {}) -> Response:
    html = _render("refused.html", status=status, sentence=sentence)
    return HTMLResponse(html, status, {**HEADERS, **headers})


def refused(refusal: Refusal) -> Response:
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
    refused=refused, require=require_own, has_forms=True,
)  # fmt: skip
