"""Passes as a suite asks for them: over texts that it brings, or that an empty ref is given."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_hex
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from agentops_memory.errors import NotFound
from agentops_memory.http.bodies import answered, written
from agentops_memory.http.gate import current_caller
from agentops_memory.memory.access import Caller
from agentops_memory.memory.space import MemoryRef
from agentops_memory.openwop import archives, consolidation, host_runs, routes
from agentops_memory.openwop.api import BODIES, RefEntryId, Serving
from agentops_memory.openwop.archives import CompactBody, DistillBody
from agentops_memory.openwop.consolidation import ConsolidateBody
from agentops_memory.openwop.entries import RefEntry
from agentops_memory.openwop.host_runs import RunBody, RunEndBody, RunSecretBody
from agentops_memory.openwop.routes import MOST_ENTRIES

from . import bodies as b
from .requests import asked_once
from .seeding import RefDraft, Seed, Seeding

SINCE = datetime(2026, 1, 1, tzinfo=UTC)  # when the first source was put, on any day it is
SECOND = timedelta(seconds=1)
DISTILLED = "mem://conformance/distilled/"
CANARY = "conformance-canary"

CORPUS = (
    "The checkout timed out behind the proxy. The provider needs up to 12 s.",
    "The timeout of the proxy was raised to 30 s. The provider needs up to 12 s.",
    "A customer asked about pricing tiers. The checkout works again.",
)
DUPLICATES = (
    "The checkout needs 12 s.", "The checkout needs 12 s.", "The proxy waits for 30 s.",
    "The checkout needs 12 s. The proxy waits for 30 s.",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SeamPasses:
    """The handlers of passes over the domain."""

    services: Serving
    seeding: Seeding

    async def compact(self, request: Request) -> Response:
        given = await BODIES.read(request, b.SeamRefBody)
        ref = MemoryRef(given.memory_ref)
        caller = await asked_once(request, "seam_compact")
        body = CompactBody(memory_ref=ref)
        done = await archives.compact(self.services, caller, body)
        event = done.value.event
        output = RefEntryId(str(event.payload["outputId"]))
        archive = await self._content(caller, ref, output)
        shown = {"type": event.type, "payload": event.payload, "outputContent": archive}
        return answered(shown, redacted=done.redacted)

    async def distill(self, request: Request) -> Response:
        given = await BODIES.read(request, b.SeamDistillBody)
        ref, caller = MemoryRef(given.memory_ref), current_caller(request)
        contents: Sequence[str] = CORPUS
        if given.sources is not None:  # by what is stored: no digest of a secret is kept
            contents = given.contents
            clean = await self.seeding.clean(caller, contents)
            ref = MemoryRef(DISTILLED + sha256(written(list(clean))).hexdigest())
        redacted = await self._fill(caller, ref, contents)
        body = DistillBody(memory_ref=ref, token_budget=given.token_budget)
        done = await archives.distill(self.services, caller, body)
        shown = {
            "event": done.value.event.payload,
            "archiveChecksum": done.value.archive_checksum,
            "indexUpdated": False,
        }
        return answered(shown, redacted=redacted + done.redacted)

    async def consolidate(self, request: Request) -> Response:
        given = await BODIES.read(request, b.SeamConsolidateBody)
        ref, caller = MemoryRef(given.memory_ref), current_caller(request)
        await self._fill(caller, ref, DUPLICATES)
        if not given.include_secret_canary:
            return answered({"event": await self._consolidated(caller, ref)})
        async with self._planted(caller, ref) as (value, planted):
            event = await self._consolidated(caller, ref)
            found = [await self._content(caller, ref, id_) for id_ in planted]
            found += await self._contents(caller, ref)
            return answered({"event": event, "secretLeaked": any(value in it for it in found)})

    async def _consolidated(self, caller: Caller, ref: MemoryRef) -> dict[str, object]:
        done = await consolidation.consolidate(
            self.services, caller, ConsolidateBody(memory_ref=ref)
        )
        return {name: done.value.event.payload[name] for name in ("inputCount", "outputCount")}

    async def _fill(self, caller: Caller, ref: MemoryRef, contents: Sequence[str]) -> int:
        """Put texts into a ref that is empty, as if at other times; how many secrets went."""
        if await self._contents(caller, ref):
            return 0
        seeds = [
            Seed(
                draft=RefDraft(ref=ref, content=content, id=RefEntryId(f"source-{number}")),
                at=SINCE + number * SECOND,
            )
            for number, content in enumerate(contents)
        ]
        return (await self.seeding.seed(caller, seeds)).redacted

    @asynccontextmanager
    async def _planted(
        self, caller: Caller, ref: MemoryRef
    ) -> AsyncIterator[tuple[str, Sequence[RefEntryId]]]:
        """A value that two entries hold, as if the screen had not known it; a run tells it now.

        Whatever comes of the entries, they are gone afterwards.
        """
        serving, value = self.services, token_hex(16)
        opening = RunBody.model_validate({"memoryRefs": [ref]})
        opened = await host_runs.open_run(serving, caller, opening)
        run = opened.value.run_id
        seed = Seed(draft=RefDraft(ref=ref, content=f"The nightly job logs in with {value}."))
        planted: list[RefEntryId] = []
        try:
            planted += [it.id for it in await self.seeding.plant(caller, [seed, seed])]
            body = RunSecretBody.model_validate({"secretId": CANARY, "value": value})
            await host_runs.register(serving, caller, run, body)
            yield value, planted
        finally:
            for id_ in planted:
                with suppress(NotFound):
                    await routes.delete(serving, caller, memory_id=id_, memory_ref=ref)
            await host_runs.end(serving, caller, run, RunEndBody(status="completed"))

    async def _content(self, caller: Caller, ref: MemoryRef, id_: RefEntryId) -> str:
        try:
            one = await routes.get(self.services, caller, memory_id=id_, memory_ref=ref)
            return one.entry.content
        except NotFound:
            return ""

    async def _contents(self, caller: Caller, ref: MemoryRef) -> list[str]:
        """What the newest entries say."""
        page = await routes.list_entries(self.services, caller, memory_ref=ref, limit=MOST_ENTRIES)
        return [each.content for each in cast("Sequence[RefEntry]", page.items)]
