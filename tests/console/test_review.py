"""The view *Review*: the lines of REST with their counts, and a decision for each."""

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from ..support.pages import Form, Page, get, press, sent
from ..support.service import Service, observation, serving

QUEUE = "Orders go through a queue, as the billing provider times out under load"


def filled(service: Service, project: str = "demo") -> int:
    """One memory is due (1), one ends soon (2), two look alike (3, 4); how many are before."""
    now, fields = service.clock.now, {"project": project, "session_id": project}
    first = service.save(
        "The gate is blue.", review_at=f"{now + timedelta(days=1):%FT%TZ}", **fields
    )["id"]
    service.save(
        "The key of the gate is 4711.", expires_at=f"{now + timedelta(days=4):%FT%TZ}", **fields
    )
    service.save(f"{QUEUE}.", **fields | {"session_id": f"s2 of {project}"})
    body = observation(f"{QUEUE} on Fridays.", **fields | {"session_id": f"s3 of {project}"})
    service.http.post("/observations?similar=3", json=body).raise_for_status()
    service.save("Nobody has to look at the roof.", project="house", session_id="s4")
    service.clock.advance(days=2)
    assert isinstance(first, int)
    return first - 1


def lines(page: Page) -> list[int]:
    forms = [dict(it.fields) for it in page.forms if "place" in dict(it.fields)]
    return [int(it["id"]) for it in forms]


def of_memory(page: Page, id_: int) -> Form:
    return next(it for it in page.forms if dict(it.fields).get("id") == str(id_))


def send(service: Service, form: Form, action: str) -> Page:
    fields = [*form.fields, ("action", action)]
    return Page(sent(service.http, f"{service.url}{form.action}", fields))


@pytest.mark.slow
def test_each_number_is_the_twins(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/review", project="demo")
    twin, shown = page.twin(service.http, "/review"), page.words

    assert lines(page) == [it["observation"]["id"] for it in twin["items"]] == [1, 4, 2]
    assert f"All {len(twin['items'])} " in shown
    count = Counter(it["reason"] for it in twin["items"])
    for reason, label in (
        ("review_due", "Due for review"), ("expires_soon", "Expires soon"),
        ("similar", "Look-alikes"),
    ):  # fmt: skip
        assert f"{label} {count[reason]}" in shown
        assert len(lines(get(service.http, "/ui/review", reason=reason))) == count[reason]
    assert f"{twin['items'][1]['score'] * 100:.0f} % alike" in shown


def test_a_comparison_shows_what_the_newer_one_says_differently(service: Service) -> None:
    filled(service)
    html = service.http.get("/ui/review?reason=similar").text

    assert "<ins> on Fridays</ins>" in html
    assert "<del>" not in html


@pytest.mark.slow
def test_a_decision_does_what_it_says_and_its_line_is_gone(service: Service) -> None:
    for number, (place, action, name, value) in enumerate((
        (1, "confirm", "confirmed_at", "now"), (1, "expire", "expired", True),
        (2, "keep", "expires_at", None), (2, "extend", "expires_at", "in 30 days"),
        (2, "expire", "expired", True), (4, "confirm", "confirmed_at", "now"),
        (4, "newer", "supersedes", 3), (4, "older", "superseded_by", 3),
    )):  # fmt: skip
        project = f"demo {number}"
        before, now = filled(service, project), service.clock.now
        moments = {"now": f"{now:%FT%TZ}", "in 30 days": f"{now + timedelta(days=30):%FT%TZ}"}
        id_ = before + place
        page = send(
            service, of_memory(get(service.http, "/ui/review", project=project), id_), action
        )

        memory = service.http.get(f"/observations/{id_}").json()
        expected = [before + 3] if value == 3 else moments.get(str(value), value)
        assert memory.get(name) == expected, (place, action)
        assert page.status == 200
        assert page.links[f"Memory #{id_}"] == f"/ui/memories/{id_}"
        assert lines(page) == [before + it for it in (1, 4, 2) if it != place]


def test_a_deletion_leads_to_where_it_can_be_undone(service: Service) -> None:
    filled(service)
    before = get(service.http, "/ui/review")
    page = send(service, of_memory(before, 1), "delete")

    assert "It can be restored" in page.text
    assert service.http.get("/observations/1").status_code == 404
    second = send(service, of_memory(before, 1), "expire")  # in another tab
    assert (second.status, lines(second)) == (404, [4, 2])
    assert "No such observation." in second.text
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


def two_tabs(
    service: Service, place: int, change: dict[str, object], action: str, project: str = "demo"
) -> tuple[int, Page]:
    """How many memories are before, and what the second of two tabs is answered that decides."""
    before = filled(service, project)
    line = before + (4 if place == 3 else place)
    form = of_memory(get(service.http, "/ui/review", project=project), line)
    service.http.patch(f"/observations/{before + place}", json=change).raise_for_status()
    return before, send(service, form, action)


@pytest.mark.slow
def test_a_decision_on_what_changed_meanwhile_shows_both_versions(service: Service) -> None:
    for number, (place, action) in enumerate((
        (1, "confirm"), (1, "delete"), (2, "extend"), (2, "keep"), (3, "newer"), (3, "older"),
        (4, "newer"), (4, "confirm"),
    )):  # fmt: skip
        change: dict[str, object] = {"content": f"{QUEUE} of the gate no more."}
        before, both = two_tabs(service, place, change, action, f"demo {number}")
        id_ = before + place
        memory = service.http.get(f"/observations/{id_}").json()

        assert both.status == 409
        assert f"Memory #{id_} has changed since you opened the page" in both.text
        assert {"del", "ins"} & {tag for tag, _ in both.elements}
        assert not {"supersedes", "superseded_by", "confirmed_at"} & memory.keys()
        assert both.links[f"Memory #{id_}"] == f"/ui/memories/{id_}"
        if place == 1:  # whoever changes a memory has looked at it
            assert lines(both) == [before + 4, before + 2]
            continue
        settled = send(service, of_memory(both, before + (4 if place == 3 else place)), action)
        assert (settled.status, "has changed since" in settled.text) == (200, False)


def test_a_decision_after_another_one_says_that_the_text_is_the_same(service: Service) -> None:
    _, both = two_tabs(service, 2, {"expires_at": "2030-01-06T12:00:00Z"}, "expire")

    assert (both.status, "Both say the same" in both.text) == (409, True)
    assert service.http.get("/observations/2").json()["expires_at"] == "2030-01-06T12:00:00Z"


def test_a_version_that_is_no_longer_kept_is_missed(tmp_path: Path) -> None:
    with serving(tmp_path / "memory.db", MEMORY_KEEP_REVISIONS="1") as service:
        _, gone = two_tabs(service, 1, {"content": "The gate is red."}, "confirm")

    assert (gone.status, "The version that you saw is no longer kept." in gone.text) == (409, True)
