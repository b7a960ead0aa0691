"""Contexts and searches of one project from memory alone, on the thread of the event loop.

What is not in memory, or is not as of now, is left to a transaction, which answers the same.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from ..engine.shared.stems import Stems
from ..memory.model.access import Patterns
from ..memory.model.memory import MemoryId, Shown
from ..memory.model.ranking import Scored
from ..memory.model.search import Method
from ..memory.model.space import Project
from ..memory.sql.kinds import GLOBAL_AREA
from .inverted_index.cache import READ_BYTES, DatabaseIndex, Token
from .inverted_index.group import Group, Stem, StemPiece
from .inverted_index.prompt_words import PromptWords
from .inverted_index.ranking import Ranking
from .inverted_index.vocabulary import UNKNOWN
from .recall import SUMMARIES
from .text.query import Corrections, Query, understood

LONGEST_LINE = 2_000  # bytes of a rendered memory that is remembered
# Memories of a project that are ranked on the event loop's thread, which serves nobody meanwhile:
# 0.1 ms for a hundred; more are ranked by a reader's.
MOST_ON_LOOP = 10_000


class Place(NamedTuple):
    """Where a project is in the index, and the spaces of the global memories that name it."""

    group: int
    area: int
    global_spaces: frozenset[int]


@dataclass(frozen=True, slots=True)
class Stored:
    """Looks into the database of the index, of some microseconds each."""

    token: Callable[[], Token | None]
    """Of the newest committed state; None where it cannot be told at once."""
    place: Callable[[Project], Place | None]
    """Where a project is; None if it has no memory of its own."""
    summaries: Callable[[Project, int], list[str]]
    """The newest of a project, so many at most."""
    shown: Callable[[Sequence[MemoryId]], list[Shown]]


class Plain(NamedTuple):
    """A context or a search of one project, without anything else."""

    projects: Patterns  # of the caller
    project: Project
    text: str
    limit: int
    now: int  # microseconds since 1970


Render = Callable[[Shown], bytes]


class HeldContext(NamedTuple):
    summaries: list[str]
    lines: list[bytes]
    methods: list[Method]


@dataclass(slots=True)
class HeldReads:
    """The reads of one database that memory answers."""

    index: DatabaseIndex
    stored: Stored
    stems: Stems
    _words: PromptWords = field(init=False)

    def __post_init__(self) -> None:
        self._words = PromptWords(self.index.vocabulary, self.stems.known)

    def context(self, asked: Plain, render: Render) -> HeldContext | None:
        """As `recall.context` without more than these; None where memory cannot tell.

        What is rendered is remembered with the memory.
        """
        if not self.index.lock.acquire(blocking=False):  # the event loop waits for no reader
            return None
        try:
            found = self._context(asked, render)
        finally:
            self.index.lock.release()
        self.index.grew(READ_BYTES)
        return found

    def search(self, asked: Plain, render: Render) -> list[tuple[float, bytes]] | None:
        """As `recall.search` without more than these, each with its rank."""
        query = understood(asked.text)
        if query.path is not None or not query.sentences:
            return None
        if not self.index.lock.acquire(blocking=False):
            return None
        try:
            found = self._search(asked, query, render)
        finally:
            self.index.lock.release()
        self.index.grew(READ_BYTES)
        return found

    def _context(self, asked: Plain, render: Render) -> HeldContext | None:
        project, limit = asked.project, asked.limit
        reading = self._reading(asked)
        best = reading.best(asked.text, limit) if reading else None
        if reading is None or best is None:
            return None
        summaries = self.index.summaries.get(project)
        if summaries is None:
            summaries = self.stored.summaries(project, SUMMARIES)
            self.index.summaries[project] = summaries
        matches = [id_ for _, id_ in best]
        methods = [Method.FULL_TEXT] * len(matches)
        if len(matches) < limit:
            newest = reading.newest(limit, matches)
            matches += newest
            methods += [Method.RECENCY] * len(newest)
        pins = reading.pinned((limit + 1) // 2)
        if pins:
            others = [it for it in zip(matches, methods, strict=True) if it[0] not in pins]
            others = others[: limit - len(pins)]
            matches = [*pins, *(id_ for id_, _ in others)]
            methods = [Method.PINNED] * len(pins) + [method for _, method in others]
        lines = reading.rendered(matches, self.stored, render, "lines")
        return None if lines is None else HeldContext(summaries, lines, methods)

    def _search(
        self, asked: Plain, query: Query, render: Render
    ) -> list[tuple[float, bytes]] | None:
        reading = self._reading(asked)
        ranked = reading.every_then_any(query, asked.limit) if reading else None
        if reading is None or ranked is None:
            return None
        lines = reading.rendered([id_ for _, id_ in ranked], self.stored, render, "hits")
        if lines is None:
            return None
        hits, floor = [], float("-inf")
        for (score, _), line in zip(ranked, lines, strict=True):
            floor = max(floor, score)
            hits.append((floor, line))
        return hits

    def _reading(self, asked: Plain) -> "Reading | None":
        index, project = self.index, asked.project
        if index.holds_nothing or not asked.projects.match(project):
            return None
        token = self.stored.token()
        if token is None or not index.is_at(token):
            return None
        place = index.places.get(project)
        if place is None:
            place = self.stored.place(project)
            if place is None:
                return None
            index.places[project] = place
        group = index.group(place.group)
        if group is None:
            return None
        if group.memories_of(place.area) > MOST_ON_LOOP:
            return None
        return Reading(group, place, self._words, self.stems, asked.now)


class Reading:
    """One request to the areas of a project."""

    def __init__(
        self, group: Group, place: Place, words: PromptWords, stems: Stems, now: int
    ) -> None:
        self._vocabulary = group.vocabulary
        self._words = words
        self._place = place
        self._stems = stems
        self._parts = group.weights_of((place.area, GLOBAL_AREA))
        self._hidden = [it.area.hidden(now) for it in self._parts]
        self._ranking = Ranking(self._parts, group.vocabulary, self._hidden)

    def best(self, prompt: str, limit: int) -> list[Scored] | None:
        """The best of each sentence; None for what has to be looked for in another way."""
        asked = self._words.asked(prompt)
        if asked is None:
            return None
        number_of, text_of, ranking = self._words.stems, self._words.texts, self._ranking
        sentences: list[tuple[list[Stem], float]] = [
            ([number_of[it] for it in words], weight) for words, weight in asked.sentences
        ]
        for stems, _ in sentences:
            ranking.look_up(stems)
        doubtful = [number_of[it] for it in asked.doubtful]
        known = ranking.known(doubtful)
        missing = [
            text_of[word]
            for word, stem in zip(asked.doubtful, doubtful, strict=True)
            if stem not in known
        ]
        if missing and (corrections := self._corrections(dict.fromkeys(missing))):
            for (words, _), (stems, _) in zip(asked.sentences, sentences, strict=True):
                texts = [text_of[it] for it in words]
                terms = chain.from_iterable(corrections.get(it, ()) for it in texts)
                new = [it for it in dict.fromkeys(terms) if it not in texts]
                stems.extend(self._looked_up(new) or ())
        return ranking.any(sentences, limit) if sentences else []

    def every_then_any(self, query: Query, limit: int) -> list[Scored] | None:
        terms = query.terms
        texts = [text for text, starts in terms if not starts]
        if len(texts) < len(terms) or (stems := self._looked_up(texts)) is None:
            return None
        known = self._ranking.known(stems)
        stem_of = dict(zip(texts, stems, strict=True))
        missing = [it for it in query.doubtful if stem_of[it] not in known]
        if missing and (corrections := self._corrections(missing)):
            query = query.corrected(corrections)
            texts = [it.text for it in query.terms]
            stems = self._looked_up(texts) or []
        numbers = dict(zip(texts, stems, strict=True))
        pieces: list[StemPiece] = []
        for parts, joined in query.every:
            if len(parts) == 1 and not joined:  # most are
                pieces.append(((numbers[parts[0].text],), ()))
            else:
                of_parts = [numbers[it.text] for it in parts]
                pieces.append((of_parts, [numbers[it.text] for it in joined]))
        ranked = self._ranking.every(pieces, limit)
        if len(ranked) < limit:
            first = {id_ for _, id_ in ranked}
            sentences = [([numbers[it.text] for it in of], by) for of, by in query.sentences]
            ranked += [it for it in self._ranking.any(sentences, limit) if it[1] not in first]
        return ranked[:limit]

    def newest(self, limit: int, but: Sequence[MemoryId]) -> list[MemoryId]:
        """The newest of the project, then of all that are visible, to fill up."""
        found: list[MemoryId] = []
        for spaces in (self._place.global_spaces, None):
            if len(but) + len(found) < limit:
                room, known = limit - len(but) - len(found), {*but, *found}
                newest = self._newest(limit, spaces)
                found += [it for it in newest if it not in known][:room]
        return found

    def _newest(self, most: int, spaces: Collection[int] | None) -> list[MemoryId]:
        """Of the project's own and of the global memories in some spaces, or in all."""
        found: list[tuple[int, MemoryId]] = []
        for part, hidden in zip(self._parts, self._hidden, strict=True):
            area = part.area
            among = spaces if area.number == GLOBAL_AREA else None
            places = (
                it
                for it in area.newest_first()
                if it not in hidden and (among is None or area.spaces[it] in among)
            )
            found += [(area.created_at[it], area.ids[it]) for it in islice(places, most)]
        found.sort(reverse=True)
        return [id_ for _, id_ in found[:most]]

    def pinned(self, most: int) -> list[MemoryId]:
        """The pinned ones, those first that were pinned first."""
        found = [
            (at, part.area.ids[place])
            for part, hidden in zip(self._parts, self._hidden, strict=True)
            for place, at in part.area.pinned_at.items()
            if place not in hidden
        ]
        return [id_ for _, id_ in sorted(found)[:most]] if found else []

    def rendered(
        self, ids: Sequence[MemoryId], stored: Stored, render: Render, kind: str
    ) -> list[bytes] | None:
        """Each memory as it was rendered first; None if one is gone."""
        known = [getattr(it.area, kind) for it in self._parts]
        own = known[0] if known else {}
        lines = [own.get(id_) for id_ in ids]
        if None in lines:
            every = {id_: line for it in known for id_, line in it.items()}
            if missing := [id_ for id_ in ids if id_ not in every]:
                for shown in stored.shown(missing):
                    part = next((it for it in self._parts if it.area.has(shown.id)), None)
                    if part is None:
                        return None
                    every[shown.id] = line = render(shown)
                    if len(line) <= LONGEST_LINE:
                        part.area.remember(getattr(part.area, kind), shown.id, line)
            lines = [every.get(id_) for id_ in ids]
        return None if None in lines else [it for it in lines if it is not None]

    def _looked_up(self, texts: Sequence[str]) -> list[Stem] | None:
        """The stem of each text, found in the areas; None if the index takes one apart."""
        stems = list(map(self._stems.known.__getitem__, texts))
        if "" in stems:
            return None
        number_of = self._vocabulary.numbers.get
        numbers = [number_of(it, UNKNOWN) for it in stems]
        self._ranking.look_up(numbers)
        return numbers

    def _corrections(self, missing: Iterable[str]) -> Corrections:
        """What words may have meant that no memory has."""
        forms = self._stems.compared
        return self._ranking.corrections([(it, forms[it]) for it in missing if forms[it]])
