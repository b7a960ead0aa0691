"""What a prompt asks for: sentences of terms, and the pieces that must all occur."""

# ruff: noqa: RUF001 - signs that look like ASCII ones are what is tested

import unicodedata
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from agentops_memory.memory.memory import Memory, MemoryId, Text
from agentops_memory.memory.search import Hit, Method
from agentops_memory.memory.space import Project, Space
from agentops_memory.recall.query import (
    MAX_TERMS,
    Piece,
    Sentence,
    Term,
    parse_query,
)
from agentops_memory.recall.recall import fused
from agentops_memory.recall.text import indexed

from ..support.samples import examples, for_each
from ..support.service import START

EXAMPLES = examples(300)


def terms(prompt: str) -> list[str]:
    """The terms of each sentence, as one text a sentence."""
    return [" ".join(term.text for term in it.terms) for it in parse_query(prompt).sentences]


SENTENCES = {
    "The pool is exhausted. Restart it!": ["pool exhausted", "restart"],
    "One? Two; three": ["one", "two", "three"], "a/b.c is 1.2.3": ["b c abc 1 2 3 123"],
    "first line\nsecond line\r\nthird": ["first line", "second line", "third"],
    "数据库。连接！池？": ["数据 据库", "连接", "池"], "now...really?!": ["really"],
    "end. ": ["end"], "so we waited When did it start": ["waited", "start"],
    "I know when it began": ["know begin"],
    "it is said (Why wait) often": ["say wait often"], "word word WORD Word": ["word"],
    "What did we set max_connections to?": ["set max connections maxconnections"],
    "what did we do? the pool": ["what did we do", "pool"], "to be or not to be": ["to be or not"],
    "is_not": ["isnot"],
    "HTTPServer fooBar SQL Pool": ["http server httpserver foo bar foobar sql pool"], "": [],
    "?! ... \u3002 \n": [], "Straße ŒUVRE": ["strasse œuvre"], "❤️python’s “WAL”": ["python wal"],
}  # fmt: skip


@for_each("prompt, asked", SENTENCES.items())
def test_a_prompt_asks_for_these_words(prompt: str, asked: list[str]) -> None:
    assert terms(prompt) == asked


def weights(prompt: str) -> list[float]:
    return [sentence.weight for sentence in parse_query(prompt).sentences]


def test_a_sentence_weighs_by_its_words_and_more_when_it_asks() -> None:
    plain, four, asks, begins, fullwidth = weights(
        "Pool. Red green blue yellow. Pool? why pool. 池？"
    )

    assert plain == 1
    assert four == pytest.approx(4**-0.35)
    assert asks == begins == fullwidth == 1.5

    assert weights("why is the pool exhausted on staging?") == [1]


def test_a_word_must_occur_and_an_identifier_in_its_parts_or_joined() -> None:
    assert parse_query("the max_connections limit").every == (
        Piece(
            parts=(Term(text="max"), Term(text="connections")),
            joined=(Term(text="maxconnections"),),
        ),
        Piece(parts=(Term(text="limit"),)),
    )

    assert parse_query("is_not").every == (Piece(parts=(), joined=(Term(text="isnot"),)),)

    assert parse_query("池").sentences == (Sentence((Term(text="池", starts=True),)),)


def test_no_prompt_has_more_terms_than_fit() -> None:
    prompts = [
        " ".join(f"w{number}" for number in range(200)),
        "".join(chr(0x4E00 + number) for number in range(500)),
        ".".join(f"n{number}" for number in range(200)),
        "/".join(f"a{number}-b" for number in range(100)),
        ". ".join(f"word{number}" for number in range(100)),
    ]
    for prompt in prompts:
        query = parse_query(prompt)
        assert 40 < sum(len(sentence.terms) for sentence in query.sentences) <= MAX_TERMS
        assert sum(len(piece.terms) for piece in query.every) <= MAX_TERMS


@EXAMPLES
@given(st.text(st.characters(codec="utf-8"), max_size=700))
def test_any_text_is_understood_and_no_term_is_syntax(prompt: str) -> None:
    query = parse_query(prompt)

    asked = [term.text for sentence in query.sentences for term in sentence.terms]
    needed = [term.text for piece in query.every for term in piece.terms]
    assert set(asked) == set(needed)
    assert len(asked) <= MAX_TERMS
    assert all(text and not set(text) & set('"*^:(){}+-\0 ') for text in asked)


anything = st.text(st.characters(codec="utf-8"))


@EXAMPLES
@given(anything)
def test_any_text_can_be_indexed(text: str) -> None:
    assert indexed(text) == indexed(unicodedata.normalize("NFC", text))


HOSTILE = {
    "letters": "a", "capitals": "A", "digits": "1", "humps": "aA", "short humps": "AAa",
    "acronyms": "AAaa ", "connectors": "-", "open compounds": "a-", "compounds": "a.b-c_",
    "paths": "dir/file-name.ext/", "versions": "v1.", "han": "数", "thai": "ก่",
    "marks": "\u0301\u0316", "kana marks": "\uff9e\u0301", "ligatures": "\ufdfa",
    "emoji": "❤\ufe0f", "spaces": " ", "mixed": "数aB-\u0301 ",
}  # fmt: skip


@for_each("part", HOSTILE.values())
def test_twice_the_text_is_at_most_twice_the_index(part: str) -> None:
    half, whole = (len(indexed((part * 5000)[:length])) for length in (2500, 5000))

    assert whole <= 2.2 * half + 100
    assert whole <= 20 * 5000


def test_piled_up_marks_are_dropped_before_they_are_sorted() -> None:
    zalgo = "a" + "\u0301" * 25_000 + "\u0316" * 25_000 + "b"

    assert len(indexed(zalgo)) < 50


LISTS = st.lists(st.lists(st.integers(1, 12), unique=True, max_size=6), max_size=4)


@given(lists=LISTS, limit=st.integers(0, 8))
def test_places_count_by_their_reciprocals_and_ids_break_ties(
    lists: list[list[int]], limit: int
) -> None:
    scores: Counter[int] = Counter()
    for ids in lists:
        for place, id_ in enumerate(ids, start=1):
            scores[id_] += Fraction(1, 60 + place)  # type: ignore[assignment]
    expected = sorted(scores, key=lambda id_: (-scores[id_], id_))[:limit]

    found = fused([list(map(hit, ids)) for ids in lists], limit)

    assert [one.memory.id for one in found] == expected
    first = {id_: place for ids in lists[::-1] for place, id_ in enumerate(ids, start=1)}
    assert {one.memory.id: one.place for one in found} == {id_: first[id_] for id_ in expected}


# Helpers


def hit(id_: int) -> Hit:
    memory = Memory(
        id=MemoryId(id_), uid=str(id_), session=None, space=Space(project=Project("demo")),
        key=None, text=Text(type="t", title="t", content="c"), last_seen_at=START, created_at=START,
        updated_at=START,
    )  # fmt: skip
    return Hit(memory=memory, rank=-1.0, method=Method.FULL_TEXT)
