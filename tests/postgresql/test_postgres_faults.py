"""PostgreSQL, and the services on it, are killed under load: nothing acknowledged is lost."""

import itertools
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from agentops_memory.http.query import uid_of

from ..http.test_health import ready
from ..operations.test_disk import MEBIBYTE
from ..support.clusters import Server, of_both, pair, server
from ..support.files import disk
from ..support.forks import PROGRAM
from ..support.losses import Losses
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import H, Host
from ..support.pods import assert_index_is_whole, looked
from ..support.postgres import NOT_FOUND, give, is_found, of, ordered, owned_folder
from ..support.process import DEADLINE, Program, program, until
from ..support.service import PLAIN, observation
from ..support.terminal import Terminal

WRITERS = 16
PAUSE = 0.02  # seconds, between two tries


class KeyedLoad:
    """Writers without pause over several services: saves, and puts of hosts, each under a key."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = [*urls]
        self._progress = threading.Condition()
        self._is_over = self._is_given_up = False
        self._numbers = itertools.count()
        self._writers = [
            threading.Thread(target=self._write, args=(number,), daemon=True)
            for number in range(WRITERS)
        ]
        self.acknowledged: list[str] = []
        self.times: list[float] = []  # of acknowledgements, by the monotonic clock
        self.refusals: list[tuple[int, str | None, str]] = []  # status, Retry-After, and text
        self.unanswered = 0

    def start(self) -> "KeyedLoad":
        for writer in self._writers:
            writer.start()
        return self

    def reach(self, count: int) -> None:
        """Wait until so many more requests are acknowledged."""
        with self._progress:
            wanted = len(self.acknowledged) + count
            assert self._progress.wait_for(lambda: len(self.acknowledged) >= wanted, DEADLINE)

    def use(self, url: str) -> None:
        """Ask this service, too, from now on."""
        self._urls.append(url)

    def end(self, *, is_given_up: bool = False) -> None:
        """Let each writer end when its request is acknowledged, unless it is given up."""
        self._is_over, self._is_given_up = True, is_given_up
        for writer in self._writers:
            writer.join(DEADLINE)
            assert not writer.is_alive()

    def gap_from(self, moment: float) -> float:
        """The longest time from then on in which nothing was acknowledged, in seconds."""
        times = [moment, *(it for it in self.times if it > moment)]
        return max(b - a for a, b in itertools.pairwise(times))

    def _write(self, number: int) -> None:
        with ExitStack() as stack:
            clients = dict[str, httpx.Client]()
            turns = itertools.count(number)
            while not self._is_over:
                content = f"What save {next(self._numbers)} has learned"
                is_done = False
                while not is_done and not self._is_given_up:
                    url = self._urls[next(turns) % len(self._urls)]
                    if url not in clients:
                        client = httpx.Client(base_url=url, timeout=DEADLINE, verify=PLAIN)
                        clients[url] = stack.enter_context(client)
                    if not (is_done := self._acknowledged(clients[url], number, content)):
                        time.sleep(PAUSE)

    def _acknowledged(self, http: httpx.Client, number: int, content: str) -> bool:
        headers = {"Idempotency-Key": content.replace(" ", "-")}
        if number % 4:
            fields = {"session_id": f"s{number}", "project": f"p{number % 4}"}
            path, body = "/observations", observation(content, **fields)
        else:
            path, body = f"{H}/memory", {"memoryRef": f"mem://{number}", "content": content}
        try:
            answer = http.post(path, json=body, headers=headers)
        except httpx.TransportError:
            with self._progress:
                self.unanswered += 1
            return False
        with self._progress:
            if answer.is_success:
                self.acknowledged.append(content)
                self.times.append(time.monotonic())
            else:
                refusal = answer.status_code, answer.headers.get("retry-after"), answer.text
                self.refusals.append(refusal)
            self._progress.notify_all()
        return answer.is_success


pytestmark = [pytest.mark.slow, pytest.mark.skipif(not is_found(), reason=NOT_FOUND)]

SAVES = 100  # acknowledged before a fault, and again after it
LEADS = "this process is now the leader"
NO_ROOM = "No space is left in the database; nothing was stored."

# A release with one migration more.
NEWER = f"""
from agentops_memory.postgresql import connection
known = connection._migrations()
more = (known[-1][0] + 1, b"ALTER TABLE memories ADD COLUMN of_the_newer TEXT; "
                          b"ALTER TABLE sessions ADD COLUMN of_the_newer TEXT")
connection._migrations = lambda: [*known, more]
{PROGRAM}"""


@contextmanager
def served(
    url: str, *, code: str = PROGRAM, **variables: str
) -> Iterator[tuple[Program, httpx.Client]]:
    """A service of the database as a process, and a client of it."""
    own = {"MEMORY_LISTEN": "127.0.0.1:0", "MEMORY_DATABASE_URL": url, **variables}
    with program("serve", variables=own, code=code) as running, running.client() as http:
        yield running, http


@contextmanager
def both(url: str, **variables: str) -> Iterator[tuple[list[Program], KeyedLoad]]:
    """Two services of the database, and what is sent to them; they end with their load."""
    with ExitStack() as stack:
        begun = [stack.enter_context(served(url, **variables)) for _ in range(2)]
        load = KeyedLoad([str(http.base_url) for _, http in begun])
        stack.callback(load.end, is_given_up=True)
        load.start().reach(SAVES)
        yield [it for it, _ in begun], load
        load.end()


def assert_kept(losses: Losses, fault: str, url: str, load: KeyedLoad, remark: str = "") -> None:
    """All that was acknowledged is there, once, and nothing else; what was refused was 503."""
    found = [it for (it,) in looked(url, "SELECT content FROM memories")]
    seen = (remark, f"{len(load.refusals)} refusals, {load.unanswered} without an answer")
    losses(fault, acknowledged=load.acknowledged, found=found, remark="; ".join(filter(None, seen)))
    assert sorted(found) == sorted(load.acknowledged)
    assert {it[:2] for it in load.refusals} <= {(503, "1")}, load.refusals
    assert_index_is_whole(url)


@pytest.fixture
def alone() -> Iterator[Server]:
    """A server without a standby."""
    with server() as running:
        yield running


def test_a_primary_that_is_killed_under_load_loses_nothing_to_its_synchronous_standby(
    lost: Losses,
) -> None:
    with pair() as (primary, standby):
        with both(of_both(primary, standby)) as (_, load):
            primary.kill()
            standby.promote()
            promoted = time.monotonic()
            load.reach(SAVES)
        gap = load.gap_from(promoted)
        assert_kept(
            lost, "the primary is killed, and its standby promoted", standby.url, load,
            f"the longest gap was {gap:.1f} s",
        )  # fmt: skip


def test_a_server_that_is_killed_under_load_and_started_again_has_all_that_it_acknowledged(
    alone: Server, lost: Losses
) -> None:
    with both(alone.url) as (_, load):
        for _ in range(3):
            alone.kill()
            until(lambda: load.refusals)
            alone.start()
            load.reach(SAVES)
    assert_kept(lost, "the only server is killed and started again", alone.url, load, "3 times")


def test_a_server_that_is_restarted_under_load_is_used_again(alone: Server, lost: Losses) -> None:
    with both(alone.url) as (services, load), services[0].client() as http:
        alone.stop()
        until(lambda: ready(http)[0] == 503)
        _, found = ready(http)
        assert (found["status"], found["checks"]["database"]["status"]) == ("failed", "failed")
        assert found["error"] == found["checks"]["database"]["detail"]
        alone.start()
        load.reach(SAVES)
        until(lambda: ready(http)[0] == 200)
    assert_kept(lost, "the server is restarted", alone.url, load)


def test_one_of_two_services_that_is_killed_under_load_loses_nothing(
    alone: Server, lost: Losses
) -> None:
    with both(alone.url) as (services, load):
        services[0].send(signal.SIGKILL)
        killed = time.monotonic()
        load.reach(SAVES)
    gap = load.gap_from(killed)
    assert_kept(
        lost, "one of two services is killed", alone.url, load, f"the longest gap was {gap:.1f} s"
    )
    assert load.refusals == []


def test_sessions_that_are_ended_under_load_again_and_again_lose_nothing(
    alone: Server, lost: Losses
) -> None:
    with both(alone.url) as (_, load):
        for _ in range(10):
            ended(alone.url)
            load.reach(SAVES // 10)
    assert_kept(lost, "the server ends all sessions", alone.url, load, "10 times")


def ended(url: str) -> None:
    """End all sessions but this one."""
    ordered(
        url,
        """SELECT pg_terminate_backend(pid)
             FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()""",
    )


def test_a_database_that_has_no_room_refuses_and_goes_on_when_it_has(lost: Losses) -> None:
    with ExitStack() as stack:
        own = owned_folder()
        stack.callback(shutil.rmtree, own)
        folder = stack.enter_context(disk(own / "disk", size=64 * MEBIBYTE))
        running = stack.enter_context(server())
        give(folder)
        (place := folder / "place").mkdir()
        give(place)
        ordered(
            running.url,
            f"CREATE TABLESPACE small LOCATION '{place}'",
            "CREATE DATABASE small TABLESPACE small",
        )
        url = of(running.url, "small")
        with both(url) as (_, load):
            fill(folder / "ballast")
            until(lambda: [text for *_, text in load.refusals if NO_ROOM in text])
            (folder / "ballast").unlink()
            load.reach(SAVES)
        full = sum(NO_ROOM in text for *_, text in load.refusals)
        assert_kept(
            lost, "the database has no room, and has again", url, load, f"{full} were told so"
        )


def fill(file: Path) -> None:
    """Take all the room of a disk."""
    with file.open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(64 * 1024)):
            pass


def test_another_process_leads_when_the_leader_is_killed_and_does_what_is_due_once(
    alone: Server, lost: Losses
) -> None:
    with served(alone.url) as (first, http), served(alone.url) as (second, other):
        first.line(LEADS)
        made = armed(http)
        until(lambda: have_fired(alone.url, made))
        assert LEADS not in second.output
        first.send(signal.SIGKILL)
        killed = time.monotonic()
        second.line(LEADS)
        after = time.monotonic() - killed
        made |= armed(other)
        until(lambda: have_fired(alone.url, made))
        told = [it["commitmentId"] for it in Intents(Host(other)).fired()]
    lost(
        "the leader is killed", acknowledged=made, found=told,
        remark=f"another led after {after:.1f} s; each fired once, and nobody looked",
    )  # fmt: skip
    assert sorted(told) == sorted(made)


def armed(http: httpx.Client) -> set[str]:
    """Commitments that are due at once."""
    host = Host(http)
    entries = [host.put(f"{number}")["id"] for number in range(5)]
    soon = timedelta(seconds=1)  # after each request, however long those before it took
    return {Intents(host).at(it, datetime.now(UTC) + soon)["id"] for it in entries}


def have_fired(url: str, commitments: set[str]) -> bool:
    """Whether these have, and no others; that is no look, which would fire them."""
    found = looked(url, "SELECT uid FROM commitments WHERE state = 'fired'")
    return {uid for (uid,) in found} == {uid_of("cmt", it) for it in commitments}


def test_services_of_two_releases_serve_side_by_side_while_one_takes_the_others_place(
    alone: Server, lost: Losses
) -> None:
    Terminal({"MEMORY_DATABASE_URL": alone.url}).say("tenants", "create", "acme")
    with both(alone.url) as (old, load), served(alone.url, code=NEWER) as (_, http):
        ((version,),) = looked(alone.url, "SELECT DISTINCT version FROM agentops.tenants")
        load.use(str(http.base_url))
        load.reach(SAVES)
        for service in old:
            service.send(signal.SIGTERM)
            load.reach(SAVES)
        load.end()
    assert_kept(lost, "a rolling upgrade", alone.url, load, f"to version {version}")
