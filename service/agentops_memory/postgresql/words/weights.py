"""What words are worth in a group: how many memories it has, and how many of them have a stem."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from ...memory.model.bm25 import Totals
from ...memory.model.ranking import PRIOR_MEMORIES, PRIOR_WORDS
from ...recall.text.features import Feature, Features
from ...recall.text.query import Term
from .postings import Postings
from .terms import Stem

MOST_KNOWN = 200_000  # stems of a tenant whose counts are remembered

Versions = frozenset[tuple[int, int]]
"""Of each area of a group how often it has changed: nothing else tells its words apart."""


@dataclass(eq=False)
class _Known:
    versions: Versions
    having: dict[bool, dict[str, int]] = field(default_factory=lambda: {False: {}, True: {}})


class KnownCounts:
    """The counts of stems that a process has asked for, as long as their group has not changed.

    Any thread may use them.
    """

    def __init__(self) -> None:
        self._groups: dict[int, _Known] = {}
        self._lock = Lock()

    def of(self, number: int, versions: Versions, *, own: bool) -> dict[str, int]:
        """The counts for a group in this state, to be read and added to."""
        with self._lock:
            known = self._groups.get(number)
            if known is None or known.versions != versions:
                known = self._groups[number] = _Known(versions)
            if sum(len(it) for each in self._groups.values() for it in each.having.values()) > (
                MOST_KNOWN
            ):
                self._groups = {number: known}
            return known.having[own]


class Weights:
    """A group in one transaction."""

    def __init__(
        self, postings: Postings, number: int, features: Features, known: KnownCounts
    ) -> None:
        self._postings = postings
        self._number = number
        self._known = known
        rows = postings.areas(number)
        self.versions = {area: version for area, version, _, _ in rows}
        prior = PRIOR_MEMORIES if Feature.PRIOR in features else 0
        memories = sum(memories for _, _, memories, _ in rows) + prior
        words = sum(words for _, _, _, words in rows) + prior * PRIOR_WORDS
        self.totals = Totals(memories, words)

    def having(self, stems: Iterable[str], *, own: bool) -> Mapping[str, int]:
        """How many memories of the group have each stem, or among their own words."""
        known = self._known.of(self._number, frozenset(self.versions.items()), own=own)
        asked = set(stems)
        if missing := asked - known.keys():
            found = self._postings.having(self._number, missing, own=own)
            known.update({stem: found.get(stem, 0) for stem in missing})
        return {stem: known[stem] for stem in asked}

    def of_terms(self, asked: Mapping[Term, Stem], *, own: bool) -> dict[Term, int]:
        """How many memories of the group have each term: all its stems, or one that so begins."""
        single = {term: it[0] for term, it in asked.items() if len(it) == 1 and not term.starts}
        known = self.having(single.values(), own=own)
        counts = {term: known[stem] for term, stem in single.items()}
        for term, stems in asked.items():
            if term.starts and len(stems) == 1:
                counts[term] = self._postings.having_beginning(self._number, stems[0], own=own)
            elif term not in single:
                counts[term] = self._postings.having_all(self._number, stems, own=own)
        return counts
