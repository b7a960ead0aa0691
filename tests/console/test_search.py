"""The views *Memories* and *Ask as the agent*: what they show is what REST answers, and why."""

import re
from collections import Counter

import pytest

from ..support.pages import Page, get, press, sent
from ..support.service import Service


def filled(service: Service, count: int = 6) -> None:
    for number in range(count):
        kind, tags = ("config", "note")[number % 2], ["odd"] if number % 2 else ["even", "warm"]
        service.save(f"Setting {number} of the oven.", type=kind, tags=tags)
    service.save("A door of another house.", project="house", session_id="s9")


def listed(page: Page) -> list[int]:
    paths = [it for it in page.links.values() if it.startswith("/ui/memories/")]
    return [int(it.rsplit("/", 1)[1]) for it in paths]


@pytest.mark.slow
def test_each_number_is_the_twins(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/memories", project="demo")
    twin, stats = (page.twin(service.http, start) for start in ("/observations/recent", "/stats"))

    assert (
        f"{stats['total_observations']} memories in {stats['total_sessions']} session" in page.text
    )
    for count in (
        Counter(it["type"] for it in twin),
        Counter(tag for it in twin for tag in it["tags"]),
    ):
        for value, number in count.items():
            assert f"{value} {number}" in page.words
    assert listed(page) == [it["id"] for it in twin]
    assert listed(get(service.http, page.links["note"])) == [6, 4, 2]
    assert listed(get(service.http, page.links["even"])) == [5, 3, 1]


@pytest.mark.slow
def test_pages_follow_each_other_and_every_filter_is_in_the_address(service: Service) -> None:
    filled(service, 60)
    first = get(service.http, "/ui/memories", project="demo", type="config")
    second = get(service.http, first.links["Older"])

    assert len(listed(first)) == 25
    assert len(listed(second)) == 5
    assert "type=config" in first.links["Older"]
    assert not {*listed(first)} & {*listed(second)}
    assert get(service.http, second.links["Newest"]).text == first.text


@pytest.mark.slow
def test_a_search_finds_what_rest_finds(service: Service) -> None:
    filled(service, 40)
    page = get(service.http, "/ui/memories", q="oven", project="demo", tag="odd")
    twin = page.twin(service.http, "/search")

    assert listed(page) == [it["id"] for it in twin][:25]
    assert "Counted among the 20 found" in page.text
    more = get(service.http, "/ui/memories", q="oven", project="demo")
    assert len(listed(get(service.http, more.links["More"]))) == 40


def plan_of(service: Service, page: Page, *chosen: tuple[str, str]) -> Page:
    """The preview of a change of what is chosen on the page."""
    fields = [it for it in page.form("Preview for the selected").fields if it[0] != "new_tag"]
    return Page(sent(service.http, "/ui/memories", [*fields, *chosen]))


@pytest.mark.slow
def test_a_change_of_many_is_seen_before_it_is_done(service: Service) -> None:
    filled(service)

    def planned(action: str, *ids: str) -> Page:
        page = get(service.http, "/ui/memories", project="demo", type="note")
        before = service.http.get("/observations/recent").json()
        chosen = [("id", it) for it in ids]
        plan = plan_of(service, page, *chosen, ("action", action), ("new_tag", "odd"))
        assert service.http.get("/observations/recent").json() == before
        return plan

    def left() -> dict[int, dict[str, object]]:
        return {it["id"]: it for it in service.http.get("/observations/recent").json()}

    assert "No memory is selected" in planned("tag").text
    assert "0 of 2 would change" in planned("tag", "2", "4").text  # both have it
    for action, label, ids in (
        ("untag", "Remove a tag", ("2", "4")), ("expire", "Expire now", ("2", "4")),
        ("delete", "Delete", ("6",)),
    ):  # fmt: skip
        plan = planned(action, *ids)
        assert f"{len(ids)} of {len(ids)} would change" in plan.text
        noun = "memories" if len(ids) > 1 else "memory"
        done = press(service.http, plan, f"{label}, {len(ids)} {noun}")
        assert f"{len(ids)} of {len(ids)} changed" in done.text
        if action == "untag":
            assert [left()[it].get("tags") for it in (2, 4, 6)] == [None, None, ["odd"]]
        else:
            assert not {*map(int, ids)} & {*left()}
    assert service.http.get("/observations/2").json()["expired"]
    assert service.http.get("/observations/6").status_code == 404


@pytest.mark.slow
def test_all_that_match_are_changed_at_once(service: Service) -> None:
    filled(service, 40)
    for asked, count in (({"type": "note"}, 20), ({"q": "oven", "tag": "even"}, 20)):
        page = get(service.http, "/ui/memories", project="demo", **asked)
        plan = plan_of(service, page, ("action", "tag"), ("new_tag", "x"), ("which", "all"))
        assert f"of {count} would change" in plan.text


def test_what_changed_meanwhile_is_left_as_it_is_and_named(service: Service) -> None:
    filled(service)
    page = get(service.http, "/ui/memories", project="demo")
    chosen = [("id", it) for it in ("2", "4", "6")]
    plans = [
        (plan_of(service, page, *chosen, ("action", action), ("new_tag", "warm")), label)
        for action, label in (("tag", "Add a tag"), ("delete", "Delete"))
    ]
    service.http.patch("/observations/2", json={"content": "Changed."})
    service.http.delete("/observations/4", params={"hard": "true"})

    for plan, label in plans:
        done = press(service.http, plan, f"{label}, 3 memories").text
        # What the first one tagged has changed for the second.
        assert ("1 of 3 changed" in done) == (label == "Add a tag")
        assert "This memory is at revision 2 now, not at 1." in done
        assert "is gone" in done
    assert service.http.get("/observations/2").json()["tags"] == ["odd"]


def with_orders(service: Service) -> None:
    service.save("Orders wait in a queue before they are billed.", title="Orders queue")
    service.save("The billing provider times out under load.", title="Billing", tags=["queue"])
    service.save("The gate is blue.", title="Gate", session_id="s2")
    messages = [{"role": "user", "content": "Make the orders reliable"}]
    service.http.post("/sessions/s1/end", json={"messages": messages}).raise_for_status()


def test_the_block_is_what_an_agent_gets_and_its_tokens_are_rests(service: Service) -> None:
    with_orders(service)
    asked = {"project": "demo", "query": "why do the orders wait", "limit": "2"}
    told = service.http.get("/context", params={**asked, "explain": "true"}).json()

    page = get(service.http, "/ui/ask", **asked)

    summaries = [f"- {it['summary']}\n" for it in told["recent_sessions"]]
    lines = [
        f"- [{it['type']}] {it['title']}: {it['content']}\n" for it in told["recent_observations"]
    ]
    blocks = (("sessions", summaries), ("context", lines))
    injected = (f"<memory:{tag}>\n{''.join(some)}</memory:{tag}>\n" for tag, some in blocks)
    assert "".join(injected) in page.text
    budget = told["explain"]["budget"]
    assert f"{budget['tokens']} tokens, {budget['chars']} characters" in page.text
    assert page.twin(service.http, "/context") == told


def test_words_are_marked_where_they_are_found_and_misspelt_ones_are_corrected(
    service: Service,
) -> None:
    with_orders(service)
    html = service.http.get("/ui/ask", params={"project": "demo", "query": "ordres queue"}).text

    assert "<mark>Orders</mark> <mark>queue</mark>" in html  # in the title
    assert "<mark>Orders</mark> wait in a <mark>queue</mark>" in html  # in the content
    assert re.search(r"<bdi>ordres</bdi>, which no memory has, to", html)
    shares = [int(it) for it in re.findall(r'<td class="number">(\d+) %</td>', html)]
    assert sum(shares[:2]) in (99, 100, 101)
    assert html.count("<svg") == html.count("<table") > 0


def test_below_the_line_is_what_did_not_fit_and_what_ranked_lower(service: Service) -> None:
    with_orders(service)
    asked = {"project": "demo", "query": "orders billing queue"}

    small = get(service.http, "/ui/ask", **asked, limit="2", max_tokens="45")
    missing = get(service.http, "/ui/ask", **asked, limit="2", why_not="3")

    assert "Did not fit the budget" in small.text
    assert "the limit is 2" in small.text
    assert "It has none of the words." in missing.text


def test_filters_of_the_address_count(service: Service) -> None:
    with_orders(service)
    page = get(service.http, "/ui/ask", project="demo", query="orders", tag="queue")

    assert "Billing" in page.text
    assert "- [discovery] Orders queue" not in page.text


@pytest.mark.slow
def test_a_field_suggests_each_project_of_a_service_that_has_few(service: Service) -> None:
    for number in range(30):
        service.save("The door is green.", project=f"p{number:02}", session_id=f"p{number}")
    suggested = [
        it["value"] for tag, it in get(service.http, "/ui/ask").elements if tag == "option"
    ]

    assert suggested == service.http.get("/stats").json()["projects"]
