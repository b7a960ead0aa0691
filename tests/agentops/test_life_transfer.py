"""A memory's life goes with it: through exports, imports, merges and redaction."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.space import Project

from ..support.erasing import remains
from ..support.files import assert_index_is_whole
from ..support.process import run
from ..support.projects import changed
from ..support.requirements import requirement
from ..support.service import START, Clock, Service, observation, serving

Row = dict[str, Any]

UIDS = [str(UUID(int=(0x019 << 116) + (7 << 76) + (2 << 62) + number)) for number in range(400)]
IN_STAGES = 250  # rows: more than one transaction of either kind
SECRET = "AKIA" + "IOSFODNN7" + "EXAMPLE"
SOON, LATER = "2030-01-01T13:00:00.500000Z", "2030-02-01T00:00:00Z"


def row(number: int, **fields: object) -> Row:
    """The row of an export."""
    at = f"2029-01-01T00:{number // 60:02}:{number % 60:02}Z"
    given = observation(f"Row {number}.", uid=UIDS[number], created_at=at, updated_at=at)
    return {**given, "last_seen_at": at, **fields}


def others(first: int) -> list[Row]:
    """Rows that make an import a large one."""
    return [row(number) for number in range(first, first + IN_STAGES)]


def imported(service: Service, *rows: Row) -> Row:
    answer = service.http.post("/import", json={"observations": rows, "sessions": []})
    assert answer.status_code == 200, answer.text
    assert_index_is_whole(service.path)
    counts: Row = answer.json()
    return counts


def exported(service: Service) -> dict[str, Row]:
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
        expired = row(0, content="Aurora over the lake.", expires_at="1970-01-01T00:00:00Z")
        imported(service, expired, row(1, content="Aurora over the sea."))

    with serving(path) as service:
        for _ in range(3):  # from the file, then from memory
            found = service.http.get("/search", params={"q": "aurora", "project": "demo"}).json()
            assert [it["content"] for it in found] == ["Aurora over the sea."]


@requirement("life:transfer:carried")
@pytest.mark.parametrize("size", [0, IN_STAGES])
def test_what_is_exported_is_what_was_imported(service: Service, size: int) -> None:
    given = row(
        0, expires_at=SOON, pinned=True, pinned_at=SOON, review_at=LATER, confirmed_at=SOON,
        supersedes=[UIDS[1], UIDS[399]],
    )  # fmt: skip
    counts = imported(service, given, row(1), *(others(2) if size else []))

    assert counts["imported_observations"] == 2 + size
    assert "refused_supersessions" not in counts
    found = exported(service)
    kept = {name: found[UIDS[0]].get(name) for name in given}
    assert kept == given | {"supersedes": [UIDS[1]]}
    assert not {"expires_at", "pinned", "pinned_at", "supersedes"} & found[UIDS[1]].keys()
    assert seen(service, 2)["superseded_by"] == [1]


@requirement("life:transfer:live")
def test_what_is_not_live_is_in_no_export_and_in_no_link_of_one(service: Service) -> None:
    imported(service, row(0, supersedes=[UIDS[1], UIDS[2]]), row(1), row(2))
    expire(service, 2)

    found = exported(service)

    assert found.keys() == {UIDS[0], UIDS[2]}
    assert found[UIDS[0]]["supersedes"] == [UIDS[2]]


@requirement("life:transfer:matched")
def test_a_row_that_matches_is_left_alone_with_its_links(service: Service) -> None:
    imported(service, row(0), row(1))
    before = exported(service)

    counts = imported(service, row(0, pinned=True, expires_at=SOON, supersedes=[UIDS[1]]))

    assert counts["imported_observations"] == 0
    assert exported(service) == before


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
    rows = [row(0, supersedes=[UIDS[1]], **first), row(1, **second), *others(2)[:size]]
    if second.get("project") or second.get("scope"):
        rows[0].pop("supersedes")

    counts = imported(service, *rows)

    assert (counts["imported_observations"], counts["refused_supersessions"]) == (2 + size, 1)
    assert "supersedes" not in exported(service)[UIDS[1]]


@requirement("life:transfer:pins")
def test_no_import_and_no_merge_is_refused_for_its_pins_and_their_order_stays(
    tmp_path: Path,
) -> None:
    at = [(START - timedelta(seconds=number)).isoformat() for number in range(30)]
    rows = [row(number, pinned=True, pinned_at=at[number]) for number in range(30)]
    path, half = tmp_path / "memory.db", [it | {"project": "other"} for it in rows[21:]]
    with serving(path, clock=Clock()) as service:
        assert imported(service, *rows[:21], *half)["imported_observations"] == 30

    merged(path, Project("other"), Project("demo"))

    with serving(path, clock=Clock()) as service:
        shown = service.http.get("/context?project=demo&limit=60").json()["recent_observations"]
        assert [it["title"] for it in shown[:30]] == [f"Row {it}." for it in reversed(range(30))]


@requirement("life:transfer:merged")
def test_of_two_at_one_key_the_one_that_stays_keeps_its_life(path: Path) -> None:
    ours = row(0, topic_key="k", project="other", updated_at=LATER, expires_at=LATER)
    older = row(1, project="other"), row(3)
    held = row(2, topic_key="k", pinned=True, pinned_at=SOON, supersedes=[UIDS[3]])
    with serving(path, clock=Clock()) as service:
        imported(service, ours | {"supersedes": [UIDS[1]]}, held, *older)

    merged(path, Project("other"), Project("demo"))

    with serving(path, clock=Clock()) as service:
        found = exported(service)
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
        imported(service, row(0, topic_key=key))
        expire(service, 1)
        imported(service, row(1, topic_key=key if is_taken else None))
    exceptions.unlink()

    assert run("scan", "--db", str(path), "--redact").returncode == 0

    with serving(path, clock=Clock()) as service:
        assert SECRET not in seen(service, 1)["topic_key"]
        assert ("topic_key" in seen(service, 2)) is is_taken
    assert remains(tmp_path, SECRET) == set()


@requirement("life:transfer:keys", "life:transfer:confirmed")
def test_an_import_takes_the_key_of_what_has_expired_which_keeps_it_too(service: Service) -> None:
    imported(service, row(0, topic_key="k"))
    expire(service, 1)

    assert plan(service, row(1, topic_key="k"))["new_observations"] == 1
    assert imported(service, row(1, topic_key="k"))["imported_observations"] == 1

    (newer,) = exported(service).values()  # a plan may use up ids
    assert newer["uid"] == UIDS[1]
    service.http.post("/observations/1/confirm")
    assert seen(service, 1)["topic_key"] == newer["topic_key"] == "k"
    assert service.http.patch("/observations/1", json={"expires_at": None}).status_code == 409
    service.http.delete("/observations/1")
    expire(service, newer["id"])
    assert imported(service, row(0, project="elsewhere"))["imported_observations"] == 1
    assert exported(service).keys() == {UIDS[0]}  # what comes back takes it in its turn


@pytest.mark.slow
@requirement("life:transfer:keys")
@pytest.mark.parametrize("uid", [True, False])
def test_what_has_expired_takes_no_key_from_what_lives(service: Service, uid: bool) -> None:
    past = row(1, topic_key="k", updated_at=LATER, expires_at="2020-12-01T00:00:00Z")
    if not uid:
        del past["uid"]
    rows = [row(0, topic_key="k"), past, row(2, topic_key="k", updated_at=LATER)]

    expected = plan(service, *rows)
    counts = [imported(service, *rows)["imported_observations"] for _ in range(2)]

    assert (expected["new_observations"], expected["conflicting_observations"]) == (2, 1)
    assert counts == [3, 0]
    (live,) = exported(service).values()  # a plan may use up ids
    assert live["content"] == "Row 2."
    assert seen(service, live["id"] + 1)["expired"]


@requirement("life:transfer:later")
def test_a_later_state_brings_its_life_to_the_memory_at_its_key(service: Service) -> None:
    imported(service, row(0, topic_key="k", expires_at=SOON, pinned=True, pinned_at=SOON), row(2))
    later = row(1, topic_key="k", updated_at=LATER, expires_at=LATER, supersedes=[UIDS[2]])

    imported(service, later)

    found = exported(service)[UIDS[0]]
    assert (found["content"], found["expires_at"], found["pinned_at"]) == ("Row 1.", LATER, SOON)
    assert found["supersedes"] == [UIDS[2]]


@requirement("life:revisions:text")
def test_a_change_of_life_alone_reads_as_the_next_text(service: Service) -> None:
    service.save("One.", topic_key="k")
    service.http.patch("/observations/1", json={"pinned": True})
    service.http.patch("/observations/1", json={"content": "Two."})
    service.http.patch("/observations/1", json={"review_at": LATER})
    between = row(1, content="Between.", topic_key="k", updated_at="2030-01-01T12:00:00Z")

    imported(service, between)

    history = service.http.get("/observations/1/history").json()
    assert [it["content"] for it in history] == ["Two.", "Between.", "Two.", "One.", "One."]
    restored = service.http.post("/observations/1/restore", json={"revision": 1})
    assert restored.json()["content"] == "One."
    history = service.http.get("/observations/1/history").json()
    texts = ["One.", "Two.", "Between.", "Two.", "One.", "One."]
    assert [it["content"] for it in history] == texts


def merged(path: Path, project: Project, into: Project) -> None:
    changed(path, [], lambda projects: projects.merge(OPERATOR, project, into))


def plan(service: Service, *rows: Row) -> Row:
    answer = service.http.post("/import?dry_run=true", json={"observations": rows})
    counts: Row = answer.json()
    return counts
