"""Each operation of AgentOps REST, however it is asked: over HTTP, or in this process."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from agentops_memory_client.contract import models as c

from ...domain.errors import Invalid
from ...domain.lifecycle.projects import Projects
from ...domain.lifecycle.receipts import Erasures
from ...domain.memories.idempotency import IdempotentRequest
from ...domain.memories.memories import Memories
from ...domain.memories.sessions import Sessions
from ...domain.model.access import Caller
from ...domain.model.erasure import ErasureId
from ...domain.model.memory import MemoryId, SessionId
from ...domain.model.search import Filter, Wanted
from ...domain.model.space import Project, StoreId, project_name
from ...domain.ports.audit import noop
from ...domain.recall.budget import MOST_SHOWN, SHOWN, Budget
from ...domain.recall.recall import Recall
from ...domain.stores.rules import NO_STORE
from ...domain.text.normalization import clean
from ...domain.text.summary import Message
from ...domain.transfer.transfer import Progress, Transfer
from ...telemetry import annotate, event
from ..kit.http import HasQuery, amount, asks_for, is_true, parameter, row_count, whole_number
from ..kit.ids import STORE, known_uid
from . import answers as a
from . import explain, spans, wire
from . import models as m
from .transfer import Document, exported, import_plan, imported
from .wire import Rows, held

MOST_STORES = 8  # of one context


class Question(HasQuery, Protocol):
    """What an operation is asked, and by whom."""

    @property
    def path_params(self) -> Mapping[str, str]:
        """What the path names."""

    def caller(self) -> Caller:
        """Who asks, by what the keys say now. Refuses with Unauthenticated."""

    async def body(self) -> Mapping[str, object]:
        """The object that was sent."""

    def transcript(self) -> AbstractAsyncContextManager[Iterator[Message]]:
        """The messages that were sent, however many there are; none without a body."""

    async def idempotency(self) -> IdempotentRequest | None:
        """The request under its idempotency key, once its body was read; None without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOps:
    """The operations over the domain. Each answers a noun, and says in its span what it did."""

    memories: Memories
    sessions: Sessions
    recall: Recall
    transfer: Transfer
    projects: Projects
    erasures: Erasures
    clock: Callable[[], datetime]

    async def create_session(self, asked: Question) -> c.Session:
        given = m.body(m.SessionBody, await asked.body())
        idempotency = await asked.idempotency()
        session, project = SessionId(given.id), project_name(given.project)
        opened = await self.sessions.open(asked.caller(), session, project, idempotency=idempotency)
        annotate(spans.session(opened.session))
        return wire.session_opened(opened)

    async def append_messages(self, asked: Question) -> c.Appended:
        session, project = _session(asked)
        messages = wire.messages(await asked.body())
        said = await self.sessions.hear(asked.caller(), messages)
        idempotency = await asked.idempotency()
        grown = await self.sessions.append(
            asked.caller(), session, said, project, idempotency=idempotency
        )
        annotate(spans.session(grown.session))
        return c.Appended(redacted=grown.redacted)

    async def end_session(self, asked: Question) -> c.SessionEnd:
        session, project = _session(asked)
        async with asked.transcript() as messages:
            said = await self.sessions.hear(asked.caller(), messages)
        idempotency = await asked.idempotency()
        ended = await self.sessions.close(
            asked.caller(), session, said, project, idempotency=idempotency
        )
        annotate(spans.session(ended.session))
        return wire.session_ended(ended)

    async def recent_sessions(self, asked: Question) -> Rows[c.Session]:
        before = parameter(asked, "before_id")
        sessions = await self.sessions.recent(
            asked.caller(),
            project_of(asked),
            row_count(asked, "limit", 5),
            SessionId(before) if before else None,
        )
        annotate(spans.project(project_of(asked)))
        return held(list(map(wire.session, sessions)))

    async def add_observation(self, asked: Question) -> c.Saved:
        draft = wire.draft(m.body(m.ObservationBody, await asked.body()))
        idempotency = await asked.idempotency()
        outcome = await self.memories.save(asked.caller(), draft, idempotency=idempotency)
        annotate(spans.saved(outcome))
        return wire.saved(outcome)

    async def recent_observations(self, asked: Question) -> Rows[c.Observation]:
        before = parameter(asked, "before_id")
        memories = await self.memories.recent(
            asked.caller(),
            _filter(asked),
            row_count(asked, "limit", 20),
            None if before is None else MemoryId(whole_number(before, "before_id")),
        )
        annotate(spans.project(project_of(asked)))
        return held(list(map(wire.observation, memories)))

    async def get_observation(self, asked: Question) -> c.Observation:
        memory = await self.memories.get(asked.caller(), _memory_id(asked))
        annotate(spans.observation(memory))
        return wire.observation(memory)

    async def observation_history(self, asked: Question) -> Rows[c.Revision]:
        revisions = await self.memories.history(asked.caller(), _memory_id(asked))
        annotate({"memory.observation.id": _memory_id(asked)})
        return held(list(map(wire.revision, revisions)))

    async def restore_observation(self, asked: Question) -> c.Observation:
        memory_id = _memory_id(asked)
        given = m.body(m.RestoreBody, await asked.body())
        idempotency = await asked.idempotency()
        restored = await self.memories.restore(
            asked.caller(), memory_id, given.revision, idempotency=idempotency
        )
        annotate(spans.observation(restored.memory))
        return wire.observation(restored.memory, redacted=restored.redacted)

    async def update_observation(self, asked: Question) -> c.Observation:
        memory_id = _memory_id(asked)
        change = wire.change(m.body(m.ChangeBody, await asked.body()))
        idempotency = await asked.idempotency()
        amended = await self.memories.amend(
            asked.caller(), memory_id, change, idempotency=idempotency
        )
        annotate(spans.observation(amended.memory))
        return wire.observation(amended.memory, redacted=amended.redacted)

    async def delete_observation(self, asked: Question) -> str | None:
        """The id of the receipt, of what was erased."""
        memory_id, hard = _memory_id(asked), is_true(asked, "hard")
        annotate(spans.deleted(memory_id, hard=hard))
        idempotency = await asked.idempotency()
        if hard:
            return await self.memories.erase(asked.caller(), memory_id, idempotency=idempotency)
        await self.memories.forget(asked.caller(), memory_id, idempotency=idempotency)
        return None

    async def delete_project(self, asked: Question) -> a.ErasureReceipt | a.ErasurePlan:
        project, caller = project_name(clean(asked.path_params["name"])), asked.caller()
        annotate(spans.project(project))
        is_dry = asks_for(asked, "dry_run")
        if not asks_for(asked, "hard"):
            raise Invalid("A project is erased for good: say hard=true, with dry_run=true to see.")
        if is_dry:
            return a.erasure_plan(project, await self.projects.plan_erasure(caller, project))
        erasure = await self.projects.erase(caller, project)
        return a.erasure(await self.erasures.get(caller, erasure.id))

    async def get_erasure(self, asked: Question) -> a.ErasureReceipt:
        erasure = ErasureId(clean(asked.path_params["id"]))
        receipt = await self.erasures.get(asked.caller(), erasure)
        annotate(spans.project(receipt.erasure.project))
        return a.erasure(receipt)

    async def search(self, asked: Question) -> c.Found:
        text, filter_ = parameter(asked, "q") or "", _filter(asked, global_too=True)
        wanted = _wanted(asked)
        found = await self.recall.search(
            asked.caller(), text, filter_, row_count(asked, "limit", 10), wanted
        )
        annotate(spans.search(text, filter_, found))
        for attributes in spans.injected(found.hits):
            event("search.result", attributes)
        return explain.found(found, wanted)

    async def fetch_context(self, asked: Question) -> c.Context:
        text, filter_ = parameter(asked, "query") or "", _filter(asked, global_too=True)
        wanted, budget = _wanted(asked), _budget(asked)
        told = await self.recall.context(
            asked.caller(), text, filter_, row_count(asked, "limit", 5),
            budget=budget, wanted=wanted, stores=_stores(asked),
        )  # fmt: skip
        annotate(spans.context(text, filter_, told) | spans.budget(budget, told))
        for attributes in spans.injected(told.found.hits):
            event("context.injected", attributes)
        return explain.context(told, budget, wanted)

    async def timeline(self, asked: Question) -> Rows[c.TimelineEntry]:
        memory_id = MemoryId(whole_number(parameter(asked, "observation_id"), "observation_id"))
        memories = await self.recall.timeline(
            asked.caller(),
            memory_id,
            row_count(asked, "before", 3),
            row_count(asked, "after", 3),
        )
        annotate({"memory.observation.id": memory_id})
        centre = [memory.id for memory in memories].index(memory_id)
        return held(list(map(wire.timeline_entry, memories)), centre=centre)

    async def stats(self, asked: Question) -> c.Stats:
        totals = await self.recall.totals(asked.caller(), project_of(asked))
        annotate(spans.project(project_of(asked)))
        return wire.stats(totals)

    def export(self, caller: Caller, project: Project | None) -> AsyncIterator[bytes]:
        """The JSON of all that is stored of the project, or of all projects."""
        return exported(self.transfer, caller, project, self.clock())

    async def import_all(
        self, caller: Caller, document: Document, progress: Progress = noop
    ) -> c.Imported:
        """Store what a document holds that was checked."""
        counts = await self.transfer.import_all(caller, document, progress)
        annotate(spans.imported(counts))
        return imported(counts)

    async def plan_import(self, caller: Caller, document: Document) -> c.ImportPlan:
        """What an import of it would do."""
        plan = await self.transfer.plan_import(caller, document)
        annotate(spans.import_plan(plan))
        return import_plan(plan)


def project_of(asked: HasQuery) -> Project | None:
    """The project that is named; none, or one without a name, is all of them."""
    return project_name(parameter(asked, "project") or "") or None


def _session(asked: Question) -> tuple[SessionId, Project | None]:
    """The session that the path names, and the project of one not known yet."""
    project = project_of(asked)
    given = m.body(m.NamedSession, {"id": asked.path_params["id"], "project": project})
    return SessionId(given.id), project


def _filter(asked: Question, *, global_too: bool = False) -> Filter:
    return Filter(
        project=project_of(asked),
        scope=parameter(asked, "scope"),
        type=parameter(asked, "type"),
        tag=parameter(asked, "tag"),
        global_too=global_too,
    )


def _wanted(asked: Question) -> Wanted:
    memory = parameter(asked, "why_not")
    return Wanted(
        explain=is_true(asked, "explain"),
        why_not=None if memory is None else MemoryId(whole_number(memory, "why_not")),
    )


def _budget(asked: Question) -> Budget:
    shown = amount(asked, "content_chars", least=1)
    return Budget(
        max_tokens=amount(asked, "max_tokens"),
        max_chars=amount(asked, "max_chars"),
        content_chars=SHOWN if shown is None else min(shown, MOST_SHOWN),
    )


def _stores(asked: Question) -> list[StoreId]:
    shown = dict.fromkeys(filter(None, (parameter(asked, "stores") or "").split(",")))
    if len(shown) > MOST_STORES:
        raise Invalid(f"stores names at most {MOST_STORES} memory stores.")
    return [StoreId(known_uid(STORE, id_.strip(), NO_STORE)) for id_ in shown]


def _memory_id(asked: Question) -> MemoryId:
    return MemoryId(whole_number(asked.path_params["id"], "id"))
