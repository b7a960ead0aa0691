"""A word that nobody wrote stands for those that differ from it in one letter."""

from collections.abc import Iterable, Mapping
from itertools import count, groupby, product
from operator import itemgetter
from typing import Any

import pytest

from agentops_memory.recall.query import STOPWORDS, parse_query
from agentops_memory.recall.stems import (
    FORMS_PER_BATCH,
    Stems,
    Vocabulary,
    halves,
    likely_in,
)
from agentops_memory.recall.text import BASE_FORMS, indexed

from ..support.files import assert_index_is_whole, imported
from ..support.recall import context, explained, search
from ..support.samples import for_each
from ..support.service import Service, lasting, observation

__all__ = ["lasting"]

Saved = tuple[str, dict[str, Any]]


def corrections(service: Service, text: str, **asked: Any) -> dict[str, list[str]]:
    """What each misspelt word of a search may have meant."""
    answer = explained(service, "/search", q=text, **({"project": "demo"} | asked))
    found: dict[str, list[str]] = answer["explain"]["corrected"]
    return found


NUMBERS = count()
WINDOW: list[Saved] = [("close the window", {}), ("something else", {"title": "other"})]
OTHERS: list[Saved] = [
    ("the secret walrus", {"project": "other"}), ("their walnut", {"project": "other"}),
]  # fmt: skip

# What is saved in sessions of its own, what is asked for, and the places of what is found.
MEANT: dict[str, tuple[list[Saved], str, list[int]]] = {
    **{
        f"a letter {name}": (WINDOW, text, [1])
        for name, typo in {
            "left out": "widow", "added": "winddow", "replaced": "windaw", "swapped": "wnidow",
        }.items()
        for text in (typo, f"the {typo} close")
    },
    **{
        f"too far: {text}": (WINDOW[:1], text, [])
        for text in ("qindow", "iwndow", "indow", "widnwo", "windowish", "widaw")
    },
    **{
        f"an inflected word: {text}": ([("the databases migrated", {})], text, [1])
        for text in ("datbase", "dtaabase", "databasse", "migated", "mirgated", "miggrated")
    },
    "a title": ([("one", {"title": "walrus"})], "walruz", [1]),
    "tags": ([("two", {"tags": ["penguin"]})], "pengiun", [1]),
    "an identifier": ([("max_connections", {})], "conections", [1]),
    "four letters": ([("the pool", {})], "poll", []),
    "five letters": ([("the pool", {})], "pooll", [1]),
    "a known word": ([("the window", {}), ("a widow", {})], "widow", [2]),
    "a known word, inflected": ([("the window", {}), ("a widow", {})], "widows", [2]),
    "the nearer word": ([("the window", {}), ("a widow", {})], "windoww", [1]),
    "a global memory": ([("the window", {"project": "other", "scope": "global"})], "windaw", [1]),
    "a global memory of no own": (
        [("the window", {"project": "other", "scope": "global"}), ("nothing of it", {})],
        "windaw", [1],
    ),
    "words of another project": ([*OTHERS, ("nothing", {})], "walruz walnud secrat", []),
}  # fmt: skip

# The same, and what each word may have meant.
CORRECTED: dict[str, tuple[list[Saved], str, dict[str, list[str]]]] = {
    **{
        f"no word of letters: {text}": ([("a windows2 数据库", {})], text, {})
        for text in ("wind0w", "win-dow", "window2", "数据库的")
    },
    **{
        f"a word of a short stem: {text}": (
            [("use it, the age of runs", {}), ("the upped apes were ruined", {})], text, {},
        )
        for text in ("using", "aging", "running")
    },
    "known words": ([("the window", {}), ("a widow", {})], "widow window", {}),
    "words of another project": ([*OTHERS, ("nothing", {})], "walruz walnud secrat", {}),
    "a word that only another project has": (
        [("the widow", {"project": "other"}), ("the window", {})], "widow", {"widow": ["window"]},
    ),
}  # fmt: skip


def saved(service: Service, memories: list[Saved]) -> tuple[str, list[int]]:
    """A project of its own for these memories, and their ids."""
    project, ids = f"p{next(NUMBERS)}", []
    for number, (content, fields) in enumerate(memories):
        own = {"title": f"{number}", "project": "", "session_id": f"{project} {number}"} | fields
        own["project"] = f"{project}{own['project']}"
        ids.append(int(str(service.save(content, **own)["id"])))
    return project, ids


@pytest.mark.slow
@for_each("name", MEANT)
def test_a_misspelt_word_finds_what_it_meant(lasting: Service, name: str) -> None:
    memories, text, places = MEANT[name]
    project, ids = saved(lasting, memories)

    found = {hit["id"] for hit in search(lasting, text, project=project)} & {*ids}
    assert [place for place, id_ in enumerate(ids, start=1) if id_ in found] == places
    if places:
        assert context(lasting, text, project=project, limit=1) != ["other"]


@for_each("name", CORRECTED)
def test_a_misspelt_word_is_put_right(lasting: Service, name: str) -> None:
    memories, text, expected = CORRECTED[name]
    project, _ = saved(lasting, memories)

    assert corrections(lasting, text, project=project) == expected


def test_nothing_is_put_right_where_no_single_project_is_asked(service: Service) -> None:
    service.save("the window", project="first")
    service.save("another thing", project="second")

    assert search(service, "windaw") == []
    assert corrections(service, "windaw", project="") == {}
    assert corrections(service, "windaw", project="never") == {}
    assert corrections(service, "windaw", project="first") == {"windaw": ["window"]}


# How many


def test_a_word_stands_for_three_others_at_most_and_those_that_occur_most(service: Service) -> None:
    counts = {"bindo": 3, "bindu": 2, "bindi": 1, "binda": 1, "bindq": 1}
    contents = [f"{word} {n}" for word, count in counts.items() for n in range(count)]
    imported(service, [observation(text, title="-", session_id=text) for text in contents])

    assert corrections(service, "bindx") == {"bindx": ["bindo", "bindu", "binda"]}
    assert len(search(service, "bindx", project="demo")) == 6


def test_the_first_four_unknown_words_are_put_right(service: Service) -> None:
    words = ["apricot", "buffalo", "cactus", "dolphin", "eggplant", "falcon"]
    for word in words:
        service.save(word, session_id=word)
    known, *typos = [words[0], *(f"{word[:-2]}x{word[-1]}" for word in words[1:])]

    found = corrections(service, " ".join([*typos[:2], known, *typos[2:]]))

    assert list(found) == typos[:4]


# Words that are gone


def test_a_word_is_offered_until_the_last_memory_with_it_is_gone(service: Service) -> None:
    def offered() -> bool:
        return corrections(service, "walruz") == {"walruz": ["walru"]}

    service.save("a walrus", title="it")
    service.save("the walruses", title="it", session_id="s2")
    service.save("walrus", title="it", session_id="s3", type="config", tags=["walrus"])
    service.http.delete("/observations/1")
    service.http.patch("/observations/2", json={"content": "the lions"})
    assert offered()
    service.http.patch("/observations/3", json={"content": "the tag"})
    assert offered()

    service.http.patch("/observations/3", json={"tags": []})
    assert not offered()
    assert corrections(service, "lionn") == {"lionn": ["lion"]}

    service.http.post("/observations/1/restore", json={"revision": 1})
    assert offered()
    service.http.delete("/observations/1", params={"hard": "true"})
    assert not offered()
    assert_index_is_whole(service.path)


@pytest.mark.slow
def test_a_word_that_is_only_borrowed_is_no_word_of_the_memory(service: Service) -> None:
    service.save("the walrus", title="it")
    service.save("Friday", title="it")
    service.http.delete("/observations/1")

    assert corrections(service, "walruz fridey") == {"fridey": ["fridai"]}


def test_a_typo_waits_for_the_forms_of_few_of_the_words_that_have_just_come() -> None:
    stems, looked_for = Stems(), list[str]()

    def forms_of(some: Iterable[str]) -> Mapping[str, str]:
        looked_for.extend(some)
        return stems.forms_of(some)

    vocabulary = Vocabulary(forms_of)
    words = ["window", "databas", *("".join(it) for it in product("abcdef", repeat=5))]
    number_of = dict(zip(words, vocabulary.add(words), strict=True))

    vocabulary.prepare(["windaw", "datbase"])
    assert vocabulary.near("windaw") == {number_of["window"]: "window"}
    assert vocabulary.near("datbase") == {number_of["databas"]: "database"}
    assert len(looked_for) < 2 * FORMS_PER_BATCH + 10
    while vocabulary.add_some_forms():
        pass
    assert sorted(looked_for) == sorted(words)


# One edit


# Stems


def test_those_stems_of_a_line_are_likely_that_begin_or_end_as_one_edit_leaves_them() -> None:
    words = {"".join(it) for size in range(2, 7) for it in product("abe", repeat=size)}
    lines = {first: f" {' '.join(its)} " for first, its in groupby(sorted(words), itemgetter(0))}

    for form in ("abba", "abbae", "aebaed", "babbbe", "eaabbaa"):
        head, tails = halves(form)
        expected = [it for it in sorted(words) if it.startswith(head) or it.endswith(tails)]
        assert sorted({*likely_in(lines[form[0]], form)}) == [
            it for it in expected if it[0] == form[0]
        ]


def test_forms_can_be_asked_for_after_the_table_was_given_up() -> None:
    learner = Stems()
    before = learner.forms(["windows"])
    learner.close()
    learner.close()

    assert before == {"windows": "window"}
    assert learner.forms(["closing", "windows"]) == {"closing": "close", "windows": "window"}
    learner.close()


@for_each(
    "saved, asked",
    [
        ("Ada went to the sea", "where has she gone?"), ("they go", "WENT"),
        ("the children sang", "a child's singing"), ("It was bought by_then", "buying"),
        ("people-first", "person"), ("mice.txt", "mouse"), ("I forget it", "for-got"),
        ("she wént", "go"), ("go", "wént"), ("WENT home", "go"),
    ],
)  # fmt: skip
def test_a_form_finds_the_others(service: Service, saved: str, asked: str) -> None:
    service.save(saved, title="-", project=saved)

    assert len(search(service, asked, project=saved)) == 1


def test_a_form_in_tags_and_in_a_borrowed_context_finds_the_others(service: Service) -> None:
    service.save("the children", title="-", tags=["mice"])
    service.save("yes", title="-")

    assert len(search(service, "mouse")) == 1
    assert len(search(service, "child")) == 2


def test_a_form_that_is_spelt_right_is_corrected_to_nothing(service: Service) -> None:
    service.save("the tech stack", title="-")

    assert search(service, "taught", project="demo") == []


def test_parts_of_other_words_are_left_alone(service: Service) -> None:
    service.save("outwent wentworth went2", title="-")

    assert search(service, "go") == []
    assert search(service, "wouldn't, won't") == []
    assert len(search(service, "went2")) == 1


@for_each("form", sorted(BASE_FORMS))
def test_a_form_is_indexed_as_it_is_sought(form: str) -> None:
    (sentence,) = parse_query(form).sentences

    assert [term.text for term in sentence.terms] == [indexed(form)] == [BASE_FORMS[form]]


def test_no_base_form_is_a_form_or_a_stop_word() -> None:
    bases = set(BASE_FORMS.values())

    assert bases & BASE_FORMS.keys() == set()
    assert (bases | BASE_FORMS.keys()) & STOPWORDS == set()
