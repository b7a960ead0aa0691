"""What a run sees: memory as it was when the run began, whole, whatever happens meanwhile."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory.jobs import retention as sweeping
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.retention import FOR_EVER, Retentions

from ..support.engine import opened
from ..support.engines import rows
from ..support.openwop_hosts import H, Host, Json, ok, refused
from ..support.openwop_looks import Looks, wire
from ..support.openwop_model import KEPT_DELETED, KEPT_EXPIRED, Entry, Model, Moment, Run, Told
from ..support.requirements import requirement
from ..support.samples import for_each, sampled
from ..support.service import Clock, serving

REFS = ("mem://a", "mem://b", "user:42")
TAGS, NAMES = ("x", "y"), ("fact-1", "fact-2")
KEPT = Retentions(deleted=KEPT_DELETED, expired=KEPT_EXPIRED, events=FOR_EVER)
VARIABLES = {"MEMORY_SWEEP_EVERY": "0", "MEMORY_KEEP_EVENTS": "0"}
ENDS = ("completed", "failed", "cancelled")
MOST_OPEN = 6


class Play(Looks):
    """Steps by chance, each compared with the model, and after each what some runs see."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - the same each time
        self.counts = Counter[str]()
        self._path, self._clock, self._words = path, Clock(), 0
        self.model = Model(self._clock)

    def play(self, steps: int) -> Counter[str]:
        """What was done, and refused."""
        deeds = [
            *[self.put] * 12, *[self.delete] * 6, *[self.open] * 3, *[self.end] * 2,
            *[self.replay] * 2, *[self.branch] * 4, *[self.wait] * 5, self.turn_back,
            *[self.sweep] * 2,
        ]  # fmt: skip
        for part in self._parts(steps):
            with ExitStack() as stack:
                running = serving(self._path, clock=self._clock, telemetry=None, **VARIABLES)
                self.http = stack.enter_context(running).http
                for _ in range(part):
                    deed = self.chance.choice(deeds)
                    deed()
                    self.counts[deed.__name__] += 1
                    self.compare()
        return self.counts

    def _parts(self, steps: int) -> list[int]:
        """The steps between two restarts."""
        parts = [self.chance.randint(10, 60)]
        while sum(parts) < steps:
            parts.append(self.chance.randint(10, 60))
        return parts

    def put(self) -> None:
        ref, run = self.chance.choice(REFS), self._maybe_run()
        self._words += 1
        content, moment = f"apple number {self._words} of the tree", self.model.commit()
        tags = [it for it in TAGS if self.chance.random() < 0.4]
        node = self.chance.choice([None, "node-1"]) if run else None
        older = self._some(ref)
        fields: Json = {"tags": tags, "supersedes": [it.id for it in older]}
        end, name = None, None
        if self.chance.random() < 0.1:
            name = fields["id"] = self.chance.choice(NAMES)
        elif self.chance.random() < 0.35:
            end = moment.on + timedelta(seconds=self.chance.choice([1, 3600, 20_000, 900_000]))
            fields["expiresAt"] = wire(end)
        if node:
            fields["nodeId"] = node
        is_taken = any(it.id == name for it in self.model.live(ref))
        dead = [it for it in self.model.entries if it.ref == ref and it.deleted]
        is_stale = not is_taken and bool(dead) and self.chance.random() < 0.05
        if is_stale:
            fields["supersedes"] = ["mem_" + "0" * 32]

        answer = self._host(ref, run).post(content, **fields)

        if is_taken or is_stale:
            code = "memory_id_conflict" if is_taken else "memory_changed"
            assert refused(answer) == (409, code)
            self.counts[code] += 1
            return
        id_ = ok(answer, 201)["entry"]["id"]
        assert name in (None, id_)
        self.model.entries.append(Entry(
            ref=ref, id=id_, content=content, tags=tuple(tags), put=moment, end=end,
            older=frozenset(older),
        ))  # fmt: skip
        if run:
            run.wrote.add(ref)
            said = {"memoryRef": ref, "memoryId": id_, "tags": tags}
            self._tell(run, "memory.written", moment, said | ({"nodeId": node} if node else {}))

    def delete(self) -> None:
        ref, run = self.chance.choice(REFS), self._maybe_run()
        every = [it for it in self.model.entries if it.ref == ref]
        if not every:
            return
        live = self.model.live(ref)
        it = self.chance.choice(live if live and self.chance.random() < 0.9 else every)
        answer = self._host(ref, run).delete(it.id)
        found = next((one for one in live if one.id == it.id), None)  # it may be another by now
        if found is None:
            assert refused(answer) == (404, "not_found")
            return
        assert ok(answer) == {"memoryRef": ref, "memoryId": found.id, "removed": True}
        found.deleted = self.model.commit()
        if run:
            said = {"memoryRef": ref, "memoryId": found.id}
            self._tell(run, "agentops-memory.memory.deleted", found.deleted, said)

    def open(self) -> None:
        if len(self._open()) >= MOST_OPEN:
            return self.end()
        declared = [it for it in REFS if self.chance.random() < 0.3]
        run = Run(
            id=f"run-{len(self.model.runs)}", sees=self.model.commit(), declared=frozenset(declared)
        )
        Host(self.http).in_run(run.id, memoryRefs=declared)
        self._tell(run, "run.started", run.sees)
        self.model.runs.append(run)
        return None

    def end(self) -> None:
        if self._open():
            run, status = self.chance.choice(self._open()), self.chance.choice(ENDS)
            assert self._host(REFS[0], run).end(status)["status"] == status
            run.is_open = False
            self._tell(run, f"run.{status}", self.model.commit())

    def replay(self) -> None:
        if self.model.runs:
            run = self.chance.choice(self.model.runs)
            self._fork(run, "replay", run.sees, 0)

    def branch(self) -> None:
        sources = [it for it in self.model.runs if it.log]
        if sources and len(self._open()) < MOST_OPEN:
            run = self.chance.choice(sources)
            place = self.chance.randint(0, len(run.log))
            at = run.log[min(place, len(run.log) - 1)].moment
            self._fork(run, "branch", at, run.base + place)

    def _fork(self, source: Run, mode: str, at: Moment, from_seq: int) -> None:
        self.model.look()
        sure = source.declared | source.wrote
        lost = {it for it in REFS if self.model.has_lost(it, at)}
        answer = self._host(REFS[0], source).fork(mode, fromSeq=from_seq)
        if lost & sure or answer.status_code == 422:
            refs = sure | source.checked | source.perhaps | {
                str(it.payload["memoryRef"]) for it in source.log if it.payload
            }  # fmt: skip
            assert any(self.model.has_lost_of(it, at) for it in refs)
            self.is_refused(answer, source, from_seq)
            return
        moment, made = self.model.commit(), ok(answer, 201)
        assert (made["sourceRunId"], made["fromSeq"], made["mode"]) == (source.id, from_seq, mode)
        run = Run(
            id=made["runId"], sees=at, kind=mode, is_open=mode == "branch", source=source,
            from_seq=from_seq, checked=frozenset(sure), broken=frozenset(lost),
            perhaps=source.checked | source.perhaps,
        )  # fmt: skip
        assert (made["status"] == "running") == run.is_open
        run.base = len(self.told(run))
        self.model.runs.append(run)
        assert moment.number >= at.number

    def wait(self) -> None:
        self._clock.advance(seconds=self.chance.choice([1, 1, 60, 60, 1800, 7200, 86_400]))
        self.model.look()

    def turn_back(self) -> None:
        self._clock.now -= timedelta(hours=self.chance.choice([1, 5, 30]))
        self.model.look()

    def sweep(self) -> None:
        async def swept() -> None:
            opening = opened(self._path, clock=self._clock, retention=KEPT)
            async with opening as engine:
                await sweeping.sweep_index(engine, OPERATOR)
                await sweeping.sweep(engine, OPERATOR)

        asyncio.run(swept())
        left = rows(self._path, "SELECT content FROM memories")
        self.model.swept({content for (content,) in left})

    def _tell(self, run: Run, type_: str, moment: Moment, payload: Any = None) -> None:
        node = payload and payload.get("nodeId")
        run.log.append(Told(type_, moment, payload, node))

    def _open(self) -> list[Run]:
        return [it for it in self.model.runs if it.is_open]

    def _maybe_run(self) -> Run | None:
        """An open run, or none."""
        return self.chance.choice([None, *self._open()])

    def _some(self, ref: str) -> list[Entry]:
        """Up to three live ones, if any is to be superseded."""
        live = self.model.live(ref)
        count = self.chance.choice([0, 0, 0, 1, 2, 3])
        return self.chance.sample(live, min(count, len(live)))


@pytest.mark.slow
@requirement("OW-51", "OW-52", "OW-53", "OW-57", "OW-61", "OW-62")
@pytest.mark.parametrize("seed", sampled(range(2), 2))
def test_what_runs_see_is_as_a_model_says(path: Path, seed: int) -> None:
    counts = Play(path, seed).play(25)

    assert min(counts[it] for it in ("put", "delete", "open", "listed: host")) > 0


@requirement("OW-51", "OW-52", "OW-53", "OW-57", "OW-61", "OW-62")
@pytest.mark.parametrize("seed", sampled(range(100, 103), 1, first=1))
def test_what_runs_see_in_long_histories_is_as_a_model_says(path: Path, seed: int) -> None:
    counts = Play(path, seed).play(140)

    kinds = {f"listed: {it}" for it in ("live", "host", "branch", "replay")}
    assert min(counts[it] for it in kinds | {"sweep", "turn_back"}) > 0


REQUESTS: dict[str, Callable[[Host], httpx.Response]] = {
    "list": lambda it: it.ask("GET", "/memory", params={"memoryRef": it.ref, "runId": "no"}),
    "get": lambda it: it.get("mem_" + "0" * 32, runId="no"),
    "put": lambda it: it.post(runId="no"),
    "delete": lambda it: it.delete("mem_" + "0" * 32, runId="no"),
    "run": lambda it: it.ask("GET", "/runs/no"),
    "events": lambda it: it.ask("GET", "/runs/no/events"),
    "end": lambda it: it.ask("POST", "/runs/no/end", {"status": "failed"}),
    "fork": lambda it: it.ask("POST", "/runs/no/fork", {"mode": "replay"}),
    "secret": lambda it: it.ask(
        "POST", "/runs/no/secrets", {"secretId": "s", "value": "hunter22"}
    ),
}  # fmt: skip


@requirement("OW-51", "OW-54")
@for_each("name", REQUESTS)
def test_a_run_that_there_is_not_is_never_taken_for_none(host: Host, name: str) -> None:
    host.post(id="one")
    answer = REQUESTS[name](host)

    assert refused(answer) == (404, "not_found")
    assert host.http.get(f"{H}/refs").json()["refs"][0]["entries"] == 1
