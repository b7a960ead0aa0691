"""OpenWOP in Python: memory of workflow runs, for hosts that mount the service.

`MemoryClient.openwop` is an `OpenWopMemory`, `AsyncMemoryClient.openwop` an
`AsyncOpenWopMemory`. A node of a workflow is given a `MemoryAdapter`.
"""

from .blocking import Entries, OpenWopMemory, Run
from .degradation import memory_degradation
from .entries import AsyncEntries
from .memory import AsyncOpenWopMemory
from .models import (
    EventPage,
    MemoryEntry,
    Provenance,
    RankedEntry,
    RefExtent,
    RefPage,
    RunEvent,
    WrittenBy,
)
from .port import AsyncMemoryAdapter, MemoryAdapter
from .runs import AsyncRun

__all__ = [
    "AsyncEntries",
    "AsyncMemoryAdapter",
    "AsyncOpenWopMemory",
    "AsyncRun",
    "Entries",
    "EventPage",
    "MemoryAdapter",
    "MemoryEntry",
    "OpenWopMemory",
    "Provenance",
    "RankedEntry",
    "RefExtent",
    "RefPage",
    "Run",
    "RunEvent",
    "WrittenBy",
    "memory_degradation",
]
