"""Real prose and identifiers, found on the machine: the sources of the standard library."""

import random
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, cycle, islice
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PROMPT = 500  # characters of a prompt
SENTENCES = 6
SHORTEST, LONGEST = 100, 800  # characters of an observation

_PARAGRAPH = re.compile(r"\n\s*\n")
_TESTS = frozenset(("test", "tests"))
_QUOTES = re.compile(r'[rfb]?"""')
_SENTENCE_MARK = re.compile(r"[.!?;](?=\s)")
_WORD = re.compile(r"\w{4,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The text of one observation."""

    title: str
    content: str


def pieces(seed: int) -> Iterator[Piece]:
    """Paragraphs of prose and code, in an order that the seed decides, without end."""
    return cycle(chain.from_iterable(map(_paragraphs, _shuffled(seed, _sources()))))


def prompts(seed: int, count: int) -> list[str]:
    """Prompts of 500 characters, each one run of words."""
    prose = _prose(seed)
    return [_SENTENCE_MARK.sub("", _run(prose)) for _ in range(count)]


def sentences(seed: int, count: int) -> list[str]:
    """The same prompts in six sentences each."""
    return [_in_sentences(prompt) for prompt in prompts(seed, count)]


def keywords(seed: int, count: int) -> list[str]:
    """Searches for three words that follow each other."""
    found = (_WORD.findall(text) for text in _prose(seed))
    return [" ".join(words[:3]) for words in islice(found, count)]


@cache
def _sources() -> tuple[Path, ...]:
    library = Path(sysconfig.get_path("stdlib"))
    found = sorted(library.rglob("*.py"))
    return tuple(path for path in found if "site-packages" not in path.parts)


def _paragraphs(path: Path) -> Iterator[Piece]:
    held = ""
    for paragraph in _PARAGRAPH.split(path.read_text("utf-8", "replace")):
        held = " ".join([held, *paragraph.split()]).strip()
        if len(held) >= SHORTEST:
            yield Piece(title=f"{path.stem}: {held[:60]}", content=held[:LONGEST])
            held = ""


def _prose(seed: int) -> Iterator[str]:
    return cycle(_shuffled(seed, _docstrings()))


@cache
def _docstrings() -> tuple[str, ...]:
    return tuple(
        " ".join(text.split())
        for path in _sources()
        if not _TESTS.intersection(path.parts)
        for text in _QUOTES.split(path.read_text("utf-8", "replace"))[1::2]
        if len(text) > SHORTEST
    )


def _shuffled(seed: int, items: Iterable[T]) -> list[T]:
    shuffled = list(items)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - an order, no secret
    return shuffled


def _run(prose: Iterator[str]) -> str:
    text = ""
    while len(text) < PROMPT:
        text += next(prose) + " "
    return text[:PROMPT]


def _in_sentences(text: str) -> str:
    words = text.split()
    step = -(-len(words) // SENTENCES)
    return ". ".join(" ".join(words[at : at + step]) for at in range(0, len(words), step))[:PROMPT]
