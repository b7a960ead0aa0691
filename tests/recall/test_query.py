"""What a prompt asks for: sentences of terms, and the pieces that must all occur."""

# ruff: noqa: RUF001 - signs that look like ASCII ones are what is tested

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentops_memory.recall.query import (
    MAX_TERMS,
    Piece,
    Query,
    Sentence,
    Term,
    understood,
)

from ..support.samples import examples, for_each

EXAMPLES = examples(300)


def terms(prompt: str) -> list[str]:
    """The terms of each sentence, as one text a sentence."""
    return [" ".join(term.text for term in it.terms) for it in understood(prompt).sentences]


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
    return [sentence.weight for sentence in understood(prompt).sentences]


def test_a_sentence_weighs_by_its_words_and_more_when_it_asks() -> None:
    plain, four, asks, begins, fullwidth = weights(
        "Pool. Red green blue yellow. Pool? why pool. 池？"
    )

    assert plain == 1
    assert four == pytest.approx(4**-0.35)
    assert asks == begins == fullwidth == 1.5

    assert weights("why is the pool exhausted on staging?") == [1]


def test_repeated_words_take_no_room() -> None:
    assert terms("pool " * 90 + "timeout") == ["pool timeout"]


def test_a_word_must_occur_and_an_identifier_in_its_parts_or_joined() -> None:
    assert understood("the max_connections limit").every == (
        Piece(
            parts=(Term(text="max"), Term(text="connections")),
            joined=(Term(text="maxconnections"),),
        ),
        Piece(parts=(Term(text="limit"),)),
    )

    assert understood("is_not").every == (Piece(parts=(), joined=(Term(text="isnot"),)),)

    assert understood("池").sentences == (Sentence((Term(text="池", starts=True),)),)


def test_a_slash_may_name_a_topic_key() -> None:
    assert understood(" db/pool ").path == "db/pool"
    assert understood("db pool").path is None
    assert understood("/") == Query(path="/")


def test_a_prompt_without_words_asks_for_nothing() -> None:
    assert not understood("")
    assert not understood("?! “…” \u2014")
    assert understood("word")


def test_no_prompt_has_more_terms_than_fit() -> None:
    prompts = [
        " ".join(f"w{number}" for number in range(200)),
        "".join(chr(0x4E00 + number) for number in range(500)),
        ".".join(f"n{number}" for number in range(200)),
        "/".join(f"a{number}-b" for number in range(100)),
        ". ".join(f"word{number}" for number in range(100)),
    ]
    for prompt in prompts:
        query = understood(prompt)
        assert 40 < sum(len(sentence.terms) for sentence in query.sentences) <= MAX_TERMS
        assert sum(len(piece.terms) for piece in query.every) <= MAX_TERMS


@EXAMPLES
@given(st.text(st.characters(codec="utf-8"), max_size=700))
def test_any_text_is_understood_and_no_term_is_syntax(prompt: str) -> None:
    query = understood(prompt)

    asked = [term.text for sentence in query.sentences for term in sentence.terms]
    needed = [term.text for piece in query.every for term in piece.terms]
    assert set(asked) == set(needed)
    assert len(asked) <= MAX_TERMS
    assert all(text and not set(text) & set('"*^:(){}+-\0 ') for text in asked)
