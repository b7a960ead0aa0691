"""What a term adds to a score, taken apart."""

from collections.abc import Sequence

from ...domain.model.search import Field, TermScore

ENDLESS = 1e18  # a weight under which BM25 is as good as at its limit
FIELDS = tuple(Field)  # in the order of the columns


def term_score(score: float, limit: float, alone: Sequence[float]) -> TermScore:
    """What a term adds, shared out among the fields.

    For a term whose weighted count is f, BM25 is L * f / (f + K). The counts of
    the fields add up to f, so each is known, in units of K, from the score that
    the field alone would have and from L, the score of endless weights.
    """
    counts = [field / (limit - field) for field in alone]
    shares = {name: count / sum(counts) for name, count in zip(FIELDS, counts, strict=True)}
    return TermScore(score=score, fields=shares)
