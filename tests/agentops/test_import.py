"""An import stores what is not there yet, whole and any number of times; its plan tells it before.

Nothing is changed by asking for a plan.
"""

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st

from agentops_memory.agentops import transfer

from ..support import engines
from ..support.files import assert_index_is_whole
from ..support.requirements import requirement
from ..support.samples import examples, for_each
from ..support.service import Service, lasting_with, observation

service = lasting_with()

Row = dict[str, Any]

AT = "2029-05-06T07:08:09Z"
EARLIER, LATER = "2029-05-05T07:08:09Z", "2029-05-07T07:08:09Z"
TIMES = (EARLIER, AT, f"{AT[:-1]}.7Z", LATER)
UIDS = [f"01900000-0000-7000-8000-00000000000{number}" for number in range(3)]

NUMBERS = itertools.count()
NOTHING = {
    "new_sessions": 0, "same_sessions": 0, "conflicting_sessions": 0, "new_observations": 0,
    "restored_observations": 0, "same_observations": 0, "conflicting_observations": 0,
    "conflicts": [],
}  # fmt: skip

# Few words, so that rows meet: the stored ones, and each other.
rows = st.builds(
    lambda **fields: {"type": "t", "title": "t"} | {k: v for k, v in fields.items() if v},
    uid=st.sampled_from([None, *UIDS]), session_id=st.sampled_from(["s", "s", "s", "t"]),
    project=st.sampled_from(["p", "p", "p", "q"]), topic_key=st.sampled_from([None, "k", "k", "l"]),
    content=st.sampled_from(["one", "one", "two", "AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLF"]),
    tags=st.sampled_from([None, None, None, ["x"]]),
    created_at=st.sampled_from([AT, AT, AT, *TIMES]), updated_at=st.sampled_from(TIMES),
)  # fmt: skip
sessions = st.builds(
    lambda **fields: {k: v for k, v in fields.items() if v}, id=st.sampled_from(["s", "u", "v"]),
    project=st.sampled_from(["p", "q"]), started_at=st.sampled_from(TIMES),
    summary=st.sampled_from([None, "Done."]),
)  # fmt: skip
documents = st.fixed_dictionaries(
    {"sessions": st.lists(sessions, max_size=3), "observations": st.lists(rows, max_size=8)}
)
changes = st.lists(
    st.tuples(st.sampled_from(["delete", "delete", "delete", "change"]), st.integers(0, 7)),
    max_size=7,
)


def row(uid: int | None = None, **fields: object) -> Row:
    """An observation as an export shows it, with or without an id of its own."""
    given = {"project": "p", "session_id": "s", "content": "one", "created_at": AT}
    named = {"uid": UIDS[uid]} if uid is not None else {}
    return {"type": "t", "title": "t", "updated_at": AT} | given | named | fields


def of(*observations: Row, sessions: Sequence[Row] = ()) -> Row:
    return {"sessions": [*sessions], "observations": [*observations]}


def plan(service: Service, document: object) -> Row:
    answer = service.http.post("/import?dry_run=true", json=document)
    assert answer.status_code == 200, answer.text
    planned: Row = answer.json()
    return planned


def carried(service: Service, document: object) -> tuple[int, int]:
    """How many sessions and observations an import added."""
    answer = service.http.post("/import", json=document)
    assert answer.status_code == 200, answer.text
    return answer.json()["imported_sessions"], answer.json()["imported_observations"]


def anew(document: Row, number: int) -> Row:
    """The document with names and ids that no other example has."""
    text = json.dumps(document)
    for name in "pq":
        text = text.replace(f'"project": "{name}"', f'"project": "{name}{number}"')
    for name in "stuv":
        text = text.replace(f'id": "{name}"', f'id": "{name}{number}"')
    renamed: Row = json.loads(text.replace("0000-7000", f"{number:04}-7000"))
    return renamed


def history(service: Service, id_: int) -> list[Row]:
    revisions: list[Row] = service.http.get(f"/observations/{id_}/history").json()
    return revisions


def exported(service: Service, number: int) -> list[Row]:
    """The sessions and observations of an example's two projects."""
    return [service.http.get(f"/export?project={name}{number}").json() for name in "pq"]


def state(service: Service, number: int) -> list[Any]:
    """All that is stored of an example, with its history."""
    stored = exported(service, number)
    ids = [it["id"] for document in stored for it in document["observations"]]
    return [*(document | {"exported_at": ""} for document in stored),
            *(history(service, id_) for id_ in ids)]  # fmt: skip


def assert_a_plan_tells_what_an_import_does(
    service: Service, number: int, earlier: Row, changes: Sequence[tuple[str, int]], document: Row
) -> Row:
    """The plan, of a document of which all conflicts are told."""
    document = anew(document, number)
    carried(service, anew(earlier, number))
    stored = exported(service, number)
    ids = sorted(it["id"] for each in stored for it in each["observations"])
    for change, place in changes if ids else ():
        path = f"/observations/{ids[place % len(ids)]}"
        if change == "delete":
            service.http.delete(path)
        else:
            service.http.patch(path, json={"content": "two"})
    first = assert_the_plan_is_true(service, number, document)
    assert_the_plan_is_true(service, number, document)
    return first


def assert_the_plan_is_true(service: Service, number: int, document: Row) -> Row:
    before = state(service, number)

    planned = plan(service, document)

    assert state(service, number) == before
    merged = sum(conflict["reason"] == "topic_key" for conflict in planned["conflicts"])
    assert carried(service, document) == (
        planned["new_sessions"],
        planned["new_observations"] + planned["restored_observations"] + merged,
    )
    assert len(planned["conflicts"]) == planned["conflicting_observations"]
    for noun in ("sessions", "observations"):
        fates = [count for name, count in planned.items() if name.endswith(f"_{noun}")]
        assert sum(fates) == len(document[noun])
    return planned


@pytest.mark.slow
@settings(examples(12), phases=(Phase.generate, Phase.shrink))
@given(earlier=documents, changes=changes, document=documents)
def test_a_plan_tells_what_the_import_then_does(
    service: Service, earlier: Row, changes: list[tuple[str, int]], document: Row
) -> None:
    assert_a_plan_tells_what_an_import_does(service, next(NUMBERS), earlier, changes, document)


def counts(planned: Row) -> tuple[int, int, int, int]:
    """How many observations of a plan are new, come back, are the same and conflict."""
    kinds = ("new", "restored", "same", "conflicting")
    new, back, same, conflicting = (planned[f"{kind}_observations"] for kind in kinds)
    return new, back, same, conflicting


KEYED: Row = {"topic_key": "k"}
GONE = [("delete", 0)]
OTHERS = [
    row(**change)
    for change in (
        {"project": "q"}, {"scope": "global"}, {"session_id": "t"}, {"type": "other"}, KEYED,
        {"title": "Other"}, {"content": "One"}, {"created_at": LATER},
    )
]  # fmt: skip
# What is stored, what is done to it, an import, its counts, and what is live then with its history.
MEETINGS: list[tuple[str, list[Row], list[tuple[str, int]], list[Row], tuple[int, ...], object]] = [
    ("known by its id", [row(0)], [], [row(0), row(0, created_at=TIMES[2])], (0, 0, 2, 0), ["one"]),
    ("known by its fields", [row()], [], [row(), row(created_at=TIMES[2])], (0, 0, 2, 0), ["one"]),
    ("another in any field", [row()], [], OTHERS, (8, 0, 0, 0), None),
    ("known whatever else differs", [row(0)], [],
     [row(0, content="two", project="q", session_id="u")], (0, 0, 0, 1), ["one"]),
    ("back by its id", [row(0, **KEYED)], GONE, [row(0, **KEYED)], (0, 1, 0, 0), ["one  one"]),
    ("back by its fields", [row(**KEYED)], GONE, [row(**KEYED)], (0, 1, 0, 0), ["one  one"]),
    ("a later state of its key", [row(0, **KEYED)], [],
     [row(1, content="two", updated_at=LATER, **KEYED)], (0, 0, 0, 1), ["two one"]),
    ("a state of its second", [row(0, **KEYED)], [], [row(1, content="two", **KEYED)],
     (0, 0, 0, 1), ["one two"]),
    ("an earlier state", [row(0, **KEYED)], [],
     [row(1, content="two", updated_at=EARLIER, **KEYED)], (0, 0, 0, 1), ["one two"]),
    ("states of one document", [], [],
     [row(content="2", **KEYED), row(content="3", updated_at=LATER, **KEYED),
      row(content="1", updated_at=EARLIER, **KEYED)],
     (1, 0, 0, 2), ["3 1 2"]),
    ("back where another has its key", [row(0, **KEYED)], GONE,
     [row(1, content="two", **KEYED), row(0, project="q")], (1, 0, 0, 1), ["two one"]),
    ("twice", [], [], [row(0), row(0), row(0, content="two")], (1, 0, 1, 1), ["one"]),
    ("twins", [], [], [row(), row(), row(tags=["x"])], (1, 0, 1, 1), ["one"]),
    ("its own key", [], [], [row(0, **KEYED), row(1, topic_key="l")], (2, 0, 0, 0), None),
    ("back twice", [row(0)], GONE, [row(0), row(0)], (0, 1, 1, 0), None),
    ("back, then its twin", [row(0)], GONE, [row(0), row()], (0, 1, 1, 0), None),
    ("back with another text, then its old twin", [row(0)], GONE,
     [row(0, content="two"), row()], (1, 1, 0, 0), None),
    ("back with another text, then its new twin", [row(0)], GONE,
     [row(0, content="two"), row(content="two")], (0, 1, 1, 0), None),
    ("two deleted twins, one back with another text", [row(0), row(1)],
     [("delete", 0), ("delete", 1)], [row(0, content="two"), row()], (0, 2, 0, 0), None),
    ("back at its own key, then another for it", [row(0, **KEYED)], GONE,
     [row(0, project="q"), row(1, content="two", **KEYED)], (0, 1, 0, 1), None),
    ("the next state of what holds its key, then that by its id", [row(0, **KEYED)], [],
     [row(1, content="two", updated_at=LATER, **KEYED), row(0, **KEYED)], (0, 0, 0, 2), None),
    ("a text, the next at its key, and the first again", [], [],
     [row(**KEYED), row(1, content="two", updated_at=LATER, **KEYED), row(**KEYED)],
     (1, 0, 1, 1), None),
    ("back with another text, then its twin by its own session", [row(0)], GONE,
     [row(0, content="two", session_id="t"), row(content="two")], (0, 1, 1, 0), None),
    ("a stored twin before one of the document", [row(0)], [],
     [row(1, tags=["x"]), row()], (1, 0, 1, 0), None),
    ("a live twin of the document before a deleted one", [row(0)], GONE,
     [row(1), row()], (1, 0, 1, 0), None),
    ("the same state of what holds its key twice", [row(0, **KEYED)], [],
     [row(1, content="two", updated_at=EARLIER, **KEYED)] * 2, (0, 0, 1, 1), None),
]  # fmt: skip


@pytest.mark.slow
def test_a_row_meets_what_is_stored_and_what_earlier_rows_of_its_document_leave(
    service: Service,
) -> None:
    for name, earlier, changes, imported, expected, live in MEETINGS:
        number = next(NUMBERS)
        planned = assert_a_plan_tells_what_an_import_does(
            service, number, of(*earlier), changes, of(*imported)
        )
        assert counts(planned) == expected, name
        assert carried(service, anew(of(*imported), number)) == (0, 0), name
        histories = [
            " ".join(it.get("content", "") for it in history(service, found["id"]))
            for document in exported(service, number)
            for found in document["observations"]
        ]
        assert live is None or histories == live, name
    assert_index_is_whole(service.path)


@pytest.mark.slow
@requirement("agentops:import:dry-run")
def test_a_plan_of_many_chunks_tells_what_the_import_then_does(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CHUNK", 4)
    number = next(NUMBERS)
    rows = [row(content=f"Row {it}.", topic_key=f"k{it}") for it in range(10)]
    document = anew(of(*rows, sessions=[{"id": "s", "project": "p"}]), number)
    planned = assert_the_plan_is_true(service, number, document)
    assert (planned["new_sessions"], counts(planned)) == (1, (10, 0, 0, 0))
    document["observations"][8]["content"] = "Other."

    planned = assert_the_plan_is_true(service, number, document)

    assert (planned["same_sessions"], counts(planned)) == (1, (0, 0, 9, 1))
    assert [it["place"] for it in planned["conflicts"]] == [8]


def test_sessions_are_the_same_or_conflict_and_are_never_changed(service: Service) -> None:
    known = {"id": "s", "project": "p", "started_at": AT, "summary": "Done."}
    planned = assert_a_plan_tells_what_an_import_does(
        service, next(NUMBERS), of(sessions=[known]), [],
        of(sessions=[known, known | {"summary": "Else."}, *[known | {"id": "u"}] * 2]),
    )  # fmt: skip

    names = ("new_sessions", "same_sessions", "conflicting_sessions")
    assert [planned[it] for it in names] == [1, 2, 1]


@requirement("agentops:import:dry-run")
def test_a_plan_tells_who_meets_whom_and_what_stays(service: Service) -> None:
    carried(service, of(*(row(topic_key=key, project="told") for key in "kl")))
    first, second = sorted(
        it["id"] for it in service.http.get("/observations/recent?project=told").json()
    )

    planned = plan(service, of(
        row(topic_key="k", project="Told", title="Newer", updated_at=LATER),
        row(topic_key="l", project="told", title="token AKIAIOSFODNN7EXAMPLE", updated_at=EARLIER),
        row(project="told", session_id="x"),
        row(project="told", session_id="x", tags=["else"]),
    ))  # fmt: skip

    assert planned == NOTHING | {
        "new_observations": 1,
        "conflicting_observations": 3,
        "conflicts": [
            {"place": 0, "id": first, "reason": "topic_key", "kept": "imported",
             "project": "told", "title": "Newer"},
            {"place": 1, "id": second, "reason": "topic_key", "kept": "stored",
             "project": "told", "title": "token [REDACTED:aws-key-id]"},
            {"place": 3, "id": 0, "reason": "changed", "kept": "stored",
             "project": "told", "title": "t"},
        ],
    }  # fmt: skip


@pytest.mark.slow
def test_the_first_hundred_conflicts_are_named_and_a_full_history_takes_no_earlier_state(
    service: Service,
) -> None:
    carried(service, of(row(project="full", **KEYED)))
    rows = [row(project="full", content=f"State {number}.", **KEYED) for number in range(140)]

    planned = plan(service, of(*rows))

    assert counts(planned) == (0, 0, 0, 140)
    assert [conflict["place"] for conflict in planned["conflicts"]] == list(range(100))
    assert carried(service, of(*rows)) == (0, 99)  # then its history is full
    assert counts(plan(service, of(*rows))) == (0, 0, 99, 41)

    states = [row(content=f"State {n}.", updated_at=EARLIER, **KEYED) for n in range(99)]
    lost = [row(**KEYED), *states, row(content="Now.", updated_at=LATER, **KEYED), states[0]]
    document = of(*(it | {"project": "lost"} for it in lost))
    assert counts(plan(service, document)) == (1, 0, 0, 101)  # one is not known again
    assert carried(service, document) == (0, 101)


def test_a_plan_of_nothing_is_nothing_and_its_flag_is_true_or_false(service: Service) -> None:
    for value in ("maybe", "", "yes"):
        answer = service.http.post(f"/import?dry_run={value}", json={})
        assert answer.json() == {"error": "dry_run must be true or false."}
    assert plan(service, {}) == NOTHING


def test_counters_and_dates_are_kept_and_hashes_are_computed_anew(service: Service) -> None:
    full = row(
        0, project="whole", content="Queues hold.", tags=["a", ""], scope="team", topic_key="q/1",
        promoted_to="docs", revision_count=7, duplicate_count=3, last_seen_at=AT,
    )  # fmt: skip
    given = full | {"normalized_hash": "wrong", "id": 99, "deleted_at": AT}
    least = observation("Least.", project="whole", session_id="least")
    opened = {"id": "least", "project": "whole"}

    assert carried(service, of(given, least, sessions=[opened])) == (1, 2)

    stored = service.http.get("/export?project=whole").json()
    found, completed = stored["observations"]
    assert (len(found.pop("normalized_hash")), found.pop("id") < completed["id"]) == (64, True)
    assert found == full
    names = ("scope", "revision_count", "duplicate_count", "created_at", "updated_at",
             "last_seen_at")  # fmt: skip
    now = "2030-01-01T12:00:00Z"
    assert [completed[name] for name in names] == ["project", 1, 1, now, now, now]
    assert opened | {"started_at": now, "message_count": 0} in stored["sessions"]


@requirement("agentops:times:whole-seconds")
def test_a_time_is_one_instant_however_it_is_written(service: Service) -> None:
    times = [AT, AT.lower(), "2029-05-06 07:08:09", f"{AT[:-1]}.999999999Z",
             "2029-05-06T09:38:09.5+02:30"]  # fmt: skip
    timed = [row(project="times", content=it, created_at=it, updated_at=it) for it in times]
    opened = [{"id": it, "project": "times", "started_at": it, "ended_at": it} for it in times]
    assert carried(service, of(*timed, sessions=opened)) == (5, 5)

    stored = service.http.get("/export?project=times").json()
    assert {it[name] for it in stored["observations"] for name in ("created_at", "updated_at")} == {
        AT
    }
    ended = [(it["started_at"], it["ended_at"]) for it in stored["sessions"] if "ended_at" in it]
    assert ended == [(AT, AT)] * 5


def test_sessions_come_first_and_are_made_where_they_are_missing_and_else_left_alone(
    service: Service,
) -> None:
    body = (
        b'{"observations": [{"session_id": "first", "type": "t", "title": "t", "content": "c",'
        b' "project": "other"}], "sessions":'
        b' [{"id": "first", "project": "DeMo", "summary": "Done."}]}'
    )

    assert service.http.post("/import", content=body).json() == {
        "imported_sessions": 1, "imported_observations": 1
    }  # fmt: skip

    def stored() -> dict[str, Row]:
        return {it["id"]: it for it in service.http.get("/export").json()["sessions"]}

    assert (stored()["first"]["project"], stored()["first"]["summary"]) == ("demo", "Done.")
    alone = row(content="Alone.", session_id="lost", project=" CAFE\u0301 ")
    assert carried(service, of(alone)) == (0, 1)
    lost = {"id": "lost", "project": "café", "started_at": AT, "message_count": 0}
    assert stored()["lost"] == lost
    before = stored()
    other = {"id": "first", "project": "other", "summary": "Other."}
    assert carried(service, of(sessions=[other])) == (0, 0)
    assert stored() == before


def test_a_state_that_is_there_is_known_by_its_second_and_what_is_erased_is_new(
    service: Service,
) -> None:
    service.clock.advance(seconds=0.5)
    id_ = service.save("Ours.", project="second", **KEYED)["id"]
    path = f"/observations/{id_}"
    found = service.http.get(path).json()

    assert carried(service, of(found | {"uid": "01900000-0000-7000-8000-0000000000ff"})) == (0, 0)
    assert service.http.delete(path).is_success
    assert carried(service, of(found)) == (0, 1)
    hits = service.http.get("/search?q=ours&project=second").json()
    assert [it["id"] for it in hits] == [id_]
    assert service.http.delete(f"{path}?hard=true").is_success
    assert carried(service, of(found)) == (0, 1)
    (hit,) = service.http.get("/search?q=ours&project=second").json()
    assert hit["id"] != id_


@pytest.mark.parametrize("count", [2**53 - 1, 2**53])
def test_a_memory_with_the_largest_count_of_revisions_takes_earlier_states_and_changes(
    service: Service, count: int
) -> None:
    project: Row = {"project": f"counts-{count}", "topic_key": "k"}
    most = row(content="Now.", revision_count=count, updated_at="2029-05-09T07:08:09Z", **project)
    earlier = [
        row(content=f"Earlier {day}.", updated_at=f"2029-05-0{day}T07:08:09Z", **project)
        for day in (1, 2, 3)
    ]

    added = [carried(service, of(most, *earlier))[1] for _ in range(2)]
    (stored,) = service.http.get(f"/export?project={project['project']}").json()["observations"]
    for content in ("Later.", "Latest."):
        path = f"/observations/{stored['id']}"
        assert service.http.patch(path, json={"content": content}).status_code == 200

    assert added == [4, 0]
    contents = [it["content"] for it in history(service, stored["id"])]
    assert contents[:3] == ["Latest.", "Later.", "Now."]
    assert sorted(contents[3:]) == ["Earlier 1.", "Earlier 2.", "Earlier 3."]


@pytest.mark.slow
def test_a_damaged_revision_does_not_stop_an_import_at_its_key(service: Service) -> None:
    project = {"project": "damaged", **KEYED}
    carried(service, of(row(content="1", **project), row(content="2", updated_at=LATER, **project)))
    engines.rows(
        service.path,
        "UPDATE revisions SET at = -4611686018427387904 WHERE number = 1 AND memory_id = "
        "(SELECT id FROM memories WHERE content = '2' AND deleted_at IS NULL)",
    )
    state = of(row(content="0", updated_at=EARLIER, **project))

    assert [carried(service, state) for _ in range(2)] == [(0, 1), (0, 0)]


BOTH = "/import", "/import?dry_run=true"


def assert_refused(service: Service, body: bytes, *sentences: str) -> None:
    """Both by an import and by its plan, and nothing of it is stored."""
    before = service.http.get("/stats").json()
    for path in BOTH:
        answer = service.http.post(path, content=body)
        assert answer.status_code == 400
        for sentence in sentences:
            assert sentence in answer.json()["error"]
        assert "example.com" not in answer.text
    assert service.http.get("/stats").json() == before


ROWS = [observation(f"Row {number}.") for number in range(3)]


def faulty(**fields: object) -> dict[str, object]:
    return observation("Row 3.") | fields


SESSIONS = [{"id": "s2", "project": "p"}]


@for_each(
    "body, sentence",
    [
        *[
            (json.dumps({"sessions": SESSIONS, "observations": [*ROWS, fault]}).encode(),
             f"validation failed: observations[3].{sentence}")
            for fault, sentence in (
                (faulty(title=None), "title is required"),
                (faulty(project=" "), "project is required"),
                (faulty(content="x" * 50_001), "content exceeds 50000 chars"),
                (faulty(created_at="soon"), "created_at is not an RFC 3339 time"),
                (faulty(uid="me"), "uid is not a UUID"),
                (faulty(tags=["x"] * 21), "tags exceed 20 items"),
                (faulty(revision_count=-1), "revision_count"),
                (faulty(revision_count=1.5), "revision_count"),
            )
        ],
        (b"", "invalid JSON: the body is empty."),
        (b'{"observations": {}}', "observations must be a list."),
        (b'{"sessions": "x"}', "sessions must be a list."),
        (b'{"observations": [1]}', "validation failed: observations[0] must be an object"),
        (b'{"sessions": [null]}', "validation failed: sessions[0] must be an object"),
        (b'{"sessions": [{"id": "s2", "project": "p"}]', "invalid JSON: "),
        (b'{"sessions": [{"id": "s2", "project": "p"}], "observations": [{]}', "invalid JSON: "),
    ],
)  # fmt: skip
def test_one_bad_row_or_a_document_that_is_none_is_refused_whole_and_named(
    service: Service, body: bytes, sentence: str
) -> None:
    assert_refused(service, body, sentence)


@for_each(
    "body",
    [
        b"{}",
        b'{"sessions": null, "observations": null, "prompts": [[]]}',
        b'{"exported_at": "2026-04-12T10:00:00Z", "sessions": [], "observations": []}',
        b'{"exported_at": "2026-04-12T10:00:00Z", "sessions": null, "observations": null}',
        b'{"results": [1], "observations": []}',
    ],
)
def test_an_export_with_nothing_in_it_adds_nothing(service: Service, body: bytes) -> None:
    answer = service.http.post("/import", content=body)

    assert answer.json() == {"imported_sessions": 0, "imported_observations": 0}


@for_each(
    "body, sentence",
    [
        (b'{"a": 1}', "this one has a."),
        (b'{"exported_at": "2026-04-12T10:00:00Z"}', "this one has exported_at."),
        (b'{"results": [{"memory": "x"}, {"memory": "y"}]}', "a list of memories from mem0"),
        (b'{"version": "1", "prompts": []}', "an export of Engram: `agentops-memory import` reads"),
        (b'{"a": 1, "b": [2, 3], "c": {}, "d": 0, "e": 0, "f": 0}', "this one has a, b, c, d, e."),
        (b'{"me@example.com": 1, "b": 2}', "this one has b."),
        (b'{"": 1, "\\u202e": 2}', "this one has others."),
        (b"{%s}" % b", ".join(b'"k%d": 0' % n for n in range(9_999)), "k3, k4."),
    ],
)  # fmt: skip
@requirement("agentops:import:no-export")
def test_what_is_no_export_is_refused_and_said_to_be_what_it_is(
    service: Service, body: bytes, sentence: str
) -> None:
    assert_refused(service, body, "an object with sessions and observations is expected", sentence)


def test_a_name_that_grows_when_it_is_folded_is_held_to_the_limit(service: Service) -> None:
    save = observation("a name", project="İ" * 101)

    answer = service.http.post("/observations", json=save)

    assert answer.status_code == 400
    assert answer.json() == {"error": "validation failed: project exceeds 200 chars"}


def test_where_a_long_document_is_no_json_is_told_from_its_beginning(service: Service) -> None:
    whole = json.dumps({"observations": [observation(f"Row {number}.") for number in range(4000)]})
    for path in BOTH:
        answer = service.http.post(path, content=f"{whole[:-40]}\x00")
        assert answer.status_code == 400
        character = int(re.findall(r"at character (\d+)\.", answer.json()["error"])[0])
        assert character in range(len(whole) - 40 - len(whole) // 4000, len(whole) - 38)
