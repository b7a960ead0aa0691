"""The view *Sessions*: the list of REST, and one session with its memories and its summary."""

from pathlib import Path

import httpx
import pytest

from ..support.callers import made_key
from ..support.pages import Page, get
from ..support.service import Service, serving
from .test_memory import HOSTILE

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


def test_an_open_session_shows_what_came_so_far(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/sessions/s2")
    (session,) = twin(service, page, "/sessions/recent")

    assert (session["id"], session["message_count"]) == ("s2", 1)
    assert "1 message: 1 of the user, 0 of the assistant." in words(page)
    for told in ("Open", "Make the orders reliable.", "It has not ended", "It has saved no memory"):
        assert told in page.text


def test_a_session_leads_to_its_neighbors_and_its_twin_is_exact(service: Service) -> None:
    filled(service)
    newest = get(service.http, "/ui/sessions/s2")
    oldest = get(service.http, newest.links["Older session"])

    assert oldest.url.path == "/ui/sessions/s1"
    assert oldest.links["Newer session"] == "/ui/sessions/s2"
    assert "Older session" not in oldest.links
    assert "Newer session" not in newest.links
    for page, id_ in ((newest, "s2"), (oldest, "s1")):
        assert [it["id"] for it in twin(service, page, "/sessions/recent")] == [id_]


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


def test_a_session_of_others_is_as_unknown(path: Path) -> None:
    with serving(path) as service:
        filled(service)
        service.save("The house has a queue.", project="house")  # in a session of demo
        key = made_key(service.path, "reader", projects=("house",))
        with httpx.Client(base_url=service.url, auth=("me", key)) as http:
            page = get(http, "/ui/sessions")
            assert "s3" in page.links
            assert "s1" not in page.links
            assert not [it for it in page.forms if it.method == "post"]
            foreign, unknown = (http.get(f"/ui/sessions/{it}") for it in ("s1", "s9"))
            assert http.get("/ui/sessions?before_id=s1").status_code == 400
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.text == unknown.text
        other = made_key(service.path, "reader", projects=("demo",))
        with httpx.Client(base_url=service.url, auth=("me", other)) as http:
            assert "The house" not in get(http, "/ui/sessions/s1").text


def test_no_session_yet_says_what_to_do_first(service: Service) -> None:
    assert "/sessions/s1/end" in get(service.http, "/ui/sessions").text


def test_hostile_text_is_shown_and_never_obeyed(service: Service) -> None:
    id_ = HOSTILE.split("\u202e", maxsplit=1)[0].strip()
    service.save(HOSTILE, title=HOSTILE, type=HOSTILE[:50], session_id=id_)
    path = get(service.http, "/ui/sessions").links[id_]
    messages = [{"role": "user", "content": f"{HOSTILE} {it}"} for it in range(2)]
    ended = service.http.post(f"{path.removeprefix('/ui')}/end", json={"messages": messages})
    ended.raise_for_status()
    for shown in (path, "/ui/sessions"):
        html = service.http.get(shown).text
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert(1)" in html
        assert "U+202E" in html
        assert not set("\u202e\u200b\x07") & set(html)


def test_bad_parameters_are_refused_on_a_page(service: Service) -> None:
    filled(service)
    for path, status in (
        ("/ui/sessions?before_id=none", 400), ("/ui/sessions/s1?after=x", 400),
        ("/ui/sessions/s1?after=999999999999999999999", 200), ("/ui/sessions/%00%ff", 404),
        ("/ui/sessions?project=none", 200), ("/ui/sessions/", 404),
    ):  # fmt: skip
        answer = service.http.get(path)
        assert (answer.status_code, path) == (status, path)
        assert answer.text.startswith("<!doctype html>")
