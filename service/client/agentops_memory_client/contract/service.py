"""What agents and people ask, whoever answers: a running service, or a database in this process."""

# The signature of a method that `sends` is what it does with its arguments.
# mypy: disable-error-code="empty-body"
# ruff: noqa: ARG002

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Concatenate

from . import models as m
from . import reading
from .call import UNSET, Call, T, Unset, also, given, once, plain, said
from .method import Asks, Awaited, Method, P, shown_as
from .reading import Reader

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
        answer = read or reading.noun(signature.return_annotation)

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
                query=given(**{name: it for name, it in named.items() if name in in_query}),
                body={name: it for name, it in named.items() if name not in in_query}
                if has_body else None,
            ))  # fmt: skip

        return Method(shown_as(question, send, beside=1))

    return declare


class Questions(Asks):
    """The questions that fit into one answer. All refuse with a `MemoryServiceError`."""

    @sends("add_observation", "POST", "observations", query=("similar",))
    def save(  # noqa: PLR0913 - the fields of a memory, each by its name
        self, *, session_id: str, project: str, type: str,  # noqa: A002 - the protocol's word
        title: str, content: str, tags: Sequence[str] = (), scope: str | None = None,
        topic_key: str | None = None, expires_at: datetime | None = None,
        ttl: timedelta | int | None = None, pinned: bool | None = None,
        supersedes: Sequence[int | str] = (), review_at: datetime | None = None, similar: int = 0,
        idempotency_key: str | None = None,
    ) -> m.Saved:  # fmt: skip
        """Save a memory; an equal one, or one with its topic key, is not doubled.

        It ends at `expires_at`, or after `ttl`, whole seconds. A pinned one comes first
        in contexts. It supersedes memories by their ids or stable ids. At most ten
        `similar` ones are told.

        The session is made if there is none. Title: at most 500 characters;
        content: 50,000; tags: 20 of 100 each. The scope is `project` if none is
        given; one in scope `global` is recalled in every project.

        Invalid names every fault; NotFound for what cannot be superseded; Conflict if the
        idempotency key was used for another request, for a pin too many, or a circle.
        """
        return also(supersedes=supersedes or None, similar=similar or None)

    @sends("get_observation", "GET", "observations/{observation}")
    def get(self, observation: int) -> m.Observation:
        """A memory in full. NotFound if there is none with this id, or it is deleted."""

    @sends("recent_observations", "GET", "observations/recent")
    def recent(
        self, project: str | None = None, *,
        type: str | None = None,  # noqa: A002 - the protocol's word
        exclude_types: Sequence[str] = (), scope: str | None = None, tag: str | None = None,
        limit: int = 20, before: int | None = None,
    ) -> list[m.Observation]:  # fmt: skip
        """Memories of the project, or of all, newest first; `before` one: those that are older.

        At most 1,000, and as many as 2 MiB hold. None is of the types to exclude, at most 20.
        """
        excluded = exclude_types or None
        return also(exclude_type=excluded, exclude_types=None, before_id=before, before=None)

    @sends("observation_history", "GET", "observations/{observation}/history")
    def history(self, observation: int) -> list[m.Revision]:
        """The changes of a memory, newest first: at most 100, also of a deleted one.

        NotFound if there is none with this id.
        """

    @sends("restore_observation", "POST", "observations/{observation}/restore")
    def restore(
        self, observation: int, revision: int, *, idempotency_key: str | None = None
    ) -> m.Observation:
        """Bring back the text of a revision, as a new one; a deleted memory comes back with it.

        NotFound if there is no such memory or revision; Conflict if another
        memory holds its topic key by now.
        """

    @sends("update_observation", "PATCH", "observations/{observation}")
    def update(  # noqa: PLR0913 - the fields of a memory, each by its name
        self, observation: int, *, type: str | None = None,  # noqa: A002 - the protocol's word
        title: str | None = None, content: str | None = None, tags: Sequence[str] | None = None,
        expires_at: datetime | Unset | None = UNSET, ttl: timedelta | int | None = None,
        pinned: bool | None = None, supersedes: Sequence[int | str] | None = None,
        review_at: datetime | Unset | None = UNSET, revision: int | None = None,
        idempotency_key: str | None = None,
    ) -> m.Observation:  # fmt: skip
        """Change what is given, and answer the memory as it is now.

        What is None stays; no tags at all are `()`. An end or a review that is None is
        taken away. The text before becomes a revision. Limits as for a save. NotFound if
        there is none with this id. Conflict if it is not at the `revision` that is changed.
        """

    @sends("confirm_observation", "POST", "observations/{observation}/confirm")
    def confirm(self, observation: int, *, idempotency_key: str | None = None) -> m.Observation:
        """Confirm that a memory is still true. NotFound if there is none with this id."""

    @sends("review", "GET", "review")
    def review(
        self, project: str | None = None, *, reason: str | None = None, limit: int = 20,
        before: str | None = None,
    ) -> m.ReviewList:  # fmt: skip
        """What somebody should look at in the project, or in all, the newest reason first.

        A reason is `review_due`, `expires_soon` or `similar`; a list's `next` as `before` gives
        what follows. Invalid for another reason, or another text.
        """

    @sends("delete_observation", "DELETE", "observations/{observation}", read=reading.erasure)
    def delete(
        self, observation: int, *, hard: bool = False, idempotency_key: str | None = None
    ) -> str | None:
        """Forget a memory so that it can be brought back; again is the same.

        With `hard` it is erased with its history, for good, and the answer is the
        id of the receipt; None if there was nothing to erase.
        """

    @sends("search", "GET", "search", read=reading.found)
    def search(  # noqa: PLR0913 - the filters of a search, each by its name
        self, query: str, *, project: str | None = None,
        type: str | None = None,  # noqa: A002 - the protocol's word
        exclude_types: Sequence[str] = (), scope: str | None = None, tag: str | None = None,
        limit: int = 10, superseded: bool = False, explain: bool = False,
    ) -> m.Found:  # fmt: skip
        """The memories of the project, or of all, that a query finds, best first.

        None is of the types to exclude, at most 20. With `superseded` those that others
        supersede join. The first 500 characters of the query count. At most 1,000, and as
        many as 2 MiB hold; the rest are counted as `omitted`.
        """
        excluded = exclude_types or None
        return also(q=query[:MAX_PROMPT], query=None, exclude_type=excluded, exclude_types=None)

    @sends("fetch_context", "GET", "context", read=reading.context)
    def context(  # noqa: PLR0913 - what an agent may say of its turn, each by its name
        self, *, project: str | None = None, query: str | None = None,
        exclude_types: Sequence[str] = (), scope: str | None = None, tag: str | None = None,
        limit: int = 5, explain: bool = False, max_tokens: int | None = None,
        max_chars: int | None = None, content_chars: int | None = None, stores: Sequence[str] = (),
        namespaces: Sequence[str] = (), episodic: bool = False, agent: str | None = None,
        ages: bool = False,
    ) -> m.Context:  # fmt: skip
        """What to remind an agent of: summaries of sessions, then memories, best first.

        Without a query, or one that finds nothing, the newest. No memory is of the types to
        exclude, at most 20. The first 500 characters of the query count. What does not fit
        into `max_tokens` (of four bytes) or `max_chars` (code points) is left out; each
        content is cut at `content_chars`, or at 300. `stores` are ids of memory stores that join,
        at most eight: NotFound if one is not there. So do the semantic `namespaces` of
        agents' memory and, with `episodic`, what the agent itself has learned: `agent`
        is the one that asks, unless the key speaks for one alone. With `ages` each
        memory tells how old it is.
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
        """A memory among those saved before and after it in its project, oldest first.

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
        """Open a session; one that is there already is answered as it is.

        The id may be any text of 1 to 500 characters.
        """
        return also(id=session_id, session_id=None)

    @sends("append_messages", "POST", "sessions/{session_id}/messages", query=("project",),
           read=reading.appended)  # fmt: skip
    def append_messages(
        self, session_id: str, messages: Sequence[m.Message], *, project: str | None = None,
        idempotency_key: str | None = None,
    ) -> m.Appended:  # fmt: skip
        """Add messages to a session's transcript; an end without messages makes its summary of it.

        What is told of a session that has ended goes on where its summary stops. An
        id that is not known becomes a session of the project. TooLarge if the
        messages are more than 1 MiB.
        """
        return also(messages=said(messages))

    @sends("end_session", "POST", "sessions/{session_id}/end", query=("project",))
    def end_session(
        self, session_id: str, messages: Sequence[m.Message] = (), *, project: str | None = None,
        idempotency_key: str | None = None,
    ) -> m.SessionEnd:  # fmt: skip
        """End a session; messages, if there are any, become its summary, and the last ones win.

        Without any its summary tells of what was added to it. An id that is not
        known becomes a session of the project. TooLarge if the messages are more
        than the service takes: 256 MiB, if it was not told else.
        """
        return also(messages=said(messages) or None)


class MemoryService(Awaited, Questions, ABC):
    """The memories of one caller. Every method refuses with a MemoryServiceError."""

    @abstractmethod
    async def _ask(self, call: Call[T], /) -> T:
        """What is answered to a call."""

    @abstractmethod
    def export(
        self, project: str | None = None, *, progress: m.Progress | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Every session and observation of the project, or of all, as JSON: bytes as they come."""

    @abstractmethod
    async def import_from(
        self, path: str | os.PathLike[str], *, progress: m.Progress | None = None
    ) -> m.Imported:
        """Store what an export holds and the service does not, whole or not at all.

        OSError for a file that cannot be read.
        """

    @abstractmethod
    async def plan_import(
        self, path: str | os.PathLike[str], *, progress: m.Progress | None = None
    ) -> m.ImportPlan:
        """What an import of the file would do; nothing is stored. OSError as for an import."""
