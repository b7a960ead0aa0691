"""Opening and closing sessions, and what is remembered of them."""

from dataclasses import dataclass, replace

from .errors import Invalid
from .model import UNKNOWN_PROJECT, Caller, Session, SessionId
from .ports import Engine, Transaction
from .summary import Transcript, summary
from .text import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Sessions of one service."""

    engine: Engine

    async def open(self, caller: Caller, session: SessionId, project: Project) -> Session:
        """Start a session. A known id is answered with what is stored, unchanged."""
        return await self.engine.write(caller.tenant, open_session, session, project)

    async def close(
        self, caller: Caller, session: SessionId, said: Transcript, project: Project | None
    ) -> Session:
        """End a session with the summary of its transcript; the last transcript wins.

        An end without messages keeps the summary that is there. An unknown id
        is stored, in `project` or `unknown`, so that a late end is not lost.
        """
        return await self.engine.write(caller.tenant, close_session, session, said, project)

    async def recent(
        self, caller: Caller, project: Project | None, limit: int, before: SessionId | None = None
    ) -> list[Session]:
        """Sessions, newest first; with `before`, those older than that session."""
        return await self.engine.read(caller.tenant, recent_sessions, project, limit, before)


def open_session(tx: Transaction, session: SessionId, project: Project) -> Session:
    return tx.sessions.open(Session(id=session, project=project, started_at=tx.now))


def close_session(
    tx: Transaction, session: SessionId, said: Transcript, project: Project | None
) -> Session:
    opened = open_session(tx, session, project or UNKNOWN_PROJECT)
    ended = replace(opened, ended_at=tx.now)
    if said.messages:
        ended = replace(ended, summary=summary(said), message_count=said.messages)
    tx.sessions.close(ended)
    return ended


def recent_sessions(
    tx: Transaction, project: Project | None, limit: int, before: SessionId | None
) -> list[Session]:
    if before is not None and tx.sessions.get(before) is None:
        raise Invalid("before_id is not the id of a session.")
    return tx.sessions.newest(project, limit, before=before)
