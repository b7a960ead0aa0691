"""Runs of hosts: their events, and the memory that each sees."""
# ruff: noqa: PLC0414

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType

from ..refs import JsonObject as JsonObject
from ..refs import Offset as Offset
from ..refs import Snapshot as Snapshot

RunId = NewType("RunId", str)
"""A host's name for a run, or `run_` and the digits of a stable id."""


class RunKind(StrEnum):
    """Whose run it is, and of what."""

    HOST = "host"
    PASS = "pass"  # noqa: S105 - what the service did by itself, or was asked for without a run
    REPLAY = "replay"  # a copy of another one's log
    BRANCH = "branch"  # begun where another one was


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunEventType(StrEnum):
    """What a run's log tells; no payload holds content."""

    STARTED = "run.started"
    COMPLETED = "run.completed"
    FAILED = "run.failed"
    CANCELLED = "run.cancelled"
    WRITTEN = "memory.written"
    COMPACTED = "memory.compacted"
    CONSOLIDATED = "agent.memory.consolidated"
    FIRED = "commitment.fired"
    PROPOSED = "proposal.created"
    ACTIVATED = "proposal.activated"
    DELETED = "agentops-memory.memory.deleted"
    FORGOTTEN = "agentops-memory.memory.forgotten"
    UNDONE = "agentops-memory.pass.undone"


# What is told of every run that has failed: why it did is the host's to know.
RUN_FAILED: Mapping[str, str] = {"code": "run_failed", "message": "The run has failed."}

ENDS: Mapping[RunStatus, RunEventType] = {
    RunStatus.COMPLETED: RunEventType.COMPLETED,
    RunStatus.FAILED: RunEventType.FAILED,
    RunStatus.CANCELLED: RunEventType.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDraft:
    """A run to be opened; the refs are those that it is going to use."""

    id: RunId | None = None
    agent: str | None = None
    workflow: str | None = None
    refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run. `heard_at` is when something was last done in it."""

    number: int
    id: RunId
    kind: RunKind
    status: RunStatus
    agent: str | None = None
    workflow: str | None = None
    refs: tuple[str, ...] = ()
    source: RunId | None = None
    from_sequence: int = 0  # of the source, at which a fork begins
    snapshot: Snapshot
    secrets: Mapping[str, int] = field(default_factory=dict)  # how many values each id has
    wrote: tuple[str, ...] = ()  # the refs that it has written to
    started_at: datetime
    heard_at: datetime
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.status is RunStatus.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that happened in a run. A copy keeps the snapshot of what it is copied from."""

    offset: Offset
    uid: str
    run: RunId
    sequence: int  # from 0, without gaps
    type: RunEventType
    payload: JsonObject
    node: str | None
    at: datetime
    snapshot: Snapshot  # memory just after it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """Some events of a run, and whether these are all up to its end."""

    events: Sequence[RunEvent]
    is_complete: bool
