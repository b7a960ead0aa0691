"""SQL for what was told of sessions that go on."""

from datetime import datetime

from ...domain.model.memory import SessionId
from ...domain.text.summary import Transcript
from .rows import count, instant, micros
from .table import Connection, Dialect, Table

NUMBER = "(SELECT number FROM sessions WHERE id = :session)"


class Transcripts(Table):
    """The transcripts of one transaction."""

    def __init__(self, connection: Connection, dialect: Dialect, now: datetime) -> None:
        super().__init__(connection, dialect)
        self._now = now

    def get(self, session: SessionId) -> Transcript | None:
        row = self._execute(
            f"""SELECT messages, "user", assistant, first, last
                  FROM transcripts
                 WHERE session = {NUMBER}""",
            session=session,
        ).fetchone()
        return None if row is None else _transcript(*row)

    def put(self, session: SessionId, transcript: Transcript) -> None:
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
        self._execute(
            f"UPDATE transcripts SET first = :first, last = :last WHERE session = {NUMBER}",
            session=session,
            first=transcript.first,
            last=transcript.last,
        )

    def drop(self, session: SessionId) -> None:
        self._execute(f"DELETE FROM transcripts WHERE session = {NUMBER}", session=session)

    def idle(self, until: datetime, limit: int) -> list[tuple[SessionId, datetime]]:
        now, at_the_latest = micros(self._now), micros(until)
        rows = self._execute(
            """SELECT s.id, t.heard_at
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
        return [(SessionId(id_), instant(heard_at)) for id_, heard_at in rows]


def _transcript(messages: int, user: int, assistant: int, first: str, last: str) -> Transcript:
    return Transcript(
        messages=count(messages),
        user=count(user),
        assistant=count(assistant),
        first=first,
        last=last,
    )
