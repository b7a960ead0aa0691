"""Commitments: entries with a condition, under which each is told of once."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType
from uuid import UUID

from ...memory.model.memory import MemoryId
from ...memory.model.space import MemoryRef
from .entries import RefEntryId

CommitmentId = NewType("CommitmentId", str)
"""`cmt_` and the digits of the stable id."""

_PREFIX = "cmt_"
_ID = re.compile(f"{_PREFIX}[0-9a-f]{{32}}", re.ASCII)


class ConditionKind(StrEnum):
    TIME = "time"
    PREDICATE = "predicate"


class CommitmentState(StrEnum):
    """Armed, until it has fired or its source is gone; neither of these ever changes."""

    ARMED = "armed"
    FIRED = "fired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """When to fire: at an instant, or with the first live entry of a tag."""

    due_at: datetime | None = None
    tag: str | None = None

    @property
    def kind(self) -> ConditionKind:
        return ConditionKind.PREDICATE if self.due_at is None else ConditionKind.TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentDraft:
    """A condition to be armed for an entry."""

    ref: MemoryRef
    entry: RefEntryId
    condition: Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """A commitment; its state is `cancelled` as soon as its source is not live and current."""

    uid: str
    memory: MemoryId  # its source
    ref: MemoryRef
    entry: RefEntryId
    condition: Condition
    state: CommitmentState
    created_at: datetime
    fired_at: datetime | None = None

    @property
    def id(self) -> CommitmentId:
        return CommitmentId(_PREFIX + self.uid.replace("-", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentQuery:
    """Which commitments are listed, in the order of their ids; `after` is the stable id of one."""

    ref: MemoryRef | None = None
    state: CommitmentState | None = None
    after: str | None = None
    limit: int


def commitment_uid(id_: CommitmentId) -> str | None:
    """The stable id in a public one; None for what is no such id."""
    return str(UUID(id_.removeprefix(_PREFIX))) if _ID.fullmatch(id_) else None
