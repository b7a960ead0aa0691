"""The rule `extract-1`: a model that follows its text, and what no text may do to it."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import groupby

import pytest
from hypothesis import given, strategies as st

from agentops_memory.openwop.api import ARCHIVE
from agentops_memory.openwop.archives import Unit, extract, has_words, units
from agentops_memory.openwop.entries import RefEntry
from agentops_memory.recall.query import STOPWORDS

from ..support.requirements import requirement
from ..support.samples import examples

DAY = date(2026, 5, 1)
EVERYTHING = 10**9  # bytes
PIECES = [
    *("a", "b", "c", "B", "the", "e\u0301", "\u00e9", "\ufb01", "fi", "\U0001f332", "\u4f1a", "7"),
    *(" ", "  ", "\n", "\r\n", "\u2028", "\t", "\u00a0", "-", "'", "\u2122"),
    *(".", ". ", "! ", "?", "\u2026 ", "...", "\u3002", "\uff01", "- 2026-05-01: "),
]
PLAIN = ["a ", "b ", "c ", "the ", ". ", "\n"]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=24).map("".join),
    st.lists(st.sampled_from(PLAIN), max_size=30).map("".join),  # of many equal words
)
DAYS = st.integers(0, 3).map(lambda days: DAY + timedelta(days=days))
CAPS = st.one_of(st.integers(-1, 24), st.integers(25, 200))
EXAMPLES = examples(100)


def source(content: str, day: date = DAY, *, is_archive: bool = False) -> RefEntry:
    at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    return RefEntry.whole(content=content, created_at=at, tags=(ARCHIVE,) if is_archive else ())


SOURCES = st.lists(st.builds(source, TEXTS, DAYS, is_archive=st.booleans()), max_size=6)


def of(*contents: str) -> list[RefEntry]:
    """Sources of one day after another."""
    return [source(it, DAY + timedelta(days=at)) for at, it in enumerate(contents)]


def archive(content: str, day: date = DAY) -> RefEntry:
    return source(content, day, is_archive=True)


def texts(content: str) -> list[str]:
    return [unit.text for unit in units(content)]


def words(text: str) -> tuple[str, ...]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    runs = groupby(folded, key=lambda sign: unicodedata.category(sign)[0] in "LNM")
    return tuple("".join(run) for is_word, run in runs if is_word)


def model_units(content: str) -> Iterator[str]:
    for line in content.splitlines():
        start = 0
        for at, sign in enumerate(line, 1):
            ends = sign in ".!?\u2026" and line[at : at + 1].isspace()
            if ends or sign in "\u3002\uff01\uff1f" or at == len(line):
                text = " ".join(line[start:at].split())
                start = at
                if words(text):
                    yield text


def model_lines(source: RefEntry) -> Iterator[tuple[str, str]]:
    """Each unit of a source, and its line."""
    for line in source.content.splitlines():
        dated = re.match(r"- (2026-05-0\d): ", line) if ARCHIVE in source.tags else None
        day, rest = (
            (dated[1], line[dated.end() :]) if dated else (f"{source.created_at.date()}", line)
        )
        yield from ((text, f"- {day}: {text}") for text in model_units(rest))


Placed = tuple[tuple[str, ...], int, int, str]  # words, source, place, line


def model(sources: Sequence[RefEntry], cap: int) -> str:
    """The rule as it is written, in quadratic time and with fractions."""
    lines = [
        (words(text), at, place, line)
        for at, source in enumerate(sources)
        for place, (text, line) in enumerate(model_lines(source))
    ]
    left = [it for it in lines if it == max(like for like in lines if like[0] == it[0])]
    covered = set(STOPWORDS)
    taken = list[Placed]()

    def worth(it: Placed) -> tuple[Fraction, int, int]:
        having = [{other[1] for other in lines if word in other[0]} for word in {*it[0]} - covered]
        return Fraction(sum(map(len, having)), len(it[3].encode()) + 1), it[1], -it[2]

    best = max(left, key=worth, default=None)
    while fitting := [it for it in left if len(it[3].encode()) < cap and worth(it)[0]]:
        taken.append(max(fitting, key=worth))
        left.remove(taken[-1])
        covered |= {*taken[-1][0]}
        cap -= len(taken[-1][3].encode()) + 1
    if taken or best is None:
        return "\n".join(it[3] for it in sorted(taken, key=lambda it: it[1:]))
    line = best[3]
    if len(line.encode()) <= cap:
        return line
    fitted = [line[:to] for to in range(15, len(line)) if len(line[:to].encode()) + 3 <= cap]
    return fitted[-1] + "..." if fitted else ""


@EXAMPLES
@given(SOURCES, CAPS)
@requirement("OW-65")
def test_an_extract_is_what_the_rule_says(sources: list[RefEntry], cap: int) -> None:
    assert extract(sources, cap) == model(sources, cap)


@requirement("OW-65")
def test_units_end_with_lines_and_with_marks_that_end_sentences() -> None:
    assert texts("One. Two!  Three?\tFour\u2026 five.six\r\nseven\u2028eight...\n\n") == [
        *("One.", "Two!", "Three?", "Four\u2026", "five.six", "seven", "eight...")
    ]
    assert texts("\u4f1a\u3002\u4f1a\uff01\u4f1a\uff1f\u3002") == [
        *("\u4f1a\u3002", "\u4f1a\uff01", "\u4f1a\uff1f")
    ]
    assert texts(" a \u00a0\t b ") == ["a b"]
    assert texts("--- ... !\n***") == []


@requirement("OW-65")
def test_words_are_normalized_and_folded() -> None:
    said = "Stra\u00dfe, \ufb01X_2 e\u0301\u00c9-don't\u2122"

    assert units(said) == [Unit(said, ("strasse", "fix", "2", "\u00e9\u00e9", "don", "ttm"))]


@requirement("OW-65")
def test_of_equal_units_the_newest_and_of_equal_worth_the_newer_source_is_said() -> None:
    said = of("heron one! stork", "Heron one.\nHERON one?\ncrane\nheron one...")

    assert extract(said, EVERYTHING) == (
        "- 2026-05-01: stork\n- 2026-05-02: crane\n- 2026-05-02: heron one..."
    )

    said = of("aaa\nbbb", "ccc\nddd")

    assert extract(said, 18) == "- 2026-05-02: ccc"
    assert extract(said, 36) == "- 2026-05-02: ccc\n- 2026-05-02: ddd"
    assert extract(said, 54).startswith("- 2026-05-01: aaa\n- 2026-05-02: ccc")


@requirement("OW-65")
def test_an_archives_lines_keep_their_dates() -> None:
    said = archive(
        "- 2026-01-02: heron. stork\ncrane\n- 2026-13-01: owl\n -  2026-01-03: jay\n"
        "- 2026-01-04: - 2026-01-05: rook"
    )

    assert extract([said], EVERYTHING).splitlines() == [
        "- 2026-01-02: heron.", "- 2026-01-02: stork", "- 2026-05-01: crane",
        "- 2026-05-01: - 2026-13-01: owl", "- 2026-05-01: - 2026-01-03: jay",
        "- 2026-01-04: - 2026-01-05: rook",
    ]  # fmt: skip


@requirement("OW-65")
def test_where_nothing_fits_the_best_line_is_cut_at_a_code_point() -> None:
    said = of("a rather long line", "\U0001f332\u4f1a\u4f1a \u4f1a\u4f1a")
    cuts = {cap: extract(said[1:], cap) for cap in range(35)}

    assert cuts[16] == ""
    assert cuts[20] == ""
    assert cuts[21] == "- 2026-05-02: \U0001f332..."
    assert cuts[23] == "- 2026-05-02: \U0001f332..."
    assert cuts[24] == "- 2026-05-02: \U0001f332\u4f1a..."
    assert cuts[30].endswith(": \U0001f332\u4f1a\u4f1a ...")
    assert cuts[31] == cuts[32] == cuts[34] == "- 2026-05-02: \U0001f332\u4f1a\u4f1a \u4f1a\u4f1a"


@requirement("OW-65")
def test_sources_of_stop_words_alone_are_not_silent() -> None:
    assert extract(of("Who are we?", "It is. And so on."), 99) == "- 2026-05-02: It is."
    assert extract(of("...", "-"), 99) == ""
    assert not has_words(of("...", "-"))
    assert not has_words([archive("- 2026-05-01: ...")])


@pytest.mark.slow
@pytest.mark.representative(2)
@pytest.mark.parametrize(
    "content",
    [
        "a" * 2**18, "word " * 2**16, "a" + "\u0316\u0301" * 2**16, "\u0344\u0316\uff9e" * 2**15,
        "\U0001f332" * 2**16, "same. " * 2**14, "\n" * 2**18, "- " * 2**17,
        "\n".join(f"{number:x}" for number in range(2**14)),
    ],
    ids=lambda content: repr(content[:6]),
)  # fmt: skip
@requirement("OW-65")
def test_hostile_sources_neither_fail_nor_pass_the_cap(content: str) -> None:
    for cap in (18, 65_536):
        assert len(extract([archive(content), *of(content)], cap).encode()) <= cap


@EXAMPLES
@given(st.text("a\u0316\u0301\u0344\uff9e\u00e9\u3099\u304b-\u00b4", min_size=28, max_size=80))
@requirement("OW-65")
def test_piled_up_marks_are_normalized_as_any_text(text: str) -> None:
    assert [unit.words for unit in units(text)] == [it for it in [words(text)] if it]
