"""Any text in any parameter and any field: a page, and never a failure; and no page is large."""

from pathlib import Path

import pytest
from hypothesis import Phase, given, settings, strategies as st

from ..support.pages import VIEWS, get, seed_documents
from ..support.samples import examples
from ..support.service import Service, lasting_with, serving

PARAMETERS = (
    "q", "query", "project", "type", "tag", "scope", "exclude_type", "limit", "before_id",
    "max_tokens", "why_not", "superseded", "revision", "done", "reason",
    "before", "about", "after", "similar", "name", "include_archived", "after_id", "agent_after",
    "ref_after", "path_prefix", "version", "with", "namespace", "memory_type", "offset", "tags",
    "updated_after", "scope.task_id", "memoryRef", "memoryId", "runId",
)  # fmt: skip
FIELDS = (
    "action", "token", "expires_at", "review_at", "revision", "id", "item",
    "new_tag", "which", "title", "type", "content", "tags", "q", "project", "other",
    "place", "seen",
)  # fmt: skip
ACTIONS = (
    "pin", "expire", "review", "restore", "tag", "untag", "confirm", "newer", "older", "extend",
)  # fmt: skip

text = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["1", "-1", "9" * 25, "+5", "2030-01-01T12:00", "9999-12-31T23:59", "0001-01-01", "1-1", "all",
     "mem://support", "old", "limit", "semantic", "true", "deploy/"]
)  # fmt: skip


def fill(service: Service) -> None:
    service.save("The door is green, and so is the gate.", tags=["door"])
    service.save("The door is blue.", session_id="s2")


service = lasting_with(fill)


@pytest.fixture(scope="module")
def views(service: Service) -> list[str]:
    return [*VIEWS, *seed_documents(service)]


@pytest.mark.slow
@settings(examples(40), phases=(Phase.generate, Phase.shrink))
@given(
    st.integers(0, len(VIEWS) + 2), st.dictionaries(st.sampled_from(PARAMETERS), text, max_size=5)
)
def test_any_parameter_is_answered_by_a_page(
    service: Service, views: list[str], view: int, parameters: dict[str, str]
) -> None:
    answer = service.http.get(views[view], params=parameters)

    assert answer.status_code in (200, 400, 404)
    assert answer.text.startswith("<!doctype html>")


@pytest.mark.slow
@settings(examples(40), phases=(Phase.generate, Phase.shrink))
@given(
    st.sampled_from(["/ui/memories", "/ui/memories/1", "/ui/memories/1/edit", "/ui/review"]),
    st.sampled_from(ACTIONS),
    st.dictionaries(st.sampled_from(FIELDS), text, max_size=6),
)
def test_any_form_is_answered_by_a_page(
    service: Service, path: str, action: str, fields: dict[str, str]
) -> None:
    token = dict(get(service.http, "/ui/memories/2").forms[-1].fields)["token"]

    answer = service.http.post(path, data={"token": token, "action": action, **fields})

    assert answer.status_code in (200, 303, 400, 403, 404, 409)


@pytest.mark.slow
def test_no_page_is_large_however_long_its_names(tmp_path: Path) -> None:
    sign = "\U0001f600"

    def row(number: int) -> dict[str, object]:
        long = f"{number} {sign * 200}"
        return {
            "project": long[:200], "session_id": f"{number} {sign * 490}", "type": long[:50],
            "title": f"{number} {sign * 490}", "content": f"plum {number} {sign * 900}",
            "scope": long[:50], "tags": [f"{tag}{long[:90]}" for tag in range(20)],
        }  # fmt: skip

    rows = [row(number) for number in range(120)]
    project = str(rows[0]["project"])
    rows += [{**row(number), "project": project} for number in range(120, 180)]
    with serving(tmp_path / "memory.db") as service:
        document = {"sessions": [], "observations": rows}
        imported = service.http.post("/import", json=document).raise_for_status()
        assert imported.json()["imported_observations"] == len(rows)
        for path, asked in (
            ("memories", {}), ("memories", {"q": f"plum {'p ' * 3000}"}), ("ask", {}),
            ("memories", {"project": project}), ("memories", {"project": project, "q": "plum"}),
            ("review", {}), ("ask", {"project": project, "limit": "50"}), ("sessions", {}),
            ("ask", {"project": project, "limit": "50", "query": "plum"}),
            ("sessions", {"project": project}), ("projects", {}),
            ("projects", {"project": project}), (f"sessions/0 {sign * 490}", {}),
        ):  # fmt: skip
            answer = service.http.get(f"/ui/{path}", params=asked)
            assert (answer.status_code, len(answer.content) < 300_000) == (200, True), (path, asked)


def test_an_address_that_is_too_long_is_refused_on_a_page(
    service: Service, views: list[str]
) -> None:
    for path in views:
        if path == "/ui/nowhere":
            continue
        for name in ("q", "project", "anything"):
            answer = service.http.get(path, params={name: "x" * 10_001})
            assert (answer.status_code, "10,000 bytes" in answer.text) == (400, True)
