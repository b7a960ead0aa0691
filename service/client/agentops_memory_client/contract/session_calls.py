"""The questions about sessions, as `calls` has those about memories."""

from collections.abc import Sequence

from . import reading
from .call import Call, given, once, said
from .models import Appended, Message, Session, SessionEnd


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
