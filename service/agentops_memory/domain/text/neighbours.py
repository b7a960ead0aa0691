"""Context that a short memory borrows from those before it: an answer is found by its question."""

from collections.abc import Iterable
from itertools import islice

from .features import ALL, Feature, Features
from .normalization import words

NEIGHBOURS = 2  # preceding memories of the same session, project and scope
LONGEST = 80  # words of a memory that borrows
BORROWED = 30  # words from the end of each neighbour
REACH = 1200  # characters at a neighbour's end that are searched for them


def borrows(content: str, features: Features = ALL) -> bool:
    """Whether a memory with this content is short enough to be indexed with such context."""
    if Feature.CONTEXT not in features:
        return False
    if Feature.CONTEXT_GUARD not in features:
        return True
    if content.isascii():
        return len(content.split(None, LONGEST)) <= LONGEST
    return next(islice(words(content), LONGEST, None), None) is None


def borrowed(neighbours: Iterable[str]) -> str:
    """The text to index beside a memory: the ends of its neighbours' contents."""
    return "\n".join(map(_end, neighbours))


def _end(content: str) -> str:
    reached = content[-REACH:]
    skipped = 1 if len(content) > REACH else 0  # the first may be cut off
    if reached.isascii():
        return " ".join(reached.split()[skipped:][-BORROWED:])
    starts = [word.start() for word in words(reached)][skipped:][-BORROWED:]
    return reached[starts[0] :] if starts else ""
