"""The view *Ask as the agent*: what it shows is what REST answers, and why."""

import re

import pytest

from ..support.pages import get
from ..support.service import Service


def filled(service: Service) -> None:
    service.save("Orders wait in a queue before they are billed.", title="Orders queue")
    service.save("The billing provider times out under load.", title="Billing", tags=["queue"])
    service.save("The gate is blue.", title="Gate", session_id="s2")
    messages = [{"role": "user", "content": "Make the orders reliable"}]
    service.http.post("/sessions/s1/end", json={"messages": messages}).raise_for_status()


def test_the_block_is_what_an_agent_gets_and_its_tokens_are_rests(service: Service) -> None:
    filled(service)
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
    twin = next(it for it in page.links if it.startswith("/context"))
    assert service.http.get(twin).json() == told


def test_words_are_marked_where_they_are_found_and_misspelt_ones_are_corrected(
    service: Service,
) -> None:
    filled(service)
    html = service.http.get("/ui/ask", params={"project": "demo", "query": "ordres queue"}).text

    assert "<mark>Orders</mark> <mark>queue</mark>" in html  # in the title
    assert "<mark>Orders</mark> wait in a <mark>queue</mark>" in html  # in the content
    assert re.search(r"<bdi>ordres</bdi>, which no memory has, to", html)
    shares = [int(it) for it in re.findall(r'<td class="number">(\d+) %</td>', html)]
    assert sum(shares[:2]) in (99, 100, 101)
    assert html.count("<svg") == html.count("<table") > 0


def test_below_the_line_is_what_did_not_fit_and_what_ranked_lower(service: Service) -> None:
    filled(service)
    asked = {"project": "demo", "query": "orders billing queue"}

    small = get(service.http, "/ui/ask", **asked, limit="2", max_tokens="45")
    missing = get(service.http, "/ui/ask", **asked, limit="2", why_not="3")

    assert "Did not fit the budget" in small.text
    assert "the limit is 2" in small.text
    assert "It has none of the words." in missing.text


def test_filters_of_the_address_count(service: Service) -> None:
    filled(service)
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
