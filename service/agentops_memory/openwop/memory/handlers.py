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
from ...memory.model.space import MemoryRef
from ...memory.redactor import Redaction
from ...telemetry import Cut, annotate
from ..model.runs import RunId
from ..rules.entries import RefEntries
from . import bodies as b
from . import wire
from .bodies import BODIES
from .queries import FOUND, MOST_FOUND, MOST_LISTED, SHOWN, Asked, entry_in_path, run_in_path

SHOWN_NAME = 100  # code points of a ref, or of an id, in a span


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWop:
    """The handlers of the protocol over the domain."""

    entries: RefEntries
    redaction: Redaction

    async def list_entries(self, request: Request) -> Response:
        asked = Asked(request)
        ref, run, query = asked.ref(), asked.run(), asked.listing()
        asked.done()
        noted(ref, run=run)
        caller = current_caller(request)
        page = await self.entries.list(caller, ref, query, run)
        shown = fitting(written(wire.entry(each)) for each in page.entries)
        annotate({"memory.result_count": len(shown)})
        has_more = page.has_more or len(shown) < len(page.entries)
        last = page.entries[len(shown) - 1] if shown and has_more else None
        following = {} if last is None else {"next": last.cursor}
        return _list("entries", shown, {"memoryRef": self.redaction.echo(caller, ref), **following})

    async def get_entry(self, request: Request) -> Response:
        asked, id_ = Asked(request), entry_in_path(request)
        ref, run = asked.ref(), asked.run()
        asked.done()
        noted(ref, run=run, entry=id_)
        found = await self.entries.get(current_caller(request), ref, id_, run)
        return answered({"memoryRef": ref, "entry": wire.entry(found)})

    async def put_entry(self, request: Request) -> Response:
        given = await BODIES.read(request, b.RefEntryBody)
        draft = wire.draft(given)
        noted(draft.ref, run=given.run_id, node=given.node_id)
        caller, idempotency = await asked_once(request, "put")
        done = await self.entries.put(caller, draft, idempotency=idempotency)
        annotate({"memory.entry.id": Cut(done.value.id, SHOWN_NAME)})
        shown = {"memoryRef": draft.ref, "entry": wire.entry(done.value)}
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
        shown = fitting(written(wire.entry(each.entry)) for each in found)
        annotate({"memory.result_count": len(shown)})
        ranks = [each.rank for each in found[: len(shown)]]
        return _list(
            "entries", shown, {"memoryRef": self.redaction.echo(caller, ref), "ranks": ranks}
        )

    async def get_provenance(self, request: Request) -> Response:
        asked, id_ = Asked(request), entry_in_path(request)
        ref = asked.ref()
        asked.done()
        noted(ref, entry=id_)
        found = await self.entries.provenance(current_caller(request), ref, id_)
        return answered(wire.provenance(found, ref))

    async def list_refs(self, request: Request) -> Response:
        asked = Asked(request)
        limit, after = asked.limit(SHOWN, MOST_LISTED), asked.text("after")
        asked.done()
        caller = current_caller(request)
        refs, has_more = await self.entries.refs(caller, MemoryRef(after or ""), limit)
        annotate({"memory.result_count": len(refs)})
        shown = {"refs": [wire.extent(each) for each in refs]}
        return answered(shown | {"next": refs[-1].ref} if has_more else shown)


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
