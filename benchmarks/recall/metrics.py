"""What a ranking is worth, from the ids it lists and the ids that should be there. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from statistics import fmean

DEPTH = 10  # places of a ranking that count
FIRST = 5  # those that a context shows if no limit is given
BUDGETS = (200, 500, 1000)  # tokens of a context
TOKENS = "tokens"  # begins the names of the figures that are no share
NO_HIT = "no hit"  # the one figure that is better the lower it is

Ranking = Sequence[str]
Figures = Mapping[str, float]
Budget = int | None  # tokens; None is without a budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What a context of five within a budget lists, best first, and the tokens that it takes."""

    budget: Budget
    ranking: Ranking
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query's relevant ids, and what each route listed for it, best first."""

    relevant: frozenset[str]
    context: Ranking
    search: Ranking
    kind: str = ""
    packed: tuple[Packed, ...] = ()


def recall(ranking: Ranking, relevant: Collection[str], depth: int) -> float:
    """The share of the relevant that stands in the first places."""
    return len(set(ranking[:depth]) & set(relevant)) / len(relevant)


def ndcg(ranking: Ranking, relevant: Collection[str]) -> float:
    """The gain of the relevant, less the deeper they stand, beside that of the best order."""
    best = sum(map(_discount, range(min(len(relevant), DEPTH))))
    return sum(_discount(at) for at, found in _places(ranking) if found in relevant) / best


def reciprocal_rank(ranking: Ranking, relevant: Collection[str]) -> float:
    """One by the place of the first relevant; none is 0."""
    return next((1 / (at + 1) for at, found in _places(ranking) if found in relevant), 0.0)


def figures(answers: Collection[Asked]) -> dict[str, float]:
    """The means over all queries, each with its name."""
    measured = [_measured(asked) for asked in answers]
    means = {name: fmean(each[name] for each in measured) for name in measured[0]}
    return means | _kept(means)


def figures_by_kind(answers: Collection[Asked]) -> dict[str, dict[str, float]]:
    """The means over all queries, and over those of each kind."""
    kinds = sorted({asked.kind for asked in answers} - {""})
    groups = {kind: [asked for asked in answers if asked.kind == kind] for kind in kinds}
    return {"all": figures(answers)} | {kind: figures(group) for kind, group in groups.items()}


def recall_in(budget: Budget) -> str:
    """The name of the share of the relevant that a context within a budget lists."""
    return f"context recall@{FIRST} {_within(budget)}"


def kept_in(budget: int) -> str:
    """The name of the ratio of that share to the one without a budget."""
    return f"share of recall@{FIRST} {_within(budget)}"


def tokens_in(budget: Budget) -> str:
    """The name of the tokens that it takes."""
    return f"{TOKENS} taken {_within(budget)}"


def gain(name: str, then: float, now: float) -> float:
    """How much better a figure is now."""
    return then - now if name == NO_HIT else now - then


def _measured(asked: Asked) -> dict[str, float]:
    routes = {"context": asked.context, "search": asked.search}
    values = {
        f"{route} {name}": value
        for route, ranking in routes.items()
        for name, value in {
            f"recall@{FIRST}": recall(ranking, asked.relevant, FIRST),
            f"recall@{DEPTH}": recall(ranking, asked.relevant, DEPTH),
            "nDCG@10": ndcg(ranking, asked.relevant),
            "MRR": reciprocal_rank(ranking, asked.relevant),
        }.items()
    }
    values[NO_HIT] = float(not asked.search)
    for packed in asked.packed:
        values[recall_in(packed.budget)] = recall(packed.ranking, asked.relevant, FIRST)
        values[tokens_in(packed.budget)] = packed.tokens
    return values


def _kept(means: Figures) -> dict[str, float]:
    """What remains of the recall within each budget that was asked with."""
    whole = means.get(recall_in(None), 0.0)
    asked_with = [budget for budget in BUDGETS if recall_in(budget) in means]
    return {kept_in(it): means[recall_in(it)] / whole if whole else 0.0 for it in asked_with}


def _within(budget: Budget) -> str:
    return "without a budget" if budget is None else f"in {budget} tokens"


def _places(ranking: Ranking) -> enumerate[str]:
    return enumerate(ranking[:DEPTH])


def _discount(at: int) -> float:
    return 1 / log2(at + 2)
