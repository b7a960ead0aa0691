"""Moved."""
# ruff: noqa: PLC0414

from ..refs import JsonObject as JsonObject
from ..refs import Offset as Offset
from ..refs import Snapshot as Snapshot
from ..runs import ENDS as ENDS
from ..runs import Run as Run
from ..runs import RunEvent as RunEvent
from ..runs import RunEventType as RunEventType
from ..runs import RunId as RunId
from ..runs import RunKind as RunKind
from ..runs import RunStatus as RunStatus
