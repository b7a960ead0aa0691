"""The two reads that find memories, as a test asks them."""

from typing import Any

from .service import Service


def search(service: Service, text: str, **asked: Any) -> list[dict[str, Any]]:
    """The hits of a search."""
    answer = service.http.get("/search", params={"q": text, **asked})
    assert answer.status_code == 200, answer.text
    hits: list[dict[str, Any]] = answer.json()
    return hits


def context(service: Service, text: str, **asked: Any) -> list[str]:
    """The titles that a prompt is reminded of."""
    answer = service.http.get("/context", params={"query": text, "project": "demo", **asked})
    assert answer.status_code == 200, answer.text
    return [found["title"] for found in answer.json()["recent_observations"]]


def titles(hits: list[dict[str, Any]]) -> list[str]:
    return [hit["title"] for hit in hits]
