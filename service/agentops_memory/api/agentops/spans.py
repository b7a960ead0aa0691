"""What a span of AgentOps REST says: attributes and events, made from the domain's nouns."""

from collections.abc import Iterator, Sequence

from ...domain.model.memory import Imported, Memory, Saved, Session
from ...domain.model.search import Context, Filter, Found, Hit, Method
from ...domain.model.space import Project
from ...domain.recall.budget import Budget
from ...domain.text.query import MAX_PROMPT
from ...domain.transfer.decisions import RowOutcome
from ...domain.transfer.dry_run import DryRun
from ...telemetry import Cut

Attributes = dict[str, str | int | float | bool | Cut | None]


SHOWN_QUERY = 200  # code points of a search
SHOWN_TITLE = 100  # code points of an injected title


def session(of: Session) -> Attributes:
    return {
        "memory.project": of.project,
        "memory.session.id": of.id,
        "memory.session.message_count": of.message_count,
    }


def project(name: Project | None) -> Attributes:
    return {"memory.project": name}


def saved(outcome: Saved) -> Attributes:
    return observation(outcome.memory) | {
        "memory.observation.action": outcome.action.value,
        "memory.session.id": outcome.memory.session,
    }


def observation(of: Memory) -> Attributes:
    return {
        "memory.project": of.space.project,
        "memory.observation.id": of.id,
        "memory.observation.type": of.text.type,
    }


def deleted(memory: int, *, hard: bool) -> Attributes:
    return {"memory.observation.id": memory, "memory.observation.hard_delete": hard}


def search(text: str, seen: Filter, found: Found) -> Attributes:
    return {
        "memory.project": seen.project,
        "memory.search.query": Cut(text, SHOWN_QUERY),
        "memory.search.result_count": len(found.hits),
        "memory.search.degraded": found.is_degraded or None,
    }


def context(text: str, seen: Filter, told: Context) -> Attributes:
    found = told.found
    return {
        "memory.project": seen.project,
        "memory.query": Cut(text, MAX_PROMPT),
        "memory.context.query_used": bool(text),
        "memory.context.method": found.method.value,
        "memory.context.result_count": len(found.hits),
        "memory.context.degraded": found.is_degraded or None,
        "memory.context.corrected_count": len(found.query.corrections) or None,
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.query.text": Cut(text, MAX_PROMPT),
        "gen_ai.retrieval.document_count": len(found.hits),
    }


def budget(given: Budget, told: Context) -> Attributes:
    """What a budget was, and what it had no room for; nothing when none was given."""
    if not given.is_bounded or told.packed is None:
        return {}
    left_out = len(told.packed.left_out) + told.packed.summaries_left_out
    return {
        "memory.context.max_tokens": given.max_tokens,
        "memory.context.max_chars": given.max_chars,
        "memory.context.used_tokens": told.packed.tokens,
        "memory.context.used_chars": told.packed.chars,
        "memory.context.left_out_count": left_out,
    }


def imported(counts: Imported) -> Attributes:
    return {
        "memory.import.sessions": counts.sessions,
        "memory.import.observations": counts.memories,
    }


def import_plan(plan: DryRun) -> Attributes:
    """What would be stored; without a word of what the document says."""
    stored = (outcome for outcome in RowOutcome if outcome.is_stored)
    return {
        "memory.import.dry_run": True,
        "memory.import.sessions": plan.sessions[RowOutcome.NEW],
        "memory.import.observations": sum(plan.memories[outcome] for outcome in stored),
    }


def injected(hits: Sequence[Hit]) -> Iterator[Attributes]:
    """The attributes of one event a memory that is handed out."""
    for hit in hits:
        yield {
            "memory.injected.observation_id": hit.memory.id,
            "memory.injected.type": hit.memory.text.type,
            "memory.injected.title": Cut(hit.memory.text.title, SHOWN_TITLE),
            "memory.injected.rank": hit.rank,
            "memory.injected.method": _METHODS[hit.method],
        }


# The contract knows two: a match of a topic key counts as one of words.
_METHODS = {
    Method.TOPIC_KEY: Method.FULL_TEXT.value,
    Method.FULL_TEXT: Method.FULL_TEXT.value,
    Method.RECENCY: Method.RECENCY.value,
}
