"""Corrections of misspelt words, by the terms of a project and the global ones."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...engine.shared.stems import Stems, compared
from ...memory.model.search import Filter
from ...memory.model.space import GLOBAL_SCOPE
from ..index_cache.rows import area_of
from ..text.query import Corrections
from ..text.spelling import MOST_TERMS, is_one_edit
from .visibility import Visibility, VisibleRows


class Spelling(ABC):
    """Corrections in one transaction."""

    def __init__(self, visibility: Visibility, stems: Stems) -> None:
        self._visibility = visibility
        self._stems = stems

    @abstractmethod
    def _near(
        self, forms: Mapping[str, str], areas: Sequence[int], visible: VisibleRows
    ) -> Iterable[tuple[str, str, str]]:
        """Words that no visible memory has among its own, their forms, and terms of the areas.

        Of the first such words, as many as are looked for, the terms that begin or end alike.
        One that is one edit away does: the edit lies in one of the halves.
        """

    @abstractmethod
    def _count(self, term: str, visible: VisibleRows) -> int:
        """How many visible memories have the term among their own words."""

    def corrections(self, words: Collection[str], filter_: Filter) -> Corrections:
        """What the unknown ones among the words may have meant."""
        is_one = filter_.project or filter_.is_elsewhere
        if not is_one and filter_.scope != GLOBAL_SCOPE:
            return {}
        visible = self._visibility.of(filter_)
        if not visible.spans:  # nothing was ever there
            return {}
        ((_, spans),) = visible.spans.items()
        areas = [area_of(first) for first, _ in spans]
        forms = {word: it for word, it in compared(self._stems, words).items() if it}
        likely: dict[str, list[str]] = {}
        for word, form, term in self._near(forms, areas, visible) if forms else ():
            if is_one_edit(form, term):
                likely.setdefault(word, []).append(term)
        return {word: self._frequent(likely[word], visible) for word in forms if word in likely}

    def _frequent(self, terms: list[str], visible: VisibleRows) -> tuple[str, ...]:
        """The most frequent of the terms, ties in the order of the alphabet."""
        if len(terms) <= MOST_TERMS:
            return tuple(sorted(terms))
        counts = {term: self._count(term, visible) for term in terms}
        return tuple(sorted(terms, key=lambda term: (-counts[term], term))[:MOST_TERMS])
