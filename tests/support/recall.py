"""Memories saved, read, searched and explained through the front door, as a test does it."""

import random
from typing import Any

import httpx
import pytest

from .service import Service


def search(service: Service, text: str, **asked: Any) -> list[dict[str, Any]]:
    """The hits of a search."""
    hits: list[dict[str, Any]] = _answer(service, "/search", q=text, **asked)
    return hits


def context(service: Service, text: str, **asked: Any) -> list[str]:
    """The titles that a prompt is reminded of."""
    answer = _answer(service, "/context", query=text, **({"project": "demo"} | asked))
    return [found["title"] for found in answer["recent_observations"]]


def _answer(service: Service, path: str, **asked: Any) -> Any:
    answer = service.http.get(path, params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def titles(hits: list[dict[str, Any]]) -> list[str]:
    return [hit["title"] for hit in hits]


def saved(service: Service, content: str, **fields: object) -> int:
    """The id of a memory that was saved with these fields."""
    return int(str(service.save(content, **fields)["id"]))


def changed(service: Service, memory: int, **fields: object) -> httpx.Response:
    return service.http.patch(f"/observations/{memory}", json=fields)


def read(service: Service, memory: int) -> dict[str, object]:
    told: dict[str, object] = _answer(service, f"/observations/{memory}")
    return told


def found(service: Service, words: str, **more: str) -> list[int]:
    """The ids that a search of a project finds."""
    return [hit["id"] for hit in search(service, words, project="demo", **more)]


def listed(service: Service) -> list[int]:
    return [each["id"] for each in _answer(service, "/observations/recent", project="demo")]


def ended(service: Service, id_: str, said: str, project: str = "demo") -> None:
    """End a new session in which this was said."""
    messages = [{"role": "user", "content": said}]
    service.http.post("/sessions", json={"id": id_, "project": project})
    service.http.post(f"/sessions/{id_}/end", json={"messages": messages})


def explained(service: Service, path: str, **asked: Any) -> dict[str, Any]:
    """An explained answer."""
    found: dict[str, Any] = _answer(service, path, explain="true", **asked)
    return found


def plain_of(answer: dict[str, Any]) -> Any:
    """The same answer without what explains it."""
    name = "results" if "results" in answer else "recent_observations"
    bare = [{key: row[key] for key in row if key != "explain"} for row in answer[name]]
    return bare if name == "results" else {"recent_sessions": answer["recent_sessions"], name: bare}


def assert_true(item: dict[str, Any]) -> None:
    """The pieces of an item's score make it whole."""
    counted = [part for part in item["sentences"] if part["counted"]]
    scores = sorted(part["weight"] * part["score"] for part in counted)
    own = scores[0] + 0.4 * sum(scores[1:])
    followers = item.get("following", [])
    gained = sum(it["weight"] * it["score"] for it in followers)
    assert own + gained == pytest.approx(item["score"], rel=1e-9)
    assert sum(item["fields"].values()) == pytest.approx(1, abs=1e-6)
    best = min(counted, key=lambda it: (it["weight"] * it["score"], it["sentence"]))
    weights = {it["sentence"]: it["weight"] * (1.0 if it is best else 0.4) for it in counted}
    for name, share in item["fields"].items():
        parts = [weights.get(one["sentence"], 0.0) * one["score"] * one["fields"].get(name, 0.0)
                 for one in item["matched"]]  # fmt: skip
        assert share == pytest.approx(sum(parts) / own, abs=1e-9)
    shares = [part["share"] for part in (*item["sentences"], *followers)]
    assert sum(shares) == pytest.approx(1, abs=1e-6)
    for part in item["sentences"]:
        terms = [one for one in item["matched"] if one["sentence"] == part["sentence"]]
        assert sum(one["score"] for one in terms) == pytest.approx(part["score"], rel=1e-9)
        assert part["counted"] or part["share"] == 0
    for one in item["matched"]:
        assert sum(one["fields"].values()) == pytest.approx(1, abs=1e-6)


def mistyped(word: str, chance: random.Random, letters: str = "abdeinorsuw2") -> str:
    """A word with one letter swapped, left out, added or changed; or as it is."""
    word = word.casefold()
    at = chance.randrange(1, len(word)) if len(word) > 1 else 0
    letter = chance.choice(letters)
    return chance.choice([
        word,
        word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at:],
        word[:at] + letter + word[at + 1 :],
    ])  # fmt: skip
