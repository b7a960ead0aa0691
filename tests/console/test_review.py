"""The view *Review*: the lines of REST with their counts, and a decision for each."""

from collections import Counter
from pathlib import Path

import httpx
import pytest

from ..support.callers import made_key
from ..support.pages import Form, Page, get, press, sent
from ..support.service import Service, observation, serving
from .test_memory import HOSTILE

QUEUE = "Orders go through a queue, as the billing provider times out under load"


def filled(service: Service) -> None:
    """One memory is due (1), one ends soon (2), and two look alike (3 and 4)."""
    service.save("The gate is blue.", review_at="2030-01-02T12:00:00Z")
    service.save("The key of the gate is 4711.", expires_at="2030-01-05T12:00:00Z")
    service.save(f"{QUEUE}.", session_id="s2")
    body = observation(f"{QUEUE} on Fridays.", session_id="s3")
    service.http.post("/observations?similar=3", json=body).raise_for_status()
    service.save("Nobody has to look at the roof.", project="house", session_id="s4")
    service.clock.advance(days=2)


def lines(page: Page) -> list[int]:
    forms = [dict(it.fields) for it in page.forms if "place" in dict(it.fields)]
    return [int(it["id"]) for it in forms]


def of_memory(page: Page, id_: int) -> Form:
    return next(it for it in page.forms if dict(it.fields).get("id") == str(id_))


def decided(service: Service, id_: int, action: str) -> Page:
    form = of_memory(get(service.http, "/ui/review"), id_)
    return Page(
        sent(service.http, f"{service.url}{form.action}", [*form.fields, ("action", action)])
    )


def test_each_number_is_the_twins(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/review", project="demo")
    twin = service.http.get(next(it for it in page.links if it.startswith("/review"))).json()
    shown = " ".join(page.text.split())

    assert lines(page) == [it["observation"]["id"] for it in twin["items"]] == [1, 4, 2]
    assert f"All {len(twin['items'])} " in shown
    count = Counter(it["reason"] for it in twin["items"])
    for reason, label in (
        ("review_due", "Due for a look"), ("expires_soon", "Ends soon"), ("similar", "Look-alikes")
    ):  # fmt: skip
        assert f"{label} {count[reason]}" in shown
        assert len(lines(get(service.http, "/ui/review", reason=reason))) == count[reason]
    assert f"{twin['items'][1]['score'] * 100:.0f} % alike" in shown


def test_a_comparison_shows_what_the_newer_one_says_differently(service: Service) -> None:
    filled(service)
    html = service.http.get("/ui/review?reason=similar").text

    assert "<ins> on Fridays</ins>" in html
    assert "<del>" not in html


@pytest.mark.parametrize(
    ("id_", "action", "becomes"),
    [
        (1, "confirm", {"confirmed_at": "2030-01-03T12:00:00Z"}), (1, "expire", {"expired": True}),
        (2, "keep", {"expires_at": None}), (2, "extend", {"expires_at": "2030-02-02T12:00:00Z"}),
        (2, "expire", {"expired": True}), (4, "confirm", {"confirmed_at": "2030-01-03T12:00:00Z"}),
        (4, "newer", {"supersedes": [3]}), (4, "older", {"superseded_by": [3]}),
    ],
)  # fmt: skip
def test_a_decision_does_what_it_says_and_its_line_is_gone(
    service: Service, id_: int, action: str, becomes: dict[str, object]
) -> None:
    filled(service)
    page = decided(service, id_, action)

    memory = service.http.get(f"/observations/{id_}").json()
    assert {name: memory.get(name) for name in becomes} == becomes
    assert page.status == 200
    assert page.links[f"Memory #{id_}"] == f"/ui/memories/{id_}"
    assert lines(page) == [it for it in (1, 4, 2) if it != id_]


def test_a_deletion_leads_to_where_it_can_be_undone(service: Service) -> None:
    filled(service)
    page = decided(service, 1, "delete")

    assert "It can be restored" in page.text
    assert service.http.get("/observations/1").status_code == 404
    press(service.http, get(service.http, page.links["Memory #1"]), "Restore")
    assert service.http.get("/observations/1").status_code == 200


def test_the_list_goes_on_where_it_was_with_its_filters(service: Service) -> None:
    filled(service)
    form = of_memory(get(service.http, "/ui/review", project="demo", reason="review_due"), 1)
    answer = service.http.post(form.action, data={**dict(form.fields), "action": "confirm"})

    assert answer.status_code == 303
    path, _, line = answer.headers["location"].partition("#")
    assert path == "/ui/review?project=demo&reason=review_due&done=confirm&about=1"
    assert line == "line-1"


@pytest.mark.slow
def test_pages_follow_each_other(service: Service) -> None:
    for number in range(45):
        service.save(f"Setting {number}.", review_at=f"2030-01-01T12:00:{number:02}Z")
    service.clock.advance(days=1)
    first = get(service.http, "/ui/review", project="demo")
    second = get(service.http, first.links["Older"])
    third = get(service.http, second.links["Older"])

    assert [*lines(first), *lines(second), *lines(third)] == list(range(45, 0, -1))
    assert "Older" not in third.links
    assert get(service.http, third.links["Newest"]).text == first.text


def test_what_somebody_else_has_decided_is_said_on_the_page(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/review")
    service.http.delete("/observations/1")

    form = of_memory(page, 1)
    after = Page(
        sent(service.http, f"{service.url}{form.action}", [*form.fields, ("action", "expire")])
    )

    assert (after.status, lines(after)) == (404, [4, 2])
    assert "No such observation." in after.text


def test_a_reader_decides_nothing(path: Path) -> None:
    with serving(path) as service:
        filled(service)
        key = made_key(service.path, "reader", projects=("demo",))
        with httpx.Client(base_url=service.url, auth=("me", key)) as http:
            page = get(http, "/ui/review")
            assert "The gate is blue." in page.text
            assert [it.method for it in page.forms] == ["get"]
            refused = http.post("/ui/review", data={"id": "1", "place": "1", "action": "delete"})
            assert (refused.status_code, "role writer" in refused.text) == (403, True)
        other = made_key(service.path, "admin", projects=("house",))
        with httpx.Client(base_url=service.url, auth=("me", other)) as http:
            foreign = get(http, "/ui/review", project="demo")
            assert "Nothing is to be decided here" in foreign.text
            assert (
                foreign.text.replace("demo", "none") == get(http, "/ui/review", project="none").text
            )


def test_an_empty_list_says_what_to_do_first(service: Service) -> None:
    assert "agentops-memory demo" in get(service.http, "/ui/review").text
    service.save("The door is green.")
    assert "MEMORY_REVIEW_AFTER" in get(service.http, "/ui/review").text


def test_hostile_text_is_shown_and_never_obeyed(service: Service) -> None:
    for number in range(2):
        body = observation(
            f"{HOSTILE} {QUEUE} {number}", title=f"{HOSTILE} {number}", type=HOSTILE[:50],
            review_at="2030-01-01T12:00:00Z",
        )  # fmt: skip
        service.http.post("/observations?similar=3", json=body).raise_for_status()
    page = service.http.get("/ui/review").text

    assert "% alike" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert not set("\u202e\u200b\x07") & set(page)


def test_bad_parameters_and_fields_are_refused_on_a_page(service: Service) -> None:
    filled(service)
    for parameters in ({"reason": "x"}, {"before": "x"}, {"before": f"{'9' * 18}-similar-1-1"}):
        assert service.http.get("/ui/review", params=parameters).status_code in (200, 400)
    form = of_memory(get(service.http, "/ui/review"), 4)
    for fields in (
        {"action": "explode"}, {"action": "older", "other": "x"}, {"action": "confirm", "id": "-1"},
        {"action": "confirm", "place": "\r\nx"},
    ):  # fmt: skip
        answer = service.http.post(form.action, data={**dict(form.fields), **fields})
        assert answer.status_code == 400
    itself = {**dict(form.fields), "action": "newer", "other": "4"}
    assert service.http.post(form.action, data=itself).status_code == 409
