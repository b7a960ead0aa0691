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

Words = tuple[int, ...]
"""The words of a chunk: twice the number of each, and one more if it may be misspelt."""


class Asked(NamedTuple):
    """What a prompt is ranked by."""

    sentences: list[tuple[list[int], float]]  # the words of each, and what it weighs
    doubtful: list[int]  # words that may be misspelt, in order


class PromptWords(dict[str, Words | None]):
    """The words of each chunk of text between white space; None where it takes more to tell.

    Used under the lock of the index.
    """

    def __init__(self, vocabulary: Vocabulary, stem_of: Mapping[str, str]) -> None:
        super().__init__()
        self.texts: list[str] = []  # by word
        self.stems = array("i")  # their numbers in the vocabulary, by word
        self._words: dict[str, int] = {}
        self._vocabulary = vocabulary
        self._stem_of = stem_of
        self._gone = vocabulary.gone

    def __missing__(self, chunk: str) -> Words | None:
        found = chunk_of(chunk)
        words: Words | None = None
        if not any(it.endswith(PREFIX) or not self._stem_of[it] for it in found.terms):
            words = tuple(2 * self._word(it) + (it in found.doubtful) for it in found.terms)
        if len(chunk) <= LONGEST:
            self[chunk] = words
        return words

    def asked(self, prompt: str) -> Asked | None:
        """A prompt by its words; None with a prefix, or a word that the index takes apart."""
        self._catch_up()
        return self._of_chunks(prompt[:MAX_PROMPT]) or self._of_terms(prompt)

    def _of_chunks(self, prompt: str) -> Asked | None:
        """As most prompts are: plain text that there is room for."""
        found, doubtful, room = list[tuple[list[int], float]](), list[int](), MAX_TERMS
        for sentence in sentences(prompt):
            chunks = [*map(self.__getitem__, dict.fromkeys(sentence.split()))]
            if not chunks:
                continue
            if None in chunks or not sentence.isascii():
                return None
            marked = [*chain.from_iterable(chunks)]  # type: ignore[arg-type]
            if not 0 < len(marked) <= room:  # all are stop words, or some are left out
                return None
            words = [*dict.fromkeys([it >> 1 for it in marked])]
            room -= len(words)
            found.append((words, weight(sentence, len(words))))
            doubtful += [it >> 1 for it in marked if it & 1]
        return Asked([(found[0][0], 1.0)] if len(found) == 1 else found, doubtful)

    def _of_terms(self, prompt: str) -> Asked | None:
        said = spoken(prompt)
        if said is None or not all(
            self._stem_of[it] for texts, _ in said.sentences for it in texts
        ):
            return None
        found = [([self._word(it) for it in texts], by) for texts, by in said.sentences]
        return Asked(found, [self._word(it) for it in said.doubtful])

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
            vocabulary.unknown, vocabulary.came = {}, []
            self._gone = vocabulary.gone
        for word, number in vocabulary.came:
            self.stems[word] = number
        vocabulary.came.clear()
