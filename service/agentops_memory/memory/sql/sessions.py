"""SQL for sessions, and for what was said so far in those that go on."""

from dataclasses import dataclass
from datetime import datetime

from ...recall.text.summary import Transcript
from ...steps import Attributes, step
from ..model.memory import MAX_LIST, Session, SessionId
from ..model.space import Project
from .rows import count, instant, micros, optional_instant, portion, reads
from .table import FilteredTable, Known, Table

SESSION = "number, id, project, started_at, ended_at, summary, message_count"
NUMBER = "(SELECT number FROM sessions WHERE id = :session)"


def _summarized(_: None, session: Session) -> Attributes:
    return {
        "memory.session.message_count": session.message_count,
        "memory.summary.length": len(session.summary),
    }


@dataclass(eq=False)
class SessionTable(FilteredTable):
    """Sessions, known by their id alone."""

    _known: Known

    def get(self, session: SessionId) -> Session | None:
        """The session, ended or not."""
        return self._first(_session, f"SELECT {SESSION} FROM sessions WHERE id = :id", id=session)

    def project_of(self, session: SessionId, project: Project, now: datetime) -> Project:
        """The project of the session, which is stored as one of `project` unless its id exists."""
        owner = self._known.sessions.get(session)
        if owner is None:
            new = Session(id=session, project=project, started_at=now)
            owner = self._known.sessions[session] = self.open(new).project
        return owner

    def open(self, session: Session) -> Session:
        """Store the session unless its id exists; returns the stored one."""
        known = self.get(session.id)
        if known is not None:
            return known
        self._insert(
            "sessions",
            id=session.id,
            project=session.project,
            started_at=micros(session.started_at),
        )
        return session

    @step("store.summarize", _summarized)
    def close(self, session: Session) -> None:
        """Update the session's end, summary and message count."""
        self._execute(
            """UPDATE sessions
                  SET ended_at = :ended_at, summary = :summary, message_count = :message_count
                WHERE id = :id""",
            id=session.id,
            ended_at=None if session.ended_at is None else micros(session.ended_at),
            summary=session.summary,
            message_count=session.message_count,
        )

    def grow(self, session: Session) -> None:
        """Update the session's message count alone."""
        self._execute(
            "UPDATE sessions SET message_count = :message_count WHERE id = :id",
            id=session.id,
            message_count=session.message_count,
        )

    def newest(
        self, project: Project | None, limit: int, *, before: SessionId | None = None
    ) -> list[Session]:
        """Sessions, newest first by start, ties by insertion; only those older than `before`."""
        conditions = [self._acts_on("project")]
        if project is not None:
            conditions.append("project = :project")
        if before is not None:
            conditions.append(
                """(started_at, number)
                 < (SELECT started_at, number FROM sessions WHERE id = :before)"""
            )
        statement = f"""SELECT {SESSION}
                          FROM sessions
                         WHERE {" AND ".join(conditions)}
                      ORDER BY started_at DESC, number DESC
                         LIMIT :limit"""
        given = {"project": project, "before": before, **self._patterns()}
        found = self._filled(
            limit, lambda most: self._execute(statement, limit=most, **given), _session
        )
        return portion(found, MAX_LIST, _size)

    def summaries(self, project: Project, limit: int) -> list[str]:
        """The project's newest summaries that are not empty."""
        return self._texts(
            f"""SELECT summary
                  FROM sessions
                 WHERE project = :project AND summary <> ''
                       AND {self._acts_on("project")}
              ORDER BY started_at DESC, number DESC
                 LIMIT :limit""",
            project=project,
            limit=limit,
            **self._patterns(),
        )

    def page(self, project: Project | None, after: int, limit: int) -> list[tuple[int, Session]]:
        """Sessions in insertion order, each with its sequence number."""
        return self._page(
            lambda row: (row[0], _session(row)),
            lambda each: _size(each[1]),
            f"""SELECT {SESSION}
                  FROM sessions
                 WHERE number > :after
                       AND (CAST(:project AS TEXT) IS NULL OR project = :project)
                       AND {self._acts_on("project")}
              ORDER BY number
                 LIMIT :limit""",
            project=project,
            after=after,
            limit=limit,
            **self._patterns(),
        )

    def count(self, project: Project | None) -> int:
        """The count of sessions."""
        return self._number(
            f"""SELECT count(*)
                  FROM sessions
                 WHERE (CAST(:project AS TEXT) IS NULL OR project = :project)
                       AND {self._acts_on("project")}""",
            project=project,
            **self._patterns(),
        )

    def projects(self) -> set[Project]:
        """The projects with a session."""
        known = "(SELECT DISTINCT project FROM sessions) known"
        return set(
            self._texts(
                f"SELECT project FROM {known} WHERE {self._acts_on('project')}", **self._patterns()
            )
        )


@dataclass(eq=False)
class TranscriptTable(Table):
    """The digests of messages that sessions received since they last ended."""

    _now: datetime

    def get(self, session: SessionId) -> Transcript | None:
        """The session's digest."""
        columns = 'session, messages, "user", assistant, first, last'
        return self._first(
            _transcript,
            f"SELECT {columns} FROM transcripts WHERE session = {NUMBER}",
            session=session,
        )

    def put(self, session: SessionId, transcript: Transcript) -> None:
        """Store the session's digest, received now."""
        self._execute(
            f"""INSERT INTO transcripts (session, messages, "user", assistant, first, last,
                                         heard_at)
                VALUES ({NUMBER}, :messages, :user, :assistant, :first, :last, :now)
                    ON CONFLICT (session) DO UPDATE
                   SET messages = excluded.messages, "user" = excluded."user",
                       assistant = excluded.assistant, first = excluded.first,
                       last = excluded.last, heard_at = excluded.heard_at""",
            session=session,
            messages=transcript.messages,
            user=transcript.user,
            assistant=transcript.assistant,
            first=transcript.first,
            last=transcript.last,
            now=micros(self._now),
        )

    def rewrite(self, session: SessionId, transcript: Transcript) -> None:
        """Replace the texts of the digest; the time of receipt stays."""
        self._execute(
            f"UPDATE transcripts SET first = :first, last = :last WHERE session = {NUMBER}",
            session=session,
            first=transcript.first,
            last=transcript.last,
        )

    def drop(self, session: SessionId) -> None:
        """Remove the session's digest, if there is one."""
        self._execute(f"DELETE FROM transcripts WHERE session = {NUMBER}", session=session)

    def idle(self, until: datetime, limit: int) -> list[tuple[SessionId, datetime]]:
        """Sessions idle since `until`, each with its last receipt; the longest idle first.

        Includes those whose last receipt is as far in the future, from a wrong clock.
        """
        now, at_the_latest = micros(self._now), micros(until)
        rows = self._execute(
            """SELECT t.session, s.id, t.heard_at
                 FROM (SELECT session, heard_at
                         FROM transcripts
                        WHERE heard_at <= :until
                        UNION ALL
                       SELECT session, heard_at
                         FROM transcripts
                        WHERE heard_at > :ahead
                     ORDER BY heard_at, session
                        LIMIT :limit) t
                 JOIN sessions s ON s.number = t.session
             ORDER BY t.heard_at, t.session""",
            until=at_the_latest,
            ahead=now + (now - at_the_latest),
            limit=limit,
        )
        return list(self._intact(rows, _heard))


def _size(session: Session) -> int:
    return len(session.summary)


@reads("sessions")
def _session(
    _: int, id_: str, project: str, started_at: int, ended_at: int | None, summary: str,
    message_count: int,
) -> Session:  # fmt: skip
    return Session(
        id=SessionId(id_),
        project=Project(project),
        started_at=instant(started_at),
        ended_at=optional_instant(ended_at),
        summary=summary,
        message_count=count(message_count),
    )


@reads("transcripts")
def _transcript(
    _: int, messages: int, user: int, assistant: int, first: str, last: str
) -> Transcript:
    return Transcript(
        messages=count(messages),
        user=count(user),
        assistant=count(assistant),
        first=first,
        last=last,
    )


@reads("transcripts")
def _heard(_: int, id_: str, heard_at: int) -> tuple[SessionId, datetime]:
    return SessionId(id_), instant(heard_at)
