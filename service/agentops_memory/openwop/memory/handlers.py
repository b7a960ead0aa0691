"""Each request in three moves: parse, call, render."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from ...http.bodies import JSON, answered, written
from ...http.endpoint import current_caller
from ...http.requests import fitting
from ...memory.idempotency import IdempotentRequest
from ...memory.model.access import Caller
from ...memory.redactor import Redaction
from ...telemetry import Cut, annotate
from ..commitments import Commitments
from ..model.runs import RunId, RunStatus
from ..rules.entries import RefEntries
from ..rules.runs import Runs
from . import bodies as b
from . import wire
from .bodies import BODIES
from .queries import FOUND, MOST_FOUND, MOST_LISTED, SHOWN, Asked, entry_in_path, run_in_path

BEYOND = 2**53  # every sequence
SHOWN_NAME = 100  # code points of a ref, or of an id, in a span


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWop:
    """The handlers of the protocol over the domain."""

    entries: RefEntries
    runs: Runs
    commitments: Commitments
    redaction: Redaction

    async def list_entries(self, request: Request) -> Response:
        asked = Asked(request)
        ref, run, which = asked.ref(), asked.run(), asked.listing()
        asked.done()
        noted(ref, run=run)
        caller = current_caller(request)
        entries, has_more = await self.entries.list(caller, ref, run, **which)
        shown = fitting(each.json_bytes() for each in entries)
        annotate({"memory.result_count": len(shown)})
        has_more = has_more or len(shown) < len(entries)
        last = entries[len(shown) - 1] if shown and has_more else None
        following = {} if last is None else {"next": last.cursor}
        return _list("entries", shown, {"memoryRef": self.redaction.echo(caller, ref), **following})

    async def get_entry(self, request: Request) -> Response:
        asked, id_ = Asked(request), entry_in_path(request)
        ref, run = asked.ref(), asked.run()
        asked.done()
        noted(ref, run=run, entry=id_)
        found = await self.entries.get(current_caller(request), ref, id_, run)
        return answered(
            {
                "memoryRef": ref,
                "entry": found.model_dump(mode="json", by_alias=True, exclude_none=True),
            }
        )

    async def put_entry(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RefEntryBody)
        draft = wire.draft(given)
        noted(draft.ref, run=given.run_id, node=given.node_id)
        caller, idempotency = await asked_once(request, "put")
        done = await self.entries.put(caller, draft, idempotency=idempotency)
        annotate({"memory.entry.id": Cut(done.value.id, SHOWN_NAME)})
        shown = {
            "memoryRef": draft.ref,
            "entry": done.value.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        return answered(shown, 201 if done.is_new else 200, redacted=done.redacted)

    async def delete_entry(self, request: Request) -> Response:
        asked, id_ = Asked(request), entry_in_path(request)
        ref, run = asked.ref(is_read=False), asked.run()
        asked.done()
        noted(ref, run=run, entry=id_)
        caller, idempotency = await asked_once(request, "delete")
        await self.entries.delete(caller, ref, id_, run, idempotency=idempotency)
        return answered(
            {"memoryRef": ref, "memoryId": self.redaction.echo(caller, id_), "removed": True}
        )

    async def search_entries(self, request: Request) -> Response:
        asked = Asked(request)
        ref, text, tag = asked.ref(), asked.words(), asked.tag()
        limit, budget = asked.limit(FOUND, MOST_FOUND), asked.budget()
        asked.done()
        noted(ref)
        caller = current_caller(request)
        found = await self.entries.search(caller, ref, text, tag=tag, limit=limit, budget=budget)
        shown = fitting(each.json_bytes() for each, _ in found)
        annotate({"memory.result_count": len(shown)})
        ranks = [rank for _, rank in found[: len(shown)]]
        return _list(
            "entries", shown, {"memoryRef": self.redaction.echo(caller, ref), "ranks": ranks}
        )

    async def get_provenance(self, request: Request) -> Response:
        asked, id_ = Asked(request), entry_in_path(request)
        ref = asked.ref()
        asked.done()
        noted(ref, entry=id_)
        found = await self.entries.provenance(current_caller(request), ref, id_)
        return Response(found.json_bytes(), media_type=JSON)

    async def list_refs(self, request: Request) -> Response:
        asked = Asked(request)
        limit, after = asked.limit(SHOWN, MOST_LISTED), asked.text("after")
        asked.done()
        caller = current_caller(request)
        refs, has_more = await self.entries.refs(caller, after or "", limit)
        annotate({"memory.result_count": len(refs)})
        shown = {"refs": [each.model_dump(by_alias=True) for each in refs]}
        return answered(shown | {"next": refs[-1].memory_ref} if has_more else shown)

    async def open_run(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RunBody, empty=True)
        caller, idempotency = await asked_once(request, "open_run")
        draft = wire.run_draft(given)
        run, is_new = await self.runs.open(caller, draft, idempotency=idempotency)
        annotate({"openwop.run_id": Cut(run.id, SHOWN_NAME)})
        return answered(wire.opened(run), 201 if is_new else 200)

    async def get_run(self, request: Request) -> Response:
        found = await self.runs.get(current_caller(request), run_of(request))
        return answered(wire.run(found))

    async def register_secret(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RunSecretBody)
        caller = current_caller(request)
        done = await self.runs.register(caller, run_of(request), given.secret_id, given.value)
        return answered({"secretId": given.secret_id, "registered": done})

    async def end_run(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RunEndBody)
        caller, idempotency = await asked_once(request, "end_run")
        status = RunStatus(given.status)
        ended = await self.runs.end(caller, run_of(request), status, idempotency=idempotency)
        return answered(wire.run(ended))

    async def list_run_events(self, request: Request) -> Response:
        asked = Asked(request)
        after, limit = asked.after_sequence(), asked.limit(SHOWN, MOST_LISTED)
        asked.done()
        caller = current_caller(request)
        await self.commitments.fire_due(caller)
        log = await self.runs.log(caller, run_of(request), after, limit)
        shown = fitting(written(wire.event(each)) for each in log.events)
        annotate({"memory.result_count": len(shown)})
        is_complete = log.is_complete and len(shown) == len(log.events)
        return _list("events", shown, {"isComplete": is_complete})

    async def list_events(self, request: Request) -> Response:
        asked = Asked(request)
        after, limit = asked.after_event(), asked.limit(SHOWN, MOST_LISTED)
        type_ = asked.text("type")
        asked.done()
        caller = current_caller(request)
        await self.commitments.fire_due(caller)
        events, following = await self.runs.events(caller, after, limit, type_)
        shown = fitting(written(wire.event(each)) for each in events)
        annotate({"memory.result_count": len(shown)})
        if len(shown) < len(events):
            following = events[len(shown) - 1].offset
        return _list("events", shown, {"next": str(following)})

    async def fork_run(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RunForkBody)
        caller, idempotency = await asked_once(request, "fork_run")
        forked = await self.runs.fork(
            caller,
            run_of(request),
            min(given.from_seq or 0, BEYOND),
            is_branch=given.mode == "branch",
            idempotency=idempotency,
        )
        return answered(wire.forked(forked, given.mode), 201)


def _list(name: str, items: Sequence[bytes], beside: wire.JsonObject) -> Response:
    """Items as they are sent, and what else is told beside them."""
    listed = b'{"' + name.encode() + b'":[' + b",".join(items) + b"],"
    return Response(listed + written(beside)[1:], media_type=JSON)


async def asked_once(request: Request, operation: str) -> tuple[Caller, IdempotentRequest | None]:
    """Whose request it is, and it under its idempotency key, which is of one operation."""
    return await BODIES.caller_and_idempotency(request, holder=f"openwop {operation}")


def run_of(request: Request) -> RunId:
    """The run in the path, which the span tells."""
    run = run_in_path(request)
    annotate({"openwop.run_id": Cut(run, SHOWN_NAME)})
    return run


def noted(
    ref: str, *, run: str | None = None, node: str | None = None, entry: str | None = None
) -> None:
    """What the span tells: names alone, each with its secrets taken out."""
    names = {
        "memory.ref": ref,
        "openwop.run_id": run,
        "openwop.node_id": node,
        "memory.entry.id": entry,
    }
    annotate({name: None if it is None else Cut(it, SHOWN_NAME) for name, it in names.items()})
