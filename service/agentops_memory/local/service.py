"""The domain's services under the port that agents and people ask."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentops_memory_client.contract import reading
from agentops_memory_client.contract.bodies import listed
from agentops_memory_client.contract.models import (
    Appended,
    Context,
    Found,
    Message,
    Observation,
    Revision,
    Saved,
    Session,
    SessionEnd,
    Stats,
    TimelineEntry,
)

from ..api.agentops import answers, spans, transcripts, wire
from ..api.agentops import models as m
from ..api.kit.http import MAX_ROWS, whole_number
from ..domain.memories.memories import Memories
from ..domain.memories.sessions import Sessions
from ..domain.model.memory import MemoryId, SessionId
from ..domain.model.search import Filter, Wanted
from ..domain.model.space import project_name
from ..domain.recall.budget import Budget
from ..domain.recall.recall import Recall
from ..domain.text.normalization import clean
from ..domain.text.summary import Transcript
from ..telemetry import annotate, event
from .asked import project_of, read
from .transfers import LocalTransfers


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalService(LocalTransfers):
    """A MemoryService and a TransferService: answers and spans are those of AgentOps REST.

    Who asks is told anew for each question, so that a key that was taken away
    meanwhile opens nothing more.
    """

    memories: Memories
    sessions_: Sessions
    recall: Recall

    async def save(  # noqa: PLR0913 - as the port has it
        self,
        *,
        session_id: str,
        project: str,
        type: str,  # noqa: A002 - the protocol's word
        title: str,
        content: str,
        tags: Sequence[str] = (),
        scope: str | None = None,
        topic_key: str | None = None,
    ) -> Saved:
        given = {
            "session_id": session_id, "project": project, "type": type, "title": title,
            "content": content, "tags": listed(tags), "scope": scope, "topic_key": topic_key,
        }  # fmt: skip
        with self._asked("add_observation"):
            draft = wire.draft(wire.body(m.ObservationBody, given))
            outcome = await self.memories.save(self.caller(), draft)
            annotate(spans.saved(outcome))
            return read(reading.saved, answers.json(wire.saved(outcome), redacted=outcome.redacted))

    async def search(
        self,
        query: str,
        *,
        project: str | None = None,
        type: str | None = None,  # noqa: A002 - the protocol's word
        scope: str | None = None,
        tag: str | None = None,
        limit: int = 10,
        explain: bool = False,
    ) -> Found:
        seen, text = _filter(project, scope, tag, type), clean(query)
        wanted = Wanted(explain=explain)
        with self._asked("search"):
            found = await self.recall.search(self.caller(), text, seen, _rows(limit, 10), wanted)
            annotate(spans.search(text, seen, found))
            for attributes in spans.injected(found.hits):
                event("search.result", attributes)
            return read(reading.found, answers.search(found, wanted))

    async def context(
        self,
        *,
        project: str | None = None,
        query: str | None = None,
        scope: str | None = None,
        tag: str | None = None,
        limit: int = 5,
        explain: bool = False,
    ) -> Context:
        seen, text = _filter(project, scope, tag), clean(query or "")
        wanted = Wanted(explain=explain)
        with self._asked("fetch_context"):
            told = await self.recall.context(
                self.caller(), text, seen, _rows(limit, 5), wanted=wanted
            )
            annotate(spans.context(text, seen, told))
            for attributes in spans.injected(told.found.hits):
                event("context.injected", attributes)
            return read(reading.context, answers.context(told, Budget(), wanted))

    async def get(self, observation: int) -> Observation:
        with self._asked("get_observation"):
            memory = await self.memories.get(self.caller(), _memory(observation))
            annotate(spans.observation(memory))
            return read(reading.observation, answers.json(wire.observation(memory)))

    async def update(
        self,
        observation: int,
        *,
        type: str | None = None,  # noqa: A002 - the protocol's word
        title: str | None = None,
        content: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> Observation:
        given = {
            "type": type, "title": title, "content": content,
            "tags": None if tags is None else listed(tags),
        }  # fmt: skip
        with self._asked("update_observation"):
            memory = _memory(observation)
            change = wire.change(wire.body(m.ChangeBody, given))
            amended = await self.memories.amend(self.caller(), memory, change)
            annotate(spans.observation(amended.memory))
            answer = answers.json(wire.observation(amended.memory), redacted=amended.redacted)
            return read(reading.observation, answer)

    async def delete(self, observation: int) -> None:
        with self._asked("delete_observation"):
            annotate(spans.deleted(observation, hard=False))
            await self.memories.forget(self.caller(), _memory(observation))

    async def history(self, observation: int) -> list[Revision]:
        with self._asked("observation_history"):
            revisions = await self.memories.history(self.caller(), _memory(observation))
            annotate({"memory.observation.id": observation})
            return read(
                reading.revisions,
                answers.json_list(map(wire.revision, revisions), len(revisions)),
            )

    async def timeline(
        self, observation: int, *, before: int = 3, after: int = 3
    ) -> list[TimelineEntry]:
        with self._asked("timeline"):
            memories = await self.recall.timeline(
                self.caller(),
                _memory(observation, "observation_id"),
                _rows(before, 3),
                _rows(after, 3),
            )
            annotate({"memory.observation.id": observation})
            centre = [memory.id for memory in memories].index(MemoryId(observation))
            return read(
                reading.timeline, answers.json_around(centre, map(wire.timeline_entry, memories))
            )

    async def stats(self, project: str | None = None) -> Stats:
        with self._asked("stats"):
            totals = await self.recall.totals(self.caller(), project_of(project))
            annotate(spans.project(project_of(project)))
            return read(reading.stats, answers.json(wire.stats(totals)))

    async def sessions(
        self, project: str | None = None, *, limit: int = 5, before: str | None = None
    ) -> list[Session]:
        with self._asked("recent_sessions"):
            sessions = await self.sessions_.recent(
                self.caller(),
                project_of(project),
                _rows(limit, 5),
                SessionId(clean(before)) if before else None,
            )
            annotate(spans.project(project_of(project)))
            return read(
                reading.sessions, answers.json_list(map(wire.session_row, sessions), len(sessions))
            )

    async def start_session(self, session_id: str, project: str) -> Session:
        with self._asked("create_session"):
            given = wire.body(m.SessionBody, {"id": session_id, "project": project})
            opened = await self.sessions_.open(
                self.caller(), SessionId(given.id), project_name(given.project)
            )
            annotate(spans.session(opened.session))
            answer = answers.json(wire.session_opened(opened.session), redacted=opened.redacted)
            return read(reading.session, answer)

    async def append_messages(
        self, session_id: str, messages: Sequence[Message], *, project: str | None = None
    ) -> Appended:
        with self._asked("append_messages"):
            session, said = await self._told(session_id, messages, project)
            grown = await self.sessions_.append(self.caller(), session, said, project_of(project))
            annotate(spans.session(grown.session))
            return read(reading.appended, answers.nothing(redacted=grown.redacted))

    async def end_session(
        self, session_id: str, messages: Sequence[Message] = (), *, project: str | None = None
    ) -> SessionEnd:
        with self._asked("end_session"):
            session, said = await self._told(session_id, messages, project)
            ended = await self.sessions_.close(self.caller(), session, said, project_of(project))
            annotate(spans.session(ended.session))
            answer = answers.json(wire.session_ended(ended.session), redacted=ended.redacted)
            return read(reading.session_end, answer)

    async def _told(
        self, session_id: str, messages: Sequence[Message], project: str | None
    ) -> tuple[SessionId, Transcript]:
        given = wire.body(m.NamedSession, {"id": session_id, "project": project_of(project)})
        every = [{"role": each.role, "content": each.content} for each in messages]
        said = transcripts.sent({"messages": every})
        return SessionId(given.id), await self.sessions_.hear(self.caller(), said)


def _filter(
    project: str | None,
    scope: str | None,
    tag: str | None,
    type: str | None = None,  # noqa: A002 - the protocol's word
) -> Filter:
    return Filter(
        project=project_of(project),
        scope=clean(scope) if scope else None,
        type=clean(type) if type else None,
        tag=clean(tag) if tag else None,
        global_too=True,
    )


def _memory(observation: int, name: str = "id") -> MemoryId:
    return MemoryId(whole_number(str(observation), name))


def _rows(limit: int, default: int) -> int:
    """A number of rows as the REST API takes it: none, or fewer, is the default."""
    return min(limit, MAX_ROWS) if limit > 0 else default
