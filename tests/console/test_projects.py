"""The view *Projects*: counts as REST has them, growth by days and weeks, types and last use."""

import re
from collections import Counter

import pytest

from ..support.pages import get
from ..support.service import Service


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


@pytest.mark.slow
def test_each_number_is_the_twins_and_a_project_leads_to_what_it_holds(service: Service) -> None:
    filled(service)
    listed = get(service.http, "/ui/projects")
    for page in (listed, *(get(service.http, listed.links[it]) for it in ("demo", "house"))):
        stats, recent = (
            service.http.get(next(it for it in page.links if it.startswith(start))).json()
            for start in ("/stats", "/observations/recent")
        )
        memories, sessions = stats["total_observations"], stats["total_sessions"]
        count = f"{memories} memor{'y' if memories == 1 else 'ies'} in {sessions} session"
        assert count in words(page.text)
        for kind, number in Counter(it["type"] for it in recent).items():
            assert f"{kind} {number}" in words(page.text)
        html = service.http.get(str(page.url)).text
        assert days_shown(html) == Counter(it["created_at"][:10] for it in recent)
        weeks = re.findall(r"<strong>(\d+)</strong>", html)
        assert len(weeks) == 53
        assert sum(map(int, weeks)) == len(recent) == memories

    for name in ("demo", "house"):
        stats = service.http.get("/stats", params={"project": name}).json()
        recent = service.http.get("/observations/recent", params={"project": name}).json()
        latest = Counter(it["created_at"] > "2030-02-19T23" for it in recent)[True]
        counts = stats["total_observations"], stats["total_sessions"], latest, len(recent)
        assert f"{name} {' '.join(map(str, counts))} " in words(listed.text)
    assert "2 days ago 2030-02-24 12:00 UTC" in words(listed.text)
    demo = get(service.http, listed.links["demo"]).links
    assert demo["Memories"] == "/ui/memories?project=demo"
    assert demo["note"] == "/ui/memories?project=demo&type=note"
    assert "house" not in demo


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
