"""The view *Projects*: counts as REST has them, growth by days and weeks, types and last use."""

import re
from collections import Counter
from pathlib import Path

import httpx
import pytest

from ..support.callers import made_key
from ..support.pages import get
from ..support.service import Service, serving
from .test_memory import HOSTILE


def filled(service: Service) -> None:
    for number in range(6):
        service.save(f"Setting {number} of the oven.", type=("config", "note")[number % 2])
        service.clock.advance(days=9)
    service.save("A door of another house.", project="house", session_id="s9")
    service.save("It ends.", project="house", session_id="s9", expires_at="2030-02-25T12:00:00Z")
    service.save("It is deleted.", project="house", session_id="s10")
    service.http.delete("/observations/9")
    service.clock.advance(days=2)


def words(text: str) -> str:
    return " ".join(text.split())


def days_shown(html: str) -> Counter[str]:
    found = re.findall(r"<title>(\d{4}-\d\d-\d\d): (\d+) memor", html)
    return Counter({day: int(count) for day, count in found})


@pytest.mark.parametrize("project", ["", "demo", "house"])
def test_each_number_is_the_twins(service: Service, project: str) -> None:
    filled(service)
    page = get(service.http, "/ui/projects", **({"project": project} if project else {}))
    stats, recent = (
        service.http.get(next(it for it in page.links if it.startswith(start))).json()
        for start in ("/stats", "/observations/recent")
    )
    shown = words(page.text)

    memories, sessions = stats["total_observations"], stats["total_sessions"]
    assert f"{memories} memor{'y' if memories == 1 else 'ies'} in {sessions} session" in shown
    for kind, count in Counter(it["type"] for it in recent).items():
        assert f"{kind} {count}" in shown
    html = service.http.get(str(page.url)).text
    assert days_shown(html) == Counter(it["created_at"][:10] for it in recent)
    rows = re.findall(r"<strong>(\d+)</strong>", html)  # sums of weeks
    assert len(rows) == 53
    assert sum(map(int, rows)) == len(recent) == memories


def test_each_project_has_its_row(service: Service) -> None:
    filled(service)
    shown = words(get(service.http, "/ui/projects").text)

    for name in ("demo", "house"):
        stats = service.http.get("/stats", params={"project": name}).json()
        recent = service.http.get("/observations/recent", params={"project": name}).json()
        latest = Counter(it["created_at"] > "2030-02-19T23" for it in recent)[True]
        counts = stats["total_observations"], stats["total_sessions"], latest, len(recent)
        assert f"{name} {' '.join(map(str, counts))} " in shown
    assert "2 days ago 2030-02-24 12:00 UTC" in shown


def test_a_project_leads_to_what_it_holds(service: Service) -> None:
    filled(service)
    listed = get(service.http, "/ui/projects")
    page = get(service.http, listed.links["demo"])

    assert page.links["Memories"] == "/ui/memories?project=demo"
    assert page.links["note"] == "/ui/memories?project=demo&type=note"
    assert "house" not in page.links


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


def test_a_project_of_others_is_as_unknown(path: Path) -> None:
    with serving(path) as service:
        filled(service)
        key = made_key(service.path, "reader", projects=("house",))
        with httpx.Client(base_url=service.url, auth=("me", key)) as http:
            page = get(http, "/ui/projects")
            assert page.links["house"] == "/ui/projects?project=house"
            assert "demo" not in page.text
            assert "1 memory in 2 sessions of 1 project." in words(page.text)
            assert sum(days_shown(http.get("/ui/projects").text).values()) == 1
            assert not page.forms
            foreign, unknown = (http.get(f"/ui/projects?project={it}") for it in ("demo", "x"))
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.text == unknown.text


def test_a_service_without_projects_says_what_to_do_first(service: Service) -> None:
    assert "agentops-memory save" in get(service.http, "/ui/projects").text


def test_hostile_text_is_shown_and_never_obeyed(service: Service) -> None:
    name = HOSTILE.split("\u202e", maxsplit=1)[0].strip().replace("*", "x")
    service.save(HOSTILE, type=HOSTILE[:50], project=name)
    for parameters in ({}, {"project": name}):
        html = service.http.get("/ui/projects", params=parameters).text
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert(1)" in html
        assert not set("\u202e\u200b\x07") & set(html)


def test_any_parameter_is_answered_by_a_page(service: Service) -> None:
    service.save("The door is green.")
    for parameters, status in (
        ({"project": "x" * 2000}, 404), ({"after": "\x00\u202e"}, 200), ({"after": "zzz"}, 200),
        ({"project": "\x00"}, 404),
    ):  # fmt: skip
        assert service.http.get("/ui/projects", params=parameters).status_code == status
