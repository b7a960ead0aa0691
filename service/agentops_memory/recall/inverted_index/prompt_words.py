"""The words of prompts as numbers: a prompt is understood with few objects touched.

Under load most time goes into reading objects that are in no cache of the processor.
"""

from array import array
from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from ..text.query import MAX_PROMPT, MAX_TERMS, PREFIX, chunk_of, sentences, spoken, weight
from .vocabulary import UNKNOWN, Vocabulary

MOST_CHUNKS, LONGEST = 16_384, 64  # chunks that are remembered, and their characters
NOTHING, OTHERWISE = -1, -2  # instead of a word; below them are those of several words

Word = int
"""Twice the number of a word, and one more where it may be misspelt."""


class Asked(NamedTuple):
    """What a prompt is ranked by."""

    sentences: list[tuple[list[int], float]]  # the words of each, and what it weighs
    doubtful: list[int]  # words that may be misspelt, in order
    is_plain: bool  # whether each word is a piece


class PromptWords(dict[str, Word]):
    """The word of each chunk of text between white space.

    NOTHING for a stop word, OTHERWISE where it takes more to tell. Used under the lock of the
    index.
    """

    def __init__(self, vocabulary: Vocabulary, stem_of: Mapping[str, str]) -> None:
        super().__init__()
        self.texts: list[str] = []  # by word
        self.stems = array("i")  # their numbers in the vocabulary, by word
        self._words: dict[str, int] = {}
        self._several: list[tuple[Word, ...]] = [()] * 3  # of chunks like identifiers
        self._vocabulary = vocabulary
        self._stem_of = stem_of
        self._gone = vocabulary.gone

    def __missing__(self, chunk: str) -> Word:
        word = self._read(chunk)
        if len(chunk) <= LONGEST:
            self[chunk] = word
        return word

    def _read(self, chunk: str) -> Word:
        found = chunk_of(chunk)
        if any(it.endswith(PREFIX) or not self._stem_of[it] for it in found.terms):
            return OTHERWISE
        if not found.terms:
            return NOTHING
        words = tuple(2 * self._word(it) + (it in found.doubtful) for it in found.terms)
        if len(words) == len(found.pieces) == len(found.pieces[0].parts) == 1:
            return words[0]
        self._several.append(words)
        return 1 - len(self._several)

    def asked(self, prompt: str) -> Asked | None:
        """A prompt by its words; None with a prefix, or a word that the index takes apart."""
        self._catch_up()
        return self._of_chunks(prompt[:MAX_PROMPT]) or self._of_terms(prompt)

    def _of_chunks(self, prompt: str) -> Asked | None:
        """As most prompts are: plain text that there is room for."""
        found, doubtful, room = list[tuple[list[int], str]](), list[int](), MAX_TERMS
        is_plain, several = True, self._several
        for sentence in sentences(prompt):
            chunks = [*map(self.__getitem__, dict.fromkeys(sentence.split()))]
            if not chunks:
                continue
            chunks = [it for it in chunks if it != NOTHING]
            if len(chunks) > room:
                chunks = chunks[:room]
                if (
                    len({*chunks}) < room or min(chunks, default=0) < 0
                ):  # there may be room for more
                    return None
            elif chunks and min(chunks) < 0:
                if OTHERWISE in chunks:
                    return None
                is_plain = False
                chunks = [
                    *chain.from_iterable([several[-it] if it < 0 else (it,) for it in chunks])
                ]
            if not 0 < len(chunks) <= room or not sentence.isascii():  # all are stop words
                return None
            words = [*dict.fromkeys([it >> 1 for it in chunks])]
            room -= len(words)
            found.append((words, sentence))
            doubtful += [it >> 1 for it in chunks if it & 1]
        weights = [weight(said, len(words)) for words, said in found] if found[1:] else [1.0]
        weighed = [(words, by) for (words, _), by in zip(found, weights, strict=False)]
        return Asked(weighed, doubtful, is_plain)

    def _of_terms(self, prompt: str) -> Asked | None:
        said = spoken(prompt)
        if said is None or not all(
            self._stem_of[it] for texts, _ in said.sentences for it in texts
        ):
            return None
        found = [([self._word(it) for it in texts], by) for texts, by in said.sentences]
        return Asked(found, [self._word(it) for it in said.doubtful], is_plain=False)

    def _word(self, text: str) -> int:
        word = self._words.get(text)
        if word is None:
            word = self._words[text] = len(self.texts)
            self.texts.append(text)
            stem = self._stem_of[text]
            number = self._vocabulary.number(stem)
            self.stems.append(number)
            if number == UNKNOWN:
                self._vocabulary.unknown.setdefault(stem, []).append(word)
        return word

    def _catch_up(self) -> None:
        """Follow what the vocabulary has come to know since, or knows no longer."""
        vocabulary = self._vocabulary
        if len(self) > MOST_CHUNKS or self._gone != vocabulary.gone:
            self.clear()
            self.texts, self.stems, self._words = [], array("i"), {}
            self._several = [()] * 3
            vocabulary.unknown, vocabulary.came = {}, []
            self._gone = vocabulary.gone
        for word, number in vocabulary.came:
            self.stems[word] = number
        vocabulary.came.clear()
