"""Sessions: open, extend with messages, close with a summary, end when idle."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated

from ..engine.engine import Engine, Transaction, WriteTarget, within_one_project
from ..errors import Invalid, required
from ..light import asdict, dataclass, replace
from ..recall.summary import Transcript, continued, parsed_summary, summary
from ..recall.text import cut
from .access import Caller
from .idempotency import once
from .memory import Session, SessionId
from .redactor import faults_of, is_known_project, refuse, require_margin
from .rows import MAX_LIST, Column, RowMapper, micros, portion
from .space import UNKNOWN_PROJECT, Project
from .table import FilteredTable, Known, Table, inserting, step

SESSION = RowMapper(Session, "sessions", "number")
NUMBER = "(SELECT number FROM sessions WHERE id = :session)"
TRANSCRIPT = RowMapper(Transcript, "transcripts", "t.session", alias="t.")


@dataclass(eq=False)
class SessionTable(FilteredTable):
    """Sessions; lookups by id are not limited to the caller's projects."""

    _known: Known

    def get(self, session: SessionId) -> Session | None:
        return self._fetch(SESSION, "id = :id", id=session)

    def project_of(self, session: SessionId, project: Project, now: datetime) -> Project:
        """Return the project of the session, which is created in `project` if it is new."""
        owner = self._known.sessions.get(session)
        if owner is None:
            new = Session(id=session, project=project, started_at=now)
            owner = self._known.sessions[session] = self.open(new).project
        return owner

    def open(self, session: Session) -> Session:
        """Store the session unless its id exists; return the stored session."""
        known = self.get(session.id)
        if known is not None:
            return known
        self._insert("sessions", **SESSION.values(session))
        return session

    def add(self, sessions: Sequence[Session]) -> None:
        rows = list(map(SESSION.values, sessions))
        self._connection.executemany(inserting("sessions", tuple(rows[0])), rows)

    def projects_of(self, sessions: Iterable[SessionId]) -> dict[SessionId, Project]:
        """Return the projects of the sessions, without unknown sessions."""
        chosen = f"(SELECT value FROM {self._sql.texts('listed')})"
        rows = self._execute(
            f"SELECT id, project FROM sessions WHERE id IN {chosen}",
            texts=json.dumps(list(sessions)),
        )
        return {SessionId(id_): project for id_, project in rows}

    @step("store.summarize", lambda _, session: {
        "memory.session.message_count": session.message_count,
        "memory.summary.length": len(session.summary),
    })  # fmt: skip
    def close(self, session: Session) -> None:
        row = SESSION.values(session)
        columns = ("id", "ended_at", "summary", "message_count")
        self._update("sessions", "id", {it: row[it] for it in columns})

    def grow(self, session: Session) -> None:
        row = {"id": session.id, "message_count": session.message_count}
        self._update("sessions", "id", row)

    def newest(
        self, project: Project | None, limit: int, *, before: SessionId | None = None
    ) -> list[Session]:
        """Return sessions, newest start first, ties by insertion; only those before `before`."""
        of_project = "" if project is None else "AND project = :project"
        last = "SELECT started_at, number FROM sessions WHERE id = :before"
        earlier = "" if before is None else f"AND (started_at, number) < ({last})"
        statement = f"""{SESSION.selecting()} {self._acts_on("project")} {of_project} {earlier}
                      ORDER BY started_at DESC, number DESC
                         LIMIT :limit"""
        values = {"project": project, "before": before}
        sessions = self._filled(
            limit, lambda most: self._execute(statement, limit=most, **values), SESSION
        )
        return portion(sessions, MAX_LIST, lambda it: len(it.summary))

    def summaries(self, project: Project, limit: int) -> list[str]:
        return self._texts(
            f"""SELECT summary
                  FROM sessions
                 WHERE project = :project AND summary <> ''
                       AND {self._acts_on("project")}
              ORDER BY started_at DESC, number DESC
                 LIMIT :limit""",
            project=project, limit=limit,
        )  # fmt: skip

    def page(self, project: Project | None, after: int, limit: int) -> list[tuple[int, Session]]:
        return self._page(
            lambda row: (row[0], SESSION(row)),
            lambda each: len(each[1].summary),
            f"""{SESSION.selecting()} number > :after
                       AND (CAST(:project AS TEXT) IS NULL OR project = :project)
                       AND {self._acts_on("project")}
              ORDER BY number
                 LIMIT :limit""",
            project=project, after=after, limit=limit,
        )  # fmt: skip

    def count(self, project: Project | None) -> int:
        return self._number(
            f"""SELECT count(*)
                  FROM sessions
                 WHERE (CAST(:project AS TEXT) IS NULL OR project = :project)
                       AND {self._acts_on("project")}""",
            project=project,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSession:
    """A session with the digest of its messages, and when the last of them was received."""

    session: Annotated[Session, Column("s.")]
    digest: Annotated[Transcript, Column("t.")]
    heard_at: Annotated[datetime, Column("t.heard_at")]


IDLE = RowMapper(
    IdleSession, "transcripts", "t.session", alias="t.",
    joins="JOIN sessions s ON s.number = t.session",
)  # fmt: skip


@dataclass(eq=False)
class TranscriptTable(Table):
    """The digests of the messages that sessions received since their last end."""

    _now: datetime

    def get(self, session: SessionId) -> Transcript | None:
        return self._fetch(TRANSCRIPT, f"t.session = {NUMBER}", session=session)

    def put(self, session: SessionId, transcript: Transcript) -> None:
        self._execute(
            f"""INSERT INTO transcripts (session, messages, "user", assistant, first, last,
                                         heard_at)
                VALUES ({NUMBER}, :messages, :user, :assistant, :first, :last, :now)
                    ON CONFLICT (session) DO UPDATE
                   SET messages = excluded.messages, "user" = excluded."user",
                       assistant = excluded.assistant, first = excluded.first,
                       last = excluded.last, heard_at = excluded.heard_at""",
            session=session, now=micros(self._now), **asdict(transcript),
        )  # fmt: skip

    def rewrite(self, session: SessionId, transcript: Transcript) -> None:
        """Replace the texts of the digest, but keep the time of its last message."""
        self._execute(
            f"UPDATE transcripts SET first = :first, last = :last WHERE session = {NUMBER}",
            session=session, first=transcript.first, last=transcript.last,
        )  # fmt: skip

    def drop(self, session: SessionId) -> None:
        self._execute(f"DELETE FROM transcripts WHERE session = {NUMBER}", session=session)

    def idle(self, until: datetime, limit: int) -> list[IdleSession]:
        """Return sessions idle since `until`, the longest idle first."""
        which = "t.heard_at <= :until ORDER BY t.heard_at, t.session LIMIT :limit"
        return self._fetch_all(IDLE, which, until=micros(until), limit=limit)


AT_ONCE = 100  # idle sessions ended in one transaction, during which saves wait
WARNED_NAME = 100  # code points of a name in a warning: two escaped names fit any header limit


async def end_idle(engine: Engine, caller: Caller, idle: timedelta) -> int:
    """End the sessions idle for at least `idle` at their last message; return their number."""
    ended = 0
    while bool(idle) and await engine.read(
        caller, lambda tx: bool(tx[TranscriptTable].idle(tx.now - idle, 1))
    ):
        if not (now_ended := await engine.write(caller, _end_idle, idle)):
            break
        ended += now_ended
    return ended


def project_warning(session: SessionId, owner: Project, project: Project | None) -> str | None:
    """Return the warning for a write that names a session and another project than its own.

    Printable ASCII, so that it is safe in a header, a log and a terminal. It names the session's
    project, so it is only for callers with access to that project.
    """
    if project is None or owner == project:
        return None
    id_, name = (json.dumps(cut(it, WARNED_NAME)) for it in (session, owner))
    return f"session {id_} belongs to the project {name}"


@within_one_project(lambda session, project: WriteTarget(project, session))
def open_session(tx: Transaction, session: SessionId, project: Project) -> Session:
    tx.caller.require_project(project)
    return _stored_or_new(tx, session, project)


def _stored_or_new(tx: Transaction, session: SessionId, project: Project) -> Session:
    """Return the stored session, created if it is new; Denied outside the caller's projects.

    InvalidFields for a new session with a name that is not allowed.
    """
    faults = faults_of({"id": session, "project": project})
    if faults and tx[SessionTable].get(session) is None:
        refuse(faults, known={"project"} if is_known_project(tx, project) else ())
    require_margin(tx)
    stored = tx[SessionTable].open(Session(id=session, project=project, started_at=tx.now))
    tx.caller.require_project(stored.project)
    return stored


@within_one_project(lambda session, _, project: project and WriteTarget(project, session))
def append_messages(
    tx: Transaction, session: SessionId, added: Transcript, project: Project | None
) -> Session:
    """Append messages; an unknown session is created in `project`, or else in `unknown`."""
    opened = _stored_or_new(tx, session, project or UNKNOWN_PROJECT)
    if not added.messages:
        return opened
    digest = continued(tx[TranscriptTable].get(session) or parsed_summary(opened.summary), added)
    tx[TranscriptTable].put(session, digest)
    grown = replace(opened, message_count=digest.messages)
    tx[SessionTable].grow(grown)
    return grown


@within_one_project(lambda session, _, project: project and WriteTarget(project, session))
def close_session(
    tx: Transaction, session: SessionId, added: Transcript, project: Project | None
) -> Session:
    """Close a session with the summary of its transcript; the last transcript wins.

    Without messages, the messages appended since the last close are summarized. If there are none,
    the summary stays. An unknown session is created as by `append_messages`.
    """
    opened = _stored_or_new(tx, session, project or UNKNOWN_PROJECT)
    digest = added if added.messages else tx[TranscriptTable].get(session)
    return _ended(tx, opened, digest, tx.now)


def _end_idle(tx: Transaction, idle: timedelta) -> int:
    """End one batch of idle sessions; return their number, 0 only if no session was idle."""
    sessions = tx[TranscriptTable].idle(tx.now - idle, AT_ONCE)
    for it in sessions:
        _ended(tx, it.session, it.digest, it.heard_at)
    return len(sessions)


def recent_sessions(
    tx: Transaction, project: Project | None, limit: int, before: SessionId | None
) -> list[Session]:
    if before is not None:
        session = tx[SessionTable].get(before)
        if session is None or not tx.caller.projects.match(session.project):
            raise Invalid("before_id must be the id of a session.")
    return tx[SessionTable].newest(project, limit, before=before)


def _ended(tx: Transaction, session: Session, digest: Transcript | None, at: datetime) -> Session:
    ended = replace(session, ended_at=max(at, session.started_at))  # the clock may have gone back
    if digest is not None:
        ended = replace(ended, summary=summary(digest), message_count=digest.messages)
    tx[SessionTable].close(ended)
    tx[TranscriptTable].drop(session.id)
    return ended


def _require_enterable(tx: Transaction, session: SessionId, project: Project) -> None:
    tx.caller.require_project(project)
    _require_known(tx, session)


def _require_known(tx: Transaction, session: SessionId, *_: object) -> None:
    """Refuse a session that is gone, or whose project the caller can no longer access."""
    stored = required(tx[SessionTable].get(session), "No such session.")
    tx.caller.require_project(stored.project)


OPEN = once(open_session, check=_require_enterable)
APPEND = once(append_messages, check=_require_known, kept=lambda it: replace(it, summary=""))
CLOSE = once(close_session, check=_require_known)
