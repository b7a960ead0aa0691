"""What agents and people call: a running service, or a database in this process.

A class of methods, as `_Run`, has two public ones: `Run(Blocking, _Run)`, whose methods wait for
the answer, and `AsyncRun(Awaited, _Run)`, whose methods are coroutines. Type checkers know both.
"""

import functools
import inspect
import os
import re
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from . import models as m
from .models import Headers, Invalid, Message, Reader

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

IDEMPOTENCY_KEY = "Idempotency-Key"
Query = Mapping[str, Sequence[str]]  # the values of each parameter, in their order
_VISIBLE = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    """One question. To make it sends nothing."""

    operation: str  # its name in the description of the service
    method: str
    path: tuple[str, ...]  # its steps, as they are meant and not as they are sent
    read: Callable[[bytes, Headers], T_co]
    query: Query = field(default_factory=dict)
    body: Mapping[str, Any] | None = field(default=None, repr=False)  # it may hold a secret
    headers: Mapping[str, str] = field(default_factory=dict)
    is_idempotent: bool = True  # whether to send it twice is to ask it once
    within: timedelta | None = None  # the time that its answer may take, if it may take longer


def once(key: str | None) -> Mapping[str, str]:
    """The headers that let a write be done once, however often it is sent.

    Without a key a new one is made. Invalid for what cannot be one.
    """
    if key is not None and not _VISIBLE.fullmatch(key):
        raise Invalid("An idempotency key must have 1 to 255 visible ASCII characters.")
    return {IDEMPOTENCY_KEY: key or str(uuid.uuid4())}


class Unset(Enum):
    """The value of what a change does not name."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return self.name


UNSET = Unset.UNSET


def params(**parameters: object) -> Query:
    """The parameters of a query that are set: neither None nor False. A list is repeated."""
    return {
        name: list(map(str, it)) if isinstance(it, list) else ["true" if it is True else str(it)]
        for name, it in parameters.items()
        if it is not None and it is not False
    }


def also(**fields: object) -> T:  # type: ignore[type-var]
    """Fields that a method sends; None for an argument that is not sent under its name."""
    return fields  # type: ignore[return-value]


def transcript(messages: Sequence[object]) -> list[dict[str, str]]:
    """The messages of a transcript. Invalid for what is no Message."""
    for it in messages:
        if not isinstance(it, Message):
            raise Invalid('Each message must be a Message: Message(role="user", content="Hi.").')
    return [{"role": it.role, "content": it.content} for it in messages if isinstance(it, Message)]


def plain(value: object) -> object:
    """The value as JSON has it; a text is no list, and left for the service to refuse."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return int(value.total_seconds())
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return list(value)
    return value


def regular_file(path: str | os.PathLike[str], why: str) -> BinaryIO:
    """The file, opened to be read. OSError if it cannot be; or why not, for no regular file."""
    path = Path(path)
    file = path.open("rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(f"{path} is not a regular file, {why}.")


P = ParamSpec("P")
Described = TypeVar("Described", bound=Callable[..., Any])


class Method(Generic[P, T]):
    """A method of a class that is `Blocking`, and of one that is `Awaited`."""

    def __init__(self, work: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        def wait(self: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return finished(work(self, *args, **kwargs))

        self.awaited = work
        self.blocking = with_signature(work, wait)

    @overload
    def __get__(
        self, asks: None, kind: "type[Blocking]", /
    ) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(
        self, asks: None, kind: "type[Awaited]", /
    ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, asks: None, kind: type, /) -> Self: ...
    @overload
    def __get__(self, asks: "Blocking", kind: type, /) -> Callable[P, T]: ...
    @overload
    def __get__(self, asks: "Awaited", kind: type, /) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, asks: object, kind: type, /) -> Any:
        return self  # the class of an instance has a function instead


class Asks:
    """Something that asks the service."""

    _way = ""  # of a public class: which function of each method is its own
    _exchange: Any  # with the service, of those that ask it over HTTP

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, it in inspect.getmembers_static(cls) if cls._way else ():
            if isinstance(it, Method):
                setattr(cls, name, getattr(it, cls._way))

    async def _ask(self, call: Call[T], /) -> T:
        """What is answered to a call; it is sent again as often as the retry policy permits."""
        answer: T = await self._exchange.send(call)
        return answer


class Blocking(Asks):
    """Its methods wait for their answer: what they ask never suspends."""

    _way = "blocking"


class Awaited(Asks):
    """Its methods are coroutines."""

    _way = "awaited"


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine over a backend that blocks: it never suspends."""
    try:
        work.send(None)
    except StopIteration as returned:
        result: T = returned.value
        return result
    raise AssertionError("The backend of a blocking client has suspended.")


def with_signature(question: Callable[..., object], method: Described) -> Described:
    """The method, as `help` and `inspect` see the question."""
    signature = inspect.signature(question)
    functools.update_wrapper(method, question, ("__name__", "__qualname__", "__doc__"), ())
    method.__dict__["__signature__"] = signature
    annotations = {it.name: it.annotation for it in [*signature.parameters.values()][1:]}
    method.__annotations__ = annotations | {"return": signature.return_annotation}
    return method


# The signature of a method that `sends` is what it does, in the protocol's words.
# mypy: disable-error-code="empty-body"
# ruff: noqa: A002, ARG002


MAX_PROMPT = 500  # code points; the service reads no more of a query


def sends(
    operation: str, verb: str, path: str, *, query: Sequence[str] = (),
    read: Reader[Any] | None = None,
) -> Callable[[Callable[Concatenate[Any, P], T]], Method[P, T]]:  # fmt: skip
    """Declare a method by its signature: it sends its arguments, and reads what it returns.

    They are sent in the path, in the query of a GET or DELETE or where it is named, else as JSON;
    None is absent, unless it is sent in the place of UNSET. The body of the method, if it has one,
    returns what is sent `also`, or in the place of an argument.
    """

    def declare(question: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
        signature = inspect.signature(question)
        unset = {name for name, it in signature.parameters.items() if it.default is UNSET}
        beside = {"self", "idempotency_key", *query}
        sent = [it for it in signature.parameters if it not in beside and f"{{{it}}}" not in path]
        has_body = verb in ("POST", "PATCH") and bool(sent)
        answer = read or m.noun(signature.return_annotation)

        async def send(self: Asks, /, *args: P.args, **kwargs: P.kwargs) -> T:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            more: Any = question(self, *args, **kwargs) or {}
            fields: dict[str, Any] = bound.arguments | more
            steps = [fields.pop(it[1:-1]) if it[0] == "{" else it for it in path.split("/")]
            if "{observation}" in path:  # the only number in a path
                steps[1] = str(steps[1])
            del fields["self"]
            keyed = once(fields.pop("idempotency_key")) if "idempotency_key" in fields else {}
            named = {
                name: plain(it)
                for name, it in fields.items()
                if it is not UNSET and (it is not None or name in unset)
            }
            in_query = query if has_body else [*named]
            return await self._ask(Call(
                operation=operation, method=verb, path=tuple(steps), headers=keyed, read=answer,
                query=params(**{name: it for name, it in named.items() if name in in_query}),
                body={name: it for name, it in named.items() if name not in in_query}
                if has_body else None,
            ))  # fmt: skip

        return Method(with_signature(question, send))

    return declare


class Questions(Asks):
    """The questions that fit into one answer. All refuse with a `MemoryServiceError`."""

    @sends("add_observation", "POST", "observations", query=("similar",))
    def save(  # noqa: PLR0913 - the fields of a memory, each by its name
        self, *, session_id: str, project: str, type: str, title: str, content: str,
        tags: Sequence[str] = (), scope: str | None = None, topic_key: str | None = None,
        expires_at: datetime | None = None, ttl: timedelta | int | None = None,
        pinned: bool | None = None, supersedes: Sequence[int | str] = (),
        review_at: datetime | None = None, similar: int = 0, idempotency_key: str | None = None,
    ) -> m.Saved:  # fmt: skip
        """Save a memory; a duplicate is counted, and one with the same topic key is updated.

        It expires at `expires_at`, or after `ttl` (whole seconds). A pinned memory comes
        first in contexts. `supersedes` takes ids or stable ids. The result lists up to
        `similar` near duplicates, at most ten.

        The session is created if it does not exist. Limits: a title has 500 characters,
        a content 50,000, and there are at most 20 tags of 100. The default scope is
        `project`; a `global` memory is recalled in every project.

        Invalid names every fault; NotFound for what cannot be superseded; Conflict if the
        idempotency key was used for another request, for one pin too many, or for a cycle.
        """
        return also(supersedes=supersedes or None, similar=similar or None)

    @sends("get_observation", "GET", "observations/{observation}")
    def get(self, observation: int) -> m.Observation:
        """A memory in full. NotFound if there is none with this id, or it is deleted."""

    @sends("recent_observations", "GET", "observations/recent")
    def recent(
        self, project: str | None = None, *, type: str | None = None,
        exclude_types: Sequence[str] = (), scope: str | None = None, tag: str | None = None,
        limit: int = 20, before: int | None = None,
    ) -> list[m.Observation]:  # fmt: skip
        """Memories of the project, or of all, newest first; with `before`, only older ones.

        At most 1,000 memories and 2 MiB. At most 20 types can be excluded.
        """
        excluded = exclude_types or None
        return also(exclude_type=excluded, exclude_types=None, before_id=before, before=None)

    @sends("observation_history", "GET", "observations/{observation}/history")
    def history(self, observation: int) -> list[m.Revision]:
        """The revisions of a memory, newest first, at most 100; also those of a deleted one.

        NotFound if there is none with this id.
        """

    @sends("restore_observation", "POST", "observations/{observation}/restore")
    def restore(
        self, observation: int, revision: int, *, idempotency_key: str | None = None
    ) -> m.Observation:
        """Restore the text of a revision as a new revision; this also undeletes a memory.

        NotFound if there is no such memory or revision; Conflict if another
        memory has taken its topic key.
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
        """Change the fields that are passed, and return the memory as it is now.

        A field that is None stays; `()` removes all tags. None for `expires_at` or `review_at`
        removes the date. The text before becomes a revision. The limits are those of a save.
        NotFound if there is none with this id; Conflict if `revision` is not its current one.
        """

    @sends("confirm_observation", "POST", "observations/{observation}/confirm")
    def confirm(self, observation: int, *, idempotency_key: str | None = None) -> m.Observation:
        """Confirm that a memory is still true. NotFound if there is none with this id."""

    @sends("review", "GET", "review")
    def review(
        self, project: str | None = None, *, reason: str | None = None, limit: int = 20,
        before: str | None = None,
    ) -> m.ReviewList:  # fmt: skip
        """Memories of the project, or of all, that need a review, newest reason first.

        A reason is `review_due`, `expires_soon` or `similar`. Pass `next` of one list as
        `before` to get the following one. Invalid for any other reason or cursor.
        """

    @sends("delete_observation", "DELETE", "observations/{observation}", read=m.erasure)
    def delete(
        self, observation: int, *, hard: bool = False, idempotency_key: str | None = None
    ) -> str | None:
        """Delete a memory, which can be restored; deleting it again changes nothing.

        With `hard` it is erased permanently with its history, and the result is the
        id of the receipt; None if there was nothing to erase.
        """

    @sends("search", "GET", "search", read=m.found)
    def search(  # noqa: PLR0913 - the filters of a search, each by its name
        self, query: str, *, project: str | None = None, type: str | None = None,
        exclude_types: Sequence[str] = (), scope: str | None = None, tag: str | None = None,
        limit: int = 10, superseded: bool = False, explain: bool = False,
    ) -> m.Found:  # fmt: skip
        """The memories of the project, or of all, that match a query, best match first.

        At most 20 types can be excluded. `superseded` includes superseded memories. Only
        the first 500 characters of the query count. At most 1,000 memories and 2 MiB;
        the rest are counted as `omitted`.
        """
        excluded = exclude_types or None
        return also(q=query[:MAX_PROMPT], query=None, exclude_type=excluded, exclude_types=None)

    @sends("fetch_context", "GET", "context", read=m.context)
    def context(  # noqa: PLR0913 - what an agent may say of its turn, each by its name
        self, *, project: str | None = None, query: str | None = None,
        exclude_types: Sequence[str] = (), scope: str | None = None, tag: str | None = None,
        limit: int = 5, explain: bool = False, max_tokens: int | None = None,
        max_chars: int | None = None, content_chars: int | None = None, stores: Sequence[str] = (),
        namespaces: Sequence[str] = (), episodic: bool = False, agent: str | None = None,
        ages: bool = False,
    ) -> m.Context:  # fmt: skip
        """The context for an agent's turn: session summaries, then memories, best match first.

        Without a query, or if nothing matches it, the newest memories. At most 20 types can
        be excluded. Only the first 500 characters of the query count. What does not fit
        into `max_tokens` (of four bytes) or `max_chars` (code points) is left out; each
        content is cut at `content_chars` (default 300). `stores` adds up to eight memory
        stores by id: NotFound if one does not exist. `namespaces` adds semantic namespaces
        of agents' memory, and `episodic` the agent's own entries; `agent` is required
        unless the key has exactly one. `ages` adds the age of each memory.
        """
        return also(
            query=None if query is None else query[:MAX_PROMPT],
            exclude_type=exclude_types or None, exclude_types=None,
            stores=",".join(stores) or None, namespaces=",".join(namespaces) or None,
        )  # fmt: skip

    @sends("timeline", "GET", "timeline")
    def timeline(
        self, observation: int, *, before: int = 3, after: int = 3
    ) -> list[m.TimelineEntry]:
        """A memory and those saved before and after it in its project, oldest first.

        NotFound if there is none with this id.
        """
        return also(observation_id=observation, observation=None)

    @sends("stats", "GET", "stats")
    def stats(self, project: str | None = None) -> m.Stats:
        """How much is stored, in the project or in all."""

    @sends("recent_sessions", "GET", "sessions/recent")
    def sessions(
        self, project: str | None = None, *, limit: int = 5, before: str | None = None
    ) -> list[m.Session]:
        """Sessions, newest first; with `before`, those older than that one. At most 1,000."""
        return also(before_id=before, before=None)

    @sends("create_session", "POST", "sessions")
    def start_session(
        self, session_id: str, project: str, *, idempotency_key: str | None = None
    ) -> m.Session:
        """Open a session; an existing one is returned unchanged.

        The id may be any text of 1 to 500 characters.
        """
        return also(id=session_id, session_id=None)

    @sends("append_messages", "POST", "sessions/{session_id}/messages", query=("project",),
           read=m.appended)  # fmt: skip
    def append_messages(
        self, session_id: str, messages: Sequence[m.Message], *, project: str | None = None,
        idempotency_key: str | None = None,
    ) -> m.Appended:  # fmt: skip
        """Add messages to a session's transcript; ending it without messages summarizes them.

        Messages added after the end continue its summary. An unknown id creates a
        session in the project. TooLarge if the messages exceed 1 MiB.
        """
        return also(messages=transcript(messages))

    @sends("end_session", "POST", "sessions/{session_id}/end", query=("project",))
    def end_session(
        self, session_id: str, messages: Sequence[m.Message] = (), *, project: str | None = None,
        idempotency_key: str | None = None,
    ) -> m.SessionEnd:  # fmt: skip
        """End a session, and summarize its messages; the latest messages replace earlier ones.

        Without messages, those added before are summarized. An unknown id creates a session in the
        project. TooLarge if the messages exceed the limit of the service (default 256 MiB).
        """
        return also(messages=transcript(messages) or None)


class MemoryService(Awaited, Questions, ABC):
    """The memories of one caller. Every method refuses with a MemoryServiceError."""

    @abstractmethod
    def export(
        self, project: str | None = None, *, progress: m.Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Every session and observation of the project, or of all, as chunks of JSON."""

    @abstractmethod
    async def import_from(
        self, path: str | os.PathLike[str], *, progress: m.Progress | None = None
    ) -> m.Imported:
        """Store the rows of an export that the service does not have yet.

        OSError for a file that cannot be read.
        """

    @abstractmethod
    async def plan_import(
        self, path: str | os.PathLike[str], *, progress: m.Progress | None = None
    ) -> m.ImportPlan:
        """What an import of the file would do; nothing is stored. OSError as for an import."""
