"""How alike two texts are, by the stems that both have. Pure."""

from collections.abc import Set


def similarity(one: Set[str], other: Set[str]) -> float:
    """Twice the common stems through the sum of both (Dice); 0.0 if there are none."""
    total = len(one) + len(other)
    return 2 * len(one & other) / total if total else 0.0
