"""Any text in any parameter and any field: a page, and never a failure; and no page is large."""

from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ..support.pages import get
from ..support.samples import examples
from ..support.service import Service, serving

PATHS = (
    "/ui/ask", "/ui/memories", "/ui/memories/1", "/ui/erasures/x", "/ui/review", "/ui/projects",
    "/ui/sessions", "/ui/sessions/s1",
)  # fmt: skip
PARAMETERS = (
    "q", "query", "project", "type", "tag", "scope", "exclude_type", "limit", "before_id",
    "max_tokens", "why_not", "superseded", "revision", "done", "reason",
    "before", "about", "after",
)  # fmt: skip
FIELDS = (
    "action", "token", "newer", "older", "expires_at", "review_at", "revision", "id", "item",
    "new_tag", "which", "title", "type", "content", "tags", "q", "project", "other",
    "place",
)  # fmt: skip
ACTIONS = (
    "pin", "expire", "review", "supersede", "restore", "tag", "untag", "confirm", "newer", "extend",
)  # fmt: skip

text = st.text(st.characters(codec="utf-8"), max_size=40) | st.sampled_from(
    ["1", "-1", "9" * 25, "+5", "2030-01-01T12:00", "9999-12-31T23:59", "0001-01-01", "1-1", "all"]
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service") / "memory.db") as running:
        running.save("The door is green, and so is the gate.", tags=["door"])
        running.save("The door is blue.", session_id="s2")
        yield running


@settings(examples(40), phases=(Phase.generate, Phase.shrink))
@given(st.sampled_from(PATHS), st.dictionaries(st.sampled_from(PARAMETERS), text, max_size=5))
def test_any_parameter_is_answered_by_a_page(
    service: Service, path: str, parameters: dict[str, str]
) -> None:
    answer = service.http.get(path, params=parameters)

    assert answer.status_code in (200, 400, 404)
    assert answer.text.startswith("<!doctype html>")


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


@pytest.mark.heavy
def test_no_page_is_large_however_hostile_its_text(service: Service) -> None:
    costly = "\u202ea" * 25_000
    for number in range(60):
        body = {
            "session_id": "s3", "project": "hostile", "type": costly[:50],
            "title": f"{number} {costly[:490]}", "content": f"apple {costly[: 49_000]}",
            "scope": f"{number % 30}", "expires_at": "2030-01-03T12:00:00Z",
        }  # fmt: skip
        service.http.post("/observations?similar=1", json=body).raise_for_status()

    for path in (
        "/ui/memories?project=hostile", "/ui/memories?q=apple", "/ui/memories/3",
        "/ui/ask?project=hostile&query=apple&limit=50", "/ui/ask?project=hostile&limit=50",
        "/ui/review?project=hostile", "/ui/review?project=hostile&reason=similar",
        "/ui/projects", "/ui/projects?project=hostile", "/ui/sessions", "/ui/sessions/s3",
    ):  # fmt: skip
        assert len(service.http.get(path).content) < 300_000, path
