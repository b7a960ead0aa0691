"""The operations of a memory service, which runs elsewhere or in this process.

A private class such as `_Run` declares methods for two public ones: `Run(Blocking, _Run)`, whose
methods block, and `AsyncRun(Awaited, _Run)`, whose methods are coroutines. Both are typed.
"""

import errno
import functools
import inspect
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, overload

from . import models as m
from .models import Headers, Invalid, Message, Progress, Reader

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

IDEMPOTENCY_KEY = "Idempotency-Key"
StrPath = str | os.PathLike[str]
Query = Mapping[str, Sequence[str]]  # parameter names and their values, in order
SURROGATE = re.compile("[\ud800-\udfff]")
_VISIBLE = re.compile(r"[!-~]{1,255}")


class Unset(Enum):
    """The value of a field that an update leaves unchanged; None would remove the field."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return self.name


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    """A request to the service, and how its response is read. Creating a Call sends nothing."""

    operation: str  # the operation's name in the service's OpenAPI document
    method: str
    path: tuple[str, ...]  # the segments, not yet percent-encoded
    read: Callable[[bytes, Headers], T_co]
    query: Query = field(default_factory=dict)
    body: Mapping[str, Any] | None = field(default=None, repr=False)  # may contain a secret
    headers: Mapping[str, str] = field(default_factory=dict)
    is_idempotent: bool = True  # whether sending it twice has the effect of sending it once
    timeout: timedelta | None = None  # used instead of the client's timeout if it is longer
    absent: T_co | Unset = UNSET  # the result if the entry does not exist; by default NotFound


def key_header(key: str | None) -> Mapping[str, str]:
    """Return the headers that make the service execute a write once, even if it is sent again.

    Without a key a random one is used. Invalid if the key is malformed.
    """
    if key is not None and not _VISIBLE.fullmatch(key):
        raise Invalid("An idempotency key must have 1 to 255 visible ASCII characters.")
    return {IDEMPOTENCY_KEY: key or str(uuid.uuid4())}


def params(**parameters: object) -> Query:
    """Return query parameters without those that are None or False; a list repeats its name."""
    return {
        name: list(map(str, it)) if isinstance(it, list) else ["true" if it is True else str(it)]
        for name, it in parameters.items()
        if it is not None and it is not False
    }


def send_as(**fields: object) -> T:  # type: ignore[type-var]
    """Return fields to send in addition to a method's arguments; None omits an argument."""
    return fields  # type: ignore[return-value]


def transcript(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return the messages as JSON objects; Invalid if one is not a Message."""
    if not all(isinstance(it, Message) for it in messages):
        raise Invalid('Each message must be a Message: Message(role="user", content="Hi.").')
    return [{"role": it.role, "content": it.content} for it in messages]


def plain(value: object) -> object:
    """Convert a value for JSON; a string in place of a list is left for the service to refuse."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return int(value.total_seconds())
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return list(value)
    return value


def regular(path: StrPath) -> Path:
    """Return the path without links; OSError if it is a folder, a device or a pipe."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return target


P = ParamSpec("P")


class Method(Generic[P, T]):
    """A method that blocks in a `Blocking` class, and is a coroutine in an `Awaited` class."""

    def __init__(self, work: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        @functools.wraps(work)
        def wait(self: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return run_now(work(self, *args, **kwargs))

        self.awaited, self.blocking = work, wait

    @overload
    def __get__(self, obj: None, kind: "type[Blocking]", /) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(
        self, obj: None, kind: "type[Awaited]", /
    ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, obj: None, kind: type, /) -> Self: ...
    @overload
    def __get__(self, obj: "Blocking", kind: type, /) -> Callable[P, T]: ...
    @overload
    def __get__(self, obj: "Awaited", kind: type, /) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, obj: object, kind: Any, /) -> Any:
        return getattr(self, kind._variant).__get__(obj, kind) if kind._variant else self  # noqa: SLF001


class Sender:
    """A class whose methods send requests to the service."""

    _variant = ""  # in a public class: the attribute of Method to use, blocking or awaited
    _exchange: Any  # sends requests over HTTP; absent in a class that calls the service in process
    _run_id: str | None = None  # sent with every request of OpenWOP in a run

    async def _send(self, call: Call[T], /) -> T:
        """Send the call, with retries, and return its result."""
        result: T = await self._exchange.send(call)
        return result


class Blocking(Sender):
    """Its methods return results: the HTTP client blocks, so their coroutines never suspend."""

    _variant = "blocking"


class Awaited(Sender):
    """Its methods are coroutines."""

    _variant = "awaited"


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends, as its HTTP client blocks."""
    try:
        work.send(None)
    except StopIteration as returned:
        result: T = returned.value
        return result
    raise AssertionError("A blocking client has suspended.")


# A method below `@sends` needs no body: its signature declares the request and the result.
# mypy: disable-error-code="empty-body"
# ruff: noqa: A002, ARG002


MAX_PROMPT = 500  # code points of a query that the service reads

UNCHANGED = dict[str, str]().get
FILTER_NAMES = {"exclude_types": "exclude_type", "before": "before_id"}.get


def sends(  # noqa: PLR0913 - the parts of a request, each by its name
    operation: str, verb: str, path: str, *, query: Sequence[str] = (),
    read: Reader[Any] | None = None, timeout: timedelta | None = None, absent: Any = UNSET,
    rename: Callable[[str], str | None] = UNCHANGED,
) -> Callable[[Callable[Concatenate[Any, P], T]], Method[P, T]]:  # fmt: skip
    """Declare a method by its signature: it sends the arguments that a caller passes.

    They go into the path, into the query (of GET and DELETE, or if `query` names them), else into
    a JSON body, under the name that `rename` returns, if any. None is not sent, unless the default
    is UNSET. The method's body may return `send_as(...)`, the fields to send instead of or in
    addition to its arguments. The method returns the annotated type.
    """

    def declare(declaration: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
        signature = inspect.signature(declaration)
        unset = {name for name, it in signature.parameters.items() if it.default is UNSET}
        not_in_body = {"self", "idempotency_key", *query, *re.findall(r"\{(\w+)\}", path)}
        has_body = verb in ("POST", "PATCH") and not not_in_body.issuperset(signature.parameters)
        reader = read or m.noun(signature.return_annotation)

        @functools.wraps(declaration)
        async def send(self: Sender, /, *args: P.args, **kwargs: P.kwargs) -> T:
            more: Any = declaration(self, *args, **kwargs) or {}
            passed = signature.bind(self, *args, **kwargs).arguments
            fields: dict[str, Any] = {"run_id": self._run_id, **passed, **more}
            del fields["self"]
            steps = [str(fields.pop(it[1:-1])) if it[0] == "{" else it for it in path.split("/")]
            key = fields.pop("idempotency_key", None)
            named = {
                rename(name) or name: plain(it)
                for name, it in fields.items()
                if it is not UNSET and (it is not None or name in unset)
            }
            in_query = query if has_body else [*named]
            return await self._send(Call(
                operation=operation, method=verb, path=tuple(steps), read=reader, timeout=timeout,
                absent=absent, headers={} if verb == "GET" else key_header(key),
                query=params(**{name: it for name, it in named.items() if name in in_query}),
                body={name: it for name, it in named.items() if name not in in_query}
                if has_body else None,
            ))  # fmt: skip

        return Method(send)

    return declare


class Operations(Sender):
    """The operations with one JSON response. Each raises a MemoryServiceError if it fails."""

    @sends("add_observation", "POST", "observations", query=("similar",))
    def save(  # noqa: PLR0913 - the fields of a memory, each by its name
        self, *, session_id: str, project: str, type: str, title: str, content: str,
        tags: Sequence[str] = (), scope: str | None = None, topic_key: str | None = None,
        expires_at: datetime | None = None, ttl: timedelta | int | None = None,
        pinned: bool | None = None, supersedes: Sequence[int | str] = (),
        review_at: datetime | None = None, similar: int = 0, idempotency_key: str | None = None,
    ) -> m.Saved:  # fmt: skip
        """Save a memory. A duplicate is only counted; the same topic key updates the memory.

        The memory expires at `expires_at`, or after `ttl` (whole seconds). Pinned memories
        come first in contexts. `supersedes` takes ids or stable ids. The result lists up
        to `similar` near duplicates (at most ten).

        A session that does not exist is created. Limits: a title of 500 characters, a
        content of 50,000, and 20 tags of 100 characters each. The default scope is
        `project`; memories of scope `global` are recalled in every project.

        Invalid names every fault; NotFound if a superseded memory does not exist; Conflict if
        the idempotency key was used for another request, for too many pins, or for a cycle.
        """
        return send_as(supersedes=supersedes or None, similar=similar or None)

    @sends("get_observation", "GET", "observations/{observation}")
    def get(self, observation: int) -> m.Observation:
        """Return a memory in full. NotFound if it does not exist or is deleted."""

    @sends("recent_observations", "GET", "observations/recent", rename=FILTER_NAMES)
    def recent(
        self, project: str | None = None, *, type: str | None = None,
        exclude_types: Sequence[str] = (), scope: str | None = None, tag: str | None = None,
        limit: int = 20, before: int | None = None,
    ) -> list[m.Observation]:  # fmt: skip
        """Return memories of the project, or of all, newest first.

        With `before`, an id, only older ones. At most 1,000 and 2 MiB. Excludes up to 20 types.
        """

    @sends("observation_history", "GET", "observations/{observation}/history")
    def history(self, observation: int) -> list[m.Revision]:
        """Return the newest 100 revisions of a memory, newest first, even if it is deleted.

        NotFound if the memory does not exist.
        """

    @sends("restore_observation", "POST", "observations/{observation}/restore")
    def restore(
        self, observation: int, revision: int, *, idempotency_key: str | None = None
    ) -> m.Observation:
        """Restore a revision's text as a new revision; a deleted memory becomes live again.

        NotFound if the memory or revision does not exist; Conflict if
        another memory has taken the topic key.
        """

    @sends("update_observation", "PATCH", "observations/{observation}")
    def update(  # noqa: PLR0913 - the fields of a memory, each by its name
        self, observation: int, *, type: str | None = None,
        title: str | None = None, content: str | None = None, tags: Sequence[str] | None = None,
        expires_at: datetime | Unset | None = UNSET, ttl: timedelta | int | None = None,
        pinned: bool | None = None, supersedes: Sequence[int | str] | None = None,
        review_at: datetime | Unset | None = UNSET, revision: int | None = None,
        idempotency_key: str | None = None,
    ) -> m.Observation:  # fmt: skip
        """Change the fields that are passed, and return the changed memory.

        None leaves a field unchanged, but removes `expires_at` or `review_at`; `()` removes all
        tags. The old text is kept as a revision. The limits of `save` apply. NotFound if the
        memory does not exist; Conflict if `revision` is passed and is not the current one.
        """

    @sends("confirm_observation", "POST", "observations/{observation}/confirm")
    def confirm(self, observation: int, *, idempotency_key: str | None = None) -> m.Observation:
        """Confirm that a memory is still true. NotFound if it does not exist."""

    @sends("review", "GET", "review")
    def review(
        self, project: str | None = None, *, reason: str | None = None, limit: int = 20,
        before: str | None = None,
    ) -> m.ReviewList:  # fmt: skip
        """List memories of the project, or of all, that need a review, newest reason first.

        A reason is `review_due`, `expires_soon` or `similar`. To get the next page, pass the
        list's `next` as `before`. Invalid for any other reason or cursor.
        """

    @sends("delete_observation", "DELETE", "observations/{observation}", read=m.erasure)
    def delete(
        self, observation: int, *, hard: bool = False, idempotency_key: str | None = None
    ) -> str | None:
        """Delete a memory, which can be restored. Deleting it again changes nothing.

        With `hard`, erase it permanently with its history and return the id of the
        erasure receipt, or None if there was nothing to erase.
        """

    @sends("search", "GET", "search", read=m.found, rename=FILTER_NAMES)
    def search(  # noqa: PLR0913 - the filters of a search, each by its name
        self, query: str, *, project: str | None = None, type: str | None = None,
        exclude_types: Sequence[str] = (), scope: str | None = None, tag: str | None = None,
        limit: int = 10, superseded: bool = False, explain: bool = False,
    ) -> m.Found:  # fmt: skip
        """Find memories of the project, or of all, that match the query, best match first.

        Only the first 500 characters of the query count. Excludes up to 20 types.
        `superseded` includes superseded memories; `explain` adds why each matched.
        At most 1,000 hits and 2 MiB; hits beyond 2 MiB are counted as `omitted`.
        """
        return send_as(q=query[:MAX_PROMPT], query=None)

    @sends("fetch_context", "GET", "context", read=m.context, rename=FILTER_NAMES)
    def context(  # noqa: PLR0913 - each option of a context by its name
        self, *, project: str | None = None, query: str | None = None,
        exclude_types: Sequence[str] = (), scope: str | None = None, tag: str | None = None,
        limit: int = 5, explain: bool = False, max_tokens: int | None = None,
        max_chars: int | None = None, content_chars: int | None = None, stores: Sequence[str] = (),
        namespaces: Sequence[str] = (), episodic: bool = False, agent: str | None = None,
        ages: bool = False,
    ) -> m.Context:  # fmt: skip
        """Return the context for an agent's turn: session summaries, then the best memories.

        Without a query or a match, the newest memories are returned. Only the first 500
        characters of the query count. Excludes up to 20 types. Lines that do not fit into
        `max_tokens` (four bytes each) or `max_chars` (code points) are left out; each
        content is cut at `content_chars` (default 300). `stores` adds up to eight memory
        stores by id: NotFound if one does not exist. `namespaces` adds semantic namespaces
        of agents' memory, and `episodic` the agent's own entries; `agent` names the agent,
        and is required unless the key has exactly one. `ages` adds the age of each memory.
        """
        return send_as(
            query=None if query is None else query[:MAX_PROMPT],
            stores=",".join(stores) or None, namespaces=",".join(namespaces) or None,
        )  # fmt: skip

    @sends("timeline", "GET", "timeline", rename={"observation": "observation_id"}.get)
    def timeline(
        self, observation: int, *, before: int = 3, after: int = 3
    ) -> list[m.TimelineEntry]:
        """Return a memory and its neighbors in the project by time, oldest first.

        NotFound if the memory does not exist.
        """

    @sends("stats", "GET", "stats")
    def stats(self, project: str | None = None) -> m.Stats:
        """Count the sessions and observations of the project, or of all."""

    @sends("recent_sessions", "GET", "sessions/recent", rename=FILTER_NAMES)
    def sessions(
        self, project: str | None = None, *, limit: int = 5, before: str | None = None
    ) -> list[m.Session]:
        """Return sessions, newest first, at most 1,000; with `before`, an id, only older ones."""

    @sends("create_session", "POST", "sessions", rename={"session_id": "id"}.get)
    def start_session(
        self, session_id: str, project: str, *, idempotency_key: str | None = None
    ) -> m.Session:
        """Start a session, or return the existing one unchanged.

        The id is any text of 1 to 500 characters.
        """

    @sends("append_messages", "POST", "sessions/{session_id}/messages", query=("project",),
           read=m.appended)  # fmt: skip
    def append_messages(
        self, session_id: str, messages: Sequence[m.Message], *, project: str | None = None,
        idempotency_key: str | None = None,
    ) -> m.Appended:  # fmt: skip
        """Append messages to a session's transcript, which `end_session` summarizes.

        Messages appended after the end extend the summary. An unknown id creates a
        session in the project. TooLarge if the messages exceed 1 MiB.
        """
        return send_as(messages=transcript(messages))

    @sends("end_session", "POST", "sessions/{session_id}/end", query=("project",))
    def end_session(
        self, session_id: str, messages: Sequence[m.Message] = (), *, project: str | None = None,
        idempotency_key: str | None = None,
    ) -> m.SessionEnd:  # fmt: skip
        """End a session and summarize its messages: the passed ones, or else the appended ones.

        Messages passed here replace all earlier ones. An unknown id creates a session in the
        project. TooLarge if the messages exceed the limit of the service (default 256 MiB).
        """
        return send_as(messages=transcript(messages) or None)


class MemoryService(Awaited, Operations, ABC):
    """The memories that one caller may use. Methods raise a MemoryServiceError if they fail."""

    @abstractmethod
    def export(
        self, project: str | None = None, *, progress: Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield all sessions and observations of the project, or of all, as chunks of JSON."""

    @abstractmethod
    async def import_from(self, path: StrPath, *, progress: Progress | None = None) -> m.Imported:
        """Import an export file; rows that the service has already are skipped.

        OSError if the file cannot be read.
        """

    @abstractmethod
    async def plan_import(self, path: StrPath, *, progress: Progress | None = None) -> m.ImportPlan:
        """Return what an import of the file would do. OSError if the file cannot be read."""
