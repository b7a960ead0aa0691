"""What a ranking is worth, from the ids it lists and the ids that should be there. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from statistics import fmean

DEPTH = 10  # places of a ranking that count
NO_HIT = "no hit"  # the one figure that is better the lower it is

Ranking = Sequence[str]
Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query's relevant ids, and what each route listed for it, best first."""

    relevant: frozenset[str]
    context: Ranking
    search: Ranking
    kind: str = ""


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
    return {name: fmean(each[name] for each in measured) for name in measured[0]}


def figures_by_kind(answers: Collection[Asked]) -> dict[str, dict[str, float]]:
    """The means over all queries, and over those of each kind."""
    kinds = sorted({asked.kind for asked in answers} - {""})
    groups = {kind: [asked for asked in answers if asked.kind == kind] for kind in kinds}
    return {"all": figures(answers)} | {kind: figures(group) for kind, group in groups.items()}


def gain(name: str, then: float, now: float) -> float:
    """How much better a figure is now."""
    return then - now if name == NO_HIT else now - then


def _measured(asked: Asked) -> dict[str, float]:
    routes = {"context": asked.context, "search": asked.search}
    values = {
        f"{route} {name}": value
        for route, ranking in routes.items()
        for name, value in {
            "recall@5": recall(ranking, asked.relevant, 5),
            "recall@10": recall(ranking, asked.relevant, DEPTH),
            "nDCG@10": ndcg(ranking, asked.relevant),
            "MRR": reciprocal_rank(ranking, asked.relevant),
        }.items()
    }
    return values | {NO_HIT: float(not asked.search)}


def _places(ranking: Ranking) -> enumerate[str]:
    return enumerate(ranking[:DEPTH])


def _discount(at: int) -> float:
    return 1 / log2(at + 2)
