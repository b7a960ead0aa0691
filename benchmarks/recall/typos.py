"""One slip of the finger in a query, the same one for the same seed."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from string import ascii_lowercase

from .judged import Judged

_WORD = re.compile(r"[A-Za-zÀ-ÖØ-öø-ÿ]{5,}")

Slip = Callable[[str, int, random.Random], str]


def with_typos(judged: Judged, seed: int) -> Judged:
    """The set, with one typo in each query that has a word of five letters or more."""
    queries = (
        replace(query, text=mistyped(query.text, f"{seed} {number}"))
        for number, query in enumerate(judged.queries)
    )
    return replace(judged, queries=tuple(queries))


def mistyped(text: str, seed: str) -> str:
    """The text with two letters of a word swapped, or one left out, added or changed.

    Never the first letter of a word.
    """
    words = list(_WORD.finditer(text))
    if not words:
        return text
    chance = random.Random(seed)  # noqa: S311 - a slip, no secret
    match = chance.choice(words)
    return text[: match.start()] + _slipped(match.group(), chance) + text[match.end() :]


def _slipped(word: str, chance: random.Random) -> str:
    """Another word; swapping two equal letters is no slip, so it is tried again."""
    slipped = word
    while slipped == word:
        slipped = chance.choice(_SLIPS)(word, chance.randrange(1, len(word)), chance)
    return slipped


def _swapped(word: str, at: int, _chance: random.Random) -> str:
    return word[:at] + word[at : at + 2][::-1] + word[at + 2 :]


def _left_out(word: str, at: int, _chance: random.Random) -> str:
    return word[:at] + word[at + 1 :]


def _added(word: str, at: int, chance: random.Random) -> str:
    return word[:at] + chance.choice(ascii_lowercase) + word[at:]


def _changed(word: str, at: int, chance: random.Random) -> str:
    return word[:at] + chance.choice(ascii_lowercase) + word[at + 1 :]


_SLIPS: tuple[Slip, ...] = (_swapped, _left_out, _added, _changed)
