"""One of the best gains by those of them that were saved just after it in its session."""

from datetime import timedelta
from pathlib import Path

import pytest

from ..support.recall import context, explained, search
from ..support.service import START, Service, serving
from ..support.stores import entry, store


def followers(service: Service, text: str = "apple") -> dict[str, list[tuple[int, float]]]:
    """By title, the memories that add to a score, and the weight of each."""
    rows = explained(service, "/context", project="demo", query=text, limit=40)
    return {
        row["title"]: [(it["id"], it["weight"]) for it in row["explain"].get("following", [])]
        for row in rows["recent_observations"]
    }


def test_a_memory_gains_by_the_next_two_of_its_session(service: Service) -> None:
    for title in ("first", "second", "third", "fourth"):
        service.save(f"apple {title}", title=title)
    service.save("apple elsewhere", title="elsewhere", session_id="another")

    assert followers(service) == {
        "first": [(2, 0.1), (3, 0.05)], "second": [(3, 0.1), (4, 0.05)], "third": [(4, 0.1)],
        "fourth": [], "elsewhere": [],
    }  # fmt: skip


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


def test_one_that_does_not_match_or_is_deleted_adds_nothing(service: Service) -> None:
    for title in ("first", "second", "third", "fourth"):
        # With more than 80 words nothing is borrowed from those before.
        service.save("pears " * 81 if title == "second" else f"apple {title}", title=title)

    assert followers(service)["first"] == [(3, 0.05)]
    service.http.delete("/observations/2")
    assert followers(service)["first"] == [(3, 0.1), (4, 0.05)]


def test_an_expired_one_adds_nothing_and_keeps_its_place(service: Service) -> None:
    end = (START + timedelta(hours=1)).isoformat()
    service.save("apple one", title="first")
    service.save("apple two", title="second", expires_at=end)
    service.save("apple three", title="third")
    service.save("apple four", title="fourth")

    assert followers(service)["first"] == [(2, 0.1), (3, 0.05)]
    service.clock.advance(hours=1)
    assert followers(service)["first"] == [(3, 0.05)]


def test_those_of_another_scope_do_not_follow(service: Service) -> None:
    service.save("apple one", title="first")
    service.save("apple two", title="second", scope="team")
    service.save("apple three", title="third")

    assert followers(service)["first"] == [(3, 0.1)]


@pytest.mark.slow
def test_only_the_twenty_best_gain_and_give(service: Service) -> None:
    for number in range(24):
        service.save(f"apple {'pears ' * (81 + number)}", title=f"{number:02}")

    gained = [title for title, given in followers(service).items() if given]

    assert gained == [f"{number:02}" for number in range(19)]  # none of the best follows the last


@pytest.mark.heavy
def test_the_order_is_the_same_under_every_limit(service: Service) -> None:
    for number in range(30):
        service.save(
            f"apple{' pears' * (number % 7)}", title=f"{number}", session_id=f"{number % 3}"
        )
    longest = [hit["id"] for hit in search(service, "apple zebra", limit=30)]

    for limit in (1, 2, 5, 19, 20, 21):
        assert [hit["id"] for hit in search(service, "apple zebra", limit=limit)] == longest[:limit]
    for place, id_ in enumerate(longest, start=1):
        asked = {"q": "apple zebra", "limit": 1, "why_not": id_}
        assert (
            service.http.get("/search", params=asked).json()["explain"]["why_not"]["place"] == place
        )


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


def test_it_can_be_left_out(path: Path) -> None:
    with serving(path, MEMORY_RECALL_WITHOUT="following") as service:
        service.save("apple one", title="first")
        service.save("apple two", title="second")
        assert followers(service) == {"first": [], "second": []}
