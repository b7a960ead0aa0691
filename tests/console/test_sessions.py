"""The view *Sessions*: the list of REST, and one session with its memories and its summary."""

import pytest

from ..support.pages import Page, get
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


def words(page: Page) -> str:
    return " ".join(page.text.split())


def twin(service: Service, page: Page, start: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = service.http.get(
        next(it for it in page.links if it.startswith(start))
    ).json()
    return found


def test_each_number_is_the_twins(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/sessions", project="demo")
    sessions = twin(service, page, "/sessions/recent")
    memories = service.http.get("/observations/recent", params={"project": "demo"}).json()

    assert [it["id"] for it in sessions] == ["s2", "s1"]
    for it in sessions:
        saved = sum(memory["session_id"] == it["id"] for memory in memories)
        count = it["message_count"]
        told = f"{count} message{'' if count == 1 else 's'}, {saved} memories, began"
        assert told in words(page)
        assert page.links[str(it["id"])] == f"/ui/sessions/{it['id']}"
    assert str(sessions[1]["summary"]) in words(page)


def test_a_session_is_told_turn_by_turn(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/sessions/s1")
    shown = words(page)
    (session,) = twin(service, page, "/sessions/recent")
    memories = [
        it for it in twin(service, page, "/observations/recent") if it["session_id"] == "s1"
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

    (session,) = twin(service, newest, "/sessions/recent")
    assert (session["id"], session["message_count"]) == ("s2", 1)
    assert "1 message: 1 of the user, 0 of the assistant." in words(newest)
    for told in ("Open", "Make the orders reliable.", "It has not ended", "It has saved no memory"):
        assert told in newest.text
    assert oldest.url.path == "/ui/sessions/s1"
    assert oldest.links["Newer session"] == "/ui/sessions/s2"
    assert "Older session" not in oldest.links
    assert "Newer session" not in newest.links
    assert [it["id"] for it in twin(service, oldest, "/sessions/recent")] == ["s1"]


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
