"""Memories with a life, saved and asked for through the front door."""

from datetime import datetime

import httpx

from .service import Service, observation


def saved(service: Service, content: str, **fields: object) -> int:
    """The id of a memory that was saved with these fields."""
    answer = service.http.post("/observations", json=observation(content, **fields))
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def changed(service: Service, memory: int, **fields: object) -> httpx.Response:
    return service.http.patch(f"/observations/{memory}", json=fields)


def read(service: Service, memory: int) -> dict[str, object]:
    answer = service.http.get(f"/observations/{memory}")
    assert answer.status_code == 200, answer.text
    told: dict[str, object] = answer.json()
    return told


def found(service: Service, words: str, **more: str) -> list[int]:
    """The ids that a search finds, by the title that each has."""
    answer = service.http.get("/search", params={"q": words, "project": "demo", **more})
    hits = answer.json()
    return [hit["id"] for hit in (hits["results"] if isinstance(hits, dict) else hits)]


def reminded(service: Service, words: str = "", **more: str) -> list[str]:
    """The titles in a context."""
    asked = {"query": words, "project": "demo", **more}
    answer = service.http.get("/context", params=asked).json()
    return [line["title"] for line in answer["recent_observations"]]


def listed(service: Service) -> list[int]:
    answer = service.http.get("/observations/recent", params={"project": "demo"})
    return [each["id"] for each in answer.json()]


def at(moment: datetime) -> str:
    return moment.isoformat()
