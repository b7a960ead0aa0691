"""Irregular forms of a word are found by each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentops_memory.domain.text.irregular import BASE_FORMS
from agentops_memory.domain.text.normalization import indexed
from agentops_memory.domain.text.query import STOPWORDS, understood

from .recall import search
from .service import Service


@pytest.mark.parametrize(
    ("saved", "asked"),
    [
        ("Ada went to the sea", "where has she gone?"),
        ("they go", "WENT"),
        ("the children sang", "a child's singing"),
        ("It was bought by_then", "buying"),
        ("people-first", "person"),
        ("mice.txt", "mouse"),
    ],
)
def test_a_form_finds_the_others(service: Service, saved: str, asked: str) -> None:
    service.save(saved, title="-")

    assert len(search(service, asked)) == 1


def test_parts_of_other_words_are_left_alone(service: Service) -> None:
    service.save("outwent wentworth went2", title="-")

    assert search(service, "go") == []
    assert search(service, "wouldn't, won't") == []
    assert len(search(service, "went2")) == 1


@given(st.sampled_from(sorted(BASE_FORMS)))
def test_a_form_is_indexed_as_it_is_sought(form: str) -> None:
    (sentence,) = understood(form).sentences

    assert [term.text for term in sentence.terms] == [indexed(form)] == [BASE_FORMS[form]]


def test_no_base_form_is_a_form_or_a_stop_word() -> None:
    bases = set(BASE_FORMS.values())

    assert bases & BASE_FORMS.keys() == set()
    assert (bases | BASE_FORMS.keys()) & STOPWORDS == set()
