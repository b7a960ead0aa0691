"""Opening and closing sessions, and what is remembered of them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace

from . import replays
from .access import Role
from .errors import Invalid
from .model import UNKNOWN_PROJECT, Caller, Entered, Session, SessionId
from .once import Once, only_once
from .ports import Engine, Transaction
from .quota import require_room_for_session
from .screen import RulesOf, Screen, default_rules
from .summary import Message, Transcript, summary, transcript
from .text import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Sessions of one service.

    One of a project that the caller does not act on is refused with Denied; a
    read does not know of it. What is to be done `once` is answered as before when it was.
    """

    engine: Engine
    rules: RulesOf = default_rules

    async def open(
        self, caller: Caller, session: SessionId, project: Project, *, once: Once | None = None
    ) -> Entered:
        """Start a session. A known id is answered with what is stored, unchanged."""
        caller.require(Role.WRITER)
        screen = Screen(self.rules(caller))
        id_ = screen.session_id(session)
        work = only_once(open_session, once, again=replays.opened, ids=replays.ids_of_opened)
        opened = await self.engine.write(caller, work, id_, project)
        return Entered(session=opened, redacted=screen.count)

    async def hear(self, caller: Caller, messages: Iterable[Message]) -> Transcript:
        """The digest of what was said, for `close`. That may take long, so it is a step alone."""
        caller.require(Role.WRITER)
        screen = Screen(self.rules(caller))
        said = await asyncio.to_thread(transcript, messages, screen.whole)
        return replace(said, redacted=screen.count)

    async def close(
        self,
        caller: Caller,
        session: SessionId,
        said: Transcript,
        project: Project | None,
        *,
        once: Once | None = None,
    ) -> Entered:
        """End a session with the summary of its transcript; the last transcript wins.

        An end without messages keeps the summary that is there. An unknown id
        is stored, in `project` or `unknown`, so that a late end is not lost.
        """
        caller.require(Role.WRITER)
        screen = Screen(self.rules(caller))
        id_ = screen.session_id(session)
        work = only_once(close_session, once, again=replays.closed)
        closed = await self.engine.write(caller, work, id_, said, project)
        return Entered(session=closed, redacted=screen.count + said.redacted)

    async def recent(
        self, caller: Caller, project: Project | None, limit: int, before: SessionId | None = None
    ) -> list[Session]:
        """Sessions, newest first; with `before`, those older than that session."""
        caller.require(Role.READER)
        return await self.engine.read(caller, recent_sessions, project, limit, before)


def open_session(tx: Transaction, session: SessionId, project: Project) -> Session:
    tx.caller.require_project(project)
    return entered(tx, Session(id=session, project=project, started_at=tx.now))


def entered(tx: Transaction, session: Session) -> Session:
    """The session as it is stored, by now at the latest. The caller must act on its project."""
    require_room_for_session(tx)
    stored = tx.sessions.open(session)
    tx.caller.require_project(stored.project)
    return stored


def close_session(
    tx: Transaction, session: SessionId, said: Transcript, project: Project | None
) -> Session:
    late = Session(id=session, project=project or UNKNOWN_PROJECT, started_at=tx.now)
    opened = entered(tx, late)
    ended = replace(opened, ended_at=tx.now)
    if said.messages:
        ended = replace(ended, summary=summary(said), message_count=said.messages)
    tx.sessions.close(ended)
    return ended


def recent_sessions(
    tx: Transaction, project: Project | None, limit: int, before: SessionId | None
) -> list[Session]:
    if before is not None and not _is_seen(tx, before):
        raise Invalid("before_id is not the id of a session.")
    return tx.sessions.newest(project, limit, before=before)


def _is_seen(tx: Transaction, session: SessionId) -> bool:
    found = tx.sessions.get(session)
    return found is not None and tx.caller.projects.match(found.project)
