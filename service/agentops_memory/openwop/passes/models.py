"""The shapes of answers about passes and erasures, as OpenAPI describes them."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from ...http.bodies import Instant
from ..memory.models import CAMEL


class PassEvent(BaseModel):
    """The event that tells of a pass."""

    type: Literal["memory.compacted", "agent.memory.consolidated"]
    payload: dict[str, Any]


class PassObject(BaseModel):
    """A pass that was made: its run, and the event that tells of it."""

    model_config = CAMEL
    run_id: str
    event: PassEvent


class DistilledObject(PassObject):
    """The same of a distillation; `created` is false where the archive was there."""

    archive_checksum: str
    created: bool


class UndonePass(BaseModel):
    """What an undo has brought back, and taken away."""

    model_config = CAMEL
    run_id: str
    restored: int
    removed: int


class IndexedArchive(BaseModel):
    """An archive: of how many entries it was made, and when these were put."""

    model_config = CAMEL
    memory_ref: str
    memory_id: str
    archive_checksum: str
    entry_count: int
    from_: Instant = Field(alias="from")
    to: Instant
    created_at: Instant


class MemoryIndex(BaseModel):
    """`MEMORY-INDEX.json`: the live archives of a ref, newest first, without their content."""

    model_config = CAMEL
    version: Literal[1]
    archive_checksum: str | None = None
    entry_count: int
    updated_at: Instant | None = None
    archives: list[IndexedArchive]


class ForgottenSubject(BaseModel):
    """What was erased of a subject; no receipt where there was nothing."""

    model_config = CAMEL
    subject: str
    entries: int
    archives: int
    restored: int
    commitments: int
    erasure_id: str | None = None
    dry_run: Literal[True] | None = None


class RefErasureReceipt(BaseModel):
    """An erasure, when its bytes were gone, and where they may still be."""

    model_config = CAMEL
    erasure_id: str
    entries: int
    erased_at: Instant
    bytes_gone_at: Instant | None = None
    not_reached: list[str]
