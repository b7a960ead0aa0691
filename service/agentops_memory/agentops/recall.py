"""Searches, contexts and timelines: what is asked, what is answered, what their spans say."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

from agentops_memory_client.contract import models as c

from ..engine.engine import Engine
from ..errors import Invalid, Unreadable
from ..http.paging import STORE, known_uid
from ..http.query import (
    Query,
    amount,
    asks_for,
    is_true,
    parameter,
    row_count,
    several,
    whole_number,
)
from ..lazy import Lazy
from ..memory.lifecycles import ReviewItem, ReviewPeriods, ReviewPlace, ReviewReason, review
from ..memory.limits import NO_STORE
from ..memory.model.access import Caller, Role, asking
from ..memory.model.agent_memory import Eyes
from ..memory.model.memory import MemoryId
from ..memory.model.rows import instant, micros
from ..memory.model.search import (
    MOST_SHOWN,
    SHOWN,
    Budget,
    Context,
    Filter,
    Found,
    Hit,
    Method,
    Wanted,
)
from ..memory.model.space import Project, StoreId, project_name
from ..recall.recall import Joining, Recall, timeline, totals, whole_memory
from ..recall.text.query import MAX_PROMPT
from ..recall.text.summary import Message
from ..telemetry import Cut, OwnText, annotate, count, events
from ..telemetry.measures import CONTEXT_ANSWERS, CONTEXT_METHOD
from ..telemetry.spans import Attributes
from . import wire
from .wire import MOST_BESIDE, Rows, SummaryLine, held, json_bytes

if TYPE_CHECKING:
    from . import answers as a
else:
    a = Lazy(__package__, ".answers")

_REASONS = ", ".join(ReviewReason)
_PLACE = re.compile(
    rf"(-?\d{{1,18}})-({'|'.join(ReviewReason)})-(\d{{1,18}})-(\d{{1,18}})", re.ASCII
)


def _reasons(query: Query) -> Collection[ReviewReason]:
    reason = parameter(query, "reason")
    if reason is None:
        return set(ReviewReason)
    if reason not in set(ReviewReason):
        raise Invalid(f"reason must be one of {_REASONS}.")
    return {ReviewReason(reason)}


def _review_place(text: str | None) -> ReviewPlace | None:
    if text is None:
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise Invalid("before must be the `next` of a list of reviews.")
    since, reason, memory, other = match.groups()
    try:
        at = instant(int(since))
    except Unreadable:
        raise Invalid("before must be the `next` of a list of reviews.") from None
    return ReviewPlace(at, ReviewReason(reason), MemoryId(int(memory)), MemoryId(int(other)))


def _item(item: ReviewItem) -> c.ReviewItem:
    return c.ReviewItem(
        reason=item.place.reason.value, at=item.place.at, observation=wire.observation(item.memory),
        other=None if item.other is None else wire.observation(item.other),
        score=None if item.score is None else round(item.score, 2),
    )  # fmt: skip


MOST_STORES = 8  # of one context
MOST_TYPES = 20  # that a request excludes; the suggested ones are eight
SHOWN_QUERY = 200  # code points of a search in a span
SHOWN_TITLE = 100  # code points of a title in an event

# The contract knows two: a match of a topic key counts as one of words.
METHODS = {method: OwnText(method.value) for method in Method}
METHODS[Method.TOPIC_KEY] = METHODS[Method.FULL_TEXT]


class Reading(Protocol):
    """What an operation is asked that reads a list."""

    @property
    def query(self) -> Query:
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

    async def search(self, asked: Reading) -> c.Found:
        text, superseded = parameter(asked.query, "q") or "", is_true(asked.query, "superseded")
        filter_ = filter_of(asked, global_too=True, is_current=not superseded)
        wanted, limit = _wanted(asked), row_count(asked.query, "limit", 10)
        found = await self.recall.search(
            asked.caller(), text, filter_, limit, wanted, superseded=superseded
        )
        annotate(search_span(text, filter_, found))
        events("search.result", map(injected, found.hits))
        return await _found(found, wanted)

    async def fetch_context(self, asked: Reading) -> c.Context:
        text = parameter(asked.query, "query") or ""
        filter_ = filter_of(asked, global_too=True, is_current=True)
        wanted = replace(_wanted(asked), links=is_true(asked.query, "ages"))
        budget = _budget(asked)
        told = await self.recall.context(
            asked.caller(), text, filter_, row_count(asked.query, "limit", 5),
            budget=budget, wanted=wanted, joining=_joining(asked),
        )  # fmt: skip
        annotate({**context_span(text, filter_, told), **budget_span(budget, told)})
        events("context.injected", map(injected, told.found.hits))
        _count(told.found)
        return await _context(told, budget, wanted)

    async def timeline(self, asked: Reading) -> Rows[c.TimelineEntry]:
        named = parameter(asked.query, "observation_id")
        memory_id = MemoryId(whole_number(named, "observation_id"))
        before, after = row_count(asked.query, "before", 3), row_count(asked.query, "after", 3)
        memories = await self.engine.read(asked.caller(), timeline, memory_id, before, after)
        annotate({"memory.observation.id": memory_id})
        centre = [memory.id for memory in memories].index(memory_id)
        return await held(list(map(wire.timeline_entry, memories)), centre=centre)

    async def review(self, asked: Reading) -> c.ReviewList:
        wanted = _reasons(asked.query)
        before = _review_place(parameter(asked.query, "before"))
        project = project_of(asked)
        limit = row_count(asked.query, "limit", 20)
        told = await self.engine.read(
            asked.caller(), review, Filter(project=project), limit, wanted, self.periods, before
        )
        annotate({"memory.project": project, "memory.review.count": len(told.items)})
        fit = await held(list(map(_item, told.items)), beside=MOST_BESIDE)
        follows = told.items[len(fit) - 1].place if fit.omitted and fit else told.next
        next_ = None
        if follows is not None:
            at = micros(follows.at)
            next_ = f"{at}-{follows.reason.value}-{follows.memory}-{follows.other}"
        return c.ReviewList(items=fit, next=next_)

    async def stats(self, asked: Reading) -> c.Stats:
        project = project_of(asked)
        stored = await self.engine.read(asked.caller(), totals, project)
        annotate({"memory.project": project})
        return c.Stats(
            total_sessions=stored.sessions, total_observations=stored.memories,
            projects=stored.projects,
        )  # fmt: skip


def project_of(asked: Reading) -> Project | None:
    """The project that is named; none, or one without a name, is all of them."""
    return project_name(parameter(asked.query, "project") or "") or None


def filter_of(asked: Reading, *, global_too: bool = False, is_current: bool = False) -> Filter:
    return Filter(
        project=project_of(asked), scope=parameter(asked.query, "scope"),
        type=parameter(asked.query, "type"),
        excluded_types=several(asked.query, "exclude_type", MOST_TYPES),
        tag=parameter(asked.query, "tag"), global_too=global_too, is_current=is_current,
    )  # fmt: skip


def _wanted(asked: Reading) -> Wanted:
    memory = parameter(asked.query, "why_not")
    return Wanted(
        explain=is_true(asked.query, "explain"),
        why_not=None if memory is None else MemoryId(whole_number(memory, "why_not")),
    )


def _budget(asked: Reading) -> Budget:
    shown = amount(asked.query, "content_chars", least=1)
    return Budget(
        max_tokens=amount(asked.query, "max_tokens"),
        max_chars=amount(asked.query, "max_chars"),
        content_chars=SHOWN if shown is None else min(shown, MOST_SHOWN),
    )


def _joining(asked: Reading) -> Joining:
    namespaces, stores = _listed(asked, "namespaces"), _listed(asked, "stores")
    if len(namespaces) > MOST_STORES:
        raise Invalid(f"namespaces names at most {MOST_STORES} namespaces.")
    episodic = asks_for(asked.query, "episodic")
    eyes = None
    if namespaces or episodic:
        caller = asked.caller()
        agent = asking(caller, parameter(asked.query, "agent") or "")
        eyes = Eyes(agent=agent, is_admin=caller.role.includes(Role.ADMIN))
    if len(stores) > MOST_STORES:
        raise Invalid(f"stores names at most {MOST_STORES} memory stores.")
    uids = [known_uid(STORE, it.strip(), NO_STORE) for it in stores]
    return Joining(
        stores=tuple(map(StoreId, uids)), eyes=eyes, episodic=episodic, namespaces=namespaces
    )


def _listed(asked: Reading, name: str) -> tuple[str, ...]:
    values = (parameter(asked.query, name) or "").split(",")
    return tuple(dict.fromkeys(filter(None, values)))


async def _found(of: Found, wanted: Wanted) -> c.Found:
    """The hits that one answer can hold; and their explanation, if one is wanted."""
    hits = [
        wire.hit(
            hit.memory,
            hit.rank,
            superseded_by=hit.memory.links.superseded_by,
            explain=a.explained_item(hit, place, of) if wanted.explain else None,
        )
        for place, hit in enumerate(of.hits, start=1)
    ]
    why = a.explained_answer(of, wanted) if wanted else None
    fit = await held(hits, beside=len(json_bytes(why)) if why else 0)
    return c.Found(
        hits=fit, omitted=fit.omitted, explanation=why and a.of_shown(why, of.hits[: len(fit)])
    )


async def _context(of: Context, budget: Budget, wanted: Wanted) -> c.Context:
    summaries = list(map(SummaryLine, of.summaries))
    lines = [_line(of, place, budget, wanted) for place in range(len(of.found.hits))]
    why = None
    if wanted:
        why = a.explained_answer(of.found, wanted, budget=budget, packed=of.packed)
    fit = await held([*summaries, *lines], beside=len(json_bytes(why)) if why else 0)
    kept = fit.after(len(summaries))
    return c.Context(
        summaries=tuple(each.summary for each in fit if isinstance(each, SummaryLine)),
        observations=cast("Rows[c.Line]", kept),
        omitted=fit.omitted,
        explanation=why and a.of_shown(why, of.found.hits[: len(kept)]),
    )


def _line(of: Context, place: int, budget: Budget, wanted: Wanted) -> c.Line:
    hit, why = of.found.hits[place], None
    text = hit.memory.text
    if wanted.explain and of.packed:
        is_cut = len(text.content) > budget.content_chars
        why = a.explained_item(hit, of.packed.places[place], of.found, is_cut=is_cut)
    line = wire.line(text, budget.content_chars, explain=why)
    if not wanted.links:
        return line
    superseded = len(hit.memory.links.supersedes) or None
    return replace(line, age=int(whole_memory(hit).age.total_seconds()), superseded=superseded)


def search_span(text: str, filter_: Filter, found: Found) -> Attributes:
    return {
        "memory.project": filter_.project,
        "memory.search.query": Cut(text, SHOWN_QUERY),
        "memory.search.result_count": len(found.hits),
        "memory.search.degraded": found.is_degraded or None,
    }


def context_span(text: str, filter_: Filter, told: Context) -> Attributes:
    found = told.found
    return {
        "memory.project": filter_.project,
        "memory.query": Cut(text, MAX_PROMPT),
        "memory.context.query_used": bool(text),
        "memory.context.method": METHODS[found.method],
        "memory.context.result_count": len(found.hits),
        "memory.context.degraded": found.is_degraded or None,
        "memory.context.corrected_count": len(found.query.corrections) or None,
        "gen_ai.operation.name": OwnText("retrieval"),
        "gen_ai.retrieval.query.text": Cut(text, MAX_PROMPT),
        "gen_ai.retrieval.document_count": len(found.hits),
    }


def budget_span(given: Budget, told: Context) -> Attributes:
    """What a budget was, and what it had no room for; nothing when none was given."""
    if not given.is_bounded or told.packed is None:
        return {}
    return {
        "memory.context.max_tokens": given.max_tokens,
        "memory.context.max_chars": given.max_chars,
        "memory.context.used_tokens": told.packed.tokens,
        "memory.context.used_chars": told.packed.chars,
        "memory.context.left_out_count": (
            len(told.packed.left_out) + told.packed.summaries_left_out
        ),
    }


def _count(found: Found) -> None:
    methods = Counter(hit.method for hit in found.hits)
    for method, hits in methods.items():
        count(CONTEXT_METHOD, method.value, by=hits)
    count(CONTEXT_ANSWERS, "degraded" if found.is_degraded else outcome(methods))


def outcome(methods: Collection[Method]) -> str:
    """What a context is counted as, by how each of its memories was found."""
    return "found" if {*methods} - {Method.RECENCY} else "recency" if methods else "empty"


def injected(hit: Hit) -> Attributes:
    return {
        "memory.injected.observation_id": hit.memory.id,
        "memory.injected.type": hit.memory.text.type,
        "memory.injected.title": Cut(hit.memory.text.title, SHOWN_TITLE),
        "memory.injected.rank": hit.rank,
        "memory.injected.method": METHODS[hit.method],
    }
