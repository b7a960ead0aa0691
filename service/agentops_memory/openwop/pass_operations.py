"""The operations of passes and of forgetting: bodies, answers, handlers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from ..http.bodies import WRITTEN, Instant, answered, present
from ..http.endpoint import current_caller
from ..http.faults import fault, fault_of
from ..http.paging import instant
from ..http.protocol import Operation, Parameter
from ..memory.idempotency import IdempotentRequest
from ..memory.model.access import Caller, Role
from ..memory.model.erasure import ErasureId, Receipt
from ..memory.model.space import MemoryRef
from ..memory.redactor import Redaction
from ..recall.text.normalization import sha256_of
from ..record import CamelRecord, milliseconds
from ..telemetry import Cut, annotate
from .api import BASE, BODIES, LONGEST_IN_SPAN, Query, note, text_in_path
from .consolidation import MOST_MERGED
from .fields import CAMEL, ContentText, EntryName, Exact, MemoryRefText, Tags, Zoned
from .pass_records import Archive, ArchiveIndex, Distilled, Forgotten, Merge, PassDone, Undone
from .passes import Passes
from .refs import LONGEST_ID, RefEntryId
from .runs import RunId
from .subjects import Forgetting

MOST_MERGES = 100


def _each_once(ids: list[str]) -> list[str]:
    if len(set(ids)) < len(ids):
        raise fault("must name each entry once")
    return ids


class CompactBody(BaseModel):
    """A ref whose oldest entries an archive takes the place of."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    content: ContentText | None = None
    keep_sources: bool = False


class DistillBody(BaseModel):
    """A ref whose entries an archive tells of, within a budget of tokens."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    token_budget: Annotated[int, Field(ge=1)] | None = None
    content: ContentText | None = None
    recursive: bool = False
    expires_at: Zoned | None = None


class MergeBody(BaseModel):
    """Entries that become one, and what it says."""

    model_config = CAMEL
    ids: Annotated[
        list[EntryName],
        Field(min_length=MOST_MERGED.start, max_length=MOST_MERGED.stop - 1),
        AfterValidator(_each_once),
    ]
    content: ContentText
    tags: Tags = []


class ConsolidateBody(BaseModel):
    """A ref whose entries are to stand for what they say, too."""

    model_config = CAMEL
    memory_ref: MemoryRefText
    merges: Annotated[list[MergeBody], Field(max_length=MOST_MERGES)] = []

    @model_validator(mode="after")
    def _together(self) -> "ConsolidateBody":
        ids = [it for merge in self.merges for it in merge.ids]
        if len(set(ids)) < len(ids):
            raise fault_of("merges", "must name each entry once")
        return self


class ForgetBody(BaseModel):
    """Whom to forget."""

    model_config = CAMEL
    subject: Annotated[str, Field(min_length=1, max_length=LONGEST_ID), Exact]
    dry_run: bool = False


class PassEvent(CamelRecord):
    """The event that tells of a pass."""

    type: Literal["memory.compacted", "agent.memory.consolidated"]
    payload: dict[str, Any]


class PassObject(CamelRecord):
    """A pass that was made: its run, and the event that tells of it."""

    run_id: str
    event: PassEvent


class DistilledObject(PassObject):
    """The same of a distillation; `created` is false where the archive was there."""

    archive_checksum: str
    created: bool


class UndonePass(CamelRecord):
    """What an undo has brought back, and taken away."""

    run_id: str
    restored: int
    removed: int


class IndexedArchive(CamelRecord):
    """An archive: of how many entries it was made, and when these were put."""

    memory_ref: str
    memory_id: str
    archive_checksum: str
    entry_count: int
    from_: Instant = Field(alias="from")
    to: Instant
    created_at: Instant


class MemoryIndex(CamelRecord):
    """`MEMORY-INDEX.json`: the live archives of a ref, newest first, without their content."""

    version: Literal[1]
    archive_checksum: str | None = None
    entry_count: int
    updated_at: Instant | None = None
    archives: list[IndexedArchive]


class ForgottenSubject(CamelRecord):
    """What was erased of a subject; no receipt where there was nothing."""

    subject: str
    entries: int
    archives: int
    restored: int
    commitments: int
    erasure_id: str | None = None
    dry_run: Literal[True] | None = None


class RefErasureReceipt(CamelRecord):
    """An erasure, when its bytes were gone, and where they may still be."""

    erasure_id: str
    entries: int
    erased_at: Instant
    bytes_gone_at: Instant | None = None
    not_reached: list[str]


JsonObject = dict[str, Any]

INDEX_VERSION = 1


def merge_of(given: MergeBody) -> Merge:
    ids = tuple(map(RefEntryId, given.ids))
    return Merge(ids=ids, content=given.content, tags=tuple(given.tags))


def done_json(of: PassDone) -> JsonObject:
    return {"runId": of.run, "event": {"type": of.type.value, "payload": dict(of.payload)}}


def distilled_json(of: Distilled) -> JsonObject:
    return done_json(of) | {"archiveChecksum": of.checksum, "created": of.is_new}


def undone_json(of: Undone) -> JsonObject:
    return {"runId": of.run, "restored": of.restored, "removed": of.removed}


def index_json(of: ArchiveIndex, ref: MemoryRef) -> JsonObject:
    archives = [_archive(each, ref) for each in of.archives]
    newest = archives[0] if archives else {}
    return present({
        "version": INDEX_VERSION,
        "archiveChecksum": newest.get("archiveChecksum"),
        "entryCount": of.total,
        "updatedAt": newest.get("createdAt"),
        "archives": archives,
    })  # fmt: skip


def forgotten_json(of: Forgotten, subject: str, *, dry_run: bool) -> JsonObject:
    return present({
        "subject": subject,
        "entries": of.entries,
        "archives": of.archives,
        "restored": of.restored,
        "commitments": of.commitments,
        "erasureId": of.erasure,
        "dryRun": True if dry_run else None,
    })  # fmt: skip


def erasure_json(of: Receipt) -> JsonObject:
    erased = of.erasure
    gone = erased.bytes_gone_at
    return present({
        "erasureId": erased.id,
        "entries": erased.observations,
        "erasedAt": milliseconds(erased.erased_at),
        "bytesGoneAt": None if gone is None else milliseconds(gone),
        "notReached": list(of.copies_not_reached),
    })  # fmt: skip


def _archive(of: Archive, ref: MemoryRef) -> JsonObject:
    return {
        "memoryRef": ref,
        "memoryId": of.entry.id,
        "archiveChecksum": sha256_of(of.entry.content),
        "entryCount": of.sources,
        "from": milliseconds(of.first_at),
        "to": milliseconds(of.last_at),
        "createdAt": milliseconds(of.entry.created_at),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PassHandlers:
    """The handlers over the domain."""

    passes: Passes
    forgetting: Forgetting
    redaction: Redaction

    async def compact(self, request: Request) -> Response:
        given = await BODIES.read(request, CompactBody)
        note({"body": given})
        caller, idempotency = await _asked_once(request, "compact")
        done = await self.passes.compact(
            caller,
            MemoryRef(given.memory_ref),
            content=given.content,
            keep_sources=given.keep_sources,
            idempotency=idempotency,
        )
        return _answered(done, done_json(done))

    async def distill(self, request: Request) -> Response:
        given = await BODIES.read(request, DistillBody)
        note({"body": given})
        caller, idempotency = await _asked_once(request, "distill")
        done = await self.passes.distill(
            caller,
            MemoryRef(given.memory_ref),
            budget=given.token_budget,
            content=given.content,
            recursive=given.recursive,
            expires_at=None if given.expires_at is None else instant(given.expires_at),
            idempotency=idempotency,
        )
        return _answered(done, distilled_json(done))

    async def consolidate(self, request: Request) -> Response:
        given = await BODIES.read(request, ConsolidateBody)
        note({"body": given})
        caller, idempotency = await _asked_once(request, "consolidate")
        merges = list(map(merge_of, given.merges))
        ref = MemoryRef(given.memory_ref)
        done = await self.passes.consolidate(caller, ref, merges, idempotency=idempotency)
        return _answered(done, done_json(done))

    async def undo(self, request: Request) -> Response:
        caller, idempotency = await _asked_once(request, "undo")
        run = RunId(text_in_path(request, "runId"))
        note({"run_id": run})
        undone = await self.passes.undo(caller, run, idempotency=idempotency)
        return answered(undone_json(undone))

    async def index(self, request: Request) -> Response:
        query = Query(request)
        ref = MemoryRef(query.ref("memoryRef") or "")
        if not ref:
            query.fault("memoryRef", "is required")
        query.done()
        note({"memory_ref": ref})
        found = await self.passes.index(current_caller(request), ref)
        annotate({"memory.result_count": len(found.archives)})
        return answered(index_json(found, ref))

    async def forget(self, request: Request) -> Response:
        given = await BODIES.read(request, ForgetBody)
        caller, idempotency = await _asked_once(request, "forget")
        done = await self.forgetting.forget(
            caller, given.subject, dry_run=given.dry_run, idempotency=idempotency
        )
        subject = self.redaction.echo(caller, given.subject)
        return answered(forgotten_json(done, subject, dry_run=given.dry_run))

    async def get_erasure(self, request: Request) -> Response:
        id_ = ErasureId(text_in_path(request, "erasureId"))
        return answered(erasure_json(await self.forgetting.receipt(current_caller(request), id_)))


async def _asked_once(request: Request, operation: str) -> tuple[Caller, IdempotentRequest | None]:
    """Whose request it is, and it under its idempotency key, which is of one operation."""
    return await BODIES.caller_and_idempotency(request, holder=f"openwop {operation}")


def _answered(done: PassDone, shown: JsonObject) -> Response:
    told = done.payload
    counts: dict[str, Any] = {
        "openwop.run_id": Cut(done.run, LONGEST_IN_SPAN),
        "memory.pass.input_count": told.get("inputCount", told.get("sourceCount")),
        "memory.pass.output_count": told.get("outputCount"),
        "memory.pass.output_bytes": told.get("byteSize"),
    }
    distillation = told.get("distillation")
    if isinstance(distillation, dict):
        counts["memory.pass.tokens_used"] = distillation["tokensUsed"]
    annotate({name: value for name, value in counts.items() if value is not None})
    return answered(shown, redacted=done.redacted)


def operations(passes: Passes, forgetting: Forgetting, redaction: Redaction) -> Sequence[Operation]:
    """Every operation of passes, and of what is forgotten."""
    api = PassHandlers(passes=passes, forgetting=forgetting, redaction=redaction)
    return (
        Operation(
            method="POST", path=f"{BASE}/compact", name="openwop_compact", role=Role.WRITER,
            summary="Put an archive in the place of the oldest entries of a ref.",
            handler=api.compact, body=CompactBody, answer=PassObject, takes_key=True,
            headers=WRITTEN, refusals=(409,),
        ),
        Operation(
            method="POST", path=f"{BASE}/distill", name="openwop_distill", role=Role.WRITER,
            summary="Put an archive of the entries of a ref within a budget; these stay.",
            handler=api.distill, body=DistillBody, answer=DistilledObject, takes_key=True,
            headers=WRITTEN, refusals=(409, 422),
        ),
        Operation(
            method="POST", path=f"{BASE}/consolidate", name="openwop_consolidate",
            role=Role.WRITER,
            summary="Let entries of a ref stand for what they say, too; no word is lost.",
            handler=api.consolidate, body=ConsolidateBody, answer=PassObject, takes_key=True,
            headers=WRITTEN, refusals=(409, 422),
        ),
        Operation(
            method="POST", path=f"{BASE}/passes/{{runId}}/undo", name="openwop_undo",
            role=Role.WRITER, summary="Take back what a pass has done, wholly or not at all.",
            handler=api.undo, answer=UndonePass, takes_key=True, refusals=(404, 409),
        ),
        Operation(
            method="GET", path=f"{BASE}/index", name="openwop_index", role=Role.READER,
            summary="The live archives of a ref, newest first, without their content.",
            handler=api.index, answer=MemoryIndex,
            query=(Parameter(name="memoryRef", help="The ref.", required=True),),
        ),
        Operation(
            method="POST", path=f"{BASE}/forget", name="openwop_forget", role=Role.ADMIN,
            summary="Erase whatever is about a subject, with what was made of it.",
            handler=api.forget, body=ForgetBody, answer=ForgottenSubject, takes_key=True,
        ),
        Operation(
            method="GET", path=f"{BASE}/erasures/{{erasureId}}", name="openwop_get_erasure",
            role=Role.READER, summary="The receipt of an erasure, and whether its bytes are gone.",
            handler=api.get_erasure, answer=RefErasureReceipt, refusals=(404,),
        ),
    )  # fmt: skip
