"""A short memory is found by the end of what was said just before it, and shows only itself."""

from itertools import count
from typing import Any

import httpx
import pytest

from ..support.files import assert_index_is_whole, imported
from ..support.recall import context, search, titles
from ..support.service import Service, lasting, observation

__all__ = ["lasting"]

QUESTION = "When do we deploy the billing zebra?"
ANSWER = "Yes, on Friday"
TALK = ["apple", "zebra", "cherry", "damson", "elder"]  # no word of one in another
FIRST = [f"first {it} {' '.join(f'w{number}' for number in range(29))}" for it in ("zebra", "emu")]
NUMBERS = count()

Saved = str | tuple[str, dict[str, object]]
Deed = tuple[str, int, Any]


class Talk:
    """A project and a session of its own, in which memories are numbered from 1."""

    def __init__(self, service: Service) -> None:
        self.service, self.project = service, f"p{next(NUMBERS)}"
        self.ids: list[int] = []

    def body(self, content: str, **fields: object) -> dict[str, object]:
        named = {"project": self.project, "session_id": self.project, "title": f"a {len(content)}"}
        elsewhere = {
            name: f"{self.project} {value}"
            for name, value in fields.items()
            if name in ("project", "session_id", "topic_key")
        }
        return observation(content, **(named | fields | elsewhere))

    def save(self, *saved: Saved) -> None:
        for it in saved:
            content, fields = (it, {}) if isinstance(it, str) else it
            body = self.body(content, **fields)
            id_ = int(str(self.service.save(str(body.pop("content")), **body)["id"]))
            if id_ not in self.ids:
                self.ids.append(id_)

    def do(self, deed: Deed) -> httpx.Response:
        kind, number, value = deed
        path = f"/observations/{self.ids[number - 1]}"
        match kind:
            case "delete" | "erase":
                return self.service.http.delete(path, params={"hard": str(kind == "erase").lower()})
            case "amend":
                return self.service.http.patch(path, json={"content": value})
            case _:
                return self.service.http.post(f"{path}/restore", json={"revision": 1})

    def finds(self, text: str) -> list[int]:
        """The numbers of those that a search finds."""
        hits = search(self.service, text, project=self.project, limit=50)
        found = {hit["id"] for hit in hits}
        return [number for number, id_ in enumerate(self.ids, start=1) if id_ in found]


# What is saved, and which of it each word finds.
LENT: dict[str, tuple[list[Saved], dict[str, list[int]]]] = {
    "by the two before it and no third": (
        ["zebra", "one", "two", "three"], {"zebra": [1, 2, 3], "one": [2, 3, 4]},
    ),
    "not by what comes after it": ([QUESTION, "On Friday, by the walrus"], {"walrus": [2]}),
    "not from another session": ([(QUESTION, {"session_id": "b"}), ANSWER], {"zebra": [1]}),
    "not from another scope": ([(QUESTION, {"scope": "team"}), ANSWER], {"zebra": [1]}),
    "not from a global memory": ([(QUESTION, {"scope": "global"}), ANSWER], {"zebra": [1]}),
    "across what lies between and elsewhere": (
        [QUESTION, ("something else", {"session_id": "b"}), ("something else", {"project": "b"}),
         ("something else", {"scope": "team"}), ANSWER],
        {"zebra": [1, 5]},
    ),
    "to one of 80 words": (
        [QUESTION, " ".join(f"w{number}," for number in range(80))], {"zebra": [1, 2]},
    ),
    "not to one of 81 words": (
        [QUESTION, " ".join(f"w{number}," for number in range(81))], {"zebra": [1]},
    ),
    "the last thirty words of each": (
        [*FIRST, ANSWER], {"zebra": [1, 2, 3], "emu": [2, 3], "first": [1, 2]},
    ),
    "to 160 characters of such a script and not to 161": (
        ["马牛", "库" * 160, "库" * 161], {"马牛": [1, 2]},
    ),
    "no half of a word": (
        [f"lionhearted {'z' * 1000} {'z' * 194}", ANSWER],
        {"lionhearted": [1], "rted": [], "z" * 194: [1, 2]},
    ),
    "no title and no tags": (
        [("a question", {"title": "zebra", "tags": ["walrus"]}), ANSWER],
        {"zebra": [1], "walrus": [1]},
    ),
    "the newer text of a known key": (
        [("zebra", {"topic_key": "k"}), ANSWER, ("lion", {"topic_key": "k"})],
        {"zebra": [], "lion": [1, 2]},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LENT)
def test_what_is_said_is_lent(lasting: Service, name: str) -> None:
    saved, expected = LENT[name]
    talk = Talk(lasting)
    talk.save(*saved)

    assert {text: talk.finds(text) for text in expected} == expected


def test_an_answer_is_found_by_the_question_before_it_and_shows_itself(service: Service) -> None:
    service.save(QUESTION, title="question")
    service.save(ANSWER, title="answer")

    hits = search(service, "deploy zebra")
    assert titles(hits) == ["question", "answer"]
    assert [hit["content"] for hit in hits] == [QUESTION, ANSWER]
    assert context(service, "When is the billing deploy?", limit=2) == ["question", "answer"]
    answer = service.http.get("/context", params={"query": "zebra", "project": "demo"})
    reminded = [row["content"] for row in answer.json()["recent_observations"]]
    assert reminded == [QUESTION, ANSWER]


def test_what_is_borrowed_counts_for_any_word_and_not_for_every_one(service: Service) -> None:
    service.save("zebra", title="question")
    service.save("Friday", title="answer")
    service.save("zebra on Friday", title="both", session_id="other")

    assert titles(search(service, "zebra friday"))[0] == "both"


# What is done to a memory of a talk changes what finds the next two.
DONE: dict[str, tuple[list[Deed], dict[str, list[int]]]] = {
    "deleted": ([("delete", 2, None)], {"zebra": [], "apple": [1, 3, 4], "cherry": [3, 4, 5]}),
    "erased": ([("erase", 2, None)], {"zebra": [], "apple": [1, 3, 4], "cherry": [3, 4, 5]}),
    "amended": ([("amend", 2, "lion")], {"zebra": [], "lion": [2, 3, 4], "apple": [1, 2, 3]}),
    "restored": (
        [("delete", 2, None), ("restore", 2, None)], {"zebra": [2, 3, 4], "apple": [1, 2, 3]},
    ),
    "restored without its neighbours": (
        [("delete", 3, None), ("delete", 2, None), ("delete", 4, None), ("restore", 2, None)],
        {"zebra": [2, 5]},
    ),
    "grown and shrunk": (
        [("amend", 3, "word " * 81), ("amend", 3, "cherry again")], {"zebra": [2, 3, 4]},
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", DONE)
def test_a_memory_is_lent_as_it_is_now(lasting: Service, name: str) -> None:
    deeds, expected = DONE[name]
    talk = Talk(lasting)
    talk.save(*TALK)
    assert talk.finds("zebra") == [2, 3, 4]

    for deed in deeds:
        talk.do(deed).raise_for_status()

    assert {text: talk.finds(text) for text in expected} == expected
    assert_index_is_whole(lasting.path)


# Imports


def test_imported_memories_have_neighbours_too(service: Service) -> None:
    talk = Talk(service)
    imported(service, [talk.body(content) for content in ("zebra", "one", "two", "three")])
    talk.ids = [1, 2, 3, 4]
    talk.save("four")

    assert talk.finds("zebra") == [1, 2, 3]
    assert talk.finds("three") == [4, 5]
    assert_index_is_whole(service.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deed", "expected"),
    [
        ("delete", {"zebra": [2, 3, 4], "apple": [1, 2, 3]}),
        ("erase", {"zebra": [6], "elder": [5, 6]}),  # it comes back as the last
    ],
)
def test_a_memory_that_an_import_brings_back_is_lent_again(
    service: Service, deed: str, expected: dict[str, list[int]]
) -> None:
    talk = Talk(service)
    talk.save(*TALK)
    exported = service.http.get("/export").json()["observations"]
    talk.do((deed, 2, None)).raise_for_status()
    assert talk.finds("zebra") == []

    imported(service, exported)
    talk.ids = [1, 2, 3, 4, 5, 6]

    assert {text: talk.finds(text) for text in expected} == expected
    assert_index_is_whole(service.path)
