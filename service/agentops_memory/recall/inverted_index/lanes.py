"""Which memories of a large area may have the best scores, told for all of them at a time.

Scores are bounded from above by small numbers that lie side by side in one large integer, each in
its lane. Two such integers of ten thousand lanes are added in microseconds, where so many floats
take a millisecond. Only what may be among the best is then added up exactly.
"""

import re
import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable

UNIT = 64  # a score of one
BITS = 16  # of a lane
MOST = (1 << BITS) - 1  # of the sum of the bounds in one

Lanes = int

_UPPER = 1 if sys.byteorder == "little" else 0  # where the upper byte of a lane lies
_BYTES = bytes(range(256))
_AT_LEAST = [re.compile(b"[" + re.escape(_BYTES[it : it + 1]) + b"-\xff]") for it in range(256)]


def bound(score: float) -> int:
    """What is above a score, in units."""
    return int(score * UNIT) + 1


def added(size: int, bounds: Iterable[tuple[int, int]]) -> Lanes:
    """Lanes for so many places, with the bounds at some of them added up."""
    lanes = array("H", bytes(2 * size))
    for place, it in bounds:
        lanes[place] += it
    return int.from_bytes(lanes.tobytes(), sys.byteorder)


def likely(lanes: Lanes, size: int, depth: int, terms: int, hidden: Collection[int]) -> list[int]:
    """The places, ascending, where one of the `depth` best sums may be that are above zero.

    Each bound exceeds its score by one at most, and there are so many terms of each sum.
    """
    values = array("H", lanes.to_bytes(2 * size, sys.byteorder))
    for place in hidden:
        values[place] = 0
    upper = values.tobytes()[_UPPER::2]
    # The largest byte that so many lanes reach; the others need not be looked at, but for the next.
    at = bisect_left(range(255, -1, -1), depth, key=lambda it: _reaching(upper, it))
    byte = max(254 - at, 0)
    places = [it.start() for it in _AT_LEAST[byte].finditer(upper)] if byte else range(size)
    reached = sorted([values[it] for it in places], reverse=True)
    least = max(reached[min(depth, len(reached)) - 1] - terms, 1)
    return [it for it in places if values[it] >= least]


def _reaching(upper: bytes, byte: int) -> int:
    return len(upper.translate(None, _BYTES[:byte]))
