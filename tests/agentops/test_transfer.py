"""What one service exports, another imports, and nothing is lost or doubled on the way."""

import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ..support.files import assert_index_is_whole
from ..support.samples import examples
from ..support.service import Clock, Service, observation, serving

words = st.text(string.printable + "é\u0301ß漢字\U0001f600\0İ", max_size=12)
visible = words.filter(lambda given: bool(given.strip()))
memories = st.fixed_dictionaries(
    {"title": visible, "content": visible, "type": visible, "session_id": words.filter(bool)},
    optional={
        "project": st.sampled_from(["demo", "Other ", "CAFE\u0301", "İ"]),
        "scope": st.sampled_from(["project", "global", "team", ""]),
        "tags": st.lists(words, max_size=3),
        "topic_key": st.sampled_from(["k", "a/b", ""]),
    },
)
saves = st.tuples(st.just("save"), memories)
changed = st.fixed_dictionaries({}, optional={"title": visible, "tags": st.just([])})
messages = st.lists(st.fixed_dictionaries({"role": words, "content": words}), max_size=3)
changes = st.tuples(st.just("change"), changed)
deletes = st.tuples(st.just("delete"), st.booleans())
ends = st.tuples(st.just("end"), messages)
histories = st.lists(saves | changes | deletes | ends, max_size=12)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    folder, clock = tmp_path_factory.mktemp("services"), Clock()
    with (
        serving(folder / "one.db", clock=clock) as one,
        serving(folder / "other.db", clock=clock) as other,
    ):
        yield one, other


def exported(service: Service, project: str = "") -> dict[str, Any]:
    answer = service.http.get("/export", params={"project": project})
    assert answer.status_code == 200
    document: dict[str, Any] = answer.json()
    return document


def carried(service: Service, document: dict[str, Any]) -> dict[str, int]:
    answer = service.http.post("/import", json=document)
    assert answer.status_code == 200, answer.text
    counts: dict[str, int] = answer.json()
    return counts


def without_ids(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"observations": [row | {"id": 0} for row in document["observations"]]}


def emptied(service: Service) -> None:
    for row in exported(service)["observations"]:
        service.http.delete(f"/observations/{row['id']}?hard=true")


def play(service: Service, deed: str, details: Any) -> None:
    service.clock.advance(seconds=0.7)
    newest = service.http.get("/observations/recent?limit=1").json()
    path = f"/observations/{newest[0]['id'] if newest else 1}"
    match deed:
        case "save":
            answer = service.http.post("/observations", json={"project": "demo"} | details)
        case "change":
            answer = service.http.patch(path, json=details)
        case "delete":
            answer = service.http.delete(path, params={"hard": details})
        case _:
            answer = service.http.post("/sessions/ended/end", json={"messages": details})
    assert answer.status_code < 500


@settings(examples(12), phases=(Phase.generate, Phase.shrink))
@given(history=histories)
def test_an_export_is_the_same_after_its_import(
    pair: tuple[Service, Service], history: list[tuple[str, Any]]
) -> None:
    one, other = pair
    for deed, details in history:
        play(one, deed, details)
    document = exported(one)

    assert carried(one, document) == {"imported_sessions": 0, "imported_observations": 0}
    assert exported(one) == document
    emptied(other)
    counts = carried(other, document)

    assert counts["imported_observations"] == len(document["observations"])
    copy = without_ids(exported(other))
    assert copy["observations"] == without_ids(document)["observations"]
    assert_index_is_whole(other.path)


def test_sessions_are_exported_as_they_were_imported(
    pair: tuple[Service, Service], service: Service
) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    pair[0].http.post("/sessions/told/end", json={"messages": messages})
    document = exported(pair[0])

    assert carried(service, document)["imported_sessions"] == len(document["sessions"])
    assert exported(service)["sessions"] == document["sessions"]


def test_an_export_lists_every_field_in_id_order_and_one_of_a_project_its_own_rows_alone(
    service: Service,
) -> None:
    service.save("Ours.", project="Demo", tags=["a"], topic_key="k")
    service.clock.advance(seconds=1)
    service.save("Ours for all.", scope="global")
    service.save("Theirs for all.", project="other", session_id="s2", scope="global")

    document = exported(service, " DEMO ")

    assert document["exported_at"] == "2030-01-01T12:00:01Z"
    assert [row["id"] for row in exported(service)["observations"]] == [1, 2, 3]
    assert [row["content"] for row in document["observations"]] == ["Ours.", "Ours for all."]
    assert [row["id"] for row in document["sessions"]] == ["s1"]
    assert document["observations"][0].keys() == {
        "id", "uid", "session_id", "type", "title", "content", "tags", "project", "scope",
        "topic_key", "normalized_hash", "revision_count", "duplicate_count", "last_seen_at",
        "created_at", "updated_at",
    }  # fmt: skip
    assert document["observations"][1].keys().isdisjoint({"tags", "topic_key", "promoted_to"})


@pytest.mark.slow
def test_an_export_goes_on_past_a_page(service: Service) -> None:
    rows = [observation(f"Row {number}.", session_id=f"s{number}") for number in range(1_234)]
    carried(service, {"observations": rows, "sessions": []})

    document = exported(service)

    assert [row["content"] for row in document["observations"]] == [row["content"] for row in rows]
    assert len(document["sessions"]) == 1_234
