"""Saving: the three tiers, each with its edges, on a clock that stands still."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ..support.files import assert_index_is_whole
from ..support.requirements import requirement
from ..support.service import Clock, Service, serving

WINDOW = timedelta(minutes=15)
AN_HOUR = "2030-01-01T13:00:00Z"


@requirement(
    "agentops:observations:save", "agentops:save:hash", "agentops:observations:session-created"
)
def test_a_first_save_creates_its_row_and_session_and_so_does_one_after_a_deletion(
    service: Service,
) -> None:
    for number in (1, 2):
        assert service.save("one", session_id="new", project=" Demo") == {
            "id": number, "action": "created", "revision_count": 1, "duplicate_count": 1,
        }  # fmt: skip
        service.http.delete(f"/observations/{number}")

    assert service.http.get("/sessions/recent").json() == [
        {"id": "new", "project": "demo", "started_at": "2030-01-01T12:00:00Z", "message_count": 0}
    ]


@requirement("agentops:save:topic-key")
def test_a_topic_key_that_is_there_is_replaced(service: Service) -> None:
    first = service.save("one", topic_key="k", tags=["a"], title="One")
    service.clock.advance(hours=1)
    again = service.save(
        "two", topic_key="k", tags=["b"], title="Two", type="decision", session_id="s2"
    )

    assert again == {"id": 1, "action": "updated", "revision_count": 2, "duplicate_count": 1}
    assert _shown(service, first["id"]) == {
        "id": 1, "session_id": "s1", "type": "decision", "title": "Two", "content": "two",
        "tags": ["b"], "project": "demo", "scope": "project", "topic_key": "k",
        "normalized_hash": hashlib.sha256(b"two").hexdigest(), "revision_count": 2,
        "duplicate_count": 1, "last_seen_at": AN_HOUR, "created_at": "2030-01-01T12:00:00Z",
        "updated_at": AN_HOUR,
    }  # fmt: skip


@requirement("agentops:save:topic-key", "agentops:save:topic-key-unchanged")
def test_a_topic_key_counts_a_revision_although_nothing_changed_and_clears_tags(
    service: Service,
) -> None:
    service.save("one", topic_key="k", tags=["a"])
    service.save("one", topic_key="k")
    again = service.save("one", topic_key="k")

    assert again == {"id": 1, "action": "updated", "revision_count": 3, "duplicate_count": 1}
    assert "tags" not in _shown(service, 1)


@pytest.mark.slow
@requirement("agentops:save:topic-key")
def test_a_topic_key_belongs_to_its_project_and_scope(service: Service) -> None:
    fields = [{"topic_key": "k"}, {"topic_key": "K"}, {"topic_key": "k", "scope": "global"}]
    ids = [service.save("one", **each)["id"] for each in fields]
    ids += [service.save("one", project="other", **each)["id"] for each in fields]
    service.http.delete("/observations/1")
    ids.append(service.save("one", topic_key="k")["id"])

    assert ids == [1, 2, 3, 4, 5, 6, 7]


@requirement("agentops:save:hash")
def test_the_same_words_are_one_row_seen_once_more(service: Service) -> None:
    service.save("one", tags=["a"])
    service.clock.advance(minutes=10)
    again = service.save("one", tags=["b"], session_id="s2")

    assert again == {"id": 1, "action": "deduplicated", "revision_count": 1, "duplicate_count": 2}
    shown = _shown(service, 1)
    assert shown["last_seen_at"] == "2030-01-01T12:10:00Z"
    assert shown["updated_at"] == shown["created_at"] == "2030-01-01T12:00:00Z"
    assert (shown["tags"], shown["session_id"]) == (["a"], "s1")
    assert service.http.get("/stats").json()["total_sessions"] == 2
    assert [row["revision"] for row in service.http.get("/observations/1/history").json()] == [1]


@requirement("agentops:save:hash-normalized")
def test_white_space_and_case_do_not_count(service: Service) -> None:
    service.save("Größe  of\tIt", title="t")
    again = service.save("\n größe OF\u2003it ", title="t")

    assert again["action"] == "deduplicated"
    shown = _shown(service, 1)
    assert shown["content"] == "Größe  of\tIt"
    assert shown["normalized_hash"] == hashlib.sha256("größe of it".encode()).hexdigest()


@requirement("agentops:save:hash")
def test_whatever_else_differs_makes_another_row(service: Service) -> None:
    service.save("one", title="t")
    differences = [
        {"title": "T"}, {"type": "decision"}, {"topic_key": "k"}, {"scope": "team"},
        {"project": "other"},
    ]  # fmt: skip

    for each in differences:
        assert service.save("one", **({"title": "t"} | each))["action"] == "created", each
    assert service.save("o ne", title="t")["action"] == "created"
    assert service.save("one", title="t")["id"] == 1


@requirement("agentops:save:window-edge")
def test_the_window_reaches_back_to_its_last_microsecond(service: Service) -> None:
    service.save("one")
    service.clock.now += WINDOW
    assert service.save("one")["action"] == "deduplicated"
    service.clock.advance(microseconds=1)

    assert service.save("one") == {
        "id": 2, "action": "created", "revision_count": 1, "duplicate_count": 1,
    }  # fmt: skip
    assert service.save("one")["id"] == 2


@requirement("agentops:save:window-edge", "agentops:fault:window-to-midnight")
def test_the_window_does_not_reach_back_to_midnight(path: Path) -> None:
    clock = Clock(datetime(2030, 1, 1, 0, 0, 1, tzinfo=UTC))
    with serving(path, clock=clock) as service:
        service.save("one")
        clock.advance(hours=23)
        assert service.save("one")["action"] == "created"
        clock.advance(minutes=55)
        service.save("two")
        clock.advance(minutes=10)
        assert service.save("two")["action"] == "deduplicated"  # midnight lies between


@requirement("agentops:save:window-edge")
@pytest.mark.parametrize(
    ("window", "days", "action"), [("0", 0, "created"), ("2540400h", 365 * 280, "deduplicated")]
)
def test_a_window_of_zero_is_none_and_the_longest_covers_centuries(
    path: Path, window: str, days: int, action: str
) -> None:
    with serving(path, MEMORY_DEDUPE_WINDOW=window) as service:
        service.save("one")
        service.clock.advance(days=days)

        assert service.save("one")["action"] == action
        assert service.save("one", topic_key="k")["id"] == service.save("two", topic_key="k")["id"]


@requirement("agentops:save:races", "agentops:fault:racing-saves")
def test_racing_saves_of_one_thing_are_one_row_with_exact_counts(service: Service) -> None:
    def save(number: int) -> tuple[dict[str, object], dict[str, object]]:
        keyed = service.save(f"turn {number}", topic_key="k", session_id=f"s{number}")
        return keyed, service.save("the same", title="t")

    with ThreadPoolExecutor(8) as threads:
        keyed, same = zip(*threads.map(save, range(40)), strict=True)

    for answers, action, count in (
        (keyed, "updated", "revision_count"),
        (same, "deduplicated", "duplicate_count"),
    ):
        assert len({answer["id"] for answer in answers}) == 1
        assert sorted(answer[count] for answer in answers) == list(range(1, 41))
        assert sorted(answer["action"] for answer in answers) == ["created"] + [action] * 39
        assert _shown(service, answers[0]["id"])[count] == 40
    assert service.http.get("/stats").json()["total_observations"] == 2
    assert_index_is_whole(service.path)


def _shown(service: Service, id_: object) -> dict[str, object]:
    shown: dict[str, object] = service.http.get(f"/observations/{id_}").json()
    return shown
