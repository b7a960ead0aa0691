"""Runs of fixtures: opened, done, told of and ended within one request."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from json import loads
from secrets import token_hex
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from agentops_memory.errors import BadFields, Refusal
from agentops_memory.http.bodies import answered
from agentops_memory.http.gate import current_caller
from agentops_memory.memory.access import Caller, IdempotentRequest, TenantId
from agentops_memory.openwop import host_runs, routes
from agentops_memory.openwop.api import BODIES, KeyedLocks, Page, Serving, text_in_path
from agentops_memory.openwop.host_runs import RunBody, RunEndBody
from agentops_memory.openwop.runs import Run, RunId, RunTable

from . import bodies as b
from .fixtures import ACROSS, OWN, Fixture
from .requests import asked_once
from .seeding import Seeding
from .stage import OTHER, FixtureFailed, Stage, ref_of

RUNS = "/v1/runs"
LOG_VERSION = 2  # of the events that version 1 of the protocol has


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a fixture has found, or why it has failed."""

    variables: routes.JsonObject | None = None
    error: routes.JsonObject | None = None

    @property
    def status(self) -> Literal["completed", "failed"]:
        return "completed" if self.error is None else "failed"

    @property
    def shown(self) -> routes.JsonObject:
        members = {"variables": self.variables, "error": self.error}
        return {name: it for name, it in members.items() if it is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeamRuns:
    """The handlers of runs, for a suite that takes this service for a host."""

    services: Serving
    seeding: Seeding
    has_key: Callable[[TenantId], bool]  # whether a key opens a tenant now
    # In memory alone: what a run has found is in no file but as entries.
    outcomes: dict[tuple[TenantId, RunId], Outcome] = field(default_factory=dict)
    turns: KeyedLocks = field(default_factory=KeyedLocks)

    def fixtures(self, tenant: TenantId | None = None) -> Mapping[str, Fixture]:
        """The fixtures that are served now: some need a second tenant that a key opens."""
        if tenant == OTHER or not self.has_key(OTHER):
            return OWN
        return {**OWN, **ACROSS}

    async def open_run(self, request: Request) -> Response:
        given = await BODIES.read(request, b.SeamRunBody)
        caller = await asked_once(request, "seam_run")
        fixture = self.fixtures(caller.tenant).get(given.workflow_id)
        if fixture is None:
            raise BadFields([("workflowId", "names no workflow that is served")])
        workflow = given.workflow_id
        body = RunBody.model_validate({"workflowId": workflow, "memoryRefs": [ref_of(workflow)]})
        asked, caller = caller.request, replace(caller, request=None)
        async with self._turn(caller, asked):  # what is sent again finds it done
            opened = await host_runs.open_run(self.services, replace(caller, request=asked), body)
            id_ = RunId(opened.value.run_id)
            if asked is None or not asked.is_replay:
                await self._do(fixture, self._stage(caller, id_, workflow))
        run = await self._run(caller, id_)
        return answered(_started(run, self._outcome(caller, id_)), 201)

    async def get_run(self, request: Request) -> Response:
        caller, id_ = current_caller(request), RunId(text_in_path(request, "runId"))
        run = await self._run(caller, id_)
        return answered(_snapshot(run) | self._outcome(caller, id_).shown)

    async def _run(self, caller: Caller, id_: RunId) -> Run:
        return await self.services.engine.read(caller, lambda tx: tx[RunTable].known(id_))

    async def fork_run(self, request: Request) -> Response:
        given = await BODIES.read(request, b.SeamForkBody)
        caller = await asked_once(request, "seam_fork")
        source = RunId(text_in_path(request, "runId"))
        forked = await host_runs.fork(self.services, caller, source, given)
        if given.mode != "branch":  # nothing is done again, so nothing else is found
            self.outcomes[caller.tenant, RunId(forked.run_id)] = self._outcome(caller, source)
        events = {"eventsUrl": f"{RUNS}/{forked.run_id}/events"}
        return answered(loads(forked.json_bytes()) | events, 201)

    def _outcome(self, caller: Caller, run: RunId) -> Outcome:
        return self.outcomes.get((caller.tenant, run), Outcome())

    def _turn(
        self, caller: Caller, asked: IdempotentRequest | None
    ) -> AbstractAsyncContextManager[object]:
        return nullcontext() if asked is None else self.turns.of(caller, asked.key.hex())

    def _stage(self, caller: Caller, run: RunId, workflow: str) -> Stage:
        return Stage(
            serving=self.services, seeding=self.seeding,
            new_secret=lambda: token_hex(16), caller=caller, run=run, workflow=workflow,
        )  # fmt: skip

    async def _do(self, fixture: Fixture, stage: Stage) -> None:
        """Do what the fixture does, and end its run by what came of it, even if that is nothing."""
        try:
            outcome = await _outcome(fixture, stage)
        except BaseException:
            await self._end(stage, "failed")
            raise
        self.outcomes[stage.caller.tenant, stage.run] = outcome
        await self._end(stage, outcome.status)

    async def _end(self, stage: Stage, status: Literal["completed", "failed"]) -> None:
        body = RunEndBody(status=status)
        await host_runs.end(self.services, stage.caller, stage.run, body)


async def poll_events(
    serving: Serving, caller: Caller, run_id: str, after: int | None, last_sequence: int | None,
    limit: int,
) -> Page:  # fmt: skip
    """The events of a run, after a sequence by either of its names; nothing is waited for."""
    since = after if last_sequence is None else last_sequence
    return await host_runs.log(serving, caller, run_id, since, limit)


async def _outcome(fixture: Fixture, stage: Stage) -> Outcome:
    try:
        variables = await fixture(stage)
        await stage.summarize()
    except FixtureFailed as failure:
        return Outcome(error={"code": failure.code, "message": str(failure)})
    except Refusal as refusal:
        code = routes.CODES.get(refusal.code, refusal.code)
        return Outcome(error={"code": code, "message": str(refusal)})
    return Outcome(variables=variables)


def _snapshot(run: Run) -> routes.JsonObject:
    """The run as a suite knows it."""
    shown: routes.JsonObject = loads(run.json_bytes()) | {
        "workflowId": run.workflow or run.kind.value,
        "eventLogSchemaVersion": LOG_VERSION,
    }
    return shown | {"completedAt": shown["endedAt"]} if "endedAt" in shown else shown


def _started(run: Run, outcome: Outcome) -> routes.JsonObject:
    url = f"{RUNS}/{run.id}"
    shown = {
        "runId": run.id, "status": run.status.value, "eventsUrl": f"{url}/events", "statusUrl": url,
    }  # fmt: skip
    return shown if outcome.error is None else shown | {"error": outcome.error}
