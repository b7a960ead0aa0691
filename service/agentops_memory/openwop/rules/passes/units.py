"""Units of a text, each with its words: what extraction chooses from and merging compares. Pure."""

import re
import unicodedata
from itertools import groupby
from typing import NamedTuple

_END = re.compile(r"[.!?\u2026](?=\s)|[\u3002\uff01\uff1f]")

# Normalising sorts piled-up marks in quadratic time; a pile that is in order costs nothing.
_PILE = re.compile(r"[\W\uff9e\uff9f]{31,}")
_CACHED_SIGNS = 16_384  # characters


class Unit(NamedTuple):
    """A sentence or a line, with single spaces, and its words: normalized, case folded."""

    text: str
    words: tuple[str, ...]


def units(content: str) -> list[Unit]:
    """The units of a text that have a word, in its order.

    It is split at line ends, and behind each mark that ends a sentence. A word is a run of
    letters, numbers and marks.
    """
    lines = _END.sub(r"\g<0>\n", content).splitlines()
    texts = [text for line in lines if (text := " ".join(line.split()))]
    return [unit for unit in map(Unit, texts, _words(texts)) if unit.words]


def _words(texts: list[str]) -> list[tuple[str, ...]]:
    """The words of each text; all at once, as a call for each would cost more than the work."""
    together = _normalized("\n".join(texts)).casefold().translate(_SIGNS)
    return [tuple(text.split()) for text in together.split("\n")]


def _normalized(text: str) -> str:
    """The text in NFKC, in linear time."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", _PILE.sub(_in_order, text))


def _in_order(pile: re.Match[str]) -> str:
    """The decomposed pile, with each run of combining characters in canonical order."""
    apart = (sign for character in pile[0] for sign in unicodedata.normalize("NFKD", character))
    runs = groupby(apart, key=lambda sign: unicodedata.combining(sign) > 0)
    return "".join(
        "".join(sorted(run, key=unicodedata.combining) if combines else run)
        for combines, run in runs
    )


class _Signs(dict[int, str]):
    """A cached translation table: what belongs to words is itself, what ends them a space."""

    def __missing__(self, point: int) -> str:
        sign = chr(point)
        kept = sign if sign == "\n" or unicodedata.category(sign)[0] in "LNM" else " "
        if len(self) < _CACHED_SIGNS:
            self[point] = kept
        return kept


_SIGNS = _Signs()
