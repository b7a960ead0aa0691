"""Normal forms of text: what the index reads, and names under which things are known."""

# ruff: noqa: RUF001 - signs that look like ASCII ones are what is tested

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from agentops_memory.memory.space import project_name
from agentops_memory.recall.text import clean, content_hash, cut, indexed, joined_forms, parts

from ..support.samples import examples, for_each

EXAMPLES = examples(200)
anything = st.text(st.characters(codec="utf-8"))

PARTS = {
    "max_connections": ["max", "connections"], "parseHTMLDoc": ["parse", "HTML", "Doc"],
    "OAuth2Client": ["O", "Auth2", "Client"], "getURLs": ["get", "URLs"],
    "app-v1.2": ["app", "1", "2"], "v2-api": ["v2", "api"],
}  # fmt: skip

# Text, and the words that the index reads in it.
READ = {
    "v1.2.3": "v1.2.3 1 2 3 123", "lib/foo-bar.so": "lib/foo-bar.so libfoobarso foobar",
    "--flag @user #tag": "--flag @user #tag", "snake_case_": "snake_case snakecase _",
    "用SQLite存": "用 sqlite sq lite 存", "ﾃﾞｰﾀ": "デー ータ タ", "ล่ม": "ล่ ่ม ม",
    "x-हिन्दी": "x-हिन्दी xहिन्दी", "wasn’t — “so”…": "wasn t so ...",
}  # fmt: skip


@for_each("identifier, words", PARTS.items())
def test_an_identifier_has_these_parts(identifier: str, words: list[str]) -> None:
    assert parts(identifier) == words


@for_each("text, words", READ.items())
def test_the_index_reads_these_words(text: str, words: str) -> None:
    assert indexed(text).split() == words.split()


def test_an_identifier_is_joined_whole_and_name_by_name() -> None:
    assert joined_forms("a/foo-bar/baz_qux.py") == ["afoobarbazquxpy", "foobar", "bazqux"]
    assert joined_forms("HTTPServer") == ["HTTPServer"]
    assert joined_forms("v1.2") == ["12"]


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


def test_a_project_has_one_name_and_what_cannot_be_one_is_left_alone() -> None:
    names = ["Café", " café ", "CAFE\u0301", "\u2003cafe\u0301\n"]

    assert {project_name(name) for name in names} == {"café"}

    assert project_name("A" * 100_000) == "A" * 100_000


def test_a_text_is_cleaned_hashed_and_cut_by_its_code_points() -> None:
    assert clean("a\0b\ud800c\U0001f600") == "a\ufffdb\ufffdc\U0001f600"

    assert content_hash(" The\n  POOL\t") == content_hash("the pool")
    assert content_hash("the pool") != content_hash("thepool")

    assert cut("😀" * 3, 3) == "😀" * 3
    assert cut("😀" * 4, 3) == "😀" * 3 + "..."
