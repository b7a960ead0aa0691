"""Each operation of AgentOps REST, called over HTTP or in this process."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from agentops_memory_client.contract import models as c

from ..engine.maintenance import noop
from ..errors import Invalid, Unavailable
from ..http.query import amount, asks_for, is_true, parameter, row_count, whole_number
from ..light import Lazy, dataclass, replace
from ..memory import saves
from ..memory.access import Caller, Role
from ..memory.erasure import ErasureId, receipt_of
from ..memory.memory import Memory, MemoryId, Session, SessionId
from ..memory.redactor import Redactor, RulesOf
from ..memory.sessions import APPEND, CLOSE, OPEN, digest_of, project_warning, recent_sessions
from ..memory.space import Project, project_name
from ..recall.summary import Message
from ..recall.text import clean
from ..telemetry import annotate, count
from ..telemetry.metrics import DEDUP, SUPERSEDED
from ..telemetry.spans import Attributes
from . import wire
from .recall import Question, Reading, RecallOperations, filter_of, project_of
from .wire import Rows, fitting

if TYPE_CHECKING:
    from ..memory import imports, projects
    from . import answers as a
    from . import models as m
    from . import transfer as t
else:  # what reads needs none of them
    imports, a, m, t = (
        Lazy(__package__, it) for it in ("..memory.imports", ".answers", ".models", ".transfer")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOps(RecallOperations):
    """The operations over the domain. Each answers a noun, and says in its span what it did."""

    rules: RulesOf
    dedupe_window: timedelta
    transfer: "Callable[[], t.Transfer]"
    projects: "Callable[[], projects.Projects]"
    clock: Callable[[], datetime]

    async def create_session(self, request: Question) -> c.Session:
        body = m.body(m.SessionBody, await request.body())
        caller = await _writer(request)
        redactor, project = Redactor(self.rules(caller)), project_name(body.project)
        session = redactor.session_id(SessionId(body.id))
        opened = await self.engine.write(caller, OPEN, session, project)
        annotate(_session_span(opened))
        begun = replace(opened, ended_at=None, summary="")  # whatever became of it
        warning = project_warning(opened.id, opened.project, project)
        return wire.session(begun, redacted=redactor.count, warning=warning)

    async def append_messages(self, request: Question) -> c.Appended:
        named, messages = _session(request), wire.messages(await request.body())
        _, redacted, warning = await self._add_messages(request, APPEND, named, messages)
        return c.Appended(redacted=redacted, warning=warning)

    async def end_session(self, request: Question) -> c.SessionEnd:
        named = _session(request)
        async with request.transcript() as messages:
            ended, redacted, warning = await self._add_messages(request, CLOSE, named, messages)
        return c.SessionEnd(
            session_id=ended.id, summary=ended.summary, message_count=ended.message_count,
            redacted=redacted, warning=warning,
        )  # fmt: skip

    async def _add_messages(
        self, request: Question, work: Callable[..., Session],
        named: tuple[SessionId, Project | None], messages: Iterable[Message],
    ) -> tuple[Session, int, str | None]:  # fmt: skip
        """The session with the new messages, the count of removed secrets, and a warning."""
        session, project = named
        caller = request.caller()
        caller.require(Role.WRITER)
        added = await digest_of(self.rules(caller), messages)
        caller = await _writer(request)  # by what the keys say now
        redactor = Redactor(self.rules(caller))
        stored = await self.engine.write(caller, work, redactor.session_id(session), added, project)
        annotate(_session_span(stored))
        warning = project_warning(stored.id, stored.project, project)
        return stored, redactor.count + added.redacted, warning

    async def recent_sessions(self, request: Reading) -> Rows[c.Session]:
        before = parameter(request.query, "before_id")
        sessions = await self.engine.read(
            request.caller(), recent_sessions, project_of(request),
            row_count(request.query, "limit", 5), SessionId(before) if before else None,
        )  # fmt: skip
        annotate({"memory.project": project_of(request)})
        return await fitting(list(map(wire.session, sessions)))

    async def add_observation(self, request: Question) -> c.Saved:
        draft = wire.draft(m.body(m.ObservationBody, await request.body()))
        caller, most = await _writer(request), amount(request.query, "similar") or 0
        if most > saves.MAX_SIMILAR:
            raise Invalid(f"similar must be at most {saves.MAX_SIMILAR}.")
        redactor = Redactor(self.rules(caller))
        clean = redactor.draft(draft)
        outcome = await self.engine.write(caller, saves.SAVE, clean, self.dedupe_window)
        similar = await self._similar(caller, outcome, most) if most else None
        annotate(
            {
                **_observation_span(outcome.memory),
                "memory.observation.action": outcome.action.value,
                "memory.session.id": outcome.memory.session,
            }
        )
        if not caller.is_replay:  # that was counted when it was done
            count(DEDUP, outcome.action.value)
            count(SUPERSEDED, by=outcome.superseded)
        return wire.saved(outcome, similar, redactor.count)

    async def _similar(
        self, caller: Caller, saved: saves.Saved, most: int
    ) -> tuple[saves.Lookalike, ...] | None:
        """The near duplicates of a memory, sought once it is saved; None if that takes too long."""
        id_ = saved.memory.id
        if caller.is_replay:
            return await self.engine.read(caller, saves.kept_lookalikes, id_, most)
        with suppress(Unavailable):
            similar = await self.engine.read(
                caller, saves.lookalikes, id_, most, self.recall.features, self.recall.timeout
            )
            if similar or saved.action is not saves.Action.CREATED:
                await self.engine.write(caller, saves.keep_lookalikes, id_, similar)
            return similar
        return None

    async def recent_observations(self, request: Reading) -> Rows[c.Observation]:
        before = parameter(request.query, "before_id")
        memories = await self.engine.read(
            request.caller(), saves.recent, filter_of(request),
            row_count(request.query, "limit", 20),
            None if before is None else MemoryId(whole_number(before, "before_id")),
        )  # fmt: skip
        annotate({"memory.project": project_of(request)})
        return await fitting(list(map(wire.observation, memories)))

    async def get_observation(self, request: Question) -> c.Observation:
        memory = await self.engine.read(request.caller(), saves.get, _memory_id(request))
        annotate(_observation_span(memory))
        return wire.observation(memory)

    async def observation_history(self, request: Question) -> Rows[c.Revision]:
        revisions = await self.engine.read(request.caller(), saves.history, _memory_id(request))
        annotate({"memory.observation.id": _memory_id(request)})
        return await fitting(list(map(wire.revision, revisions)))

    async def restore_observation(self, request: Question) -> c.Observation:
        memory_id = _memory_id(request)
        body = m.body(m.RestoreBody, await request.body())
        caller = await _writer(request)
        rules = self.rules(caller)
        restored = await self.engine.write(caller, saves.RESTORE, memory_id, body.revision, rules)
        annotate(_observation_span(restored.memory))
        return wire.observation(restored.memory, redacted=restored.redacted)

    async def update_observation(self, request: Question) -> c.Observation:
        memory_id = _memory_id(request)
        body = m.body(m.ChangeBody, await request.body())
        caller = await _writer(request)
        redactor = Redactor(self.rules(caller))
        change = redactor.change(wire.change(body))
        memory = await self.engine.write(caller, saves.AMEND, memory_id, change, body.revision)
        annotate(_observation_span(memory))
        return wire.observation(memory, redacted=redactor.count)

    async def confirm_observation(self, request: Question) -> c.Observation:
        memory = await self.engine.write(await _writer(request), saves.CONFIRM, _memory_id(request))
        annotate(_observation_span(memory))
        return wire.observation(memory)

    async def delete_observation(self, request: Question) -> str | None:
        """The id of the receipt, if the observation was erased."""
        memory_id, hard = _memory_id(request), is_true(request.query, "hard")
        annotate({"memory.observation.id": memory_id, "memory.observation.hard_delete": hard})
        if not hard:
            return await self.engine.write(await _writer(request), saves.FORGET, memory_id)
        caller = await _writer(request, Role.ADMIN)
        erasure = await self.engine.write(caller, saves.ERASE, memory_id)
        if erasure is not None:
            self.projects().on_erased(caller)
        return erasure

    async def delete_project(self, request: Question) -> "a.ErasureReceipt | a.ErasurePlan":
        project, caller = project_name(clean(request.path_params["name"])), request.caller()
        annotate({"memory.project": project})
        is_dry = asks_for(request.query, "dry_run")
        if not asks_for(request.query, "hard"):
            raise Invalid(
                "Erasing a project is permanent: add hard=true to confirm, or "
                "dry_run=true as well to preview it."
            )
        if is_dry:
            extent = await self.projects().plan_erasure(caller, project)
            return a.ErasurePlan(
                project=project, observations=extent.memories, deleted=extent.deleted,
                revisions=extent.revisions, sessions=extent.sessions - extent.shared_sessions,
                sessions_kept=extent.shared_sessions,
            )  # fmt: skip
        erasure = await self.projects().erase(caller, project)
        return a.erasure(await receipt_of(self.engine, caller, erasure.id))

    async def get_erasure(self, request: Question) -> "a.ErasureReceipt":
        erasure = ErasureId(clean(request.path_params["id"]))
        receipt = await receipt_of(self.engine, request.caller(), erasure)
        annotate({"memory.project": receipt.project})
        return a.erasure(receipt)

    def export(self, caller: Caller, project: Project | None) -> AsyncIterator[bytes]:
        return self.transfer().export(caller, project, self.clock())

    async def import_all(
        self, caller: Caller, document: "t.Document", progress: "t.Progress" = noop
    ) -> c.Imported:
        counts = await self.transfer().import_all(caller, document, progress)
        annotate(
            {
                "memory.import.sessions": counts.imported_sessions,
                "memory.import.observations": counts.imported_observations,
            }
        )
        return counts

    async def plan_import(self, caller: Caller, document: "t.Document") -> c.ImportPlan:
        plan = await self.transfer().plan_import(caller, document)
        annotate(  # without a word of what the document says
            {
                "memory.import.dry_run": True,
                "memory.import.sessions": plan.sessions[imports.RowOutcome.NEW],
                "memory.import.observations": plan.stored,
            }
        )
        return t.import_plan(plan)


async def _writer(request: Question, role: Role = Role.WRITER) -> Caller:
    caller = await request.writer()
    caller.require(role)
    return caller


def _session(request: Question) -> tuple[SessionId, Project | None]:
    project = project_of(request)
    named = m.body(m.NamedSession, {"id": request.path_params["id"], "project": project})
    return SessionId(named.id), project


def _memory_id(request: Question) -> MemoryId:
    return MemoryId(whole_number(request.path_params["id"], "id"))


def _session_span(of: Session) -> Attributes:
    return {
        "memory.project": of.project,
        "memory.session.id": of.id,
        "memory.session.message_count": of.message_count,
    }


def _observation_span(of: Memory) -> Attributes:
    return {
        "memory.project": of.space.project,
        "memory.observation.id": of.id,
        "memory.observation.type": of.text.type,
    }
