"""Sentences of a prompt: where one ends, and what it is worth beside the others. Pure."""

import re
from itertools import pairwise

from .features import ALL, Feature, Features

LENGTH_EXPONENT = -0.35  # of a sentence's number of terms
QUESTION = 1.5  # times what another sentence weighs

_QUESTION_WORDS = "what|when|where|which|who|whom|whose|why|how"
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_BEGINS_AS_QUESTION = re.compile(rf"\W*(?:{_QUESTION_WORDS})\b", re.IGNORECASE)
# Each begins with what is rare in a text, so that the rest of it is passed over at once.
_LINE_ENDS = "\u3002\uff01\uff1f\uff61\r\n\u0085\u2028\u2029"
_END = re.compile(rf"[.!?;{_LINE_ENDS}](?:(?<=[{_LINE_ENDS}])|(?=\s))")
# Only with a capital letter: "I know when it began" is one sentence.
_QUESTION = re.compile(
    "|".join(
        rf"{word[0]}(?<=\S\s{word[0]}){word[1:]}\b" for word in _QUESTION_WORDS.title().split("|")
    )
)


def sentences(prompt: str, features: Features = ALL) -> list[str]:
    """The sentences of a prompt, each with the mark that ends it.

    A capitalised question word in the middle of one begins another: agents put a question
    behind whatever they have, often without a full stop.
    """
    if Feature.SENTENCES not in features:
        return [prompt]
    ends = {end.end() for end in _END.finditer(prompt)}
    if Feature.QUESTIONS in features:
        ends |= {question.start() for question in _QUESTION.finditer(prompt)}
    return [prompt[start:end] for start, end in pairwise([0, *sorted(ends), len(prompt)])]


def weight(sentence: str, terms: int, features: Features = ALL) -> float:
    """What a sentence with so many terms weighs beside others.

    A long one says less with each of its words, and one that asks says what is wanted.
    """
    length = float(terms**LENGTH_EXPONENT) if Feature.SENTENCE_LENGTH in features else 1.0
    return length * QUESTION if Feature.QUESTIONS in features and asks(sentence) else length


def asks(sentence: str) -> bool:
    """Whether it ends with a question mark, or begins with a question word (in English)."""
    is_marked = sentence.rstrip().endswith(_QUESTION_MARKS)
    return is_marked or _BEGINS_AS_QUESTION.match(sentence) is not None
