"""Of requests that race over two services of one database, each unique thing is made once."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory.errors import Refusal
from agentops_memory.operations.files.seal import SealFile
from agentops_memory.postgresql.tenants import PostgresKeys

from ..support.answers import Writer, described, every_write
from ..support.callers import OPERATOR, made_in
from ..support.openintent_agents import Agent
from ..support.openwop_hosts import Host, Json, ok
from ..support.openwop_passes import UNDONE, ids, of_type
from ..support.openwop_proposals import artifacts, listed, moved, proposed, told_of
from ..support.pods import RACERS, Pods, pods, two
from ..support.service import START, Clock, observation
from ..support.stores import at, store, versions

__all__ = ["two"]

KEY = {"Idempotency-Key": "the-key-of-all-racers"}
MESSAGES = {"messages": [{"role": "user", "content": "Hi"}]}
Answers = list[httpx.Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What racers ask, how they are answered, and what is stored afterwards."""

    ask: Callable[[httpx.Client, int, Any], httpx.Response]
    """By a client, the racer's number, and what was made for all of them."""
    statuses: dict[int, int] | set[int]  # each with its number, or those that there may be
    left: Callable[[Pods, Any, Answers], object]
    expected: object
    made: Callable[[Pods], Any] = lambda _: None


def save(http: httpx.Client, content: str, **fields: object) -> httpx.Response:
    return http.post("/observations", json=observation(content, **fields))


def saved(two: Pods, content: str = "what was said") -> str:
    """The path of a new memory."""
    return f"/observations/{save(two.http, content).json()['id']}"


def stored(two: Pods) -> list[Json]:
    rows: list[Json] = two.http.get("/export").json()["observations"]
    return rows


def numbers(answers: Answers, name: str, *statuses: int) -> list[Any]:
    """A member of all answers, in order."""
    return sorted(it.json()[name] for it in answers if it.status_code in (statuses or (200, 201)))


def contents(two: Pods, id_: int) -> list[str]:
    return [it["content"] for it in two.http.get(f"/observations/{id_}/history").json()]


def revisions(two: Pods, path: str) -> list[int]:
    return [it["revision"] for it in two.http.get(f"{path}/history").json()]


MEMORIES = {
    "saves under one key in several sessions": Race(
        ask=lambda http, it, _: http.post(
            "/observations", headers=KEY,
            json=observation("said once", session_id=f"s{it}", project=f"p{it}"),
        ),
        statuses={201: 1, 409: RACERS - 1},
        left=lambda two, *_: [
            two.rows(f"SELECT count(*) FROM {it}") for it in ("memories", "sessions")
        ],
        expected=[[(1,)], [(1,)]],
    ),
    "saves at one topic key": Race(
        ask=lambda http, it, _: save(http, f"said by {it}", topic_key="k", session_id=f"s{it}"),
        statuses={201: RACERS},
        left=lambda two, _, answers: (
            numbers(answers, "revision_count"),
            [it["revision_count"] for it in stored(two)],
            {text for it in stored(two) for text in contents(two, it["id"])},
        ),
        expected=([*range(1, RACERS + 1)], [RACERS], {f"said by {it}" for it in range(RACERS)}),
    ),
    "saves of one text in a project that each pod knows": Race(
        made=lambda two: [it.save("said before")["action"] for it in two.services],
        ask=lambda http, it, _: save(http, "said by all", session_id=f"s{it}"),
        statuses={201: RACERS},
        left=lambda two, made, answers: (
            made, numbers(answers, "duplicate_count"), two.rows("SELECT count(*) FROM memories"),
        ),
        expected=(["created", "deduplicated"], [*range(1, RACERS + 1)], [(2,)]),
    ),
    "openings of a session by many projects": Race(
        ask=lambda http, it, _: http.post("/sessions", json={"id": "s1", "project": f"p{it}"}),
        statuses={201, 409},
        left=lambda two, *_: two.rows("SELECT count(*) FROM sessions"),
        expected=[(1,)],
    ),
    "messages of a session": Race(
        made=lambda two: two.http.post("/sessions", json={"id": "s1", "project": "demo"}),
        ask=lambda http, *_: http.post("/sessions/s1/messages", json=MESSAGES),
        statuses={204: RACERS},
        left=lambda two, *_: two.http.post("/sessions/s1/end").json()["message_count"],
        expected=RACERS,
    ),
    "changes and a deletion": Race(
        made=saved,
        ask=lambda http, it, of: (
            http.patch(of, json={"content": f"what {it} says"}) if it else http.delete(of)
        ),
        statuses={200, 204, 404},
        left=lambda two, of, answers: (
            numbers(answers, "revision_count", 200) == revisions(two, of)[-2:0:-1],
            revisions(two, of) == sorted({*revisions(two, of)}, reverse=True),
        ),
        expected=(True, True),
    ),
}  # fmt: skip


AGENTS = {
    "creates at one path of a store": Race(
        made=lambda two: store(two.http),
        ask=lambda http, it, home: http.post(
            at(home, "memories"), json={"path": "a/b", "content": f"racer {it}"}
        ),
        statuses={201: 1, 409: RACERS - 1},
        left=lambda two, home, _: len(versions(two.http, home)),
        expected=1,
    ),
    "entries at one key of an agent": Race(
        ask=lambda http, it, _: Agent(http).post(value={"racer": it}),
        statuses={201: 1, 409: RACERS - 1},
        left=lambda two, *_: (Agent(two.http).query()["total"], Agent(two.http).told()),
        expected=(1, [("created", "apple")]),
    ),
    "changes of one version": Race(
        made=lambda two: Agent(two.http).make(),
        ask=lambda http, it, made: Agent(http).patch(made, value={"racer": it}),
        statuses={200: 1, 409: RACERS - 1},
        left=lambda two, *_: [it for it, _ in Agent(two.http).told()],
        expected=["created", "updated"],
    ),
}  # fmt: skip


def sources(two: Pods) -> list[str]:
    return ids([Host(two.http).put(f"herons {it}") for it in range(4)])


def compacted(two: Pods) -> tuple[list[str], str]:
    """The sources of a pass, and its run."""
    return sources(two), str(ok(Host(two.http).compact())["runId"])


def proposal(two: Pods) -> tuple[str, int, int]:
    """The state of the only proposal, and how often it was applied."""
    host = Host(two.http)
    (now,) = listed(host)
    return now["state"], len(artifacts(host)), len(told_of(host, "proposal.activated"))


HOSTS = {
    "puts under one id": Race(
        ask=lambda http, *_: Host(http).post("said once", id="entry-1"),
        statuses={201: 1, 200: RACERS - 1},
        left=lambda two, *_: len(Host(two.http).entries()),
        expected=1,
    ),
    "runs of one id": Race(
        ask=lambda http, *_: Host(http).ask("POST", "/runs", {"runId": "r1"}),
        statuses={201: 1, 200: RACERS - 1},
        left=lambda two, *_: two.rows("SELECT count(*) FROM runs"),
        expected=[(1,)],
    ),
    "ends of a run": Race(
        made=lambda two: Host(two.http).in_run("r1"),
        ask=lambda http, it, _: Host(http).ask(
            "POST", "/runs/r1/end", {"status": ("completed", "failed")[it % 2]}
        ),
        statuses={200, 409},
        left=lambda two, *_: len(Host(two.http, run="r1").told()),
        expected=2,
    ),
    "undos of a pass": Race(
        made=compacted,
        ask=lambda http, _, made: Host(http).undo(made[1]),
        statuses={200, 409, 503},
        left=lambda two, made, _: (
            len(of_type(Host(two.http), UNDONE)),
            {*ids(Host(two.http).entries())} == {*made[0]},
        ),
        expected=(1, True),
    ),
    "moves of a proposal": Race(
        made=lambda two: proposed(Host(two.http))["id"],
        ask=lambda http, it, made: moved(Host(http), made, ("apply", "reject")[it % 2]),
        statuses={200, 409},
        left=lambda two, *_: proposal(two) in (("applied", 1, 1), ("rejected", 0, 0)),
        expected=True,
    ),
}  # fmt: skip


RACES = MEMORIES | AGENTS | HOSTS


@pytest.mark.slow
@pytest.mark.parametrize("race", RACES.values(), ids=RACES)
def test_of_racing_requests_each_is_done_as_if_it_were_alone(
    tmp_path: Path, postgresql: str, race: Race
) -> None:
    with pods(tmp_path / "postgresql", postgresql, 2) as two:
        made = race.made(two)

        answers = two.racing(lambda http, it: race.ask(http, it, made))

        counts = Counter(it.status_code for it in answers)
        if isinstance(race.statuses, dict):
            assert counts == race.statuses, [it.text for it in answers]
        else:
            assert race.statuses >= counts.keys(), [it.text for it in answers]
        assert race.left(two, made, answers) == race.expected
        two.assert_index_is_whole()


@pytest.mark.slow
def test_of_racing_keys_none_is_lost_and_one_revocation_is_audited(two: Pods) -> None:
    keys = PostgresKeys(two.url)
    with ThreadPoolExecutor(RACERS) as threads:
        tokens = {*threads.map(lambda _: made_in(keys, "admin", "default", ("*",)), range(RACERS))}
    ring = PostgresKeys(two.url).ring()
    assert {token.split("_")[1] for token in tokens} == ring.keys.keys()
    assert len(tokens) == RACERS

    (first, *_) = ring.keys

    def revoke(_: int) -> bool:
        try:
            PostgresKeys(two.url).revoke(first, at=START, by=OPERATOR)
        except Refusal:
            return False
        return True

    with ThreadPoolExecutor(RACERS) as threads:
        assert sum(threads.map(revoke, range(RACERS))) >= 1
    revoked = "SELECT count(*) FROM agentops.audit WHERE line LIKE '%revoked%'"
    assert two.rows(revoked) == [(1,)]


@pytest.mark.heavy
def test_every_write_is_answered_again_as_before_through_another_pod(
    tmp_path: Path, postgresql: str
) -> None:
    seal = tmp_path / "seal"
    SealFile(seal, Clock()).rotate(lambda _: None)
    with pods(tmp_path / "postgresql", postgresql, MEMORY_SEAL_FILE=f"{seal}") as two:
        write = Writer(two.http)
        every_write(write)

        assert set(write.sent) == described(two.http) | {"delete_observation, hard"}
        write.assert_same(two.services[1].http)
