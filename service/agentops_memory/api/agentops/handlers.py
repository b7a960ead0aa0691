"""Each request in three moves: parse, call, render."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...domain.errors import Invalid
from ...domain.lifecycle.projects import Projects
from ...domain.lifecycle.receipts import Erasures
from ...domain.memories.memories import Memories
from ...domain.memories.sessions import Sessions
from ...domain.model.erasure import ErasureId
from ...domain.model.memory import MemoryId, SessionId
from ...domain.model.search import Filter, Wanted
from ...domain.model.space import Project, StoreId, project_name
from ...domain.recall.budget import MOST_SHOWN, SHOWN, Budget
from ...domain.recall.recall import Recall
from ...domain.stores.rules import NO_STORE
from ...domain.text.normalization import clean
from ...domain.transfer.transfer import Transfer
from ...telemetry import annotate, event
from ..kit.gate import current_caller
from ..kit.http import (
    amount,
    asks_for,
    is_empty,
    is_true,
    json_object,
    parameter,
    row_count,
    spooled,
    whole_number,
)
from ..kit.idempotency import idempotency_of
from ..kit.ids import STORE, known_uid
from . import answers, exports, imports, spans, transcripts, wire
from . import models as m

ERASURE_ID = "X-Erasure-Id"
MOST_STORES = 8  # of one context


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOps:
    """The handlers of the protocol over the domain."""

    memories: Memories
    sessions: Sessions
    recall: Recall
    transfer: Transfer
    projects: Projects
    erasures: Erasures
    clock: Callable[[], datetime]
    max_upload: int
    folder: Path

    async def create_session(self, request: Request) -> Response:
        given = wire.body(m.SessionBody, await json_object(request))
        idempotency = await idempotency_of(request)
        opened = await self.sessions.open(
            current_caller(request),
            SessionId(given.id),
            project_name(given.project),
            idempotency=idempotency,
        )
        annotate(spans.session(opened.session))
        return answers.json(wire.session_opened(opened.session), 201, redacted=opened.redacted)

    async def append_messages(self, request: Request) -> Response:
        session, project = _session(request)
        given = await json_object(request)
        said = await self.sessions.hear(current_caller(request), transcripts.sent(given))
        idempotency = await idempotency_of(request)
        grown = await self.sessions.append(
            current_caller(request), session, said, project, idempotency=idempotency
        )
        annotate(spans.session(grown.session))
        return answers.nothing(redacted=grown.redacted)

    async def end_session(self, request: Request) -> Response:
        session, project = _session(request)
        async with spooled(request, self.max_upload, self.folder) as file:
            said = await self.sessions.hear(current_caller(request), transcripts.uploaded(file))
        idempotency = await idempotency_of(request)
        ended = await self.sessions.close(
            current_caller(request), session, said, project, idempotency=idempotency
        )
        annotate(spans.session(ended.session))
        return answers.json(wire.session_ended(ended.session), redacted=ended.redacted)

    async def recent_sessions(self, request: Request) -> Response:
        before = parameter(request, "before_id")
        sessions = await self.sessions.recent(
            current_caller(request),
            _project(request),
            row_count(request, "limit", 5),
            SessionId(before) if before else None,
        )
        annotate(spans.project(_project(request)))
        return answers.json_list(map(wire.session_row, sessions), len(sessions))

    async def add_observation(self, request: Request) -> Response:
        draft = wire.draft(wire.body(m.ObservationBody, await json_object(request)))
        idempotency = await idempotency_of(request)
        outcome = await self.memories.save(current_caller(request), draft, idempotency=idempotency)
        annotate(spans.saved(outcome))
        return answers.json(wire.saved(outcome), 201, redacted=outcome.redacted)

    async def recent_observations(self, request: Request) -> Response:
        before = parameter(request, "before_id")
        memories = await self.memories.recent(
            current_caller(request),
            _filter(request),
            row_count(request, "limit", 20),
            None if before is None else MemoryId(whole_number(before, "before_id")),
        )
        annotate(spans.project(_project(request)))
        return answers.json_list(map(wire.observation, memories), len(memories))

    async def get_observation(self, request: Request) -> Response:
        memory = await self.memories.get(current_caller(request), _memory_id(request))
        annotate(spans.observation(memory))
        return answers.json(wire.observation(memory))

    async def observation_history(self, request: Request) -> Response:
        revisions = await self.memories.history(current_caller(request), _memory_id(request))
        annotate({"memory.observation.id": _memory_id(request)})
        return answers.json_list(map(wire.revision, revisions), len(revisions))

    async def restore_observation(self, request: Request) -> Response:
        memory_id = _memory_id(request)
        given = wire.body(m.RestoreBody, await json_object(request))
        idempotency = await idempotency_of(request)
        restored = await self.memories.restore(
            current_caller(request), memory_id, given.revision, idempotency=idempotency
        )
        annotate(spans.observation(restored.memory))
        return answers.json(wire.observation(restored.memory), redacted=restored.redacted)

    async def update_observation(self, request: Request) -> Response:
        memory_id = _memory_id(request)
        change = wire.change(wire.body(m.ChangeBody, await json_object(request)))
        idempotency = await idempotency_of(request)
        amended = await self.memories.amend(
            current_caller(request), memory_id, change, idempotency=idempotency
        )
        annotate(spans.observation(amended.memory))
        return answers.json(wire.observation(amended.memory), redacted=amended.redacted)

    async def delete_observation(self, request: Request) -> Response:
        memory_id, hard = _memory_id(request), is_true(request, "hard")
        annotate(spans.deleted(memory_id, hard=hard))
        idempotency = await idempotency_of(request)
        if not hard:
            await self.memories.forget(current_caller(request), memory_id, idempotency=idempotency)
            return Response(status_code=204)
        erasure = await self.memories.erase(
            current_caller(request), memory_id, idempotency=idempotency
        )
        return Response(status_code=204, headers={ERASURE_ID: erasure} if erasure else None)

    async def delete_project(self, request: Request) -> Response:
        project, caller = project_name(clean(request.path_params["name"])), current_caller(request)
        annotate(spans.project(project))
        is_dry = asks_for(request, "dry_run")
        if not asks_for(request, "hard"):
            raise Invalid("A project is erased for good: say hard=true, with dry_run=true to see.")
        if is_dry:
            extent = await self.projects.plan_erasure(caller, project)
            return answers.json(wire.erasure_plan(project, extent))
        erasure = await self.projects.erase(caller, project)
        receipt = await self.erasures.get(caller, erasure.id)
        return answers.json(wire.erasure(receipt), headers={ERASURE_ID: erasure.id})

    async def get_erasure(self, request: Request) -> Response:
        erasure = ErasureId(clean(request.path_params["id"]))
        receipt = await self.erasures.get(current_caller(request), erasure)
        annotate(spans.project(receipt.erasure.project))
        return answers.json(wire.erasure(receipt))

    async def search(self, request: Request) -> Response:
        text, seen = parameter(request, "q") or "", _filter(request, global_too=True)
        wanted = _wanted(request)
        found = await self.recall.search(
            current_caller(request), text, seen, row_count(request, "limit", 10), wanted
        )
        annotate(spans.search(text, seen, found))
        for attributes in spans.injected(found.hits):
            event("search.result", attributes)
        return answers.search(found, wanted)

    async def fetch_context(self, request: Request) -> Response:
        text, seen = parameter(request, "query") or "", _filter(request, global_too=True)
        wanted, budget = _wanted(request), _budget(request)
        told = await self.recall.context(
            current_caller(request), text, seen, row_count(request, "limit", 5),
            budget=budget, wanted=wanted, stores=_stores(request),
        )  # fmt: skip
        annotate(spans.context(text, seen, told) | spans.budget(budget, told))
        for attributes in spans.injected(told.found.hits):
            event("context.injected", attributes)
        return answers.context(told, budget, wanted)

    async def timeline(self, request: Request) -> Response:
        memory_id = MemoryId(whole_number(parameter(request, "observation_id"), "observation_id"))
        memories = await self.recall.timeline(
            current_caller(request),
            memory_id,
            row_count(request, "before", 3),
            row_count(request, "after", 3),
        )
        annotate({"memory.observation.id": memory_id})
        centre = [memory.id for memory in memories].index(memory_id)
        return answers.json_around(centre, map(wire.timeline_entry, memories))

    async def stats(self, request: Request) -> Response:
        totals = await self.recall.totals(current_caller(request), _project(request))
        annotate(spans.project(_project(request)))
        return answers.json(wire.stats(totals))

    async def export(self, request: Request) -> Response:
        annotate(spans.project(_project(request)))
        pieces = exports.document(
            self.transfer, current_caller(request), _project(request), self.clock()
        )
        # Read before the answer begins, so that a database that cannot be read is a refusal.
        first = await anext(pieces)
        return StreamingResponse(_continued(request, first, pieces), media_type=answers.JSON)

    async def import_all(self, request: Request) -> Response:
        is_dry = asks_for(request, "dry_run")
        async with spooled(request, self.max_upload, self.folder) as file:
            if is_empty(file):
                raise Invalid("invalid JSON: the body is empty.")
            document = imports.Document(file, self.clock())
            await asyncio.to_thread(document.check)
            if is_dry:
                plan = await self.transfer.plan_import(current_caller(request), document)
                annotate(spans.import_plan(plan))
                return answers.json(wire.import_plan(plan))
            counts = await self.transfer.import_all(current_caller(request), document)
        annotate(spans.imported(counts))
        return answers.json(wire.imported(counts), redacted=counts.redacted)


async def _continued(
    request: Request, first: bytes, pieces: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        current_caller(request)  # refuses by now, perhaps: then nothing more is told
        yield piece


def _project(request: Request) -> Project | None:
    return project_name(parameter(request, "project") or "") or None


def _session(request: Request) -> tuple[SessionId, Project | None]:
    """The session that the path names, and the project of one not known yet."""
    project = _project(request)
    given = wire.body(m.NamedSession, {"id": request.path_params["id"], "project": project})
    return SessionId(given.id), project


def _filter(request: Request, *, global_too: bool = False) -> Filter:
    return Filter(
        project=_project(request),
        scope=parameter(request, "scope"),
        type=parameter(request, "type"),
        tag=parameter(request, "tag"),
        global_too=global_too,
    )


def _wanted(request: Request) -> Wanted:
    memory = parameter(request, "why_not")
    return Wanted(
        explain=is_true(request, "explain"),
        why_not=None if memory is None else MemoryId(whole_number(memory, "why_not")),
    )


def _budget(request: Request) -> Budget:
    shown = amount(request, "content_chars", least=1)
    return Budget(
        max_tokens=amount(request, "max_tokens"),
        max_chars=amount(request, "max_chars"),
        content_chars=SHOWN if shown is None else min(shown, MOST_SHOWN),
    )


def _stores(request: Request) -> list[StoreId]:
    shown = dict.fromkeys(filter(None, (parameter(request, "stores") or "").split(",")))
    if len(shown) > MOST_STORES:
        raise Invalid(f"stores names at most {MOST_STORES} memory stores.")
    return [StoreId(known_uid(STORE, id_.strip(), NO_STORE)) for id_ in shown]


def _memory_id(request: Request) -> MemoryId:
    return MemoryId(whole_number(request.path_params["id"], "id"))
