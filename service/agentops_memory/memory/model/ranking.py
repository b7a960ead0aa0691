"""The rules of ranking: what a field, a sentence, a key and what follows a memory are worth."""

from collections.abc import Sequence
from typing import NamedTuple

from ...recall.text.features import Feature, Features
from ...recall.text.query import Query
from .memory import MemoryId
from .search import Follower, Tier

Scored = tuple[float, MemoryId]
"""A score and whose it is: the lower, the better; ties by id."""


class Candidate(NamedTuple):
    """A memory with its score, its session, and the second one after it there, if there is one."""

    score: float
    id: MemoryId
    session: object = None
    second: MemoryId | None = None


PRIOR_MEMORIES, PRIOR_WORDS = 1_500, 100  # of the prior: how many, and how long each is
OTHER_SENTENCES = 0.4  # the weight of all sentences but a memory's best
SENTENCE_DEPTH = 10  # memories that one of several sentences contributes at most
WEIGHTS = (2.0, 1.0, 0.4, 2.0)  # of the fields, in their order
EVEN_WEIGHTS = (1.0, 1.0, 0.4, 1.0)
FOLLOWING = (0.1, 0.05)  # of the scores of the next two in the session of a memory
GAINING = 20  # memories: the best, which gain by those of them that follow them
KEYED_RANK = -1000.0  # of a memory that is found by its key; the lower, the better
SCORED = 100  # rows at most that the rare words of a text bring, whose look-alikes are looked for
PLACES = 10_000  # of a tier that are counted for a memory that is not shown


def weights_of(features: Features) -> tuple[float, ...]:
    """What a word is worth in each field."""
    return WEIGHTS if Feature.TITLE_WEIGHT in features else EVEN_WEIGHTS


def sentence_weights(tier: Tier, query: Query) -> tuple[float, ...]:
    """What each sentence weighs in a tier; for every word the whole text is one."""
    return (1.0,) if tier is Tier.EVERY else tuple(it.weight for it in query.sentences)


def gaining(tier: Tier, query: Query) -> int:
    """How many of the best gain by those of them that follow them in their session."""
    return GAINING if tier is Tier.ANY and Feature.FOLLOWING in query.features else 0


def followers(best: Sequence[Candidate]) -> dict[MemoryId, list[Follower]]:
    """For those of the best that gain, the others of them that follow in their session."""
    sessions: dict[object, list[Candidate]] = {}
    for it in best:
        sessions.setdefault(it.session, []).append(it)
    sessions.pop(None, None)
    return {
        it.id: [
            Follower(memory=other.id, weight=FOLLOWING[other.id == it.second], score=other.score)
            for other in session[place : place + len(FOLLOWING)]
            if it.second is None or other.id <= it.second
        ]
        for session in (sorted(it, key=_by_id) for it in sessions.values() if len(it) > 1)
        for place, it in enumerate(session, start=1)
    }


def _by_id(candidate: Candidate) -> MemoryId:
    return candidate.id


def with_gains(best: Sequence[Candidate]) -> list[Scored]:
    """The best again, each with what those that follow it add."""
    scores = {it.id: it.score for it in best}
    for id_, added in followers(best).items():
        scores[id_] += sum(it.weight * it.score for it in added)
    return sorted((score, id_) for id_, score in scores.items())


# Of a word that is weighed among its own area: in title or tags, and in content; each counts once.
NAMED, SAID = 2.0, 1.0


def combined(sentences: Sequence[Sequence[Scored]], weights: Sequence[float]) -> list[Scored]:
    """The scores of memories that some of the sentences contribute, each by its weight, best first.

    A score is that of the best sentence, and a part of the sum of the others, added up in
    the order of the sentences.
    """
    weighted: dict[MemoryId, list[float]] = {}
    for sentence, weight in zip(sentences, weights, strict=True):
        for score, id_ in sentence:
            weighted.setdefault(id_, []).append(weight * score)
    best: list[Scored] = []
    for id_, scores in weighted.items():
        highest, total = min(scores), 0.0
        for score in scores:  # `sum` adds up otherwise in newer releases
            total += score
        best.append((highest + OTHER_SENTENCES * (total - highest), id_))
    return sorted(best)


def sentence_depth(query: Query, limit: int) -> int | None:
    """How many memories each of several sentences contributes to the best `limit`; None: all."""
    return max(limit, SENTENCE_DEPTH) if Feature.SENTENCE_DEPTH in query.features else None
