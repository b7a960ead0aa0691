"""Why a memory is missing from an answer: filter, rank, size, budget or timeout."""

from dataclasses import dataclass, replace

from ..model.memory import Memory, MemoryId
from ..model.search import PLACES, Filter, Found, Method, Packed, Reason, Tier, WhyNot
from ..model.space import GLOBAL_SCOPE
from ..ports.engine import Transaction
from .explain import explained, own_score


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer and how it was made: its candidates, tiers, limit and budget.

    With `fills_up`, as in a context, the newest memories fill what the words leave.
    """

    found: Found
    seen: Filter
    limit: int
    tiers: tuple[Tier, ...]
    fills_up: bool
    packed: Packed | None = None

    @property
    def searched(self) -> Filter:
        """The filter that the full-text search had."""
        return reached(self.seen) if self.fills_up else self.seen


def why_not(tx: Transaction, wanted: MemoryId, answer: Answer) -> WhyNot:
    """What kept a memory out; a deleted one is UNKNOWN, like one that never was."""
    memory = tx.memories.get(wanted)
    if memory is None or memory.deleted_at is not None:
        return WhyNot(reason=Reason.UNKNOWN)
    if filters := kept_out_by(memory, answer):
        return WhyNot(reason=Reason.FILTER, filters=filters)
    for place, hit in enumerate(answer.found.hits, start=1):
        if hit.memory.id == wanted:
            left_out = answer.packed.left_out if answer.packed else ()
            is_left_out = any(wanted == one.memory for one in left_out)
            return WhyNot(reason=Reason.BUDGET if is_left_out else Reason.NONE, place=place)
    return _outranked(tx, wanted, answer)


def kept_out_by(memory: Memory, answer: Answer) -> tuple[str, ...]:
    """The filters that the memory does not pass. A context without a project is global alone."""
    seen, space = answer.seen, memory.space
    is_open = seen.scope is None and (seen.global_too or seen.project is None)
    is_reached = seen.scope == GLOBAL_SCOPE or (space.scope == GLOBAL_SCOPE and is_open)
    is_own = not answer.fills_up if seen.project is None else space.project == seen.project
    passes = {
        "project": is_reached or is_own,
        "scope": seen.scope in (None, space.scope),
        "type": seen.type in (None, memory.text.type),
        "tag": seen.tag is None or seen.tag in memory.text.tags,
    }
    if not passes["project"]:
        return ("project",)  # and no more of what another project has
    return tuple(name for name, is_passed in passes.items() if not is_passed)


def reached(seen: Filter) -> Filter:
    """The filter of a context: without a project, global memories alone."""
    return replace(seen, scope=GLOBAL_SCOPE) if seen.project is None else seen


def _outranked(tx: Transaction, wanted: MemoryId, answer: Answer) -> WhyNot:
    """Why a visible memory was not among the candidates."""
    found = answer.found
    is_older = any(hit.method is Method.RECENCY for hit in found.hits)
    if found.is_degraded or (answer.fills_up and not found.query.sentences):
        return WhyNot(reason=Reason.RECENCY, is_older=is_older)
    standing = _standing(tx, wanted, answer)
    if standing.place is not None and standing.place <= answer.limit and not found.sources:
        # A list ends early when its texts are long; one that was merged, for others' sake, too.
        return replace(standing, reason=Reason.SIZE)
    # One that words found is kept out by others that words found: no newest are among them.
    last = found.hits[-1].rank if standing.reason is Reason.RANK and found.hits else None
    return replace(standing, last_score=last, is_older=is_older)


def _standing(tx: Transaction, wanted: MemoryId, answer: Answer) -> WhyNot:
    """The memory's place among all that the tiers rank, each counted once."""
    query = answer.found.query
    ahead: set[MemoryId] = set()
    for tier in answer.tiers:
        if tier is not Tier.KEY and not query.sentences:
            continue
        for id_, score in tx.search.ranking(tier, query, answer.searched, answer.limit):
            if id_ == wanted:
                return WhyNot(reason=Reason.RANK, tier=tier, place=len(ahead) + 1, score=score)
            ahead.add(id_)
        if len(ahead) >= PLACES:
            return _unlisted(tx, wanted, answer, is_cut=True)
    return _unlisted(tx, wanted, answer, is_cut=False)


def _unlisted(tx: Transaction, wanted: MemoryId, answer: Answer, *, is_cut: bool) -> WhyNot:
    """For a memory that no tier ranks: no word matches, or others fill every place."""
    query = answer.found.query
    if not query.sentences or Tier.ANY not in answer.tiers:
        return WhyNot(reason=Reason.NO_MATCHED_TERM)
    parts = tx.search.parts(Tier.ANY, query, answer.searched, answer.limit, [wanted]).get(wanted)
    if parts is None or not parts.terms:
        return WhyNot(reason=Reason.NO_MATCHED_TERM)
    return WhyNot(
        reason=Reason.RANK,
        tier=None if is_cut else Tier.ANY,
        score=own_score(explained(parts, query, Tier.ANY).matched),
        is_beyond_depth=not is_cut,
    )
