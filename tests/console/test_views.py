"""What all views have in common: nothing yet, hostile text, bad input, and what is another's."""

from pathlib import Path

import httpx
import pytest

from ..support.callers import made_key
from ..support.pages import Form, Page, get, press
from ..support.samples import for_each
from ..support.service import Service, lasting_with, observation, serving

HOSTILE = "<script>alert(1)</script> & \"q\" 's' {{ 7*7 }} \u202etxt.exe\u200b\x07"
NAME = HOSTILE.split("\u202e", maxsplit=1)[0].strip().replace("*", "x")  # of a project
SESSION = HOSTILE.split("\u202e", maxsplit=1)[0].strip()


def fill(service: Service) -> None:
    """Two projects, one of which holds hostile text in each field; three lines to review."""
    service.save("Orders wait in a queue.", review_at="2030-01-02T12:00:00Z")
    for number in range(2):
        body = observation(
            f"{HOSTILE} Orders go through a queue under load {number}", project=NAME,
            title=f"{HOSTILE} {number}", type=HOSTILE[:50], tags=[HOSTILE[:20]],
            session_id=SESSION, review_at="2030-01-01T12:00:00Z",
        )  # fmt: skip
        service.http.post("/observations?similar=3", json=body).raise_for_status()
    path = get(service.http, "/ui/sessions").links[SESSION].removeprefix("/ui")
    messages = [{"role": "user", "content": f"{HOSTILE} {it}"} for it in range(2)]
    service.http.post(f"{path}/end", json={"messages": messages}).raise_for_status()
    service.clock.advance(days=2)


filled = lasting_with(fill)


def test_a_view_of_nothing_says_what_to_do_first(service: Service) -> None:
    for path, words in (
        ("/ui", "agentops-memory save"), ("/ui/memories?q=oven", "No memory matches"),
        ("/ui/ask", "agentops-memory demo"), ("/ui/ask?project=demo&query=orders", "Nothing."),
        ("/ui/projects", "agentops-memory save"), ("/ui/sessions", "/sessions/s1/end"),
        ("/ui/review", "agentops-memory demo"),
    ):  # fmt: skip
        assert words in get(service.http, path).text, path
    service.save("The door is green.")
    assert "MEMORY_REVIEW_AFTER" in get(service.http, "/ui/review").text
    checked = get(service.http, "/ui/service")
    assert ("agentops-memory doctor" in checked.text, "There is no key" in checked.text) == (
        True, True,
    )  # fmt: skip


def test_hostile_text_is_shown_and_never_obeyed(filled: Service) -> None:
    session = get(filled.http, "/ui/sessions").links[SESSION]
    code, signs, alike = "{{ 7*7 }}", "U+202E", "% alike"
    for path, parameters, words in (
        ("/ui/memories/3", {}, [code, signs, "U+200B", alike]), ("/ui/memories", {}, [signs]),
        ("/ui/memories/3/edit", {}, [code]), ("/ui/memories/3/erase", {}, [code]),
        ("/ui/memories", {"q": "quot<script>", "type": "<script>"}, []), ("/ui/projects", {}, []),
        ("/ui/review", {}, [alike]), ("/ui/sessions", {}, [signs]), (session, {}, [signs]),
        ("/ui/projects", {"project": NAME}, []), ("/ui/memories", {"project": HOSTILE}, []),
        ("/ui/ask", {"project": NAME, "query": "queue"}, [code, signs]),
        ("/ui/ask", {"project": NAME, "query": HOSTILE}, [code, signs]),
    ):  # fmt: skip
        answer = filled.http.get(path, params=parameters)
        assert answer.status_code == 200, path
        is_echoed = "/edit" in path or HOSTILE in parameters.values()
        assert_harmless(answer.text, words, is_echoed=is_echoed)


def assert_harmless(html: str, words: list[str], *, is_echoed: bool) -> None:
    """No markup, and no invisible sign but in a field, which is sent as it is."""
    assert "<script>alert" not in html
    assert "&lt;script&gt;" in html
    assert is_echoed or not set("\u202e\u200b\x07") & set(html.partition("<datalist")[0])
    assert [word for word in words if word not in html] == []


@pytest.mark.slow
@for_each(
    "path, parameters, status",
    [
        *[
            ("/ui/ask", {"query": "orders", name: value}, status)
            for name, value, status in (
                ("max_tokens", "x", 400), ("why_not", "x", 400), ("limit", "x", 200),
                ("limit", "-1", 200), ("limit", "9" * 20, 200), ("query", "%ff\x00" * 900, 200),
                ("exclude_type", "x", 200),
            )
        ],
        ("/ui/memories", {"before_id": "x"}, 400), ("/ui/memories", {"before_id": "99"}, 400),
        ("/ui/memories", {"limit": "x", "q": "a"}, 200), ("/ui/memories", {"tag": "none"}, 200),
        ("/ui/memories", {"q": "%" * 3000}, 200), ("/ui/projects", {"project": "x" * 2000}, 404),
        ("/ui/projects", {"after": "\x00\u202e"}, 200), ("/ui/projects", {"after": "zzz"}, 200),
        ("/ui/projects", {"project": "\x00"}, 404), ("/ui/sessions", {"before_id": "none"}, 400),
        ("/ui/sessions/s1", {"after": "x"}, 400), ("/ui/sessions/s1", {"after": "9" * 21}, 200),
        ("/ui/sessions/%00%ff", {}, 404), ("/ui/sessions", {"project": "none"}, 200),
        ("/ui/sessions/", {}, 404), ("/ui/review", {"reason": "x"}, 400),
        ("/ui/review", {"before": "x"}, 400),
        ("/ui/review", {"before": f"{'9' * 18}-similar-1-1"}, 400),
        *[
            (f"/ui/memories/{id_}{below}", {}, status)
            for id_, status in (("7", 404), ("0", 404), ("x", 400), ("9" * 30, 400), ("-1", 404))
            for below in ("", "/edit", "/erase")
        ],
        ("/ui/erasures/none", {}, 404),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused_on_a_page(
    filled: Service, path: str, parameters: dict[str, str], status: int
) -> None:
    answer = filled.http.get(path, params=parameters)

    assert (answer.status_code, answer.text[:15]) == (status, "<!doctype html>")
    if path == "/ui/ask":  # as REST refuses them
        assert filled.http.get("/context", params=parameters).status_code == status


def test_bad_fields_are_refused_on_a_page(filled: Service) -> None:
    before = filled.http.get("/export").json()["observations"]
    memory, memories, review = (
        get(filled.http, f"/ui/{it}") for it in ("memories/1", "memories", "review")
    )
    line = next(it for it in review.forms if dict(it.fields).get("id") == "3")
    cases: list[tuple[Page | Form, str, dict[str, str], int]] = [
        (memory, "Expire it", {"expires_at": "soon"}, 400),
        (memory, "Supersede it", {"other": "x"}, 400), (memory, "Pin", {"action": "explode"}, 400),
        (memory, "Supersede it", {"other": "77"}, 404),
        (memory, "Supersede it", {"other": "1"}, 409),
        (memories, "Preview for the selected", {"action": "explode"}, 400),
        (memories, "Preview for the selected", {"action": "tag", "new_tag": " "}, 400),
        (memories, "Preview for the selected", {"action": "delete", "item": "1-x"}, 400),
        (line, "", {"action": "explode"}, 400), (line, "", {"action": "older", "other": "x"}, 400),
        (line, "", {"action": "confirm", "id": "-1"}, 404),
        (line, "", {"action": "confirm", "place": "\r\nx"}, 400),
        (line, "", {"action": "newer", "other": "3"}, 409),
    ]  # fmt: skip
    for where, button, fields, status in cases:
        if isinstance(where, Page):
            assert press(filled.http, where, button, fields).status == status, fields
        else:
            data = {**dict(where.fields), **fields}
            assert filled.http.post(where.action, data=data).status_code == status, fields
    assert filled.http.get("/export").json()["observations"] == before


@pytest.mark.slow
def test_what_is_of_another_project_is_as_unknown_and_a_reader_has_no_buttons(path: Path) -> None:
    with serving(path) as service:
        service.save("Orders go through a queue.", review_at="2029-12-31T12:00:00Z")
        service.save("A door of another house.", project="house", session_id="s2")
        service.save("The house has a queue.", project="house")  # in a session of demo
        keys = [made_key(path, "reader", projects=(it,)) for it in ("house", "demo")]
        with httpx.Client(base_url=service.url, auth=("me", keys[0])) as http:
            for foreign, unknown in (
                ("memories/1", "memories/999"), ("projects?project=demo", "projects?project=x"),
                ("sessions/s1", "sessions/s9"), ("memories?q=queue&project=demo",) * 2,
            ):  # fmt: skip
                answers = [http.get(f"/ui/{it}") for it in (foreign, unknown)]
                assert answers[0].text == answers[1].text
                assert {it.status_code for it in answers} == {200 if "?q=" in foreign else 404}
            review = get(http, "/ui/review", project="demo").text
            assert "There is nothing to decide" in review
            assert review.replace("demo", "x") == get(http, "/ui/review", project="x").text
            assert "No memory matches" in get(http, "/ui/memories", project="demo", q="queue").text
            for view in ("memories", "projects", "sessions", "review"):
                page = get(http, f"/ui/{view}")
                assert not {"demo", "s1"} & page.links.keys(), view
                assert [it for it in page.forms if it.method == "post" and it.buttons] == [], view
                assert "checkbox" not in http.get(f"/ui/{view}").text, view
            shown = get(http, "/ui/projects").words
            assert "2 memories in 1 session of 1 project." in shown
            assert http.get("/ui/sessions?before_id=s1").status_code == 400
            for view in ("memories", "review"):
                data = {"id": "3", "place": "1", "action": "delete"}
                refused = http.post(f"/ui/{view}", data=data)
                assert (refused.status_code, "role writer" in refused.text) == (403, True)
        with httpx.Client(base_url=service.url, auth=("me", keys[1])) as http:
            assert "The house" not in get(http, "/ui/sessions/s1").text
