"""The words of prompts as numbers: a prompt is understood with few objects touched.

Under load most time goes into reading objects that are in no cache of the processor.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from ..text.query import MAX_PROMPT, MAX_TERMS, PREFIX, chunk_of, sentences, spoken, weight
from .vocabulary import UNKNOWN, Vocabulary

MOST, CHUNK = 2_000_000, 100  # characters that are remembered, and what a chunk has beside its own
NO_WORD, NOT_PLAIN = -1, -2  # instead of a word; below them are those of several words

Word = int
"""Twice the number of a word, and one more where it may be misspelt."""

Forms = list[tuple[str, list[Word]]]
"""What stands in a chunk, with the words that are looked for instead."""


class ParsedPrompt(NamedTuple):
    """What a prompt is ranked by."""

    sentences: list[tuple[list[int], float]]  # the words of each, and what it weighs
    doubtful: list[int]  # words that may be misspelt, in order
    is_plain: bool  # whether each word is a piece


class PromptWords(dict[str, Word]):
    """The word of each chunk of text between white space.

    NO_WORD for a stop word, NOT_PLAIN where it takes more to tell. Used under the lock of the
    index.
    """

    def __init__(self, vocabulary: Vocabulary, stem_of: Mapping[str, str]) -> None:
        super().__init__()
        self.texts: list[str] = []  # by word
        self.stems = array("i")  # their numbers in the vocabulary, by word
        self._words: dict[str, int] = {}
        self._several: list[Sequence[Word]] = [()] * 3  # of chunks like identifiers
        self._forms: dict[str, Forms | None] = {}  # of each chunk
        self._size = 0  # in characters, about
        self._vocabulary = vocabulary
        self._stem_of = stem_of
        self._gone = vocabulary.gone

    def __missing__(self, chunk: str) -> Word:
        self._size += CHUNK + len(chunk)
        forms = self._forms[chunk] = self._forms_of(chunk)
        word = self[chunk] = NOT_PLAIN if forms is None else self._word_of(forms, chunk)
        return word

    def _word_of(self, forms: Forms, chunk: str) -> Word:
        words = [*chain.from_iterable([it for _, it in forms])]
        if not words:
            return NO_WORD
        if len(words) == 1 and chunk_of(chunk).pieces[0].parts:
            return words[0]
        self._several.append(words)
        return 1 - len(self._several)

    def _forms_of(self, chunk: str) -> Forms | None:
        found = chunk_of(chunk)
        if any(it.endswith(PREFIX) or not self._stem_of[it] for it in found.terms):
            return None
        return [
            (form, [2 * self._word(it.text) + (it.text in found.doubtful) for it in piece.terms])
            for form, piece in zip(found.words, found.pieces, strict=True)
        ]

    def parsed(self, prompt: str) -> ParsedPrompt | None:
        """A prompt by its words; None with a prefix, or a word that the index takes apart."""
        self._catch_up()
        return self._of_chunks(prompt[:MAX_PROMPT]) or self._of_terms(prompt)

    def _of_chunks(self, prompt: str) -> ParsedPrompt | None:
        """As most prompts are: plain text that there is room for."""
        found, doubtful, room = list[tuple[list[int], str]](), list[int](), MAX_TERMS
        is_plain, several = True, self._several
        for sentence in sentences(prompt):
            chunks = dict.fromkeys(sentence.split())
            if not chunks:
                continue
            marked = [it for it in map(self.__getitem__, chunks) if it != NO_WORD]
            if not marked or not sentence.isascii():  # all are stop words
                return None
            if min(marked) < 0:
                if NOT_PLAIN in marked:
                    return None
                is_plain = False
                marked = [
                    *chain.from_iterable([several[-it] if it < 0 else (it,) for it in marked])
                ]
            if len(marked) > room:
                marked = self._fitting(chunks, room)
                if not marked:
                    continue
            words = [*dict.fromkeys([it >> 1 for it in marked])]
            room -= len(words)
            found.append((words, sentence))
            doubtful += [it >> 1 for it in marked if it & 1]
        weights = [weight(said, len(words)) for words, said in found] if found[1:] else [1.0]
        weighed = [(words, by) for (words, _), by in zip(found, weights, strict=False)]
        return ParsedPrompt(weighed, doubtful, is_plain)

    def _fitting(self, chunks: Iterable[str], room: int) -> list[Word]:
        """The first of their words, each once, as far as there is room for them."""
        fitting, known = list[Word](), set[str]()
        for chunk in chunks:
            for form, words in self._forms[chunk] or ():
                if form not in known:
                    known.add(form)
                    room -= len(words)
                    if room < 0:
                        return fitting
                    fitting += words
        return fitting

    def _of_terms(self, prompt: str) -> ParsedPrompt | None:
        said = spoken(prompt)
        if said is None or not all(
            self._stem_of[it] for texts, _ in said.sentences for it in texts
        ):
            return None
        found = [([self._word(it) for it in texts], by) for texts, by in said.sentences]
        return ParsedPrompt(found, [self._word(it) for it in said.doubtful], is_plain=False)

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
        if self._size > MOST or self._gone != vocabulary.gone:
            self.clear()
            self.texts, self.stems, self._words = [], array("i"), {}
            self._several, self._forms, self._size = [()] * 3, {}, 0
            vocabulary.unknown, vocabulary.came = {}, []
            self._gone = vocabulary.gone
        for word, number in vocabulary.came:
            self.stems[word] = number
        vocabulary.came.clear()
