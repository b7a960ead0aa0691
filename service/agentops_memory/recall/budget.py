"""Packs a context into a budget of tokens and characters, greedily and in order. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import compress

from ..memory.model.budget import Budget, LeftOut, Packed
from ..memory.model.memory import Text
from ..memory.model.search import Context
from .text.normalization import cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The size of a line in a prompt."""

    tokens: int
    chars: int


def packed(context: Context, budget: Budget) -> Context:
    """The context reduced to what fits: summaries first, then memories in order."""
    hits, first = context.found.hits, len(context.summaries)
    entries = [entry_line(hit.memory.text, budget.content_chars) for hit in hits]
    costs = [*map(cost_of, map(summary_line, context.summaries)), *map(cost_of, entries)]
    fits = fitting(costs, budget)
    kept = [place for place in range(len(hits)) if fits[first + place]]
    return replace(
        context,
        summaries=tuple(compress(context.summaries, fits)),
        found=replace(context.found, hits=tuple(hits[place] for place in kept)),
        packed=Packed(
            tokens=sum(cost.tokens for cost in compress(costs, fits)),
            chars=sum(cost.chars for cost in compress(costs, fits)),
            places=tuple(place + 1 for place in kept),
            left_out=tuple(
                LeftOut(memory=hit.memory.id, place=place + 1, tokens=cost.tokens, chars=cost.chars)
                for place, (hit, cost) in enumerate(zip(hits, costs[first:], strict=True))
                if not fits[first + place]
            ),
            summaries_left_out=fits[:first].count(False),
        ),
    )


def fitting(costs: Iterable[Cost], budget: Budget) -> list[bool]:
    """Which lines fit, in order; one that does not is skipped."""
    fits, tokens, chars = [], 0, 0
    for cost in costs:
        fits.append(budget.fits(tokens + cost.tokens, chars + cost.chars))
        if fits[-1]:
            tokens, chars = tokens + cost.tokens, chars + cost.chars
    return fits


def cost_of(line: str) -> Cost:
    """The cost of a line, in tokens of four bytes (rounded up) and in code points."""
    return Cost(tokens=(len(line.encode()) + 3) // 4, chars=len(line))


def summary_line(summary: str) -> str:
    """A summary as the agent runtime writes it into a prompt."""
    return f"- {summary}\n"


def entry_line(text: Text, content_chars: int) -> str:
    """A memory as the agent runtime writes it into a prompt, its content truncated."""
    return f"- [{text.type}] {text.title}: {cut(text.content, content_chars)}\n"
