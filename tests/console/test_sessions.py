"""The views *Sessions* and *Projects*: counts as REST has them, and what leads where."""

import re
from collections import Counter

import pytest

from ..support.pages import get
from ..support.service import Service

MESSAGES = [
    {"role": "user", "content": "Make the orders reliable."},
    {"role": "assistant", "content": "I use a queue."},
    {"role": "user", "content": "Ship it on Friday."},
]


def filled(service: Service) -> None:
    """Session s1 has ended, with two memories; s2 of the same project is open; s3 is another's."""
    service.save("Orders go through a queue.", title="Queue")
    service.clock.advance(hours=1)
    service.save("The provider times out.", title="Timeout", type="bugfix")
    service.save("It is deleted.", title="Deleted")
    service.http.delete("/observations/3")
    service.http.post("/sessions/s1/end", json={"messages": MESSAGES}).raise_for_status()
    service.clock.advance(days=1)
    service.http.post("/sessions", json={"id": "s2", "project": "demo"}).raise_for_status()
    open_ = "/sessions/s2/messages?project=demo"
    service.http.post(open_, json={"messages": MESSAGES[:1]}).raise_for_status()
    service.save("A door.", project="house", session_id="s3")


def test_each_number_is_the_twins(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/sessions", project="demo")
    sessions = page.twin(service.http, "/sessions/recent")
    memories = service.http.get("/observations/recent", params={"project": "demo"}).json()

    assert [it["id"] for it in sessions] == ["s2", "s1"]
    for it in sessions:
        saved = sum(memory["session_id"] == it["id"] for memory in memories)
        count = it["message_count"]
        told = f"{count} message{'' if count == 1 else 's'}, {saved} memories, began"
        assert told in page.words
        assert page.links[str(it["id"])] == f"/ui/sessions/{it['id']}"
    assert str(sessions[1]["summary"]) in page.words


def test_a_session_is_told_turn_by_turn(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/sessions/s1")
    shown = page.words
    (session,) = page.twin(service.http, "/sessions/recent")
    memories = [
        it for it in page.twin(service.http, "/observations/recent") if it["session_id"] == "s1"
    ]

    turns = (
        "Began", "The user began with:", "Make the orders reliable.",
        *(str(it["title"]) for it in reversed(memories)),
        "The user ended with:", "Ship it on Friday.", "Ended", "Summary", str(session["summary"]),
    )  # fmt: skip
    places = [shown.index(it) for it in turns]
    assert places == sorted(places)
    assert len(memories) == 2
    assert f"{session['message_count']} messages: 2 of the user, 1 of the assistant." in shown
    assert page.links["Queue"] == "/ui/memories/1"


def test_an_open_session_shows_what_came_so_far_and_leads_to_its_neighbor(service: Service) -> None:
    filled(service)
    newest = get(service.http, "/ui/sessions/s2")
    oldest = get(service.http, newest.links["Older session"])

    (session,) = newest.twin(service.http, "/sessions/recent")
    assert (session["id"], session["message_count"]) == ("s2", 1)
    assert "1 message: 1 of the user, 0 of the assistant." in newest.words
    for told in ("Open", "Make the orders reliable.", "It has not ended", "It has saved no memory"):
        assert told in newest.text
    assert oldest.url.path == "/ui/sessions/s1"
    assert oldest.links["Newer session"] == "/ui/sessions/s2"
    assert "Older session" not in oldest.links
    assert "Newer session" not in newest.links
    assert [it["id"] for it in oldest.twin(service.http, "/sessions/recent")] == ["s1"]


@pytest.mark.slow
def test_pages_follow_each_other(service: Service) -> None:
    for number in range(60):
        service.save(f"Setting {number}.", session_id="long" if number < 55 else f"s{number}")
    for number in range(30):
        body = {"id": f"t{number}", "project": "demo"}
        service.http.post("/sessions", json=body).raise_for_status()
        service.clock.advance(minutes=1)
    first = get(service.http, "/ui/sessions", project="demo")
    second = get(service.http, first.links["Older"])
    ids = [it["id"] for it in service.http.get("/sessions/recent?limit=100").json()]
    assert [it for page in (first, second) for it in page.links if it in ids] == ids
    assert get(service.http, second.links["Newest"]).text == first.text

    began = get(service.http, "/ui/sessions/long")
    went_on = get(service.http, began.links["What it saved next"])
    saved = [
        int(it.rsplit("/", 1)[1])
        for page in (began, went_on)
        for it in page.links.values()
        if it.startswith("/ui/memories/")
    ]
    assert saved == list(range(1, 56))
    assert went_on.links["Back to its beginning"] == "/ui/sessions/long"


def test_any_id_leads_to_its_session(service: Service) -> None:
    for id_ in ("a/b", "a b?c#d", "100%", "\u05e9\u05dc\u05d5\u05dd", "a//b", "<b>&amp;"):
        service.save(f"Of {id_}.", session_id=id_)
        page = get(service.http, get(service.http, "/ui/sessions").links[id_])
        assert (page.status, f"Of {id_}." in page.text) == (200, True)


def with_projects(service: Service) -> None:
    for number in range(6):
        service.save(f"Setting {number} of the oven.", type=("config", "note")[number % 2])
        service.clock.advance(days=9)
    service.save("A door of another house.", project="house", session_id="s9")
    service.save("It ends.", project="house", session_id="s9", expires_at="2030-02-25T12:00:00Z")
    service.save("It is deleted.", project="house", session_id="s10")
    service.http.delete("/observations/9")
    service.clock.advance(days=2)


def days_shown(html: str) -> Counter[str]:
    found = re.findall(r"<title>(\d{4}-\d\d-\d\d): (\d+) memor", html)
    return Counter({day: int(count) for day, count in found})


@pytest.mark.slow
def test_each_number_of_a_project_is_the_twins_and_it_leads_to_what_it_holds(
    service: Service,
) -> None:
    with_projects(service)
    listed = get(service.http, "/ui/projects")
    for page in (listed, *(get(service.http, listed.links[it]) for it in ("demo", "house"))):
        stats, recent = (
            page.twin(service.http, start) for start in ("/stats", "/observations/recent")
        )
        memories, sessions = stats["total_observations"], stats["total_sessions"]
        count = f"{memories} memor{'y' if memories == 1 else 'ies'} in {sessions} session"
        assert count in page.words
        for kind, number in Counter(it["type"] for it in recent).items():
            assert f"{kind} {number}" in page.words
        html = service.http.get(str(page.url)).text
        assert days_shown(html) == Counter(it["created_at"][:10] for it in recent)
        weeks = re.findall(r"<strong>(\d+)</strong>", html)
        assert len(weeks) == 53
        assert sum(map(int, weeks)) == len(recent) == memories

    for name in ("demo", "house"):
        stats = service.http.get("/stats", params={"project": name}).json()
        recent = service.http.get("/observations/recent", params={"project": name}).json()
        latest = Counter(it["created_at"] > "2030-02-19T23" for it in recent)[True]
        counts = stats["total_observations"], stats["total_sessions"], latest, len(recent)
        assert f"{name} {' '.join(map(str, counts))} " in listed.words
    assert "2 days ago 2030-02-24 12:00 UTC" in listed.words
    demo = get(service.http, listed.links["demo"]).links
    assert demo["Memories"] == "/ui/memories?project=demo"
    assert demo["note"] == "/ui/memories?project=demo&type=note"
    assert "house" not in demo


@pytest.mark.slow
def test_projects_are_listed_in_pages(service: Service) -> None:
    for number in range(55):
        service.save("The door is green.", project=f"p{number:02}", session_id=f"s{number}")
    first = get(service.http, "/ui/projects")
    second = get(service.http, first.links["More"])

    names = [it for page in (first, second) for it in page.links if re.fullmatch(r"p\d\d", it)]
    assert names == service.http.get("/stats").json()["projects"]
    assert "More" not in second.links
    assert second.links["First"] == "/ui/projects"
