"""A commitment as a suite wants it: armed, and satisfied more than once."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from secrets import token_hex

from starlette.requests import Request
from starlette.responses import Response

from agentops_memory.errors import Unavailable
from agentops_memory.http.bodies import answered
from agentops_memory.http.gate import current_caller
from agentops_memory.memory.access import Caller
from agentops_memory.memory.space import MemoryRef
from agentops_memory.openwop import commitments, host_runs, routes
from agentops_memory.openwop.api import BODIES, Serving
from agentops_memory.openwop.commitments import (
    Commitment,
    CommitmentBody,
    CommitmentState,
)
from agentops_memory.openwop.entries import RefEntry
from agentops_memory.openwop.routes import RefEntryBody
from agentops_memory.openwop.runs import RunEvent, RunEventType
from agentops_memory.record import milliseconds

from . import bodies as b
from .requests import JsonObject

AHEAD = timedelta(seconds=1)  # longer than it takes to arm a time
LOOK = 0.02  # seconds
LONGEST = 60.0  # seconds until a time must have come
MOST_LISTED = 1000  # events
TWICE = range(2)  # what comes true again fires nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SeamCommitments:
    """The handler over the domain."""

    services: Serving

    async def fire(self, request: Request) -> Response:
        given = await BODIES.read(request, b.SeamFireBody)
        ref, caller = MemoryRef(given.memory_ref), current_caller(request)
        newest = await host_runs.events(self.services, caller, after=0, limit=1, type="none")
        since = int(str(newest.beside(0)["next"]))
        source = await self._put(caller, ref, f"Remind the team of {token_hex(8)}.")
        if given.condition == "time":
            due = milliseconds(self.services.clock() + AHEAD)
            armed = await self._armed(caller, ref, source, condition="time", dueAt=due)
            await self._come(caller, armed)
        else:
            tag = f"awaited:{token_hex(8)}"
            armed = await self._armed(caller, ref, source, condition="predicate", tag=tag)
            for _ in TWICE:
                await self._put(caller, ref, "What was waited for has come.", tag)
        told = await self._told(caller, armed, since)
        shown: JsonObject = {"fireCount": len(told)}
        if told:
            shown["event"] = dict(told[0].payload)
        if given.include_intention_canary:
            shown["intentionCanary"] = source.content
        return answered(shown)

    async def _put(self, caller: Caller, ref: MemoryRef, content: str, *tags: str) -> RefEntry:
        body = RefEntryBody(memory_ref=ref, content=content, tags=list(tags))
        return (await routes.put(self.services, caller, body)).value.entry

    async def _armed(
        self, caller: Caller, ref: MemoryRef, source: RefEntry, **given: str
    ) -> Commitment:
        whole = {"memoryRef": ref, "memoryId": source.id, **given}
        body = CommitmentBody.model_validate(whole)
        return (await commitments.create(self.services, caller, body)).value

    async def _come(self, caller: Caller, armed: Commitment) -> None:
        """Look until the time has come, and once more."""
        serving, known = self.services, commitments.known_commitment
        firing = commitments.Firing(engine=serving.engine)
        try:
            async with asyncio.timeout(LONGEST):
                while (
                    await serving.engine.read(caller, known, armed.id)
                ).state is CommitmentState.ARMED:
                    await asyncio.sleep(LOOK)
                    await firing.step(caller)
        except TimeoutError as error:
            raise Unavailable("The time has not come; try again.") from error
        await firing.step(caller)

    async def _told(self, caller: Caller, armed: Commitment, since: int) -> list[RunEvent]:
        """The events that tell of its firing."""
        fired = RunEventType.FIRED.value
        page = await host_runs.events(self.services, caller, since, MOST_LISTED, type=fired)
        events = [it for it in page.items if isinstance(it, RunEvent)]
        return [it for it in events if it.payload["commitmentId"] == armed.id]
