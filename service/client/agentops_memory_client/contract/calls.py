"""Every question that fits into one answer, as a function of what is asked.

Each makes a `Call`; the clients have each as a method of the same name, which
answers what the call reads. All refuse with a `MemoryServiceError`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from . import reading
from .call import Call, Unset, given, instant, listed, once, present, said, seconds
from .models import (
    Appended,
    Context,
    Found,
    Message,
    Observation,
    ReviewList,
    Revision,
    Saved,
    Session,
    SessionEnd,
    Stats,
    TimelineEntry,
)

UNSET = Unset.UNSET
MAX_PROMPT = 500  # code points; the service reads no more of a query


def save(  # noqa: PLR0913 - the fields of a memory, each by its name
    *,
    session_id: str,
    project: str,
    type: str,  # noqa: A002 - the protocol's word
    title: str,
    content: str,
    tags: Sequence[str] = (),
    scope: str | None = None,
    topic_key: str | None = None,
    expires_at: datetime | None = None,
    ttl: timedelta | int | None = None,
    pinned: bool | None = None,
    supersedes: Sequence[int | str] = (),
    review_at: datetime | None = None,
    similar: int = 0,
    idempotency_key: str | None = None,
) -> Call[Saved]:
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
    fields = {
        "session_id": session_id, "project": project, "type": type, "title": title,
        "content": content, "tags": listed(tags), "scope": scope, "topic_key": topic_key,
        "expires_at": instant(expires_at), "ttl": seconds(ttl), "pinned": pinned,
        "supersedes": listed(supersedes) or None, "review_at": instant(review_at),
    }  # fmt: skip
    return Call(
        operation="add_observation", method="POST", path=("observations",), body=present(fields),
        query=given(similar=similar or None),
        headers=once(idempotency_key), read=reading.saved,
    )  # fmt: skip


def get(observation: int) -> Call[Observation]:
    """A memory in full. NotFound if there is none with this id, or it is deleted."""
    return Call(
        operation="get_observation", method="GET", path=("observations", str(observation)),
        read=reading.observation,
    )  # fmt: skip


def recent(
    project: str | None = None,
    *,
    type: str | None = None,  # noqa: A002 - the protocol's word
    exclude_types: Sequence[str] = (),
    scope: str | None = None,
    tag: str | None = None,
    limit: int = 20,
    before: int | None = None,
) -> Call[list[Observation]]:
    """Memories of the project, or of all, newest first; with `before`, those older than that one.

    At most 1,000, and as many as 2 MiB hold. None is of the types to exclude, at most 20.
    """
    query = given(
        project=project, type=type, exclude_type=listed(exclude_types) or None, scope=scope,
        tag=tag, limit=limit, before_id=before,
    )  # fmt: skip
    return Call(
        operation="recent_observations", method="GET", path=("observations", "recent"), query=query,
        read=reading.observations,
    )  # fmt: skip


def history(observation: int) -> Call[list[Revision]]:
    """The changes of a memory, newest first: at most 100, also of a deleted one.

    NotFound if there is none with this id.
    """
    path = ("observations", str(observation), "history")
    return Call(operation="observation_history", method="GET", path=path, read=reading.revisions)


def restore(
    observation: int, revision: int, *, idempotency_key: str | None = None
) -> Call[Observation]:
    """Bring back the text of a revision, as a new one; a deleted memory comes back with it.

    NotFound if there is no such memory or revision; Conflict if another
    memory holds its topic key by now.
    """
    return Call(
        operation="restore_observation", method="POST",
        path=("observations", str(observation), "restore"), body={"revision": revision},
        headers=once(idempotency_key), read=reading.observation,
    )  # fmt: skip


def update(  # noqa: PLR0913 - the fields of a memory, each by its name
    observation: int,
    *,
    type: str | None = None,  # noqa: A002 - the protocol's word
    title: str | None = None,
    content: str | None = None,
    tags: Sequence[str] | None = None,
    expires_at: datetime | Unset | None = UNSET,
    ttl: timedelta | int | None = None,
    pinned: bool | None = None,
    supersedes: Sequence[int | str] | None = None,
    review_at: datetime | Unset | None = UNSET,
    revision: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Observation]:
    """Change what is given, and answer the memory as it is now.

    What is None stays; no tags at all are `()`. An end or a review that is None is
    taken away. The text before becomes a revision. Limits as for a save. NotFound if
    there is none with this id. Conflict if it is not at the `revision` that is changed.
    """
    fields = {
        "type": type, "title": title, "content": content,
        "tags": None if tags is None else listed(tags), "ttl": seconds(ttl), "pinned": pinned,
        "supersedes": None if supersedes is None else listed(supersedes), "revision": revision,
    }  # fmt: skip
    ends = {"expires_at": expires_at, "review_at": review_at}
    told = {name: instant(at) for name, at in ends.items() if not isinstance(at, Unset)}
    return Call(
        operation="update_observation", method="PATCH", path=("observations", str(observation)),
        body={**present(fields), **told}, headers=once(idempotency_key), read=reading.observation,
    )  # fmt: skip


def confirm(observation: int, *, idempotency_key: str | None = None) -> Call[Observation]:
    """Say that a memory still holds. NotFound if there is none with this id."""
    return Call(
        operation="confirm_observation", method="POST",
        path=("observations", str(observation), "confirm"), headers=once(idempotency_key),
        read=reading.observation,
    )  # fmt: skip


def review(
    project: str | None = None,
    *,
    reason: str | None = None,
    limit: int = 20,
    before: str | None = None,
) -> Call[ReviewList]:
    """What somebody should look at in the project, or in all, the newest reason first.

    A reason is `review_due`, `expires_soon` or `similar`; a list's `next` as `before` gives
    what follows. Invalid for another reason, or another text.
    """
    asked = given(project=project, reason=reason, limit=limit, before=before)
    return Call(
        operation="review", method="GET", path=("review",), query=asked, read=reading.review_list
    )


def delete(
    observation: int, *, hard: bool = False, idempotency_key: str | None = None
) -> Call[str | None]:
    """Forget a memory so that it can be brought back; again is the same.

    With `hard` it is erased with its history, for good, and the answer is the
    id of the receipt; None if there was nothing to erase.
    """
    return Call(
        operation="delete_observation", method="DELETE", path=("observations", str(observation)),
        query=given(hard=hard), headers=once(idempotency_key), read=reading.erasure,
    )  # fmt: skip


def search(  # noqa: PLR0913 - the filters of a search, each by its name
    query: str,
    *,
    project: str | None = None,
    type: str | None = None,  # noqa: A002 - the protocol's word
    exclude_types: Sequence[str] = (),
    scope: str | None = None,
    tag: str | None = None,
    limit: int = 10,
    superseded: bool = False,
    explain: bool = False,
) -> Call[Found]:
    """The memories of the project, or of all, that a query finds, best first.

    None is of the types to exclude, at most 20. With `superseded` those that others
    supersede join. The first 500 characters of the query count. At most 1,000, and as
    many as 2 MiB hold; the rest are counted as `omitted`.
    """
    asked = given(
        q=query[:MAX_PROMPT], project=project, type=type,
        exclude_type=listed(exclude_types) or None, scope=scope, tag=tag, limit=limit,
        superseded=superseded, explain=explain,
    )  # fmt: skip
    return Call(operation="search", method="GET", path=("search",), query=asked, read=reading.found)


def context(  # noqa: PLR0913 - what an agent may say of its turn, each by its name
    *,
    project: str | None = None,
    query: str | None = None,
    exclude_types: Sequence[str] = (),
    scope: str | None = None,
    tag: str | None = None,
    limit: int = 5,
    explain: bool = False,
    max_tokens: int | None = None,
    max_chars: int | None = None,
    content_chars: int | None = None,
    stores: Sequence[str] = (),
    namespaces: Sequence[str] = (),
    episodic: bool = False,
    agent: str | None = None,
    ages: bool = False,
) -> Call[Context]:
    """What to remind an agent of: summaries of sessions, then memories, best first.

    Without a query, or one that finds nothing, the newest. No memory is of the types to
    exclude, at most 20. The first 500 characters of the query count. What does not fit
    into `max_tokens` (of four bytes) or `max_chars` (code points) is left out; each
    content is cut at `content_chars`, or at 300. `stores` are ids of memory stores that join, at
    most eight: NotFound if one is not there. So do the semantic `namespaces` of
    agents' memory and, with `episodic`, what the agent itself has learned: `agent`
    is the one that asks, unless the key speaks for one alone. With `ages` each
    memory tells how old it is.
    """
    asked = given(
        project=project, query=None if query is None else query[:MAX_PROMPT],
        exclude_type=listed(exclude_types) or None, scope=scope, tag=tag, limit=limit,
        explain=explain, max_tokens=max_tokens, max_chars=max_chars,
        content_chars=content_chars, stores=",".join(stores) or None,
        namespaces=",".join(namespaces) or None, episodic=episodic, agent=agent, ages=ages,
    )  # fmt: skip
    return Call(
        operation="fetch_context", method="GET", path=("context",), query=asked,
        read=reading.context,
    )  # fmt: skip


def timeline(observation: int, *, before: int = 3, after: int = 3) -> Call[list[TimelineEntry]]:
    """A memory among those saved before and after it in its project, oldest first.

    NotFound if there is none with this id.
    """
    asked = given(observation_id=observation, before=before, after=after)
    return Call(
        operation="timeline", method="GET", path=("timeline",), query=asked, read=reading.timeline
    )


def stats(project: str | None = None) -> Call[Stats]:
    """How much is stored, in the project or in all."""
    return Call(
        operation="stats", method="GET", path=("stats",), query=given(project=project),
        read=reading.stats,
    )  # fmt: skip


def sessions(
    project: str | None = None, *, limit: int = 5, before: str | None = None
) -> Call[list[Session]]:
    """Sessions, newest first; with `before`, those older than that one. At most 1,000."""
    asked = given(project=project, limit=limit, before_id=before)
    return Call(
        operation="recent_sessions", method="GET", path=("sessions", "recent"), query=asked,
        read=reading.sessions,
    )  # fmt: skip


def start_session(
    session_id: str, project: str, *, idempotency_key: str | None = None
) -> Call[Session]:
    """Open a session; one that is there already is answered as it is.

    The id may be any text of 1 to 500 characters.
    """
    return Call(
        operation="create_session", method="POST", path=("sessions",),
        body={"id": session_id, "project": project}, headers=once(idempotency_key),
        read=reading.session,
    )  # fmt: skip


def append_messages(
    session_id: str,
    messages: Sequence[Message],
    *,
    project: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Appended]:
    """Add messages to a session's transcript, of which an end without messages makes the summary.

    What is told of a session that has ended goes on where its summary stops. An
    id that is not known becomes a session of the project. TooLarge if the
    messages are more than 1 MiB.
    """
    return Call(
        operation="append_messages", method="POST", path=("sessions", session_id, "messages"),
        query=given(project=project), body={"messages": said(messages)},
        headers=once(idempotency_key), read=reading.appended,
    )  # fmt: skip


def end_session(
    session_id: str,
    messages: Sequence[Message] = (),
    *,
    project: str | None = None,
    idempotency_key: str | None = None,
) -> Call[SessionEnd]:
    """End a session; messages, if there are any, become its summary, and the last ones win.

    Without any its summary tells of what was added to it. An id that is not
    known becomes a session of the project. TooLarge if the messages are more
    than the service takes: 256 MiB, if it was not told else.
    """
    told = said(messages)
    return Call(
        operation="end_session", method="POST", path=("sessions", session_id, "end"),
        query=given(project=project), body={"messages": told} if told else {},
        headers=once(idempotency_key), read=reading.session_end,
    )  # fmt: skip


def health() -> Call[str]:
    """`ok` if the service runs; Unavailable while it ends. It needs no key."""
    return Call(operation="health", method="GET", path=("health",), read=reading.health)
