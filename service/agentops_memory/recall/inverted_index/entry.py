"""What the index holds of one memory: how often each stem stands in each field."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ...memory.model.bm25 import frequency
from ...memory.model.search import Field

Packed = int
"""How often a stem stands in each field, `COUNT` bits a field, the title lowest."""

COUNT = 24
_OWN = tuple(it is not Field.CONTEXT for it in Field)  # a memory borrows its context


class Entry(NamedTuple):
    """The stems of a memory by their counts, and its length in words."""

    length: int
    stems: Sequence[tuple[Packed, Sequence[str]]]

    @classmethod
    def of_fields(cls, fields: Sequence[Sequence[str]]) -> "Entry":
        """The entry of the stems of each field, in their order."""
        counts: dict[str, Packed] = {}
        for at, stems in enumerate(fields):
            one = 1 << COUNT * at
            for stem in stems:
                counts[stem] = counts.get(stem, 0) + one
        return cls.of_counts(sum(map(len, fields)), counts)

    @classmethod
    def of_counts(cls, length: int, counts: Mapping[str, Packed]) -> "Entry":
        by_count: dict[Packed, list[str]] = {}
        for stem, packed in counts.items():
            by_count.setdefault(packed, []).append(stem)
        return cls(length, list(by_count.items()))

    @property
    def stored(self) -> str:
        """As it is stored: a line for each of the counts, with its stems."""
        return "\n".join(f"{packed:x} {' '.join(stems)}" for packed, stems in self.stems)

    @classmethod
    def loaded(cls, stored: str) -> "Entry":
        """The entry that was stored; a ValueError if it is none."""
        stems: list[tuple[Packed, list[str]]] = []
        length = 0
        for line in stored.split("\n") if stored else ():
            counts, *of_line = line.split(" ")
            packed = int(counts, 16)
            stems.append((packed, of_line))
            length += _total(packed) * len(of_line)
        return cls(length, stems)

    @property
    def counts(self) -> dict[str, Packed]:
        """How often each stem stands in each field."""
        return {stem: packed for packed, stems in self.stems for stem in stems}

    def all_stems(self) -> Iterator[str]:
        for _, stems in self.stems:
            yield from stems


def frequencies(packed: Packed, weights: Iterable[float]) -> tuple[float, float]:
    """How often a stem stands in a memory, by the weights of the fields; and in its own words."""
    counts, weights = _counts(packed), tuple(weights)
    own = tuple(it * is_own for it, is_own in zip(counts, _OWN, strict=True))
    return frequency(counts, weights), frequency(own, weights)


@lru_cache(65_536)  # a few counts are those of most stems
def _total(packed: Packed) -> int:
    return sum(_counts(packed))


def _counts(packed: Packed) -> tuple[int, ...]:
    return tuple(packed >> COUNT * field & (1 << COUNT) - 1 for field in range(len(_OWN)))
