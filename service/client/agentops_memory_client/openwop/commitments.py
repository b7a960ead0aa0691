"""Commitments: entries whose intention is due at a time, or when a tag is there."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from pydantic import AwareDatetime, ConfigDict

from ..contract.call import Call, instant
from ..contract.errors import Invalid
from .models import CAMEL
from .part import AsyncPart, sent
from .question import asking, noun, parameters, telling

COMMITMENTS = "commitments"

CommitmentState = Literal["armed", "fired", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """A condition of an entry, whose content is the intention; it fires once."""

    __pydantic_config__: ClassVar[ConfigDict] = CAMEL
    id: str
    memory_ref: str
    memory_id: str
    condition: str  # time, or predicate
    due_at: AwareDatetime | None = None
    tag: str | None = None
    state: str
    created_at: AwareDatetime
    fired_at: AwareDatetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentPage:
    """Commitments, oldest first; `next` is what `after` takes, if there are more."""

    commitments: tuple[Commitment, ...]
    next: str | None = None


class AsyncCommitments(AsyncPart):
    """Commitments of a tenant. That one has fired is told in `OpenWopMemory.events`."""

    @sent
    def create(
        self,
        memory_ref: str,
        memory_id: str,
        *,
        due_at: datetime | None = None,
        tag: str | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Commitment]:
        """Arm an entry: it fires once, at `due_at`, or when another entry of the ref has the tag.

        One of both is given; an equal one that is armed is answered again. Invalid for a time
        that is past; NotFound if there is no entry; Refused with `too_many_commitments` when the
        ref has as many armed as it may.
        """
        if (due_at is None) is (tag is None):
            raise Invalid("A commitment is either due at a time, or when a tag is there.")
        fields = {
            "memoryRef": memory_ref, "memoryId": memory_id,
            "condition": "predicate" if due_at is None else "time", "dueAt": instant(due_at),
            "tag": tag,
        }  # fmt: skip
        return telling(
            "create_commitment", COMMITMENTS, body=fields, key=idempotency_key,
            read=noun(Commitment),
        )  # fmt: skip

    @sent
    def list(
        self,
        memory_ref: str | None = None,
        *,
        state: CommitmentState | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Call[CommitmentPage]:
        """Commitments of the ref, or of all, oldest first: at most 1,000, or 100 unless told."""
        query = parameters(memoryRef=memory_ref, state=state, limit=limit, after=after)
        return asking("list_commitments", COMMITMENTS, query=query, read=noun(CommitmentPage))

    @sent
    def get(self, commitment_id: str) -> Call[Commitment]:
        """The commitment. NotFound if there is none."""
        return asking("get_commitment", COMMITMENTS, commitment_id, read=noun(Commitment))

    @sent
    def cancel(self, commitment_id: str, *, idempotency_key: str | None = None) -> Call[Commitment]:
        """Let it not fire; one that has fired stays `fired`. NotFound if there is none."""
        return telling(
            "cancel_commitment", COMMITMENTS, commitment_id, method="DELETE", key=idempotency_key,
            read=noun(Commitment),
        )  # fmt: skip
