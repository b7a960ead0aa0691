"""Irregular forms of a word are found by each other."""

from pathlib import Path

from agentops_memory.recall.query import STOPWORDS, understood
from agentops_memory.recall.text import BASE_FORMS, indexed

from ..support.recall import search
from ..support.samples import for_each
from ..support.service import Service, serving


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


def test_forms_can_be_left_as_they_are(path: Path) -> None:
    with serving(path, MEMORY_RECALL_WITHOUT="irregular-forms") as service:
        service.save("gone fishing", title="-")

        assert len(search(service, "gone")) == 1
        assert search(service, "go") == []


def test_parts_of_other_words_are_left_alone(service: Service) -> None:
    service.save("outwent wentworth went2", title="-")

    assert search(service, "go") == []
    assert search(service, "wouldn't, won't") == []
    assert len(search(service, "went2")) == 1


@for_each("form", sorted(BASE_FORMS))
def test_a_form_is_indexed_as_it_is_sought(form: str) -> None:
    (sentence,) = understood(form).sentences

    assert [term.text for term in sentence.terms] == [indexed(form)] == [BASE_FORMS[form]]


def test_no_base_form_is_a_form_or_a_stop_word() -> None:
    bases = set(BASE_FORMS.values())

    assert bases & BASE_FORMS.keys() == set()
    assert (bases | BASE_FORMS.keys()) & STOPWORDS == set()
