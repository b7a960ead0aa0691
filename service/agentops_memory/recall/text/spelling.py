"""Words one letter away, and how alike two texts are by the stems that both have. Pure."""

import re
from collections.abc import Set

MOST_WORDS = 4  # of a query that are corrected
MOST_TERMS = 3  # that one word may have meant
SHORTEST, LONGEST = 4, 32  # letters of a stem that is compared
_DIGIT = re.compile("[0-9]")


def is_compared(stem: str) -> bool:
    """Whether a stem is of letters, and of a length at which typos are corrected."""
    return SHORTEST <= len(stem) <= LONGEST and not _DIGIT.search(stem)


def is_one_edit(word: str, other: str) -> bool:
    """Whether one deletion, insertion, substitution or transposition turns one into the other."""
    if len(word) > len(other):
        word, other = other, word
    if len(other) - len(word) > 1 or word == other:
        return False
    same = next((at for at, letter in enumerate(word) if letter != other[at]), len(word))
    rest, other_rest = word[same:], other[same:]
    if len(word) < len(other):
        return rest == other_rest[1:]
    return rest[1:] == other_rest[1:] or _swapped(rest) == other_rest


def _swapped(letters: str) -> str:
    return letters[1:2] + letters[:1] + letters[2:]


def similarity(one: Set[str], other: Set[str]) -> float:
    """Twice the common stems through the sum of both (Dice); 0.0 if there are none."""
    total = len(one) + len(other)
    return 2 * len(one & other) / total if total else 0.0
