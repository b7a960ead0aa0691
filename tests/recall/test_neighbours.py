"""A short memory is found by the end of what was said just before it, and shows only itself."""

from collections.abc import Callable

import pytest

from ..support.database import assert_index_is_whole, imported
from ..support.recall import context, search, titles
from ..support.service import Service, observation

QUESTION = "When do we deploy the billing zebra?"


def finds(service: Service, text: str) -> list[int]:
    """The ids that a search finds, oldest first."""
    return sorted(hit["id"] for hit in search(service, text, project="demo", limit=50))


def test_an_answer_is_found_by_the_question_before_it(service: Service) -> None:
    service.save(QUESTION, title="question")
    service.save("Yes, on Friday", title="answer")

    assert titles(search(service, "deploy zebra")) == ["question", "answer"]
    assert context(service, "When is the billing deploy?", limit=2) == ["question", "answer"]


def test_a_memory_is_found_by_the_two_before_it_and_no_third(service: Service) -> None:
    for content in ("zebra", "one", "two", "three"):
        service.save(content)

    assert finds(service, "zebra") == [1, 2, 3]
    assert finds(service, "one") == [2, 3, 4]


def test_a_question_is_not_found_by_its_answer(service: Service) -> None:
    service.save(QUESTION)
    service.save("On Friday, by the walrus")

    assert finds(service, "walrus") == [2]


@pytest.mark.parametrize(
    "elsewhere",
    [{"session_id": "other"}, {"project": "other"}, {"scope": "team"}, {"scope": "global"}],
)
def test_nothing_is_borrowed_from_elsewhere(service: Service, elsewhere: dict[str, object]) -> None:
    service.save(QUESTION, **elsewhere)
    service.save("Yes, on Friday")

    assert 2 not in finds(service, "zebra")


def test_what_lies_between_and_elsewhere_does_not_part_neighbours(service: Service) -> None:
    service.save(QUESTION)
    for elsewhere in ({"session_id": "other"}, {"project": "other"}, {"scope": "team"}):
        service.save("something else", **elsewhere)
    service.save("Yes, on Friday")

    assert finds(service, "zebra") == [1, 5]


@pytest.mark.parametrize(("words", "borrows"), [(80, True), (81, False)])
def test_only_a_short_memory_borrows(service: Service, words: int, borrows: bool) -> None:
    service.save(QUESTION)
    service.save(" ".join(f"w{number}," for number in range(words)))

    assert (2 in finds(service, "zebra")) is borrows


@pytest.mark.parametrize(("after", "is_lent"), [(29, True), (30, False)])
def test_the_last_thirty_words_of_each_neighbour_count(
    service: Service, after: int, is_lent: bool
) -> None:
    for animal in ("zebra", "walrus"):
        service.save(f"first {animal} " + " ".join(f"w{number}" for number in range(after)))
    service.save("Yes, on Friday")

    for animal in ("zebra", "walrus"):
        assert (3 in finds(service, animal)) is is_lent
    assert 3 not in finds(service, "first")


def test_two_characters_of_a_script_without_spaces_count_as_a_word(service: Service) -> None:
    service.save("猫狗" + "数" * 58)
    service.save("鸟鱼" + "数" * 60)
    service.save("据" * 160)
    service.save("马牛", session_id="s2")
    service.save("库" * 160, session_id="s2")
    service.save("库" * 161, session_id="s2")

    assert finds(service, "猫狗") == [1, 2, 3]
    assert finds(service, "鸟鱼") == [2]
    assert finds(service, "马牛") == [4, 5]


@pytest.mark.parametrize("letter", ["z", "é"])
def test_half_a_word_is_not_borrowed(service: Service, letter: str) -> None:
    service.save(f"lionhearted {letter * 1000} {letter * 194}")
    service.save("Yes, on Friday")

    assert finds(service, "lionhearted") == [1]
    assert finds(service, "rted") == []
    assert finds(service, letter * 194) == [1, 2]


def test_a_title_and_tags_are_not_lent(service: Service) -> None:
    service.save("a question", title="zebra", tags=["walrus"])
    service.save("Yes, on Friday")

    assert finds(service, "zebra") == finds(service, "walrus") == [1]


def test_what_is_borrowed_counts_for_any_word_and_not_for_every_one(service: Service) -> None:
    service.save("zebra", title="question")
    service.save("Friday", title="answer")
    service.save("zebra on Friday", title="both", session_id="other")

    assert titles(search(service, "zebra friday"))[0] == "both"


def test_what_is_shown_is_never_borrowed(service: Service) -> None:
    service.save(QUESTION, title="question")
    service.save("Yes, on Friday", title="answer")
    answer = service.http.get("/context", params={"query": "zebra", "project": "demo"})

    shown = {hit["id"]: hit["content"] for hit in search(service, "zebra")}
    assert shown == {1: QUESTION, 2: "Yes, on Friday"}
    reminded = [row["content"] for row in answer.json()["recent_observations"]]
    assert reminded == list(shown.values())


# What is done to a memory changes what finds the next two

CHANGES: dict[str, Callable[[Service], object]] = {
    "delete": lambda service: service.http.delete("/observations/2"),
    "erase": lambda service: service.http.delete("/observations/2", params={"hard": "true"}),
    "amend": lambda service: service.http.patch("/observations/2", json={"content": "lion"}),
}


@pytest.fixture
def talk(service: Service) -> Service:
    """A talk of five short memories, the words of one another's in none of them."""
    for content in ("apple", "zebra", "cherry", "damson", "elder"):
        service.save(content, title=f"a {len(content)}")
    return service


@pytest.mark.representative(2)
@pytest.mark.parametrize("change", CHANGES)
def test_words_that_are_gone_are_found_nowhere(talk: Service, change: str) -> None:
    assert finds(talk, "zebra") == [2, 3, 4]

    CHANGES[change](talk)

    assert finds(talk, "zebra") == []
    assert_index_is_whole(talk.path)


@pytest.mark.parametrize("change", ["delete", "erase"])
def test_the_next_two_borrow_from_those_that_are_now_before_them(
    talk: Service, change: str
) -> None:
    CHANGES[change](talk)

    assert finds(talk, "apple") == [1, 3, 4]
    assert finds(talk, "cherry") == [3, 4, 5]


def test_new_words_are_borrowed_in_the_place_of_the_old(talk: Service) -> None:
    talk.http.patch("/observations/2", json={"content": "lion"})

    assert finds(talk, "lion") == [2, 3, 4]
    assert finds(talk, "apple") == [1, 2, 3]


def test_a_memory_that_is_restored_is_lent_again(talk: Service) -> None:
    talk.http.delete("/observations/2")
    talk.http.post("/observations/2/restore", json={"revision": 1})

    assert finds(talk, "zebra") == [2, 3, 4]
    assert finds(talk, "apple") == [1, 2, 3]
    assert_index_is_whole(talk.path)


def test_a_neighbour_that_is_deleted_with_the_next_leaves_nothing(talk: Service) -> None:
    for memory in (3, 2, 4):
        talk.http.delete(f"/observations/{memory}")

    assert finds(talk, "zebra") == finds(talk, "cherry") == finds(talk, "damson") == []
    assert finds(talk, "apple") == [1, 5]
    talk.http.post("/observations/2/restore", json={"revision": 1})
    assert finds(talk, "zebra") == [2, 5]
    assert_index_is_whole(talk.path)


def test_a_memory_that_grows_no_longer_borrows_and_one_that_shrinks_does(talk: Service) -> None:
    talk.http.patch("/observations/3", json={"content": "word " * 81})
    assert finds(talk, "zebra") == [2, 4]

    talk.http.patch("/observations/3", json={"content": "cherry again"})
    assert finds(talk, "zebra") == [2, 3, 4]
    assert_index_is_whole(talk.path)


@pytest.mark.slow
def test_a_save_at_a_known_key_changes_what_is_lent(service: Service) -> None:
    service.save("zebra", topic_key="k")
    service.save("Yes, on Friday")
    service.save("lion", topic_key="k")

    assert (finds(service, "zebra"), finds(service, "lion")) == ([], [1, 2])


# Imports


def test_imported_memories_have_neighbours_too(service: Service) -> None:
    contents = ("zebra", "one", "two", "three")
    imported(service, [observation(content) for content in contents])
    service.save("four")

    assert finds(service, "zebra") == [1, 2, 3]
    assert finds(service, "three") == [4, 5]
    assert_index_is_whole(service.path)


def test_a_memory_that_an_import_brings_back_is_lent_again(talk: Service) -> None:
    exported = talk.http.get("/export").json()["observations"]
    talk.http.delete("/observations/2")
    assert finds(talk, "zebra") == []

    imported(talk, exported)

    assert finds(talk, "zebra") == [2, 3, 4]
    assert finds(talk, "apple") == [1, 2, 3]
    assert_index_is_whole(talk.path)


def test_a_memory_that_was_erased_comes_back_as_the_last(talk: Service) -> None:
    exported = talk.http.get("/export").json()["observations"]
    talk.http.delete("/observations/2", params={"hard": "true"})

    imported(talk, exported)

    assert finds(talk, "zebra") == [6]
    assert finds(talk, "elder") == [5, 6]
    assert_index_is_whole(talk.path)
