"""A prompt becomes weighted terms: the one place where a user's words are understood."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from . import text as forms
from .stopwords import STOPWORDS

MAX_PROMPT = 500  # code points; a prompt's intent is at its start
MAX_TERMS = 64  # a bound on latency; 500 code points of prose hold fewer
MAX_JOINED = 8  # joined forms of one identifier
COMMON = 4096  # words whose pieces are kept: a few words make most of any prompt

_SENTENCE_END = re.compile(r"[.!?;](?=\s)|[\u3002\uff01\uff1f\uff61\r\n\u0085\u2028\u2029]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One folded word to look for; with `starts`, every word that starts so."""

    text: str
    starts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A word, an identifier or a run without spaces: there when all of its parts are.

    An identifier is there in one of its joined forms, too.
    """

    parts: tuple[Term, ...]
    joined: tuple[Term, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """Everything to look for."""
        return self.parts + self.joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a text asks for: the terms of each sentence, and the pieces that all must occur.

    `path` is the text itself when it may name a topic key (it holds a slash).
    """

    sentences: tuple[tuple[Term, ...], ...] = ()
    every: tuple[Piece, ...] = ()
    path: str | None = None

    def __bool__(self) -> bool:
        return bool(self.sentences or self.path)


def understood(prompt: str) -> Query:
    """The query in a prompt. Any text has one; a text without words has none to find."""
    prompt = prompt[:MAX_PROMPT]
    sentences: list[tuple[Term, ...]] = []
    every: dict[Piece, None] = {}
    room = MAX_TERMS
    for sentence in _SENTENCE_END.split(prompt):
        pieces = dict.fromkeys(_fitting(_significant(sentence), room))
        if terms := _terms(pieces):
            sentences.append(terms)
            every.update(pieces)
            room -= len(terms)
    path = prompt.strip() if "/" in prompt else None
    return Query(sentences=tuple(sentences), every=tuple(every), path=path)


def _significant(sentence: str) -> Iterable[Piece]:
    """The pieces without stop words; all of them when nothing else would be left."""
    pieces = dict.fromkeys(_pieces(sentence))
    kept = [piece for piece in map(_without_stopwords, pieces) if piece.terms]
    return kept or pieces


def _fitting(pieces: Iterable[Piece], room: int) -> Iterator[Piece]:
    """The first of the pieces, as many as have room for their terms."""
    for piece in pieces:
        room -= len(piece.terms)
        if room < 0:
            return
        yield piece


def _terms(pieces: Iterable[Piece]) -> tuple[Term, ...]:
    """All terms of the pieces, each once."""
    return tuple(dict.fromkeys(term for piece in pieces for term in piece.terms))


@lru_cache(COMMON)
def _without_stopwords(piece: Piece) -> Piece:
    return replace(piece, parts=tuple(term for term in piece.parts if term.text not in STOPWORDS))


def _pieces(sentence: str) -> Iterator[Piece]:
    for match in forms.PIECE.finditer(forms.spaced(sentence)):
        yield _piece(match.lastgroup or "", match.group())


@lru_cache(COMMON)
def _piece(kind: str, text: str) -> Piece:
    return _KINDS[kind](text)


def _word(word: str) -> Piece:
    return Piece(parts=_folded([word]))


def _identifier(name: str) -> Piece:
    return Piece(
        parts=_folded(forms.parts(name))[: MAX_TERMS - MAX_JOINED],
        joined=_folded(forms.joined_forms(name))[:MAX_JOINED],
    )


def _run(run: str) -> Piece:
    if len(run) == 1:
        return Piece(parts=(Term(text=run, starts=True),))
    return Piece(parts=_folded(forms.pairs(run))[:MAX_TERMS])


def _folded(texts: list[str]) -> tuple[Term, ...]:
    return tuple(Term(text=text) for text in dict.fromkeys(map(str.casefold, texts)))


_KINDS = {"word": _word, "identifier": _identifier, "run": _run}
