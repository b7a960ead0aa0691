"""What hosts ask that nobody would: names given again, half a log, long answers, odd paths."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.errors import NotFound
from agentops_memory.memory.access import OPERATOR
from agentops_memory.openwop.adapter import delete_entry, get_entry, provenance_of
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.transaction import SqliteTransaction

from ..support.engines import rows
from ..support.openwop_hosts import REF, H, Host, Json, ok, refused
from ..support.requirements import requirement
from ..support.service import START, Service, serving

VALUE, OTHER = "zanzibar-hunter2-quokka", "wombat-of-the-woods"
LOST = (409, "run_secrets_lost")
LONG = "\U0001f600" * 240


@pytest.fixture
def restarted(path: Path) -> Iterator[Host]:
    """A run that had two values of one secret and one of another, after a restart."""
    with serving(path) as service:
        run = Host(service.http).in_run("r1")
        run.register("first", VALUE)
        run.register("first", f"{VALUE} turned")
        run.register("second", OTHER)
    with serving(path) as service:
        yield Host(service.http, run="r1")


@pytest.mark.slow
@requirement("OW-39", "OW-43")
def test_other_secrets_do_not_stand_in_for_those_that_are_lost(restarted: Host) -> None:
    for name, value in (
        ("third", "a value of its own"), ("fourth", "and one more of them"),
        ("second", OTHER), ("first", VALUE),
    ):  # fmt: skip
        restarted.register(name, value)
        assert refused(restarted.post(f"it is {VALUE} turned")) == LOST

    restarted.register("first", f"{VALUE} turned")

    assert restarted.put(f"{OTHER}, {VALUE}")["content"] == "[REDACTED:second], [REDACTED:first]"


@requirement("OW-39", "OW-14")
def test_a_value_that_is_a_name_of_its_run_is_refused(host: Host) -> None:
    run = host.in_run(VALUE)

    answer = run.ask("POST", f"/runs/{VALUE}/secrets", {"secretId": "s", "value": VALUE})

    assert refused(answer) == (400, "validation_error")
    assert [it["field"] for it in answer.json()["details"]["fields"]] == ["runId"]


@requirement("OW-60", "OW-62")
def test_a_log_without_its_end_is_not_replayed(service: Service, host: Host) -> None:
    run = host.in_run("r1")
    run.put()
    run.end()
    rows(service.path, "DELETE FROM run_events WHERE type = 'run.completed'")

    answers = [run.fork(), run.fork("branch", fromSeq=1), run.ask("GET", _in(REF, "r1"))]

    assert [refused(it)[0] for it in answers] == [422, 422, 422]
    assert {it.json()["details"]["reason"] for it in answers} == {"retention_expired"}


@pytest.mark.slow
@requirement("OW-61")
def test_a_branch_of_a_replay_and_of_a_branch_sees_what_these_saw(host: Host) -> None:
    one = host.put("one")
    run = host.in_run("r1")
    run.put("two")
    run.end()
    ok(host.delete(one["id"]))
    replay = Host(host.http, run=ok(run.fork(), 201)["runId"])
    branch = Host(host.http, run=ok(run.fork("branch", fromSeq=1), 201)["runId"])
    host.put("three")

    for source, at, seen in (
        (replay, 0, ["one"]), (replay, 1, ["two", "one"]), (branch, 0, ["two", "one"]),
    ):  # fmt: skip
        fork = ok(source.fork("branch", fromSeq=at), 201)["runId"]
        assert Host(host.http, run=fork).contents() == seen


@pytest.mark.heavy
@requirement("OW-19", "OW-51")
def test_pages_go_on_where_they_were_when_a_name_is_given_again(host: Host) -> None:
    for number in range(6):
        host.put(f"text {number}", id=f"k{number}")
    run = host.in_run("r1")
    first = {each.run: _page(each) for each in (host, run)}
    ok(host.delete("k4"))
    host.put("anew", id="k4")

    for each in (host, run):
        rest = _page(each, before=first[each.run]["next"], limit=10)
        assert [it["id"] for it in rest["entries"]] == ["k3", "k2", "k1", "k0"]
    by_name = _page(run, before="k4", limit=10)
    assert [it["id"] for it in by_name["entries"]] == ["k3", "k2", "k1", "k0"]


@requirement("OW-20", "OW-35")
def test_a_tag_is_looked_for_in_its_ref_alone(host: Host) -> None:
    other = Host(host.http, "mem://other")
    own, foreign = host.put("apple", tags=["same"]), other.put("pear", tags=["same"])
    run = host.in_run("r1")

    assert host.entries(tag="same") == run.entries(tag="same") == [own]
    assert other.entries(tag="same") == [foreign]
    assert host.search("apple pear", tag="same") == [own]


@pytest.mark.heavy
@requirement("OW-21", "OW-57", "OW-58")
def test_events_fill_no_answer_beyond_two_mebibytes(host: Host) -> None:
    run = host.in_run("r1")
    for number in range(45):
        run.put("x", tags=[f"{LONG}{number} {tag}" for tag in range(50)])
    run.end()

    sequences, after = [], -1
    while True:
        asked = {"after": after, "limit": 1000} if after >= 0 else {"limit": 1000}
        answer = host.ask("GET", "/runs/r1/events", params=asked)
        assert len(answer.content) <= 2 * 1024 * 1024
        sequences += [it["sequence"] for it in ok(answer)["events"]]
        after = sequences[-1]
        if answer.json()["isComplete"]:
            break
    assert sequences == list(range(47))
    first = ok(host.ask("GET", "/events", params={"limit": 1000}))
    rest = ok(host.ask("GET", "/events", params={"limit": 1000, "after": first["next"]}))
    assert [it["sequence"] for it in first["events"] + rest["events"]] == sequences


@pytest.mark.slow
@requirement("OW-13", "OW-23", "OW-45")
def test_a_repeated_request_tells_what_it_told_and_shows_nothing_that_is_gone(
    service: Service, host: Host
) -> None:
    once = Host(host.http, headers={"Idempotency-Key": "once"})
    opened = once.ask("POST", "/runs", {"runId": "r1"})
    run = Host(host.http, run="r1")
    branched = Host(host.http, run="r1", headers={"Idempotency-Key": "fork"})
    branch = branched.fork("branch", fromSeq=0)
    put = Host(host.http, headers={"Idempotency-Key": "put"})
    made = [put.post("deleted"), Host(host.http, headers={"Idempotency-Key": "p2"}).post(
        "ended", ttlSeconds=60
    )]  # fmt: skip
    run.end()
    Host(host.http, run=branch.json()["runId"]).end("failed")
    ok(host.delete(made[0].json()["entry"]["id"]))
    service.clock.advance(minutes=2)

    assert once.ask("POST", "/runs", {"runId": "r1"}).content == opened.content
    assert branched.fork("branch", fromSeq=0).content == branch.content
    assert refused(put.post("deleted")) == (409, "memory_changed")
    again = Host(host.http, headers={"Idempotency-Key": "p2"}).post("ended", ttlSeconds=60)
    assert refused(again) == (409, "memory_changed")


@pytest.mark.slow
@requirement("OW-11", "OW-33")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_is_no_text_in_a_path_is_no_other_entry(host: Host, method: str) -> None:
    host.put(id="\ufffd")

    answer = host.http.request(method, f"{H}/memory/%ff?memoryRef=mem%3A%2F%2Fnotes")

    assert refused(answer) == (400, "validation_error")
    assert ok(host.get("%EF%BF%BD"))["entry"]["id"] == "\ufffd"


@requirement("OW-30", "OW-31")
def test_refs_without_anything_are_alike_with_a_run_and_with_a_page(host: Host) -> None:
    for more in ("runId=nope", "before=nope"):
        lists = [
            host.http.get(f"{H}/memory?memoryRef={ref}&{more}")
            for ref in ("unknown", "a/../b", "tenants/acme/x")
        ]
        assert len({(it.status_code, it.content) for it in lists}) == 1, more
        assert lists[0].is_error
    gets = [
        host.http.get(f"{H}/memory/x?memoryRef={ref}&runId=nope")
        for ref in ("unknown", "a/../b", "tenants/acme/x")
    ]
    assert len({(it.status_code, it.content) for it in gets}) == 1


@requirement("OW-51", "OW-45")
def test_a_clock_that_is_put_back_brings_nothing_into_a_snapshot(
    service: Service, host: Host
) -> None:
    older = host.put("older")
    host.put("newer", supersedes=[older["id"]], ttlSeconds=60)
    service.clock.advance(seconds=90)
    run = host.in_run("r1")
    assert run.contents() == ["older"]

    service.clock.advance(seconds=-60)

    assert run.contents() == ["older"]


@requirement("OW-62")
def test_what_a_run_never_saw_makes_no_fork_impossible(path: Path) -> None:
    with serving(path, MEMORY_KEEP_DELETED="1h", MEMORY_KEEP_EXPIRED="1h") as service:
        host = Host(service.http)
        host.put("gone before", ttlSeconds=60)
        service.clock.advance(minutes=2)
        run = host.in_run("r1", memoryRefs=[REF])
        own = run.put("its own")
        ok(host.delete(own["id"]))
        run.end()
        rows(service.path, "DELETE FROM memories")  # as a sweep erases them

        assert run.contents() == []
        assert run.fork().status_code == 201


@pytest.mark.heavy
@pytest.mark.sqlite_files
@requirement("OW-33")
def test_what_is_not_there_takes_the_same_statements(tmp_path: Path) -> None:
    files = {tenant: tmp_path / f"{tenant}.db" for tenant in ("ours", "theirs")}
    ids = {}
    for tenant, file in files.items():
        with serving(file) as service:
            host = Host(service.http)
            made = [host.put(str(it))["id"] for it in range(2)]
            ok(host.delete(made[0]))
            host.put("ended", id="ended", ttlSeconds=1)
            Host(service.http, "mem://other").put("elsewhere", id="elsewhere")
            ids[tenant] = made
    never, gone, theirs = "mem_" + "0" * 32, ids["ours"][0], ids["theirs"][1]

    for work in (get_entry, provenance_of, delete_entry):
        counts = {
            _statements(files["ours"], work, ref, id_)
            for ref in (REF, "mem://other", "mem://nobodys")
            for id_ in (never, gone, theirs, "ended", "nobodys")
        }
        assert len(counts) == 1, work
        assert counts.pop() > 0
        assert _statements(files["theirs"], work, REF, ids["ours"][1]) == _statements(
            files["theirs"], work, REF, never
        )


def _statements(file: Path, work: Callable[..., object], ref: str, id_: str) -> int:
    """How many statements it takes to find that there is nothing."""
    told: list[str] = []
    with closing(connect(file)) as database:
        database.set_trace_callback(told.append)
        more = () if work is provenance_of else (None,)
        tx = SqliteTransaction(database, START + timedelta(minutes=1), OPERATOR)
        with pytest.raises(NotFound):
            work(tx, ref, id_, *more)
    return len(told)


def _page(host: Host, **query: object) -> Json:
    bound = {} if host.run is None else {"runId": host.run}
    asked = {"memoryRef": REF, "limit": 2, **bound, **query}
    page: Json = ok(host.ask("GET", "/memory", params=asked))
    return page


def _in(ref: str, run: str) -> str:
    return f"/memory?memoryRef={ref}&runId={run}"
