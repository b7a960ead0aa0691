"""The shapes of answers about commitments, as OpenAPI describes them."""

from typing import Literal

from pydantic import BaseModel

from ...http.bodies import Instant
from ..memory.models import CAMEL


class CommitmentObject(BaseModel):
    """A commitment: an entry, its condition, and what has become of it."""

    model_config = CAMEL
    id: str
    memory_ref: str
    memory_id: str
    condition: Literal["time", "predicate"]
    due_at: Instant | None = None
    tag: str | None = None
    state: Literal["armed", "fired", "cancelled"]
    created_at: Instant
    fired_at: Instant | None = None


class ListedCommitments(BaseModel):
    """Commitments; `next` is the id to go on with."""

    commitments: list[CommitmentObject]
    next: str | None = None
