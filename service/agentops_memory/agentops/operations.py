"""Each operation of AgentOps REST, called over HTTP or in this process.

Searches, contexts and timelines come first: their parameters, answers and spans.
"""

import asyncio
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar, cast

from agentops_memory_client.contract import models as c

from ..engine.engine import Engine, noop
from ..errors import Invalid, Unavailable, Unreadable
from ..http import query as q
from ..light import Lazy, dataclass, replace
from ..memory import saves, search
from ..memory.access import Caller, Role, asking
from ..memory.agent_memory import Viewer
from ..memory.erasure import ErasureId, receipt_of
from ..memory.lifecycles import ReviewPeriods, ReviewPosition, ReviewReason, review
from ..memory.memory import Memory, MemoryId, Session, SessionId
from ..memory.redactor import NO_STORE, Redactor, RulesOf
from ..memory.rows import instant, micros
from ..memory.search import SHOWN, Budget, Context, Filter, Hit, Include, Method, SearchResult
from ..memory.sessions import APPEND, CLOSE, OPEN, project_warning, recent_sessions
from ..memory.space import Project, StoreId, project_name
from ..recall.query import MAX_PROMPT
from ..recall.recall import OtherSources, Recall, timeline, totals, whole_memory
from ..recall.summary import Message, transcript
from ..recall.text import clean
from ..telemetry import CURRENT, Attributes, Cut, OwnText, annotate, count, current_span, events
from ..telemetry.metrics import DEDUP, SUPERSEDED
from . import wire
from .wire import Rows, SummaryLine

if TYPE_CHECKING:
    from ..http import gate as large_answers
    from ..memory import imports, projects
    from . import answers as a, models as m, transfer as t
else:  # reads need none of them
    large_answers, imports, a, m, t = (
        Lazy(__package__, it)
        for it in ("..http.gate", "..memory.imports", ".answers", ".models", ".transfer")
    )

T = TypeVar("T")

# Most bytes of a part besides its content, and of one character of the content: `\u0000`.
MOST_OVERHEAD, MOST_OF_A_CHARACTER = 64 * 1024, 6


_POSITION = re.compile(
    rf"(-?\d{{1,18}})-({'|'.join(ReviewReason)})-(\d{{1,18}})-(\d{{1,18}})", re.ASCII
)


def _review_position(text: str | None) -> ReviewPosition | None:
    if text is None:
        return None
    with suppress(Unreadable):
        if match := _POSITION.fullmatch(text):
            at, reason, memory, other = match.groups()
            ids = MemoryId(int(memory)), MemoryId(int(other))
            return ReviewPosition(instant(int(at)), ReviewReason(reason), *ids)
    raise Invalid("before must be the `next` of a list of reviews.")


MOST_STORES = 8  # most stores, or namespaces, of one context
MOST_TYPES = 20  # most types that a request excludes; eight types are suggested
SPAN_QUERY = 200  # most code points of a query in a span
SPAN_TITLE = 100  # most code points of a title in an event

# The contract has no topic-key method: such a match counts as a full-text match.
METHODS = {method: OwnText(method.value) for method in Method}
METHODS[Method.TOPIC_KEY] = METHODS[Method.FULL_TEXT]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """The request of an operation that reads a list."""

    query: q.Query
    caller: Callable[[], Caller]
    """Returns the caller by the current keys; raises Unauthenticated if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext(ReadContext):
    """The request of an operation, over HTTP or in this process."""

    path_params: Mapping[str, str]
    body: Callable[[], Awaitable[Mapping[str, object]]]
    """Returns the JSON object in the body."""
    transcript: Callable[[], AbstractAsyncContextManager[Iterator[Message]]]
    """Yields the messages in the body, streamed; none without a body."""
    caller_for_write: Callable[[], Awaitable[Caller]]
    """Returns the caller after the body was read, with the idempotency key, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOps:
    """The operations on the domain. Each returns a noun and describes its effect in its span."""

    engine: Engine
    rules: RulesOf
    recall: Recall
    periods: ReviewPeriods  # time until memories of a type need a review
    dedupe_window: timedelta
    transfer: "Callable[[], t.Transfer]"
    projects: "Callable[[], projects.Projects]"
    clock: Callable[[], datetime]

    async def search(self, request: ReadContext) -> c.Found:
        text = q.parameter(request.query, "q") or ""
        superseded = q.is_true(request.query, "superseded")
        filter_ = filter_of(request, global_too=True, is_current=not superseded)
        options, limit = _options(request), q.row_count(request.query, "limit", 10)
        result = await self.recall.search(
            request.caller(), text, filter_, limit, options, superseded=superseded
        )
        annotate(search_span(text, filter_.project, result))
        events("search.result", map(injected, result.hits))
        hits = [
            wire.hit(
                it.memory, it.rank, superseded_by=it.memory.links.superseded_by,
                explain=a.explained_item(it, position, result) if options.explain else None,
            )
            for position, it in enumerate(result.hits, start=1)
        ]  # fmt: skip
        why = a.explained_answer(result, options.explain) if options else None
        fit = await fitting(hits, overhead=len(m.json_bytes(why)) if why else 0)
        kept = why and a.explanation_of_kept(why, result.hits[: len(fit)])
        return c.Found(hits=fit, omitted=fit.omitted, explanation=kept)

    async def fetch_context(self, request: ReadContext) -> c.Context:
        text = q.parameter(request.query, "query") or ""
        filter_ = filter_of(request, global_too=True, is_current=True)
        options = replace(_options(request), links=q.is_true(request.query, "ages"))
        chars = q.amount(request.query, "content_chars", least=1)
        budget = Budget(
            max_tokens=q.amount(request.query, "max_tokens"),
            max_chars=q.amount(request.query, "max_chars"),
            content_chars=SHOWN if chars is None else min(chars, search.MOST_SHOWN),
        )
        context = await self.recall.context(
            request.caller(), text, filter_, q.row_count(request.query, "limit", 5),
            budget=budget, include=options, sources=_other_sources(request),
        )  # fmt: skip
        result = context.found
        annotate(context_span(text, filter_.project, result))
        events("context.injected", map(injected, result.hits))
        if (metrics := CURRENT.get()) is not None:
            methods = [hit.method.value for hit in result.hits]
            metrics.count_context(methods, current_span(), is_degraded=result.is_degraded)
        return await _context(context, budget, options)

    async def timeline(self, request: ReadContext) -> Rows[c.TimelineEntry]:
        named = q.parameter(request.query, "observation_id")
        memory_id = MemoryId(q.whole_number(named, "observation_id"))
        before = q.row_count(request.query, "before", 3)
        after = q.row_count(request.query, "after", 3)
        memories = await self.engine.read(request.caller(), timeline, memory_id, before, after)
        annotate({"memory.observation.id": memory_id})
        centre = [memory.id for memory in memories].index(memory_id)
        return await fitting(list(map(wire.timeline_entry, memories)), centre=centre)

    async def review(self, request: ReadContext) -> c.ReviewList:
        reason, reasons = q.parameter(request.query, "reason"), set(ReviewReason)
        if reason is not None:
            if reason not in reasons:
                raise Invalid(f"reason must be one of {', '.join(ReviewReason)}.")
            reasons = {ReviewReason(reason)}
        before = _review_position(q.parameter(request.query, "before"))
        project = project_of(request)
        limit = q.row_count(request.query, "limit", 20)
        due, next_ = await self.engine.read(
            request.caller(), review, Filter(project=project), limit, reasons, self.periods, before
        )
        annotate({"memory.project": project, "memory.review.count": len(due)})
        items = [
            c.ReviewItem(
                reason=it.position.reason.value, at=it.position.at,
                observation=wire.observation(it.memory),
                other=None if it.other is None else wire.observation(it.other),
                score=None if it.score is None else round(it.score, 2),
            )
            for it in due
        ]  # fmt: skip
        fit = await fitting(items, overhead=MOST_OVERHEAD)
        if fit.omitted and fit:
            next_ = due[len(fit) - 1].position
        after = next_ and f"{micros(next_.at)}-{next_.reason}-{next_.memory}-{next_.other}"
        return c.ReviewList(items=fit, next=after)

    async def stats(self, request: ReadContext) -> c.Stats:
        project = project_of(request)
        stored = await self.engine.read(request.caller(), totals, project)
        annotate({"memory.project": project})
        return c.Stats(
            total_sessions=stored.sessions, total_observations=stored.memories,
            projects=stored.projects,
        )  # fmt: skip

    async def create_session(self, request: RequestContext) -> c.Session:
        body = m.body(m.SessionBody, await request.body())
        caller = await _writer(request)
        redactor, project = Redactor(self.rules(caller)), body.project
        session = redactor.session_id(SessionId(body.id))
        opened = await self.engine.write(caller, OPEN, session, project)
        annotate(_session_span(opened))
        begun = replace(opened, ended_at=None, summary="")  # as opened, even if it has ended
        warning = project_warning(opened.id, opened.project, project)
        return wire.session(begun, redacted=redactor.count, warning=warning)

    async def append_messages(self, request: RequestContext) -> c.Appended:
        named, messages = _session(request), m.messages(await request.body())
        _, redacted, warning = await self._add_messages(request, APPEND, named, messages)
        return c.Appended(redacted=redacted, warning=warning)

    async def end_session(self, request: RequestContext) -> c.SessionEnd:
        named = _session(request)
        async with request.transcript() as messages:
            ended, redacted, warning = await self._add_messages(request, CLOSE, named, messages)
        return c.SessionEnd(
            session_id=ended.id, summary=ended.summary, message_count=ended.message_count,
            redacted=redacted, warning=warning,
        )  # fmt: skip

    async def _add_messages(
        self, request: RequestContext, work: Callable[..., Session],
        named: tuple[SessionId, Project | None], messages: Iterable[Message],
    ) -> tuple[Session, int, str | None]:  # fmt: skip
        """Return the session with the new messages, the count of removed secrets, and a warning."""
        session, project = named
        caller = request.caller()
        caller.require(Role.WRITER)
        digesting = Redactor(self.rules(caller))
        added = await asyncio.to_thread(transcript, messages, digesting.whole)
        caller = await _writer(request)  # by the current keys
        redactor = Redactor(self.rules(caller))
        stored = await self.engine.write(caller, work, redactor.session_id(session), added, project)
        annotate(_session_span(stored))
        warning = project_warning(stored.id, stored.project, project)
        return stored, redactor.count + digesting.count, warning

    async def recent_sessions(self, request: ReadContext) -> Rows[c.Session]:
        before = q.parameter(request.query, "before_id")
        sessions = await self.engine.read(
            request.caller(), recent_sessions, project_of(request),
            q.row_count(request.query, "limit", 5), SessionId(before) if before else None,
        )  # fmt: skip
        annotate({"memory.project": project_of(request)})
        return await fitting(list(map(wire.session, sessions)))

    async def add_observation(self, request: RequestContext) -> c.Saved:
        draft = m.body(m.ObservationBody, await request.body()).draft
        caller, most = await _writer(request), q.amount(request.query, "similar") or 0
        if most > saves.MAX_SIMILAR:
            raise Invalid(f"similar must be at most {saves.MAX_SIMILAR}.")
        redactor = Redactor(self.rules(caller))
        clean = redactor.draft(draft)
        outcome = await self.engine.write(caller, saves.SAVE, clean, self.dedupe_window)
        similar = await self._similar(caller, outcome, most) if most else None
        annotate({
            **_observation_span(outcome.memory),
            "memory.observation.action": outcome.action.value,
            "memory.session.id": outcome.memory.session,
        })  # fmt: skip
        if not caller.is_replay:  # the first request was counted
            count(DEDUP, outcome.action.value)
            count(SUPERSEDED, by=outcome.superseded)
        return m.saved(outcome, similar, redactor.count)

    async def _similar(
        self, caller: Caller, saved: saves.Saved, most: int
    ) -> tuple[saves.Lookalike, ...] | None:
        """Return the near duplicates of a saved memory; None if the search takes too long."""
        id_ = saved.memory.id
        if caller.is_replay:
            return await self.engine.read(caller, saves.kept_lookalikes, id_, most)
        with suppress(Unavailable):
            similar = await self.engine.read(
                caller, saves.lookalikes, id_, most, self.recall.timeout
            )
            if similar or saved.action is not saves.Action.CREATED:
                await self.engine.write(caller, saves.keep_lookalikes, id_, similar)
            return similar
        return None

    async def recent_observations(self, request: ReadContext) -> Rows[c.Observation]:
        before = q.parameter(request.query, "before_id")
        memories = await self.engine.read(
            request.caller(), saves.recent, filter_of(request),
            q.row_count(request.query, "limit", 20),
            None if before is None else MemoryId(q.whole_number(before, "before_id")),
        )  # fmt: skip
        annotate({"memory.project": project_of(request)})
        return await fitting(list(map(wire.observation, memories)))

    async def get_observation(self, request: RequestContext) -> c.Observation:
        memory = await self.engine.read(request.caller(), saves.get, _memory_id(request))
        annotate(_observation_span(memory))
        return wire.observation(memory)

    async def observation_history(self, request: RequestContext) -> Rows[c.Revision]:
        revisions = await self.engine.read(request.caller(), saves.history, _memory_id(request))
        annotate({"memory.observation.id": _memory_id(request)})
        return await fitting(list(map(wire.revision, revisions)))

    async def restore_observation(self, request: RequestContext) -> c.Observation:
        memory_id = _memory_id(request)
        body = m.body(m.RestoreBody, await request.body())
        caller = await _writer(request)
        rules = self.rules(caller)
        restored = await self.engine.write(caller, saves.RESTORE, memory_id, body.revision, rules)
        annotate(_observation_span(restored.value))
        return wire.observation(restored.value, redacted=restored.redacted)

    async def update_observation(self, request: RequestContext) -> c.Observation:
        memory_id = _memory_id(request)
        body = m.body(m.ChangeBody, await request.body())
        caller = await _writer(request)
        redactor = Redactor(self.rules(caller))
        change = redactor.change(body.change)
        memory = await self.engine.write(caller, saves.AMEND, memory_id, change, body.revision)
        annotate(_observation_span(memory))
        return wire.observation(memory, redacted=redactor.count)

    async def confirm_observation(self, request: RequestContext) -> c.Observation:
        memory = await self.engine.write(await _writer(request), saves.CONFIRM, _memory_id(request))
        annotate(_observation_span(memory))
        return wire.observation(memory)

    async def delete_observation(self, request: RequestContext) -> str | None:
        """Return the id of the receipt if the observation was erased."""
        memory_id, hard = _memory_id(request), q.is_true(request.query, "hard")
        annotate({"memory.observation.id": memory_id, "memory.observation.hard_delete": hard})
        if not hard:
            return await self.engine.write(await _writer(request), saves.FORGET, memory_id)
        caller = await _writer(request, Role.ADMIN)
        erasure = await self.engine.write(caller, saves.ERASE, memory_id)
        if erasure is not None:
            self.projects().on_erased(caller)
        return erasure

    async def delete_project(self, request: RequestContext) -> "a.ErasureReceipt | a.ErasurePlan":
        project, caller = project_name(clean(request.path_params["name"])), request.caller()
        annotate({"memory.project": project})
        is_dry = q.asks_for(request.query, "dry_run")
        if not q.asks_for(request.query, "hard"):
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

    async def get_erasure(self, request: RequestContext) -> "a.ErasureReceipt":
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
        annotate({
            "memory.import.sessions": counts.imported_sessions,
            "memory.import.observations": counts.imported_observations,
        })  # fmt: skip
        return counts

    async def plan_import(
        self, caller: Caller, document: "t.Document", progress: "t.Progress" = noop
    ) -> c.ImportPlan:
        plan = await self.transfer().plan_import(caller, document, progress)
        annotate({  # nothing of the document's content
            "memory.import.dry_run": True,
            "memory.import.sessions": plan.sessions[imports.RowOutcome.NEW],
            "memory.import.observations": plan.stored,
        })  # fmt: skip
        return t.import_plan(plan)


async def _writer(request: RequestContext, role: Role = Role.WRITER) -> Caller:
    caller = await request.caller_for_write()
    caller.require(role)
    return caller


def _session(request: RequestContext) -> tuple[SessionId, Project | None]:
    project = project_of(request)
    named = m.body(m.NamedSession, {"id": request.path_params["id"], "project": project})
    return SessionId(named.id), project


def _memory_id(request: RequestContext) -> MemoryId:
    return MemoryId(q.whole_number(request.path_params["id"], "id"))


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


def project_of(request: ReadContext) -> Project | None:
    """Return the project in the query; None, for all projects, if it is missing or empty."""
    return project_name(q.parameter(request.query, "project") or "") or None


def filter_of(
    request: ReadContext, *, global_too: bool = False, is_current: bool = False
) -> Filter:
    return Filter(
        project=project_of(request), scope=q.parameter(request.query, "scope"),
        type=q.parameter(request.query, "type"),
        excluded_types=q.several(request.query, "exclude_type", MOST_TYPES),
        tag=q.parameter(request.query, "tag"), global_too=global_too, is_current=is_current,
    )  # fmt: skip


def _options(request: ReadContext) -> Include:
    memory = q.parameter(request.query, "why_not")
    return Include(
        explain=q.is_true(request.query, "explain"),
        why_not=None if memory is None else MemoryId(q.whole_number(memory, "why_not")),
    )


def _other_sources(request: ReadContext) -> OtherSources:
    namespaces = _listed(request, "namespaces", "namespaces")
    episodic = q.asks_for(request.query, "episodic")
    viewer = None
    if namespaces or episodic:
        caller = request.caller()
        agent = asking(caller, q.parameter(request.query, "agent") or "")
        viewer = Viewer(agent=agent, is_admin=caller.role.includes(Role.ADMIN))
    stores = _listed(request, "stores", "memory stores")
    joined = tuple(StoreId(q.known_uid(q.STORE, it.strip(), NO_STORE)) for it in stores)
    return OtherSources(stores=joined, viewer=viewer, episodic=episodic, namespaces=namespaces)


def _listed(request: ReadContext, name: str, nouns: str) -> tuple[str, ...]:
    values = (q.parameter(request.query, name) or "").split(",")
    listed = tuple(dict.fromkeys(filter(None, values)))
    if len(listed) > MOST_STORES:
        raise Invalid(f"{name} names at most {MOST_STORES} {nouns}.")
    return listed


async def _context(of: Context, budget: Budget, options: Include) -> c.Context:
    summaries = list(map(SummaryLine, of.summaries))
    lines = [_line(of, position, budget, options) for position in range(len(of.found.hits))]
    why = None
    if options:
        why = a.explained_answer(of.found, options.explain, budget=budget, packed=of.packed)
    fit = await fitting([*summaries, *lines], overhead=len(m.json_bytes(why)) if why else 0)
    kept = fit.after(len(summaries))
    return c.Context(
        summaries=tuple(each.summary for each in fit if isinstance(each, SummaryLine)),
        observations=cast("Rows[c.Line]", kept), omitted=fit.omitted,
        explanation=why and a.explanation_of_kept(why, of.found.hits[: len(kept)]),
    )  # fmt: skip


def _line(of: Context, position: int, budget: Budget, options: Include) -> c.Line:
    hit, why = of.found.hits[position], None
    text = hit.memory.text
    if options.explain and of.packed:
        is_cut = len(text.content) > budget.content_chars
        why = a.explained_item(hit, of.packed.places[position], of.found, is_cut=is_cut)
    line = wire.line(text, budget.content_chars, explain=why)
    if not options.links:
        return line
    superseded = len(hit.memory.links.supersedes) or None
    return replace(line, age=int(whole_memory(hit).age.total_seconds()), superseded=superseded)


def search_span(text: str, project: Project | None, result: SearchResult) -> Attributes:
    return {
        "memory.project": project,
        "memory.search.query": Cut(text, SPAN_QUERY),
        "memory.search.result_count": len(result.hits),
        "memory.search.degraded": result.is_degraded or None,
    }


def context_span(text: str, project: Project | None, result: SearchResult) -> Attributes:
    return {
        "memory.project": project,
        "memory.query": Cut(text, MAX_PROMPT),
        "memory.context.query_used": bool(text),
        "memory.context.method": METHODS[result.method],
        "memory.context.result_count": len(result.hits),
        "memory.context.degraded": result.is_degraded or None,
        "memory.context.corrected_count": len(result.query.corrections) or None,
        "gen_ai.operation.name": OwnText("retrieval"),
        "gen_ai.retrieval.query.text": Cut(text, MAX_PROMPT),
        "gen_ai.retrieval.document_count": len(result.hits),
    }


def injected(hit: Hit) -> Attributes:
    return {
        "memory.injected.observation_id": hit.memory.id,
        "memory.injected.type": hit.memory.text.type,
        "memory.injected.title": Cut(hit.memory.text.title, SPAN_TITLE),
        "memory.injected.rank": hit.rank,
        "memory.injected.method": METHODS[hit.method],
    }


async def fitting(parts: Sequence[T], *, overhead: int = 0, centre: int = 0) -> Rows[T]:
    """Return the parts that fit next to `overhead` bytes, those nearest to `centre` first."""
    texts = (getattr(part, name, None) for part in parts for name in ("content", "summary"))
    most = len(parts) * MOST_OVERHEAD + MOST_OF_A_CHARACTER * sum(map(len, filter(None, texts)))
    if not overhead and most < q.MAX_ANSWER:  # they fit in any case
        return Rows(parts)
    room, json = q.MAX_ANSWER - 1024 - overhead, {}
    nearest = sorted(range(len(parts)), key=lambda at: abs(at - centre))
    async for at, part in large_answers.paced(
        ((at, m.json_bytes(parts[at])) for at in nearest), lambda numbered: len(numbered[1])
    ):
        room -= len(part) + 1
        if room < 0:
            break
        json[at] = part
    kept = sorted(json)
    some = Rows(parts[at] for at in kept)
    some.omitted, some.json = len(parts) - len(kept), [json[at] for at in kept]
    return some
