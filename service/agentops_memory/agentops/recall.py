"""Searches, contexts and timelines: their parameters, answers and spans."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Protocol, cast

from agentops_memory_client.contract import models as c

from ..engine.engine import Engine
from ..errors import Invalid, Unreadable
from ..http import query as q
from ..light import Lazy, dataclass, replace
from ..memory.access import Caller, Role, asking
from ..memory.agents import Viewer
from ..memory.lifecycles import ReviewPeriods, ReviewPosition, ReviewReason, review
from ..memory.memory import MemoryId
from ..memory.redactor import NO_STORE
from ..memory.rows import instant, micros
from ..memory.search import (
    MOST_SHOWN,
    SHOWN,
    Budget,
    Context,
    Filter,
    Hit,
    Include,
    Method,
    SearchResult,
)
from ..memory.space import Project, StoreId, project_name
from ..recall.query import MAX_PROMPT
from ..recall.recall import Joining, Recall, timeline, totals, whole_memory
from ..recall.summary import Message
from ..telemetry import Cut, OwnText, annotate, count, events
from ..telemetry.metrics import CONTEXT_ANSWERS, CONTEXT_METHOD
from ..telemetry.spans import Attributes
from . import wire
from .wire import MOST_BESIDE, Rows, SummaryLine, fitting, json_bytes

if TYPE_CHECKING:
    from . import answers as a
else:
    a = Lazy(__package__, ".answers")

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


MOST_STORES = 8  # of one context
MOST_TYPES = 20  # that a request excludes; the suggested ones are eight
SPAN_QUERY = 200  # code points of a search in a span
SPAN_TITLE = 100  # code points of a title in an event

# The contract knows two: a match of a topic key counts as one of words.
METHODS = {method: OwnText(method.value) for method in Method}
METHODS[Method.TOPIC_KEY] = METHODS[Method.FULL_TEXT]


class Reading(Protocol):
    """The request of an operation that reads a list."""

    @property
    def query(self) -> q.Query:
        """The parameters."""

    def caller(self) -> Caller:
        """Who asks, by what the keys say now. Refuses with Unauthenticated."""


class Question(Reading, Protocol):
    @property
    def path_params(self) -> Mapping[str, str]:
        """What the path names."""

    async def body(self) -> Mapping[str, object]:
        """The object that was sent."""

    def transcript(self) -> AbstractAsyncContextManager[Iterator[Message]]:
        """The messages that were sent, however many there are; none without a body."""

    async def writer(self) -> Caller:
        """The same once the body was read, under the idempotency key of the request if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallOperations:
    engine: Engine
    recall: Recall
    periods: ReviewPeriods  # after which memories of a type are due for a review

    async def search(self, request: Reading) -> c.Found:
        text = q.parameter(request.query, "q") or ""
        superseded = q.is_true(request.query, "superseded")
        filter_ = filter_of(request, global_too=True, is_current=not superseded)
        options, limit = _options(request), q.row_count(request.query, "limit", 10)
        result = await self.recall.search(
            request.caller(), text, filter_, limit, options, superseded=superseded
        )
        annotate(search_span(text, filter_, result))
        events("search.result", map(injected, result.hits))
        hits = [
            wire.hit(
                it.memory,
                it.rank,
                superseded_by=it.memory.links.superseded_by,
                explain=a.explained_item(it, position, result) if options.explain else None,
            )
            for position, it in enumerate(result.hits, start=1)
        ]
        why = a.explained_answer(result, options.explain) if options else None
        fit = await fitting(hits, beside=len(json_bytes(why)) if why else 0)
        return c.Found(
            hits=fit,
            omitted=fit.omitted,
            explanation=why and a.explanation_of_kept(why, result.hits[: len(fit)]),
        )

    async def fetch_context(self, request: Reading) -> c.Context:
        text = q.parameter(request.query, "query") or ""
        filter_ = filter_of(request, global_too=True, is_current=True)
        options = replace(_options(request), links=q.is_true(request.query, "ages"))
        chars = q.amount(request.query, "content_chars", least=1)
        budget = Budget(
            max_tokens=q.amount(request.query, "max_tokens"),
            max_chars=q.amount(request.query, "max_chars"),
            content_chars=SHOWN if chars is None else min(chars, MOST_SHOWN),
        )
        context = await self.recall.context(
            request.caller(), text, filter_, q.row_count(request.query, "limit", 5),
            budget=budget, include=options, joining=_joining(request),
        )  # fmt: skip
        result = context.found
        annotate({**context_span(text, filter_, context), **budget_span(budget, context)})
        events("context.injected", map(injected, result.hits))
        methods = Counter(hit.method for hit in result.hits)
        for method, hits in methods.items():
            count(CONTEXT_METHOD, method.value, by=hits)
        count(CONTEXT_ANSWERS, "degraded" if result.is_degraded else outcome(methods))
        return await _context(context, budget, options)

    async def timeline(self, request: Reading) -> Rows[c.TimelineEntry]:
        named = q.parameter(request.query, "observation_id")
        memory_id = MemoryId(q.whole_number(named, "observation_id"))
        before = q.row_count(request.query, "before", 3)
        after = q.row_count(request.query, "after", 3)
        memories = await self.engine.read(request.caller(), timeline, memory_id, before, after)
        annotate({"memory.observation.id": memory_id})
        centre = [memory.id for memory in memories].index(memory_id)
        return await fitting(list(map(wire.timeline_entry, memories)), centre=centre)

    async def review(self, request: Reading) -> c.ReviewList:
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
        fit = await fitting(items, beside=MOST_BESIDE)
        if fit.omitted and fit:
            next_ = due[len(fit) - 1].position
        after = next_ and f"{micros(next_.at)}-{next_.reason}-{next_.memory}-{next_.other}"
        return c.ReviewList(items=fit, next=after)

    async def stats(self, request: Reading) -> c.Stats:
        project = project_of(request)
        stored = await self.engine.read(request.caller(), totals, project)
        annotate({"memory.project": project})
        return c.Stats(
            total_sessions=stored.sessions, total_observations=stored.memories,
            projects=stored.projects,
        )  # fmt: skip


def project_of(request: Reading) -> Project | None:
    """The project that is named; none, or one without a name, is all of them."""
    return project_name(q.parameter(request.query, "project") or "") or None


def filter_of(request: Reading, *, global_too: bool = False, is_current: bool = False) -> Filter:
    return Filter(
        project=project_of(request), scope=q.parameter(request.query, "scope"),
        type=q.parameter(request.query, "type"),
        excluded_types=q.several(request.query, "exclude_type", MOST_TYPES),
        tag=q.parameter(request.query, "tag"), global_too=global_too, is_current=is_current,
    )  # fmt: skip


def _options(request: Reading) -> Include:
    memory = q.parameter(request.query, "why_not")
    return Include(
        explain=q.is_true(request.query, "explain"),
        why_not=None if memory is None else MemoryId(q.whole_number(memory, "why_not")),
    )


def _joining(request: Reading) -> Joining:
    namespaces = _listed(request, "namespaces", "namespaces")
    episodic = q.asks_for(request.query, "episodic")
    viewer = None
    if namespaces or episodic:
        caller = request.caller()
        agent = asking(caller, q.parameter(request.query, "agent") or "")
        viewer = Viewer(agent=agent, is_admin=caller.role.includes(Role.ADMIN))
    stores = _listed(request, "stores", "memory stores")
    uids = [q.known_uid(q.STORE, it.strip(), NO_STORE) for it in stores]
    return Joining(
        stores=tuple(map(StoreId, uids)), viewer=viewer, episodic=episodic, namespaces=namespaces
    )


def _listed(request: Reading, name: str, nouns: str) -> tuple[str, ...]:
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
    fit = await fitting([*summaries, *lines], beside=len(json_bytes(why)) if why else 0)
    kept = fit.after(len(summaries))
    return c.Context(
        summaries=tuple(each.summary for each in fit if isinstance(each, SummaryLine)),
        observations=cast("Rows[c.Line]", kept),
        omitted=fit.omitted,
        explanation=why and a.explanation_of_kept(why, of.found.hits[: len(kept)]),
    )


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


def search_span(text: str, filter_: Filter, result: SearchResult) -> Attributes:
    return {
        "memory.project": filter_.project,
        "memory.search.query": Cut(text, SPAN_QUERY),
        "memory.search.result_count": len(result.hits),
        "memory.search.degraded": result.is_degraded or None,
    }


def context_span(text: str, filter_: Filter, context: Context) -> Attributes:
    result = context.found
    return {
        "memory.project": filter_.project,
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


def budget_span(budget: Budget, context: Context) -> Attributes:
    """A budget, and what it had no room for; nothing without one."""
    packed = context.packed
    if not budget.is_bounded or packed is None:
        return {}
    return {
        "memory.context.max_tokens": budget.max_tokens,
        "memory.context.max_chars": budget.max_chars,
        "memory.context.used_tokens": packed.tokens,
        "memory.context.used_chars": packed.chars,
        "memory.context.left_out_count": len(packed.left_out) + packed.summaries_left_out,
    }


def outcome(methods: Collection[Method]) -> str:
    """What a context is counted as, by the method of each of its memories."""
    return "found" if {*methods} - {Method.RECENCY} else "recency" if methods else "empty"


def injected(hit: Hit) -> Attributes:
    return {
        "memory.injected.observation_id": hit.memory.id,
        "memory.injected.type": hit.memory.text.type,
        "memory.injected.title": Cut(hit.memory.text.title, SPAN_TITLE),
        "memory.injected.rank": hit.rank,
        "memory.injected.method": METHODS[hit.method],
    }
