"""One of the best gains by those of them that were saved just after it in its session."""

from datetime import timedelta
from itertools import count

import pytest

from ..support.recall import context, explained
from ..support.samples import for_each
from ..support.service import START, Service, lasting
from ..support.stores import entry, store

__all__ = ["lasting"]

HOUR = timedelta(hours=1)


Saved = tuple[str, dict[str, object]]
NUMBERS = count()


def followers(service: Service, project: str) -> dict[str, list[tuple[str, float]]]:
    """By title, the titles of those that add to a memory's score, and the weight of each."""
    asked = {"project": project, "query": "apple", "limit": 40}
    rows = explained(service, "/context", **asked)["recent_observations"]
    titles = {row["explain"]["id"]: row["title"] for row in rows}
    return {
        row["title"]: [(titles[it["id"]], it["weight"]) for it in row["explain"]["following"]]
        for row in rows
        if "following" in row["explain"]
    }


def apples(*titles: str, **others: dict[str, object]) -> list[Saved]:
    return [(it, {"content": f"apple {it}"} | others.get(it, {})) for it in titles]


FOUR = ("first", "second", "third", "fourth")
# What is saved, which of it is deleted or how much time passes, and who gains by whom.
GAINS: dict[str, tuple[list[Saved], str, dict[str, list[tuple[str, float]]]]] = {
    "by the next two of its session": (
        apples(*FOUR, "elsewhere", elsewhere={"session_id": "another"}), "",
        {"first": [("second", 0.1), ("third", 0.05)], "second": [("third", 0.1), ("fourth", 0.05)],
         "third": [("fourth", 0.1)]},
    ),
    # With more than 80 words nothing is borrowed from those before.
    "not by one that does not match": (
        apples(*FOUR[:3], second={"content": "pears " * 81}), "", {"first": [("third", 0.05)]},
    ),
    "not by a deleted one, whose place is taken": (
        apples(*FOUR[:3]), "second", {"first": [("third", 0.1)]},
    ),
    "not by an expired one, which keeps its place": (
        apples(*FOUR[:3], second={"expires_at": (START + HOUR).isoformat()}), "an hour",
        {"first": [("third", 0.05)]},
    ),
    "not by one of another scope": (
        apples(*FOUR[:3], second={"scope": "team"}), "", {"first": [("third", 0.1)]},
    ),
}  # fmt: skip


@for_each("name", GAINS)
def test_a_memory_gains_by_those_that_follow_it(lasting: Service, name: str) -> None:
    saved, gone, expected = GAINS[name]
    project, ids = f"p{next(NUMBERS)}", dict[str, object]()
    for title, fields in saved:
        session = f"{project} {fields.get('session_id', '')}"
        body = {**fields, "title": title, "project": project, "session_id": session}
        ids[title] = lasting.save(**body)["id"]  # type: ignore[arg-type]
    lasting.clock.now = START + HOUR if gone == "an hour" else START
    if gone in ids:
        lasting.http.delete(f"/observations/{ids[gone]}")

    assert followers(lasting, project) == expected


def test_what_it_gains_is_a_part_of_the_score_that_they_have_without_it(service: Service) -> None:
    service.save("apple and pears, at last", title="first")
    service.save("apple", title="second")

    rows = explained(service, "/context", project="demo", query="apple")["recent_observations"]
    items = {row["title"]: row["explain"] for row in rows}

    (gained,) = items["first"]["following"]
    (of_words,) = items["first"]["sentences"]
    assert gained["score"] == items["second"]["score"]
    assert items["first"]["score"] == pytest.approx(of_words["score"] + 0.1 * gained["score"])
    assert gained["share"] + of_words["share"] == pytest.approx(1)


def test_it_is_sought_by_what_follows_though_others_have_the_same_words(service: Service) -> None:
    service.save("We chose the walrus for it.", title="alone", session_id="a")
    service.save("We chose the walrus for it.", title="followed", session_id="b", type="note")
    service.save("The walrus is the queue of orders.", title="after", session_id="b")

    found = context(service, "which walrus did we choose then")

    assert found.index("followed") < found.index("alone")


@pytest.mark.slow
def test_only_the_twenty_best_gain_and_give(service: Service) -> None:
    for number in range(24):
        service.save(f"apple {'pears ' * (81 + number)}", title=f"{number:02}")

    gained = [*followers(service, "demo")]

    assert gained == [f"{number:02}" for number in range(19)]  # none of the best follows the last


def test_where_every_word_is_asked_for_none_gains(service: Service) -> None:
    service.save("apple one")
    service.save("apple two")

    rows = explained(service, "/search", q="apple")["results"]

    assert [row["explain"]["tier"] for row in rows] == ["every", "every"]
    assert not any("following" in row["explain"] for row in rows)


@pytest.mark.slow
def test_entries_of_stores_follow_none(service: Service) -> None:
    home = store(service.http)
    for number in range(3):
        entry(service.http, home, f"a/{number}.md", f"apple {number}")

    asked = {"project": "demo", "query": "apple", "stores": home["id"]}
    rows = explained(service, "/context", **asked)["recent_observations"]

    assert len(rows) == 3
    assert not any("following" in row["explain"] for row in rows)
