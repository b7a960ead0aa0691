"""The view *Ask as the agent*: what it shows is what REST answers, and why."""

import re

from ..support.pages import get
from ..support.service import Service
from .test_memory import HOSTILE


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


def test_a_field_suggests_each_project_of_a_service_that_has_few(service: Service) -> None:
    for number in range(30):
        service.save("The door is green.", project=f"p{number:02}", session_id=f"p{number}")
    suggested = [
        it["value"] for tag, it in get(service.http, "/ui/ask").elements if tag == "option"
    ]

    assert suggested == service.http.get("/stats").json()["projects"]


def test_a_service_without_memories_says_what_to_do_first(service: Service) -> None:
    empty = get(service.http, "/ui/ask")
    nothing = get(service.http, "/ui/ask", project="demo", query="orders")

    assert "agentops-memory demo" in empty.text
    assert "Nothing." in nothing.text


def test_hostile_text_and_prompts_are_shown_and_never_obeyed(service: Service) -> None:
    service.save(HOSTILE, title=HOSTILE, type=HOSTILE[:50], tags=[HOSTILE[:20]])
    html = service.http.get("/ui/ask", params={"query": HOSTILE, "project": "demo"}).text

    assert "<script>alert" not in html
    assert "{{ 7*7 }}" in html
    assert html.count("U+202E") >= 2


def test_bad_parameters_are_refused_as_rest_refuses_them(service: Service) -> None:
    for name, value, status in (
        ("max_tokens", "x", 400), ("why_not", "x", 400), ("limit", "x", 200), ("limit", "-1", 200),
        ("limit", "99999999999999999999", 200), ("query", "%ff\x00" * 900, 200),
        ("exclude_type", "x", 200),
    ):  # fmt: skip
        parameters = {"project": "demo", "query": "orders", name: value}
        page = service.http.get("/ui/ask", params=parameters)
        assert page.status_code == service.http.get("/context", params=parameters).status_code
        assert page.status_code == status
