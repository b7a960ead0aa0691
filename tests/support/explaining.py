"""Explained answers, as a test asks for them and looks at them."""

from typing import Any

import pytest

from .service import Service


def explained(service: Service, path: str, **asked: Any) -> dict[str, Any]:
    """An explained answer."""
    answer = service.http.get(path, params={"explain": "true", **asked})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def plain_of(answer: dict[str, Any]) -> Any:
    """The same answer without what explains it."""
    rows: list[dict[str, Any]] = answer["results" if "results" in answer else "recent_observations"]
    bare = [{name: row[name] for name in row if name != "explain"} for row in rows]
    if "results" in answer:
        return bare
    return {"recent_sessions": answer["recent_sessions"], "recent_observations": bare}


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
