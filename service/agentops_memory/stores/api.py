"""Declarations of a dialect's operations; the handler is derived from the parameters."""

from asyncio import to_thread
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ..errors import Refusal
from ..http.bodies import WRITTEN, Bodies, written
from ..http.gate import LARGE, current_caller
from ..http.protocol import Operation, Parameter
from ..http.query import ENTRY, STORE, VERSION, instant, known_uid, public_id
from ..light import dataclass
from ..memory.access import Role
from ..memory.redactor import NO_STORE
from ..telemetry import annotate
from .entry import Entry, Version
from .store import NO_ENTRY, NO_VERSION, Body, Serving, Slice, Store

Read = Callable[[Request, str], Any]

# The kind of each id in a path, and the message if it is unknown, by argument.
KINDS = {
    "store": (STORE, NO_STORE), "entry": (ENTRY, NO_ENTRY), "version": (VERSION, NO_VERSION),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Param(Parameter):
    """A parameter of the path or the query: how it is read, and which argument it becomes."""

    read: Read
    into: str
    is_in_path: bool = False
    shapes_response: bool = False  # passed to the response, not to the work


def in_path(name: str, into: str) -> Param:
    """Declare a stable id in the path; reading a malformed id raises NotFound."""
    kind, sentence = KINDS[into]
    return Param(
        name=name, help="", into=into, is_in_path=True,
        read=lambda request, name: known_uid(kind, request.path_params[name], sentence),
    )  # fmt: skip


def in_query(name: str, into: str, read: Read, help_: str, **more: Any) -> Param:
    return Param(name=name, into=into, read=read, help=help_, **more)


def must(
    text_of: Callable[[Request, str], str | None], refusal: Callable[[str, str], Refusal]
) -> Callable[..., Read]:
    """Return a function `must(rule, parsed, absent)` that makes readers of parameters.

    A reader raises `refusal(name, rule)` for a text that `parsed` returns None for.
    """

    def reader(rule: str, parsed: Callable[[str], Any], absent: object = None) -> Read:
        def read(request: Request, name: str) -> Any:
            text = text_of(request, name)
            value = absent if text is None else parsed(text)
            if text is not None and value is None:
                raise refusal(name, rule)
            return value

        return read

    return reader


def created(must: Callable[..., Read], rule: str, what: str, **options: Any) -> tuple[Param, Param]:
    """Declare the first and last creation time to list; `what` names their format."""
    first, last = (must(rule, partial(instant, rounds_up=it, **options)) for it in (True, False))
    return (
        in_query("created_at[gte]", "created_from", first, f"Created at this {what} or later.",
                 kind="instant"),
        in_query("created_at[lte]", "created_to", last, f"Created at this {what} or earlier.",
                 kind="instant"),
    )  # fmt: skip


def archived(must: Callable[..., Read], help_: str) -> Param:
    flags = {"true": True, "false": False}
    read = must("be true or false", lambda text: flags.get(text.lower()), absent=False)
    return in_query("include_archived", "with_archived", read, help_, kind="boolean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How the operations of a dialect read bodies and write responses."""

    serving: Serving
    bodies: Bodies
    answer: Callable[..., Response]
    """Makes the response of a request, a result, a status, and parameters of the response."""

    def op(  # noqa: PLR0913, PLR0917 - one parameter per property
        self,
        method: str,
        path: str,
        name: str,
        summary: str,
        role: Role,
        work: Callable[..., Any],
        takes: Sequence[Param] = (),
        *,
        body: type[Body] | None = None,
        body_required: bool = True,
        status: int = 200,
        answer: type[BaseModel] | None = None,
    ) -> Operation:
        """Declare an operation; the caller's role is checked again once the body is read.

        `work` gets by name the parameters in `takes`, read in this order, and the `body`. A
        coroutine function gets the serving and the caller first; others, a read transaction.
        """
        is_write = method != "GET"
        ids = [it.into for it in takes if it.is_in_path]

        async def handle(request: Request) -> Response:
            values = {it.into: it.read(request, it.name) for it in takes}
            annotate(about(**{name: values[name] for name in ids}))
            shape = {it.into: values.pop(it.into) for it in takes if it.shapes_response}
            if body is not None:
                values["body"] = await self.bodies.read(request, body, empty=not body_required)
            caller = await self.bodies.caller(request) if is_write else current_caller(request)
            # The gate checked the same role; it may have been revoked since.
            caller.require(role)
            if iscoroutinefunction(work):
                result = await work(self.serving, caller, **values)
            else:
                result = await self.serving.engine.read(caller, work, **values)
                items = result.items if isinstance(result, Slice) else ()
                if sum(len(getattr(it, "content", None) or "") for it in items) > LARGE:
                    # In a thread, so that other requests have the event loop.
                    return await to_thread(self.answer, request, result, status, **shape)
            return self.answer(request, result, status, **shape)

        return Operation(
            method=method, path=path, name=name, summary=summary, handler=handle, role=role,
            body=body, body_required=body_required, status=status, answer=answer,
            query=[it for it in takes if not it.is_in_path], refusals=(404,) if ids else (),
            headers=WRITTEN if body else {}, takes_key=is_write,
        )  # fmt: skip


def page_json(items: Iterable[bytes], **more: object) -> bytes:
    pieces = [part for item in items for part in (b",", item)]
    # Joined once: a page may have megabytes, and each copy of it blocks the event loop.
    return b"".join([b'{"data":[', *pieces[1:], b"],", written(more)[1:]])


def about(**ids: str) -> dict[str, Any]:
    """Return span attributes with the public ids of a store, an entry and a version."""
    return {f"memory.{name}.id": public_id(KINDS[name][0], id_) for name, id_ in ids.items()}


def about_any(done: object) -> dict[str, Any]:
    """Return the span attributes of an operation's result."""
    match done:
        case Store():
            return about(store=done.id)
        case Entry():
            ids = about(store=done.store, entry=done.id, version=done.version)
            return ids | {"memory.entry.size": done.size}
        case Version():
            return about(store=done.store, entry=done.entry, version=done.id)
    return {}
