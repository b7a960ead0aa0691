"""What an import would do is told before it is done, and nothing is changed by asking."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agentops_memory.agentops import transfer

from ..support.requirements import requirement
from ..support.samples import examples
from ..support.service import Service
from ..support.service import lasting as service

__all__ = ["service"]

Row = dict[str, Any]

AT = "2029-05-06T07:08:09Z"
TIMES = ("2029-05-05T07:08:09Z", AT, "2029-05-06T07:08:09.7Z", "2029-05-07T07:08:09Z")
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
deeds = st.lists(
    st.tuples(st.sampled_from(["delete", "delete", "delete", "change"]), st.integers(0, 7)),
    max_size=7,
)


def row(uid: int | None = None, **fields: object) -> Row:
    given = {"project": "p", "session_id": "s", "content": "one", "created_at": AT}
    named = {"uid": UIDS[uid]} if uid is not None else {}
    return {"type": "t", "title": "t", "updated_at": AT} | given | named | fields


def plan(service: Service, document: object, **options: Any) -> Row:
    answer = service.http.post("/import?dry_run=true", json=document, **options)
    assert answer.status_code == 200, answer.text
    told: Row = answer.json()
    return told


def carried(service: Service, document: object) -> tuple[int, int]:
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


def ids(service: Service, number: int) -> list[int]:
    names = [f"{name}{number}" for name in "pq"]
    lists = [service.http.get(f"/observations/recent?project={name}").json() for name in names]
    return [row["id"] for rows in lists for row in rows]


def state(service: Service, number: int) -> list[Any]:
    """All that is stored of an example, with its history."""
    told: list[Any] = []
    for name in "pq":
        document = service.http.get(f"/export?project={name}{number}").json()
        told += [document["sessions"], document["observations"]]
        told += [
            service.http.get(f"/observations/{row['id']}/history").json()
            for row in document["observations"]
        ]
    return told


def assert_a_plan_tells_what_an_import_does(
    service: Service, earlier: Row, deeds: Sequence[tuple[str, int]], document: Row
) -> Row:
    """The plan, of a document of which all conflicts are told."""
    number = next(NUMBERS)
    document = anew(document, number)
    carried(service, anew(earlier, number))
    stored = sorted(ids(service, number))
    for deed, place in deeds if stored else ():
        path = f"/observations/{stored[place % len(stored)]}"
        if deed == "delete":
            service.http.delete(path)
        else:
            service.http.patch(path, json={"content": "two"})
    told = assert_the_plan_is_true(service, number, document)
    assert_the_plan_is_true(service, number, document)
    return told


def assert_the_plan_is_true(service: Service, number: int, document: Row) -> Row:
    before = state(service, number)

    told = plan(service, document)

    assert state(service, number) == before
    merged = sum(conflict["reason"] == "topic_key" for conflict in told["conflicts"])
    assert carried(service, document) == (
        told["new_sessions"],
        told["new_observations"] + told["restored_observations"] + merged,
    )
    assert len(told["conflicts"]) == told["conflicting_observations"]
    for noun in ("sessions", "observations"):
        fates = [count for name, count in told.items() if name.endswith(f"_{noun}")]
        assert sum(fates) == len(document[noun])
    return told


@pytest.mark.slow
@settings(examples(12), phases=(Phase.generate, Phase.shrink))
@given(earlier=documents, deeds=deeds, document=documents)
def test_a_plan_tells_what_the_import_then_does(
    service: Service, earlier: Row, deeds: list[tuple[str, int]], document: Row
) -> None:
    assert_a_plan_tells_what_an_import_does(service, earlier, deeds, document)


def counts(told: Row) -> tuple[int, int, int, int]:
    """How many observations of a plan are new, come back, are the same and conflict."""
    kinds = ("new", "restored", "same", "conflicting")
    new, back, same, conflicting = (told[f"{kind}_observations"] for kind in kinds)
    return new, back, same, conflicting


@pytest.mark.slow
@requirement("agentops:import:dry-run")
def test_a_plan_of_many_chunks_tells_what_the_import_then_does(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CHUNK", 4)
    number = next(NUMBERS)
    rows = [row(content=f"Row {it}.", topic_key=f"k{it}") for it in range(10)]
    document = anew({"sessions": [{"id": "s", "project": "p"}], "observations": rows}, number)
    told = assert_the_plan_is_true(service, number, document)
    assert (told["new_sessions"], counts(told)) == (1, (10, 0, 0, 0))
    document["observations"][8]["content"] = "Other."

    told = assert_the_plan_is_true(service, number, document)

    assert (told["same_sessions"], counts(told)) == (1, (0, 0, 9, 1))
    assert [it["place"] for it in told["conflicts"]] == [8]


@pytest.mark.heavy
def test_a_row_meets_what_earlier_rows_of_its_document_leave_behind(service: Service) -> None:
    gone = [("delete", 0)]
    for name, earlier, deeds, rows, expected in [
        ("twice", [], [], [row(0), row(0), row(0, content="two")], (1, 0, 1, 1)),
        ("twins", [], [], [row(), row(), row(tags=["x"])], (1, 0, 1, 1)),
        ("one key", [], [], [row(0, topic_key="k"), row(1, topic_key="k", content="two")],
         (1, 0, 0, 1)),
        ("its own key", [], [], [row(0, topic_key="k"), row(1, topic_key="l")], (2, 0, 0, 0)),
        ("back twice", [row(0)], gone, [row(0), row(0)], (0, 1, 1, 0)),
        ("back, then its twin", [row(0)], gone, [row(0), row()], (0, 1, 1, 0)),
        ("back with another text, then its old twin", [row(0)], gone,
         [row(0, content="two"), row()], (1, 1, 0, 0)),
        ("back with another text, then its new twin", [row(0)], gone,
         [row(0, content="two"), row(content="two")], (0, 1, 1, 0)),
        ("two deleted twins, one back with another text", [row(0), row(1)],
         [("delete", 0), ("delete", 1)], [row(0, content="two"), row()], (0, 2, 0, 0)),
        ("back at its own key, where a new one is by then", [row(0, topic_key="k")], gone,
         [row(1, topic_key="k", content="two"), row(0, project="q")], (1, 0, 0, 1)),
        ("back at its own key, then another for it", [row(0, topic_key="k")], gone,
         [row(0, project="q"), row(1, topic_key="k", content="two")], (0, 1, 0, 1)),
        ("the next state of what holds its key, then that by its id",
         [row(0, topic_key="k")], [],
         [row(1, topic_key="k", content="two", updated_at=TIMES[3]), row(0, topic_key="k")],
         (0, 0, 0, 2)),
        ("a text, the next at its key, and the first again", [], [],
         [row(topic_key="k"), row(1, topic_key="k", content="two", updated_at=TIMES[3]),
          row(topic_key="k")], (1, 0, 1, 1)),
        ("back with another text, then its twin by its own session", [row(0)], gone,
         [row(0, content="two", session_id="t"), row(content="two")], (0, 1, 1, 0)),
        ("a stored twin before one of the document", [row(0)], [],
         [row(1, tags=["x"]), row()], (1, 0, 1, 0)),
        ("a live twin of the document before a deleted one", [row(0)], gone,
         [row(1), row()], (1, 0, 1, 0)),
        ("the same state of what holds its key twice", [row(0, topic_key="k")], [],
         [row(1, topic_key="k", content="two", updated_at=TIMES[0])] * 2, (0, 0, 1, 1)),
    ]:  # fmt: skip
        told = assert_a_plan_tells_what_an_import_does(
            service, {"sessions": [], "observations": earlier}, deeds,
            {"sessions": [], "observations": rows},
        )  # fmt: skip
        assert counts(told) == expected, name


def test_sessions_are_the_same_or_conflict_and_are_never_changed(service: Service) -> None:
    known = {"id": "s", "project": "p", "started_at": AT, "summary": "Done."}
    told = assert_a_plan_tells_what_an_import_does(
        service,
        {"sessions": [known], "observations": []},
        [],
        {"sessions": [known, known | {"summary": "Else."}, *[known | {"id": "u"}] * 2],
         "observations": []},
    )  # fmt: skip

    assert (told["new_sessions"], told["same_sessions"], told["conflicting_sessions"]) == (1, 2, 1)


@requirement("agentops:import:dry-run")
def test_a_plan_tells_who_meets_whom_and_what_stays(service: Service) -> None:
    carried(service, {"observations": [
        row(topic_key=key, project="told", created_at=at) for key, at in (("k", AT), ("l", AT))
    ]})  # fmt: skip
    first, second = sorted(
        it["id"] for it in service.http.get("/observations/recent?project=told").json()
    )
    rows = [
        row(topic_key="k", project="Told", title="Newer", updated_at=TIMES[3]),
        row(topic_key="l", project="told", title="token AKIAIOSFODNN7EXAMPLE", updated_at=TIMES[0]),
        row(project="told", session_id="x"),
        row(project="told", session_id="x", tags=["else"]),
    ]

    told = plan(service, {"observations": rows})

    assert told == NOTHING | {
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
def test_the_first_hundred_conflicts_are_named(service: Service) -> None:
    carried(service, {"observations": [row(project="full", topic_key="k")]})
    rows = [row(project="full", topic_key="k", content=f"State {number}.") for number in range(140)]

    told = plan(service, {"observations": rows})

    assert counts(told) == (0, 0, 0, 140)
    assert [conflict["place"] for conflict in told["conflicts"]] == list(range(100))
    assert carried(service, {"observations": rows}) == (0, 99)  # then its history is full
    assert counts(plan(service, {"observations": rows})) == (0, 0, 99, 41)


def test_a_plan_of_nothing_is_nothing_and_its_flag_is_true_or_false(service: Service) -> None:
    for value in ("maybe", "", "yes"):
        answer = service.http.post(f"/import?dry_run={value}", json={})
        assert answer.json() == {"error": "dry_run must be true or false."}
    assert plan(service, {}) == NOTHING


def test_a_state_that_a_full_history_has_lost_is_not_known_again(service: Service) -> None:
    states = [row(topic_key="k", content=f"State {n}.", updated_at=TIMES[0]) for n in range(99)]
    rows = [row(topic_key="k"), *states, row(topic_key="k", content="Now.", updated_at=TIMES[3])]
    document = {"observations": [it | {"project": "lost"} for it in (*rows, states[0])]}

    told = plan(service, document)

    assert counts(told) == (1, 0, 0, 101)
    assert carried(service, document) == (0, 101)
