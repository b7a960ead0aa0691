"""OpenWOP's JSON for passes, their index and erasures. Pure."""

from ...memory.model.erasure import Receipt
from ...memory.model.space import MemoryRef
from ...recall.text.normalization import sha256_of
from ..memory.wire import JsonObject, present, rendered
from ..model.passes import Archive, ArchiveIndex, Distilled, Forgotten, Merge, PassDone, Undone
from ..refs import RefEntryId
from .bodies import MergeBody

INDEX_VERSION = 1


def merge(given: MergeBody) -> Merge:
    ids = tuple(map(RefEntryId, given.ids))
    return Merge(ids=ids, content=given.content, tags=tuple(given.tags))


def done(of: PassDone) -> JsonObject:
    return {"runId": of.run, "event": {"type": of.type.value, "payload": dict(of.payload)}}


def distilled(of: Distilled) -> JsonObject:
    return done(of) | {"archiveChecksum": of.checksum, "created": of.is_new}


def undone(of: Undone) -> JsonObject:
    return {"runId": of.run, "restored": of.restored, "removed": of.removed}


def index(of: ArchiveIndex, ref: MemoryRef) -> JsonObject:
    archives = [_archive(each, ref) for each in of.archives]
    newest = archives[0] if archives else {}
    return present({
        "version": INDEX_VERSION,
        "archiveChecksum": newest.get("archiveChecksum"),
        "entryCount": of.total,
        "updatedAt": newest.get("createdAt"),
        "archives": archives,
    })  # fmt: skip


def forgotten(of: Forgotten, subject: str, *, dry_run: bool) -> JsonObject:
    return present({
        "subject": subject,
        "entries": of.entries,
        "archives": of.archives,
        "restored": of.restored,
        "commitments": of.commitments,
        "erasureId": of.erasure,
        "dryRun": True if dry_run else None,
    })  # fmt: skip


def erasure(of: Receipt) -> JsonObject:
    erased = of.erasure
    gone = erased.bytes_gone_at
    return present({
        "erasureId": erased.id,
        "entries": erased.observations,
        "erasedAt": rendered(erased.erased_at),
        "bytesGoneAt": None if gone is None else rendered(gone),
        "notReached": list(of.copies_not_reached),
    })  # fmt: skip


def _archive(of: Archive, ref: MemoryRef) -> JsonObject:
    return {
        "memoryRef": ref,
        "memoryId": of.entry.id,
        "archiveChecksum": sha256_of(of.entry.content),
        "entryCount": of.sources,
        "from": rendered(of.first_at),
        "to": rendered(of.last_at),
        "createdAt": rendered(of.entry.created_at),
    }
