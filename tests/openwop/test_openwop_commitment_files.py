"""What commitments cost others, and what a kill, a closed database and a trace have of them."""

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Thread

import httpx
import pytest

from agentops_memory.errors import NotFound
from agentops_memory.memory.access import Caller, TenantId
from agentops_memory.openwop.commitments import Firing

from ..operations.test_tenants import count, opened
from ..operations.test_tenants import until as eventually
from ..support.engines import rows
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import Host, ok
from ..support.process import DEADLINE, Program, served, until
from ..support.requirements import requirement
from ..support.service import PLAIN
from ..telemetry.test_tracing import traced

WRITERS, ROUNDS, WRITES = 4, 2, 30


async def test_a_look_in_passing_opens_no_database_and_keeps_none_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = Caller(tenant=TenantId("acme"))

    loop, passed = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + passed)
    async with opened(path, idle=timedelta(hours=3)) as engine:
        firing = Firing(engine=engine.in_passing)
        with pytest.raises(NotFound):
            await firing.look(acme)
        assert engine.callers() == [Caller()]
        assert await count(engine, acme) == 0
        for _ in range(2):
            for caller in engine.callers():
                await firing.look(caller)
            passed += 2 * 3600
        await eventually(lambda: acme not in engine.callers())


@requirement("OW-101")
def test_each_operation_on_commitments_is_a_span_that_tells_of_the_entry_and_of_no_text(
    tmp_path: Path,
) -> None:
    with traced(tmp_path) as (service, received):
        host = Host(service.http)
        intents = Intents(host)
        made = host.put("hippopotamus", id="plan")
        armed = intents.on(made["id"], "saffron")
        ok(intents.get(armed["id"]))
        assert intents.listed(memoryRef=host.ref) == [armed]
        ok(intents.cancel(armed["id"]))
        collector = received()

    about: dict[str, object] = {"memory.ref": host.ref}
    told: dict[str, dict[str, object]] = {
        "create_commitment": about | {"memory.entry.id": "plan"},
        "list_commitments": about | {"memory.result_count": 1},
        "get_commitment": {},
        "cancel_commitment": {},
    }
    for name, attributes in told.items():
        span = collector.one(f"memory.openwop_{name}")
        assert {it: span.attributes.get(it) for it in attributes} == attributes, name
        assert (span.is_server, span.failed) == (True, False)
    for word in ("hippopotamus", "saffron"):
        assert word not in repr(collector.spans), word


class Load:
    """Hosts that arm, meet and read without pause, until the service is gone."""

    def __init__(self, url: str, about: str) -> None:
        self._url, self._about, self._start = url, about, Barrier(WRITERS)
        self._threads = [Thread(target=self._work, args=(it,)) for it in range(WRITERS)]
        self.armed: list[dict[str, object]] = []  # what was answered

    def run_until(self, count: int, program: Program) -> None:
        for it in self._threads:
            it.start()
        until(lambda: len(self.armed) >= count)
        program.send(signal.SIGKILL)
        for it in self._threads:
            it.join(DEADLINE)
            assert not it.is_alive()

    def _work(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=DEADLINE, verify=PLAIN) as http:
            host = Host(http, f"mem://load-{number}")
            intents, turn = Intents(host), 0
            self._start.wait(DEADLINE)
            try:
                while True:
                    memory = host.put(f"{self._about}, turn {turn}")["id"]
                    soon = datetime.now(UTC) + timedelta(milliseconds=200)
                    self.armed.append(intents.at(memory, soon))
                    self.armed.append(intents.on(memory, f"{self._about} {turn}"))
                    host.put("met", tags=[f"{self._about} {turn}"])
                    ok(host.ask("GET", "/events?limit=10"))
                    turn += 1
            except httpx.TransportError:
                return


@pytest.mark.slow
@requirement("OW-84", "OW-85")
def test_kill_9_leaves_every_commitment_fired_once_with_its_event_or_armed(path: Path) -> None:
    armed = list[dict[str, object]]()
    for number in range(ROUNDS):
        with served(path) as (program, http):
            load = Load(str(http.base_url), f"round {number}")
            load.run_until(WRITES, program)
            program.wait()
        armed += load.armed
    with served(path) as (_, http):
        intents, told = Intents(Host(http)), []
        until(lambda: not intents.listed(state="armed", limit=1) or _are_met(intents))
        after = "0"
        while True:
            asked = {"type": "commitment.fired", "after": after, "limit": 1000}
            page = ok(intents.host.ask("GET", "/events", params=asked))
            if not page["events"]:
                break
            told += [it["payload"]["commitmentId"] for it in page["events"]]
            after = page["next"]
    states = dict(rows(path, "SELECT uid, state FROM commitments"))
    fired = {f"cmt_{uid.replace('-', '')}" for uid, state in states.items() if state == "fired"}
    assert len(told) == len({*told})
    assert {*told} == fired
    known = {f"cmt_{uid.replace('-', '')}" for uid in states}
    assert {str(it["id"]) for it in armed} <= known
    assert {str(it["id"]) for it in armed if it["condition"] == "time"} <= fired


def _are_met(intents: Intents) -> bool:
    """Whether what is armed waits for a tag, whose put the kill has prevented."""
    return all(it["condition"] == "predicate" for it in intents.listed(state="armed", limit=1000))
