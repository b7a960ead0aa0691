"""The constants of ranking: what a field, a sentence and a key are worth."""

from ..text.features import Feature
from ..text.query import Query
from .search import Tier

OTHER_SENTENCES = 0.4  # the weight of all sentences but a memory's best
SENTENCE_DEPTH = 10  # memories that one of several sentences contributes at most
WEIGHTS = (2.0, 1.0, 0.4, 2.0)  # of the fields, in their order
EVEN_WEIGHTS = (1.0, 1.0, 0.4, 1.0)
KEYED_RANK = -1000.0  # of a memory that is found by its key; the lower, the better
SCORED = 100  # rows at most that the rare words of a text bring, whose look-alikes are looked for
PLACES = 10_000  # of a tier that are counted for a memory that is not shown


def weights_of(query: Query) -> tuple[float, ...]:
    """What a word is worth in each field."""
    return WEIGHTS if Feature.TITLE_WEIGHT in query.features else EVEN_WEIGHTS


def sentence_weights(tier: Tier, query: Query) -> tuple[float, ...]:
    """What each sentence weighs in a tier; for every word the whole text is one."""
    return (1.0,) if tier is Tier.EVERY else tuple(it.weight for it in query.sentences)


def sentence_depth(query: Query, limit: int) -> int | None:
    """How many memories each of several sentences contributes to the best `limit`; None: all."""
    return max(limit, SENTENCE_DEPTH) if Feature.SENTENCE_DEPTH in query.features else None
