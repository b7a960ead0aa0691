"""What a posting holds: a stem as it is stored, and how often it stands in each field."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate

from ...memory.model.search import Field

Counts = int
"""How often a stem stands in title, content, context and tags, each in its bits of a BIGINT."""

Stem = tuple[str, ...]
"""What a term is looked for by: its stem, or several that all have to be there."""

FIELDS = len(Field)
BITS = (14, 20, 14, 15)  # of each field: more than the longest one has words
PLACES = tuple(accumulate(BITS[:-1], initial=0))
MOST = tuple((1 << bits) - 1 for bits in BITS)
OWN = sum(
    most << place
    for it, most, place in zip(Field, MOST, PLACES, strict=True)
    if it is not Field.CONTEXT
)  # the bits of a memory's own words

LONGEST = 1_500  # bytes of a stem that a key of an index holds


def counted(fields: Sequence[Sequence[str]]) -> dict[str, Counts]:
    """How often each stem stands in each field, as it is stored; no field has more than MOST."""
    counts: dict[str, Counts] = {}
    for stems, most, place in zip(fields, MOST, PLACES, strict=True):
        once = 1 << place
        for stem in stems[:most]:
            counts[stem] = counts.get(stem, 0) + once
    return {stored_term(stem): often for stem, often in counts.items()}


@lru_cache(65_536)
def unpacked(counts: Counts) -> tuple[int, ...]:
    return tuple(counts >> place & most for place, most in zip(PLACES, MOST, strict=True))


def stored_term(stem: str) -> str:
    """The stem; of one that no key could hold, its beginning and a digest."""
    if len(stem) * 4 <= LONGEST or len(encoded := stem.encode()) <= LONGEST:
        return stem
    return f"{encoded[:1000].decode(errors='ignore')}\x02{sha256(encoded).hexdigest()}"
