"""A query to the full-text index: the rows that a caller may see, and how deep it looks there.

The score of a memory is made of what each sentence of the query contributes.
"""

from dataclasses import dataclass, replace

from ...memory.model.ranking import PLACES, gaining, sentence_depth, sentence_weights, weights_of
from ...memory.model.search import Tier
from ..text.query import Query, Term
from .visibility import VisibleRows

ALL = -1  # a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """A tier's query to each visible partition; how deep it looks, and how many gain.

    With `own` it looks for the own words of memories alone.
    """

    tier: Tier
    query: Query
    own: bool
    gaining: int
    depth: int
    visible: VisibleRows

    @classmethod
    def of(cls, tier: Tier, query: Query, visible: VisibleRows, limit: int) -> "IndexQuery":
        """The query of a tier whose best `limit` memories are looked for."""
        first = gaining(tier, query)
        is_alone = tier is Tier.EVERY or len(query.sentences) == 1
        depth = max(limit, first) if is_alone else sentence_depth(query, limit)
        return cls(
            tier=tier,
            query=query,
            own=tier is Tier.EVERY,
            gaining=first,
            depth=ALL if depth is None else depth,
            visible=visible,
        )

    @property
    def weights(self) -> tuple[float, ...]:
        """What a word is worth in each field."""
        return weights_of(self.query.features)

    @property
    def sentence_weights(self) -> tuple[float, ...]:
        return sentence_weights(self.tier, self.query)

    @property
    def terms(self) -> list[Term]:
        """The terms that are looked for, in their order."""
        asked = self.query.every if self.tier is Tier.EVERY else self.query.sentences
        return [term for it in asked for term in it.terms]

    @property
    def for_similar(self) -> "IndexQuery":
        """The same among the own words of memories alone, whatever follows them."""
        return replace(self, own=True, gaining=0)

    @property
    def without_limit(self) -> "IndexQuery":
        """The same, where a single sentence contributes all; several are as deep as ever."""
        return replace(self, depth=PLACES) if len(self.sentence_weights) == 1 else self
