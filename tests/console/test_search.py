"""The view *Memories*: search, browse, facets, and changes of many after a preview."""

from collections import Counter
from pathlib import Path

import httpx
import pytest

from ..support.callers import made_key
from ..support.pages import Page, get, press, sent
from ..support.service import Service, serving
from .test_memory import HOSTILE


def filled(service: Service, count: int = 6) -> None:
    for number in range(count):
        kind, tags = ("config", "note")[number % 2], ["odd"] if number % 2 else ["even", "warm"]
        service.save(f"Setting {number} of the oven.", type=kind, tags=tags)
    service.save("A door of another house.", project="house", session_id="s9")


def listed(page: Page) -> list[int]:
    paths = [it for it in page.links.values() if it.startswith("/ui/memories/")]
    return [int(it.rsplit("/", 1)[1]) for it in paths]


def test_each_number_is_the_twins(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/memories", project="demo")
    twin, stats = (
        service.http.get(next(it for it in page.links if it.startswith(start))).json()
        for start in ("/observations/recent", "/stats")
    )

    assert (
        f"{stats['total_observations']} memories in {stats['total_sessions']} session" in page.text
    )
    for count in (
        Counter(it["type"] for it in twin),
        Counter(tag for it in twin for tag in it["tags"]),
    ):
        for value, number in count.items():
            assert f"{value} {number}" in " ".join(page.text.split())
    assert listed(page) == [it["id"] for it in twin]


def test_pages_follow_each_other_and_every_filter_is_in_the_address(service: Service) -> None:
    filled(service, 60)
    first = get(service.http, "/ui/memories", project="demo", type="config")
    second = get(service.http, first.links["Older"])

    assert len(listed(first)) == 25
    assert len(listed(second)) == 5
    assert "type=config" in first.links["Older"]
    assert not {*listed(first)} & {*listed(second)}
    assert get(service.http, second.links["Newest"]).text == first.text


def test_a_search_finds_what_rest_finds(service: Service) -> None:
    filled(service, 40)
    page = get(service.http, "/ui/memories", q="oven", project="demo", tag="odd")
    twin = service.http.get(next(it for it in page.links if it.startswith("/search"))).json()

    assert listed(page) == [it["id"] for it in twin][:25]
    assert "Counted among the 20 found" in page.text
    more = get(service.http, "/ui/memories", q="oven", project="demo")
    assert len(listed(get(service.http, more.links["More"]))) == 40


def test_a_facet_leads_to_what_it_counts(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/memories", project="demo")

    assert listed(get(service.http, page.links["note"])) == [6, 4, 2]
    assert listed(get(service.http, page.links["even"])) == [5, 3, 1]


@pytest.mark.parametrize(
    ("action", "label"),
    [("tag", "Add a tag"), ("untag", "Remove a tag"), ("expire", "Expire now"),
     ("delete", "Delete")],
)  # fmt: skip
def test_a_change_of_many_is_seen_before_it_is_done(
    service: Service, action: str, label: str
) -> None:
    filled(service)
    page = get(service.http, "/ui/memories", project="demo", type="note")
    form = page.form("Preview for the selected")
    fields = [(name, it) for name, it in form.fields if name != "new_tag"]
    chosen = [*fields, ("id", "2"), ("id", "4"), ("action", action), ("new_tag", "odd")]
    before = service.http.get("/observations/recent").json()

    plan = Page(sent(service.http, "/ui/memories", chosen))

    assert service.http.get("/observations/recent").json() == before
    if action == "tag":  # both have it
        assert "0 of 2 would change" in plan.text
        return
    assert "2 of 2 would change" in plan.text
    done = press(service.http, plan, f"{label}, 2 memories")
    assert "2 of 2 changed" in done.text
    left = {it["id"]: it for it in service.http.get("/observations/recent").json()}
    if action == "untag":
        assert "tags" not in left[2]
    else:
        assert not {2, 4} & {*left}
        assert 6 in left


def test_all_that_match_are_changed_at_once(service: Service) -> None:
    filled(service, 40)
    for asked, count in (({"type": "note"}, 20), ({"q": "oven", "tag": "even"}, 20)):
        page = get(service.http, "/ui/memories", project="demo", **asked)
        form = page.form("Preview for the selected")
        fields = [(name, it) for name, it in form.fields if name != "new_tag"]
        every = [*fields, ("action", "tag"), ("new_tag", "x"), ("which", "all")]
        plan = Page(sent(service.http, "/ui/memories", every))
        assert f"of {count} would change" in plan.text


@pytest.mark.parametrize(("action", "label"), [("tag", "Add a tag"), ("delete", "Delete")])
def test_what_changed_meanwhile_is_left_as_it_is_and_named(
    service: Service, action: str, label: str
) -> None:
    filled(service)
    page = get(service.http, "/ui/memories", project="demo")
    form = page.form("Preview for the selected")
    chosen = [*form.fields, ("id", "2"), ("id", "4"), ("id", "6"), ("action", action)]
    chosen = [(name, "warm" if name == "new_tag" else it) for name, it in chosen]
    plan = Page(sent(service.http, "/ui/memories", chosen))
    service.http.patch("/observations/2", json={"content": "Changed."})
    service.http.delete("/observations/4", params={"hard": "true"})

    done = press(service.http, plan, f"{label}, 3 memories")

    assert "1 of 3 changed" in done.text
    assert "This memory is at revision 2 now, not at 1." in done.text
    assert "is gone" in done.text
    assert service.http.get("/observations/2").json()["tags"] == ["odd"]


def test_nothing_chosen_is_said(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/memories")
    plan = press(service.http, page, "Preview for the selected", {"new_tag": "x", "action": "tag"})

    assert "No memory is selected" in plan.text


def test_a_reader_has_no_boxes_and_changes_nothing(path: Path) -> None:
    with serving(path) as service:
        filled(service)
        key = made_key(service.path, "reader", projects=("house",))
        with httpx.Client(base_url=service.url, auth=("me", key)) as http:
            page = get(http, "/ui/memories")
            assert listed(page) == [7]
            assert "checkbox" not in http.get("/ui/memories").text
            assert http.post("/ui/memories", data={"action": "delete"}).status_code == 403
            assert "No memory matches" in get(http, "/ui/memories", project="demo", q="oven").text


def test_a_service_without_memories_says_what_to_do_first(service: Service) -> None:
    assert "agentops-memory save" in get(service.http, "/ui").text
    assert "No memory matches" in get(service.http, "/ui/memories", q="oven").text


def test_hostile_text_is_shown_and_never_obeyed(service: Service) -> None:
    service.save(HOSTILE, title=HOSTILE, type=HOSTILE[:50], tags=[HOSTILE[:20]])
    page = get(service.http, "/ui/memories", project=HOSTILE)
    for path in ("/ui/memories", "/ui/memories?q=quot%3Cscript%3E&type=%3Cscript%3E"):
        html = service.http.get(path).text
        assert "<script>alert" not in html
        assert not set("\u202e\u200b\x07") & set(html.partition("<datalist")[0])
    assert page.status == 200


def test_bad_parameters_are_refused_as_rest_refuses_them(service: Service) -> None:
    filled(service)
    for parameters, status in (
        ({"before_id": "x"}, 400), ({"before_id": "99"}, 400), ({"limit": "x", "q": "a"}, 200),
        ({"tag": "none"}, 200), ({"q": "%" * 3000}, 200),
    ):  # fmt: skip
        assert service.http.get("/ui/memories", params=parameters).status_code == status
    page = get(service.http, "/ui/memories")
    for fields in ({"action": "explode"}, {"action": "tag", "new_tag": " "}):
        assert press(service.http, page, "Preview for the selected", fields).status == 400
    plan = {"action": "delete", "item": "1-x"}
    assert press(service.http, page, "Preview for the selected", plan).status == 400
