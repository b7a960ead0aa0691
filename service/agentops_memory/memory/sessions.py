"""Sessions: opened, extended with messages, closed with a summary, ended when idle."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..engine.engine import Engine, Transaction, within_one_project
from ..errors import Invalid, NotFound
from ..recall.text.normalization import cut
from ..recall.text.summary import (
    Message,
    Transcript,
    continued,
    parsed_summary,
    summary,
    transcript,
)
from .idempotency import once
from .limits import faults_of, is_known_project, refuse, require_margin
from .model.access import Caller, Role
from .model.memory import Entered, Session, SessionId
from .model.space import UNKNOWN_PROJECT, Project
from .redactor import Redactor, RulesOf, default_rules
from .sql.sessions import SessionTable, TranscriptTable

AT_ONCE = 100  # idle sessions that are ended in one transaction; saves wait for it
SHOWN_NAME = 100  # code points of a name in a warning: two of them escaped fit any proxy's limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Sessions of one service.

    A session of a project that the caller may not act on is Denied, and invisible to
    reads. A new one with an invalid name is InvalidFields. A repeated request with an
    idempotency key gets the first answer.
    """

    engine: Engine
    rules: RulesOf = default_rules

    async def open(self, caller: Caller, session: SessionId, project: Project) -> Entered:
        """Start a session. A known id is answered with what is stored, unchanged."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        id_ = redactor.session_id(session)
        work = once(open_session, check=_require_enterable)
        opened = await self.engine.write(caller, work, id_, project)
        return _outcome(opened, project, redactor.count)

    async def hear(self, caller: Caller, messages: Iterable[Message]) -> Transcript:
        """Digest messages, outside any transaction, as that may take long."""
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        said = await asyncio.to_thread(transcript, messages, redactor.whole)
        return replace(said, redacted=redactor.count)

    async def append(
        self, caller: Caller, session: SessionId, said: Transcript, project: Project | None
    ) -> Entered:
        """Append messages to a session; the digest continues that of its summary.

        An unknown session is created in `project` or `unknown`, so that nothing is lost.
        """
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        id_ = redactor.session_id(session)
        work = once(append_messages, check=_require_known, kept=lambda it: replace(it, summary=""))
        grown = await self.engine.write(caller, work, id_, said, project)
        return _outcome(grown, project, redactor.count + said.redacted)

    async def close(
        self, caller: Caller, session: SessionId, said: Transcript, project: Project | None
    ) -> Entered:
        """Close a session with the summary of its transcript; the last transcript wins.

        Without messages, those appended since the last close are summarized; without any,
        the summary stays. An unknown session is created in `project` or `unknown`, so that
        a late close is not lost.
        """
        caller.require(Role.WRITER)
        redactor = Redactor(self.rules(caller))
        id_ = redactor.session_id(session)
        work = once(close_session, check=_require_known)
        closed = await self.engine.write(caller, work, id_, said, project)
        return _outcome(closed, project, redactor.count + said.redacted)

    async def end_idle(self, caller: Caller, idle: timedelta) -> int:
        """End the sessions of which nothing was received for so long; how many. With 0 none ends.

        Each ended at its last message; one without messages goes on.
        """
        caller.require(Role.ADMIN)
        ended, is_any = 0, bool(idle)
        while is_any and await self.engine.read(caller, is_any_idle, idle):
            now_ended = await self.engine.write(caller, end_idle_sessions, idle)
            ended, is_any = ended + now_ended, now_ended > 0
        return ended

    async def recent(
        self, caller: Caller, project: Project | None, limit: int, before: SessionId | None = None
    ) -> list[Session]:
        """Sessions, newest first; with `before`, those older than that session."""
        caller.require(Role.READER)
        return await self.engine.read(caller, recent_sessions, project, limit, before)


def _outcome(session: Session, project: Project | None, redacted: int) -> Entered:
    return Entered(
        session=session,
        redacted=redacted,
        warning=project_warning(session.id, session.project, project),
    )


def project_warning(session: SessionId, owner: Project, project: Project | None) -> str | None:
    """The warning for a write that names a session and another project than the session's.

    Printable ASCII, so that it is safe in a header, a log and a terminal. It names the session's
    project: for callers with access to that project only.
    """
    if project is None or owner == project:
        return None
    id_, name = (json.dumps(cut(it, SHOWN_NAME)) for it in (session, owner))
    return f"session {id_} belongs to the project {name}"


@within_one_project(lambda _, project: project)
def open_session(tx: Transaction, session: SessionId, project: Project) -> Session:
    tx.caller.require_project(project)
    _require_name(tx, session, project)
    return entered(tx, Session(id=session, project=project, started_at=tx.now))


def _require_name(tx: Transaction, session: SessionId, project: Project) -> None:
    """Refuse with InvalidFields a session that is new, by a name that cannot be."""
    faults = faults_of({"id": session, "project": project})
    if faults and tx[SessionTable].get(session) is None:
        refuse(faults, known={"project"} if is_known_project(tx, project) else ())


def project_entered(tx: Transaction, session: SessionId, project: Project) -> Project:
    """The project of the session, which is created if it is new; Denied outside the caller's."""
    require_margin(tx)
    owner = tx[SessionTable].project_of(session, project, tx.now)
    tx.caller.require_project(owner)
    return owner


def entered(tx: Transaction, session: Session) -> Session:
    """The stored session, created if it is new; Denied outside the caller's projects."""
    require_margin(tx)
    return admitted(tx, session)


def admitted(tx: Transaction, session: Session) -> Session:
    """The same without the quota."""
    stored = tx[SessionTable].open(session)
    tx.caller.require_project(stored.project)
    return stored


@within_one_project(lambda _, __, project: project)
def append_messages(
    tx: Transaction, session: SessionId, said: Transcript, project: Project | None
) -> Session:
    opened = _entered_late(tx, session, project)
    if not said.messages:
        return opened
    digest = continued(tx[TranscriptTable].get(session) or parsed_summary(opened.summary), said)
    tx[TranscriptTable].put(session, digest)
    grown = replace(opened, message_count=digest.messages)
    tx[SessionTable].grow(grown)
    return grown


@within_one_project(lambda _, __, project: project)
def close_session(
    tx: Transaction, session: SessionId, said: Transcript, project: Project | None
) -> Session:
    opened = _entered_late(tx, session, project)
    digest = said if said.messages else tx[TranscriptTable].get(session)
    return _ended(tx, opened, digest, tx.now)


def is_any_idle(tx: Transaction, idle: timedelta) -> bool:
    return bool(tx[TranscriptTable].idle(tx.now - idle, 1))


def end_idle_sessions(tx: Transaction, idle: timedelta) -> int:
    """How many sessions were ended; 0 only if there was none to end."""
    ended = 0
    for id_, heard_at in tx[TranscriptTable].idle(tx.now - idle, AT_ONCE):
        session, digest = tx[SessionTable].get(id_), tx[TranscriptTable].get(id_)
        if session and digest:  # else the file is damaged, and this would come again and again
            _ended(tx, session, digest, min(heard_at, tx.now))
            ended += 1
    return ended


def recent_sessions(
    tx: Transaction, project: Project | None, limit: int, before: SessionId | None
) -> list[Session]:
    if before is not None and not _is_seen(tx, before):
        raise Invalid("before_id is not the id of a session.")
    return tx[SessionTable].newest(project, limit, before=before)


def _entered_late(tx: Transaction, session: SessionId, project: Project | None) -> Session:
    late = Session(id=session, project=project or UNKNOWN_PROJECT, started_at=tx.now)
    _require_name(tx, late.id, late.project)
    return entered(tx, late)


def _ended(tx: Transaction, session: Session, digest: Transcript | None, at: datetime) -> Session:
    ended = replace(session, ended_at=max(at, session.started_at))  # the clock may have gone back
    if digest is not None:
        ended = replace(ended, summary=summary(digest), message_count=digest.messages)
    tx[SessionTable].close(ended)
    tx[TranscriptTable].drop(session.id)
    return ended


def _is_seen(tx: Transaction, session: SessionId) -> bool:
    found = tx[SessionTable].get(session)
    return found is not None and tx.caller.projects.match(found.project)


def _require_enterable(tx: Transaction, session: SessionId, project: Project) -> None:
    tx.caller.require_project(project)
    _require_known(tx, session)


def _require_known(tx: Transaction, session: SessionId, *_: object) -> None:
    """Refuse a session that is gone, or of a project that is none of the caller's any more."""
    stored = tx[SessionTable].get(session)
    if stored is None:
        raise NotFound("No such session.")
    tx.caller.require_project(stored.project)
