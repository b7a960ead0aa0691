"""What one service exports, another imports: nothing is lost or doubled, and lives go along."""

import json
import string
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import Phase, given, settings, strategies as st

from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.space import Project

from ..support.erasing import remains
from ..support.files import assert_index_is_whole
from ..support.process import run
from ..support.projects import changed
from ..support.requirements import requirement
from ..support.samples import examples
from ..support.service import START, Clock, Service, observation, serving

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
edits = st.fixed_dictionaries({}, optional={"title": visible, "tags": st.just([])})
messages = st.lists(st.fixed_dictionaries({"role": words, "content": words}), max_size=3)
changes = st.tuples(st.just("change"), edits)
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
    for row in exported(other)["observations"]:
        other.http.delete(f"/observations/{row['id']}?hard=true")
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


Row = dict[str, Any]

UIDS = [str(UUID(int=(0x019 << 116) + (7 << 76) + (2 << 62) + number)) for number in range(400)]
IN_STAGES = 250  # rows: more than one transaction of either kind
SECRET = "AKIA" + "IOSFODNN7" + "EXAMPLE"
SOON, LATER = "2030-01-01T13:00:00.500000Z", "2030-02-01T00:00:00Z"


def aged(number: int, **fields: object) -> Row:
    """The aged of an export."""
    at = f"2029-01-01T00:{number // 60:02}:{number % 60:02}Z"
    given = observation(f"Row {number}.", uid=UIDS[number], created_at=at, updated_at=at)
    return {**given, "last_seen_at": at, **fields}


def others(first: int) -> list[Row]:
    """Rows that make an import a large one."""
    return [aged(number) for number in range(first, first + IN_STAGES)]


def counts_of(service: Service, *rows: Row) -> Row:
    answer = service.http.post("/import", json={"observations": rows, "sessions": []})
    assert answer.status_code == 200, answer.text
    assert_index_is_whole(service.path)
    counts: Row = answer.json()
    return counts


def by_uid(service: Service) -> dict[str, Row]:
    rows: list[Row] = service.http.get("/export").json()["observations"]
    return {found["uid"]: found for found in rows}


def seen(service: Service, id_: int) -> Row:
    found: Row = service.http.get(f"/observations/{id_}").json()
    return found


def expire(service: Service, id_: int) -> None:
    answer = service.http.patch(f"/observations/{id_}", json={"expires_at": "2020-12-01T00:00:00Z"})
    assert answer.status_code == 200, answer.text


def test_a_memory_that_expired_at_the_epoch_is_not_found(path: Path) -> None:
    """Whose time is 0 in microseconds."""
    with serving(path) as service:
        expired = aged(0, content="Aurora over the lake.", expires_at="1970-01-01T00:00:00Z")
        counts_of(service, expired, aged(1, content="Aurora over the sea."))

    with serving(path) as service:
        for _ in range(3):  # from the file, then from memory
            found = service.http.get("/search", params={"q": "aurora", "project": "demo"}).json()
            assert [it["content"] for it in found] == ["Aurora over the sea."]


@requirement("life:transfer:carried")
@pytest.mark.parametrize("size", [0, IN_STAGES])
def test_what_is_exported_is_what_was_imported(service: Service, size: int) -> None:
    given = aged(
        0, expires_at=SOON, pinned=True, pinned_at=SOON, review_at=LATER, confirmed_at=SOON,
        supersedes=[UIDS[1], UIDS[399]],
    )  # fmt: skip
    counts = counts_of(service, given, aged(1), *(others(2) if size else []))

    assert counts["imported_observations"] == 2 + size
    assert "refused_supersessions" not in counts
    found = by_uid(service)
    kept = {name: found[UIDS[0]].get(name) for name in given}
    assert kept == given | {"supersedes": [UIDS[1]]}
    assert not {"expires_at", "pinned", "pinned_at", "supersedes"} & found[UIDS[1]].keys()
    assert seen(service, 2)["superseded_by"] == [1]


@requirement("life:transfer:live")
def test_what_is_not_live_is_in_no_export_and_in_no_link_of_one(service: Service) -> None:
    counts_of(service, aged(0, supersedes=[UIDS[1], UIDS[2]]), aged(1), aged(2))
    expire(service, 2)

    found = by_uid(service)

    assert found.keys() == {UIDS[0], UIDS[2]}
    assert found[UIDS[0]]["supersedes"] == [UIDS[2]]


@requirement("life:transfer:matched")
def test_a_row_that_matches_is_left_alone_with_its_links(service: Service) -> None:
    counts_of(service, aged(0), aged(1))
    before = by_uid(service)

    counts = counts_of(service, aged(0, pinned=True, expires_at=SOON, supersedes=[UIDS[1]]))

    assert counts["imported_observations"] == 0
    assert by_uid(service) == before


@pytest.mark.representative(2)
@pytest.mark.parametrize("size", [0, IN_STAGES])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"supersedes": [UIDS[0]]}),  # the other way round
        ({}, {"supersedes": [UIDS[1]]}),  # itself
        ({}, {"project": "other", "supersedes": [UIDS[0]]}),
        ({}, {"scope": "global", "supersedes": [UIDS[0]]}),
    ],
)
@requirement("life:transfer:refused")
def test_a_link_that_may_not_be_is_told_and_nothing_else_is_lost(
    service: Service, size: int, first: Row, second: Row
) -> None:
    rows = [aged(0, supersedes=[UIDS[1]], **first), aged(1, **second), *others(2)[:size]]
    if second.get("project") or second.get("scope"):
        rows[0].pop("supersedes")

    counts = counts_of(service, *rows)

    assert (counts["imported_observations"], counts["refused_supersessions"]) == (2 + size, 1)
    assert "supersedes" not in by_uid(service)[UIDS[1]]


@requirement("life:transfer:pins")
def test_no_import_and_no_merge_is_refused_for_its_pins_and_their_order_stays(
    tmp_path: Path,
) -> None:
    at = [(START - timedelta(seconds=number)).isoformat() for number in range(30)]
    rows = [aged(number, pinned=True, pinned_at=at[number]) for number in range(30)]
    path, half = tmp_path / "memory.db", [it | {"project": "other"} for it in rows[21:]]
    with serving(path, clock=Clock()) as service:
        assert counts_of(service, *rows[:21], *half)["imported_observations"] == 30

    merged(path, Project("other"), Project("demo"))

    with serving(path, clock=Clock()) as service:
        shown = service.http.get("/context?project=demo&limit=60").json()["recent_observations"]
        assert [it["title"] for it in shown[:30]] == [f"Row {it}." for it in reversed(range(30))]


@requirement("life:transfer:merged")
def test_of_two_at_one_key_the_one_that_stays_keeps_its_life(path: Path) -> None:
    ours = aged(0, topic_key="k", project="other", updated_at=LATER, expires_at=LATER)
    older = aged(1, project="other"), aged(3)
    held = aged(2, topic_key="k", pinned=True, pinned_at=SOON, supersedes=[UIDS[3]])
    with serving(path, clock=Clock()) as service:
        counts_of(service, ours | {"supersedes": [UIDS[1]]}, held, *older)

    merged(path, Project("other"), Project("demo"))

    with serving(path, clock=Clock()) as service:
        found = by_uid(service)
        kept = found[UIDS[2]]
        assert found.keys() == {*UIDS[1:4]}
        assert (kept["content"], kept["pinned_at"], kept["supersedes"]) == (
            "Row 0.", SOON, [UIDS[3]]
        )  # fmt: skip
        assert "expires_at" not in kept


@requirement("life:transfer:redacted")
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_key_that_an_expired_memory_has_left_is_redacted(tmp_path: Path, is_taken: bool) -> None:
    path, key = tmp_path / "memory.db", f"key {SECRET}"
    exceptions = tmp_path / "memory.db.redaction"
    exceptions.write_text(json.dumps({"default": {"allow_kinds": ["aws-key-id"]}}))
    with serving(path, clock=Clock()) as service:
        counts_of(service, aged(0, topic_key=key))
        expire(service, 1)
        counts_of(service, aged(1, topic_key=key if is_taken else None))
    exceptions.unlink()

    assert run("scan", "--db", str(path), "--redact").returncode == 0

    with serving(path, clock=Clock()) as service:
        assert SECRET not in seen(service, 1)["topic_key"]
        assert ("topic_key" in seen(service, 2)) is is_taken
    assert remains(tmp_path, SECRET) == set()


@requirement("life:transfer:keys", "life:transfer:confirmed")
def test_an_import_takes_the_key_of_what_has_expired_which_keeps_it_too(service: Service) -> None:
    counts_of(service, aged(0, topic_key="k"))
    expire(service, 1)

    assert planned_of(service, aged(1, topic_key="k"))["new_observations"] == 1
    assert counts_of(service, aged(1, topic_key="k"))["imported_observations"] == 1

    (newer,) = by_uid(service).values()  # a planned_of may use up ids
    assert newer["uid"] == UIDS[1]
    service.http.post("/observations/1/confirm")
    assert seen(service, 1)["topic_key"] == newer["topic_key"] == "k"
    assert service.http.patch("/observations/1", json={"expires_at": None}).status_code == 409
    service.http.delete("/observations/1")
    expire(service, newer["id"])
    assert counts_of(service, aged(0, project="elsewhere"))["imported_observations"] == 1
    assert by_uid(service).keys() == {UIDS[0]}  # what comes back takes it in its turn


@pytest.mark.slow
@requirement("life:transfer:keys")
@pytest.mark.parametrize("uid", [True, False])
def test_what_has_expired_takes_no_key_from_what_lives(service: Service, uid: bool) -> None:
    past = aged(1, topic_key="k", updated_at=LATER, expires_at="2020-12-01T00:00:00Z")
    if not uid:
        del past["uid"]
    rows = [aged(0, topic_key="k"), past, aged(2, topic_key="k", updated_at=LATER)]

    expected = planned_of(service, *rows)
    counts = [counts_of(service, *rows)["imported_observations"] for _ in range(2)]

    assert (expected["new_observations"], expected["conflicting_observations"]) == (2, 1)
    assert counts == [3, 0]
    (live,) = by_uid(service).values()  # a planned_of may use up ids
    assert live["content"] == "Row 2."
    assert seen(service, live["id"] + 1)["expired"]


@requirement("life:transfer:later")
def test_a_later_state_brings_its_life_to_the_memory_at_its_key(service: Service) -> None:
    counts_of(
        service, aged(0, topic_key="k", expires_at=SOON, pinned=True, pinned_at=SOON), aged(2)
    )
    later = aged(1, topic_key="k", updated_at=LATER, expires_at=LATER, supersedes=[UIDS[2]])

    counts_of(service, later)

    found = by_uid(service)[UIDS[0]]
    assert (found["content"], found["expires_at"], found["pinned_at"]) == ("Row 1.", LATER, SOON)
    assert found["supersedes"] == [UIDS[2]]


@requirement("life:revisions:text")
def test_a_change_of_life_alone_reads_as_the_next_text(service: Service) -> None:
    service.save("One.", topic_key="k")
    service.http.patch("/observations/1", json={"pinned": True})
    service.http.patch("/observations/1", json={"content": "Two."})
    service.http.patch("/observations/1", json={"review_at": LATER})
    between = aged(1, content="Between.", topic_key="k", updated_at="2030-01-01T12:00:00Z")

    counts_of(service, between)

    history = service.http.get("/observations/1/history").json()
    assert [it["content"] for it in history] == ["Two.", "Between.", "Two.", "One.", "One."]
    restored = service.http.post("/observations/1/restore", json={"revision": 1})
    assert restored.json()["content"] == "One."
    history = service.http.get("/observations/1/history").json()
    texts = ["One.", "Two.", "Between.", "Two.", "One.", "One."]
    assert [it["content"] for it in history] == texts


def merged(path: Path, project: Project, into: Project) -> None:
    changed(path, [], lambda projects: projects.merge(OPERATOR, project, into))


def planned_of(service: Service, *rows: Row) -> Row:
    answer = service.http.post("/import?dry_run=true", json={"observations": rows})
    counts: Row = answer.json()
    return counts
