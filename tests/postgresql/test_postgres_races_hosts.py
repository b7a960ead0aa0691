"""Of requests of hosts that race over two services of one database, each thing is made once."""

from collections import Counter
from datetime import timedelta

import httpx
import pytest

from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import Host, ok
from ..support.openwop_passes import COMPACTED, UNDONE, ids, of_type
from ..support.openwop_proposals import artifacts, listed, moved, proposed, told_of
from ..support.pods import RACERS, Pods, two
from ..support.process import until

__all__ = ["two"]


def statuses(answers: list[httpx.Response]) -> Counter[int]:
    return Counter(it.status_code for it in answers)


@pytest.mark.slow
def test_racing_puts_under_one_host_id_are_one_entry(two: Pods) -> None:
    answers = two.racing(lambda http, _: Host(http).post("said once", id="entry-1"))

    assert statuses(answers) == {201: 1, 200: RACERS - 1}, [it.text for it in answers]
    assert len(Host(two.http).entries()) == 1


def test_racing_runs_of_one_id_are_one(two: Pods) -> None:
    answers = two.racing(lambda http, _: Host(http).ask("POST", "/runs", {"runId": "r1"}))

    assert statuses(answers) == {201: 1, 200: RACERS - 1}
    assert two.rows("SELECT count(*) FROM runs") == [(1,)]


@pytest.mark.heavy
def test_racing_puts_in_a_run_have_sequences_without_a_gap(two: Pods) -> None:
    Host(two.http).in_run("r1")

    two.racing(lambda http, it: [Host(http, run="r1").put(f"{it}, {turn}") for turn in range(4)])

    told = Host(two.http, run="r1").told(limit=1000)
    assert [it["sequence"] for it in told] == [*range(len(told))]
    assert len(told) == 1 + 4 * RACERS
    two.assert_index_is_whole()


def test_of_racing_ends_of_a_run_one_is_told(two: Pods) -> None:
    Host(two.http).in_run("r1")

    answers = two.racing(
        lambda http, it: Host(http).ask(
            "POST", "/runs/r1/end", {"status": ("completed", "failed")[it % 2]}
        )
    )

    assert set(statuses(answers)) == {200, 409}
    told = [it["type"] for it in Host(two.http, run="r1").told()]
    assert len(told) == 2, told


@pytest.mark.heavy
def test_racing_distillations_of_the_same_make_one_archive(two: Pods) -> None:
    host = Host(two.http)
    sources = [host.put(it) for it in ("herons wade", "egrets fly")]

    answers = two.racing(lambda http, _: Host(http).distill())

    assert 200 in statuses(answers)
    (archive,) = {it["outputId"] for it in of_type(host, COMPACTED)}
    assert ids(host.entries()) == [archive, *ids(sources[::-1])]
    two.assert_index_is_whole()


@pytest.mark.heavy
def test_racing_compactions_take_each_source_once(two: Pods) -> None:
    host = Host(two.http)
    made = [host.put(f"herons {it}") for it in range(6)]

    two.racing(lambda http, _: Host(http).compact())

    sources = [it for each in of_type(host, COMPACTED) for it in each["sourceIds"]]
    assert len(sources) == len({*sources})
    assert {*ids(made)} <= {*sources}


@pytest.mark.slow
def test_of_racing_undos_of_a_pass_one_is_done(two: Pods) -> None:
    host = Host(two.http)
    made = [host.put(f"herons {it}") for it in range(3)]
    run = ok(host.compact())["runId"]

    answers = two.racing(lambda http, _: Host(http).undo(run))

    assert statuses(answers)[200] >= 1
    assert len(of_type(host, UNDONE)) == 1
    assert {*ids(host.entries())} == {*ids(made)}
    two.assert_index_is_whole()


@pytest.mark.heavy
def test_a_commitment_fires_once_whoever_looks_and_however_many_there_are(two: Pods) -> None:
    host, tags = Host(two.http), [f"rain-{it}" for it in range(49)]
    due = two.clock.now + timedelta(minutes=1)
    for it in range(5):  # more than one transaction fires
        Intents(host).at(host.put(f"{it}", tags=[f"when:{tag}" for tag in tags])["id"], due)
    two.clock.advance(minutes=2)

    def work(http: httpx.Client, it: int) -> httpx.Response:
        if it % 2:
            return Host(http).post("wet", tags=tags)
        return Host(http).ask("GET", "/events?limit=1000")

    answers = two.racing(work, 2 * RACERS)
    until(lambda: not two.rows("SELECT 1 FROM commitments WHERE state = 'armed'"))

    assert all(it.is_success for it in answers)
    told = [it["commitmentId"] for it in Intents(host).fired()]
    assert sorted(told) == sorted(it["id"] for it in Intents(host).listed(limit=1000))
    assert len(told) == 5 * (len(tags) + 1)


@pytest.mark.slow
def test_of_racing_moves_of_a_proposal_one_is_done(two: Pods) -> None:
    host = Host(two.http)
    made = proposed(host)

    answers = two.racing(
        lambda http, it: moved(Host(http), made["id"], ("apply", "reject")[it % 2])
    )

    done = statuses(answers)
    assert set(done) == {200, 409}
    (now,) = listed(host)
    assert now["state"] in ("applied", "rejected")
    assert len(artifacts(host)) == (now["state"] == "applied")
    assert len(told_of(host, "proposal.activated")) == (now["state"] == "applied")
