"""The operations over HTTP: handlers, the route table and the format of refusals."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Scope

from agentops_memory_client.contract.models import Appended

from ..errors import Invalid, Refusal
from ..http.bodies import JSON, is_empty, json_object, keyed_caller, query_of, spooled
from ..http.gate import admission, current_caller
from ..http.protocol import REDACTED, Handler, Operation, Parameter, Protocol, Refusals
from ..http.query import asks_for, entries, natural
from ..light import dataclass
from ..memory.access import Role
from ..recall.summary import Message
from ..telemetry import annotate
from . import answers as a, models as m
from .operations import MOST_TYPES, AgentOps, RequestContext, project_of
from .reader import Reader
from .transfer import Document
from .wire import OMITTED, WARNING

ERASURE_ID = "X-Erasure-Id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The handlers of the protocol. Long bodies are spooled to `folder`."""

    agentops: AgentOps
    max_upload: int
    folder: Path
    reader: Reader | None = None

    def of(self, operation: Callable[[RequestContext], Awaitable[object]]) -> Handler:
        """Return the handler of an operation whose result is the whole response body."""

        async def handle(request: Request) -> Response:
            return response(await operation(self._context(request)), admission(request).status)

        return handle

    async def delete_observation(self, request: Request) -> Response:
        erasure = await self.agentops.delete_observation(self._context(request))
        known, headers = admission(request), {ERASURE_ID: erasure} if erasure else {}
        # A replay gets its first status, even if the setting has changed since.
        status = known.replayed_status or known.status
        deleted = a.Deleted(id=int(request.path_params["id"])) if status == 200 else None
        return response(deleted, status, headers=headers)

    async def delete_project(self, request: Request) -> Response:
        answer = await self.agentops.delete_project(self._context(request))
        headers = {ERASURE_ID: answer.id} if isinstance(answer, a.ErasureReceipt) else {}
        return response(answer, headers=headers)

    async def export(self, request: Request) -> Response:
        project = project_of(self._context(request))
        annotate({"memory.project": project})
        pieces = self.agentops.export(current_caller(request), project)
        # Read before the response starts, so that an unreadable database gets a refusal.
        first = await anext(pieces)
        return StreamingResponse(_continued(request, first, pieces), media_type=JSON)

    async def import_all(self, request: Request) -> Response:
        is_dry = asks_for(query_of(request), "dry_run")
        if self.reader is not None:
            size = natural(request.headers.get("content-length", ""))
            await asyncio.to_thread(self.reader.prepare, size)
        async with spooled(request, self.max_upload, self.folder) as file:
            if is_empty(file):
                raise Invalid("invalid JSON: the body is empty.")
            document = Document(file, self.agentops.clock(), self.reader)
            try:
                await asyncio.to_thread(document.check)
                work = self.agentops.plan_import if is_dry else self.agentops.import_all
                return response(await work(current_caller(request), document))
            finally:
                await asyncio.to_thread(document.close)

    def _context(self, request: Request) -> RequestContext:
        return RequestContext(
            query=query_of(request), path_params=request.path_params,
            caller=partial(current_caller, request), body=partial(json_object, request),
            transcript=partial(self._transcript, request),
            caller_for_write=partial(keyed_caller, request),
        )  # fmt: skip

    @asynccontextmanager
    async def _transcript(self, request: Request) -> AsyncIterator[Iterator[Message]]:
        async with spooled(request, self.max_upload, self.folder) as file:
            # An empty body has no messages; others are parsed as they are consumed.
            items = () if is_empty(file) else entries(file, ("messages",))
            yield (m.message(item, position) for _, position, item in items)


async def _continued(
    request: Request, first: bytes, pieces: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        current_caller(request)  # raises if the key was revoked, so that nothing more is sent
        yield piece


def response(answer: object, status: int = 200, *, headers: Mapping[str, str] = {}) -> Response:
    """Return the response to an operation: JSON, or only headers."""
    counts = {REDACTED: getattr(answer, "redacted", 0), OMITTED: getattr(answer, "omitted", 0)}
    every = {**headers, **{name: str(count) for name, count in counts.items() if count}}
    if warning := getattr(answer, "warning", None):
        every[WARNING] = warning
    if answer is None or isinstance(answer, Appended):
        return Response(None, 204, every)
    return Response(m.json_bytes(answer), status, every, media_type=JSON)


REFUSALS = Refusals()

WARNINGS = {
    WARNING: "The session belongs to another project than the one in the request, and stays there."
}


def _max_parameter(name: str, noun: str) -> Parameter:
    return Parameter(name=name, help=f"Maximum number of {noun}.", kind="integer")


def _flag(name: str, effect: str) -> Parameter:
    return Parameter(name=name, help=f"`true` {effect}", kind="boolean")


PROJECT = Parameter(name="project", help="Only this project; the name is normalized.")
PROJECT_IF_NEW = Parameter(name="project", help="The project of a session that does not exist yet.")
SCOPE = Parameter(
    name="scope", help="Only this scope; `global` means the global memories of all projects."
)
TYPE = Parameter(name="type", help="Only this type.")
EXCLUDED = Parameter(
    name="exclude_type", help="Not this type; may be repeated.", kind="strings", most=MOST_TYPES
)
TAG = Parameter(name="tag", help="Only memories with this tag.")
EXPLAIN = _flag("explain", "explains why each result is in the response.")
WHY_NOT = Parameter(
    name="why_not",
    help="The id of an observation; the response explains why it is not among the results.",
    kind="id",
)
STORES = Parameter(
    name="stores", help="Comma-separated ids of memory stores to search together with the project."
)
JOINING = (
    STORES,
    Parameter(name="namespaces", help="Comma-separated semantic namespaces to search as well."),
    _flag("episodic", "also searches the agent's own entries."),
    Parameter(
        name="agent", help="The agent to read as; required unless the key has exactly one agent."
    ),
)
SUPERSEDED = _flag(
    "superseded",
    "includes superseded observations and names what supersedes them. A context never includes "
    "them.",
)
AGES = _flag(
    "ages",
    "adds the `age` of each in seconds and, where it is not zero, `superseded`: the number of "
    "observations that it supersedes.",
)
SIMILAR = _max_parameter("similar", "similar observations to return, up to 10 (default 0)")
BUDGET = (
    _max_parameter("max_tokens", "tokens in the injected lines"),
    _max_parameter("max_chars", "characters in the injected lines"),
    _max_parameter("content_chars", "characters of each content (default 300)"),
)


def operations(handlers: Handlers, delete_answer: str) -> tuple[Operation, ...]:
    m.build_serializers()
    deleted = (200, a.Deleted) if delete_answer == "json" else (204, None)

    def op(method: str, path: str, name: str, summary: str, **more: Any) -> Operation:
        """Return a row; by default its handler calls the operation of the same name."""
        if "handler" not in more:
            more["handler"] = handlers.of(getattr(handlers.agentops, name))
        role = Role.READER if method == "GET" else Role.WRITER
        row = {"role": role, "refusals": (404,) if "{id" in path else ()} | more
        return Operation(method=method, path=path, name=name, summary=summary, **row)

    return (
        op("POST", "/sessions", "create_session",
           "Open a session; for an existing id, return the stored session.", status=201,
           is_limited=False, body=m.SessionBody, answer=a.Session, headers=WARNINGS,
           takes_key=True, refusals=(404,)),
        op("GET", "/sessions/recent", "recent_sessions", "Sessions, newest first.",
           answer=a.Session, is_list=True,
           query=(PROJECT, _rows("limit", 5), _before("session", "string"))),
        op("POST", "/sessions/{id:path}/messages", "append_messages",
           "Add messages to a session as they arrive; ending it without a transcript summarizes "
           "them.", status=204,
           body=m.AppendBody, query=(PROJECT_IF_NEW,), headers=WARNINGS, takes_key=True),
        op("POST", "/sessions/{id:path}/end", "end_session",
           "End a session with its transcript; the latest transcript replaces earlier ones.",
           is_limited=False, body=m.EndBody, body_required=False, answer=a.SessionEnd,
           query=(PROJECT_IF_NEW,), headers=WARNINGS, takes_key=True),
        op("POST", "/observations", "add_observation",
           "Save an observation: by topic key, as a duplicate, or as new.", status=201,
           body=m.ObservationBody, answer=a.Saved, query=(SIMILAR,), headers=WARNINGS,
           takes_key=True, refusals=(404,)),
        op("GET", "/observations/recent", "recent_observations", "Observations, newest first.",
           answer=a.Observation, is_list=True,
           query=(PROJECT, TYPE, EXCLUDED, SCOPE, TAG, _rows("limit", 20),
                  _before("observation", "id"))),
        op("GET", "/observations/{id}", "get_observation", "One observation.",
           answer=a.Observation),
        op("GET", "/observations/{id}/history", "observation_history",
           "The revisions of an observation, newest first.", answer=a.Revision, is_list=True),
        op("POST", "/observations/{id}/restore", "restore_observation",
           "Restore a revision as a new one.", body=m.RestoreBody, answer=a.Observation,
           takes_key=True),
        op("POST", "/observations/{id}/confirm", "confirm_observation",
           "Confirm that an observation is still true.", answer=a.Observation, takes_key=True),
        op("PATCH", "/observations/{id}", "update_observation",
           "Change parts of an observation.", body=m.ChangeBody, answer=a.Observation,
           takes_key=True),
        op("DELETE", "/observations/{id}", "delete_observation",
           "Delete an observation; hard=true erases it permanently.", status=deleted[0],
           handler=handlers.delete_observation, answer=deleted[1],
           query=(_flag("hard", "removes it permanently."),),
           headers={ERASURE_ID: "The receipt of a hard deletion, even if it was done before."},
           takes_key=True, refusals=()),
        op("DELETE", "/projects/{name:path}", "delete_project",
           "Erase a project permanently, with its sessions and its global memories.",
           role=Role.ADMIN, handler=handlers.delete_project, answer=a.ProjectErasure,
           query=(Parameter(name="hard", help="Required, as confirmation.", kind="true",
                            required=True),
                  _flag("dry_run", "changes nothing and returns what would be erased.")),
           headers={ERASURE_ID: "The receipt, even if an earlier request erased the project."},
           refusals=(404,)),
        op("GET", "/erasures/{id:path}", "get_erasure",
           "The receipt of an erasure, which shows whether its bytes are gone.",
           answer=a.ErasureReceipt),
        op("GET", "/search", "search", "Search observations by words, best match first.",
           answer=a.SearchAnswer,
           query=(Parameter(name="q", help="Any text; without it there are no results."),
                  PROJECT, TYPE, EXCLUDED, SCOPE, TAG, _rows("limit", 10), SUPERSEDED,
                  EXPLAIN, WHY_NOT)),
        op("GET", "/context", "fetch_context", "The context for an agent's next turn.",
           answer=a.ContextAnswer,
           query=(Parameter(name="query", help="The prompt; its first 500 characters count."),
                  PROJECT, SCOPE, TAG, TYPE, EXCLUDED, _rows("limit", 5), *JOINING, *BUDGET,
                  AGES, EXPLAIN, WHY_NOT),
           refusals=(404,)),
        op("GET", "/timeline", "timeline", "The observations saved before and after one.",
           answer=a.TimelineEntry, is_list=True,
           query=(Parameter(name="observation_id", help="Its id.", kind="id", required=True),
                  _rows("before", 3), _rows("after", 3)), refusals=(404,)),
        op("GET", "/review", "review", "Observations that need a review, newest reason first.",
           answer=a.ReviewList,
           query=(PROJECT, Parameter(name="reason", help="Only this reason: `review_due`, "
           "`expires_soon` or `similar`."), _rows("limit", 20),
                  Parameter(name="before", help="The `next` of the previous page."))),
        op("GET", "/stats", "stats", "Counts of what is stored.", answer=a.Stats, query=(PROJECT,)),
        op("GET", "/export", "export", "Every session and every observation, streamed.",
           role=Role.ADMIN, handler=handlers.export, answer=a.Export, query=(PROJECT,),
           is_large=True),
        op("POST", "/import", "import",
           "Import an export; rows that are already stored are skipped.",
           role=Role.ADMIN, handler=handlers.import_all, body=m.ImportBody,
           answer=a.ImportOutcome,
           query=(_flag("dry_run", "changes nothing and returns what would be stored."),),
           refusals=(408, 413, 507)),
    )  # fmt: skip


def refused(refusal: Refusal, _: Scope) -> Response:
    return REFUSALS.response(refusal, m.json_bytes(a.Problem(error=str(refusal))))


def _rows(name: str, default: int) -> Parameter:
    help_ = f"Maximum number of rows, up to 1,000; anything but a positive number means {default}."
    return Parameter(name=name, help=help_, kind="integer", is_row_count=True)


def _before(noun: str, kind: Literal["string", "id"]) -> Parameter:
    return Parameter(name="before_id", help=f"Only those older than this {noun}.", kind=kind)


PROTOCOL = Protocol(
    title="AgentOps REST",
    summary="Sessions and observations, and the context to inject before each turn.",
    prefix="",  # all paths that no other protocol has
    refused=refused, problem=a.Problem, read=(REDACTED, ERASURE_ID, OMITTED, WARNING),
)  # fmt: skip
