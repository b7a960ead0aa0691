"""OpenWOP in Python: memory of workflow runs, for hosts that mount the service.

`MemoryClient.openwop` is an `OpenWopMemory`, `AsyncMemoryClient.openwop` an
`AsyncOpenWopMemory`. A node of a workflow is given a `MemoryAdapter`.
"""

from .blocking import Commitments, Entries, OpenWopMemory, Proposals, Run
from .commitments import AsyncCommitments, Commitment, CommitmentPage
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
from .passes import (
    Compaction,
    Consolidation,
    Distillation,
    Erasure,
    Forgotten,
    IndexedArchive,
    MemoryIndex,
    Merge,
    Undone,
)
from .port import AsyncMemoryAdapter, MemoryAdapter
from .proposals import (
    ArtifactPage,
    AsyncProposals,
    InstalledArtifact,
    Proposal,
    ProposalActivation,
    ProposalOwner,
    ProposalPage,
    ProposalProvenance,
)
from .runs import AsyncRun

__all__ = [
    "ArtifactPage",
    "AsyncCommitments",
    "AsyncEntries",
    "AsyncMemoryAdapter",
    "AsyncOpenWopMemory",
    "AsyncProposals",
    "AsyncRun",
    "Commitment",
    "CommitmentPage",
    "Commitments",
    "Compaction",
    "Consolidation",
    "Distillation",
    "Entries",
    "Erasure",
    "EventPage",
    "Forgotten",
    "IndexedArchive",
    "InstalledArtifact",
    "MemoryAdapter",
    "MemoryEntry",
    "MemoryIndex",
    "Merge",
    "OpenWopMemory",
    "Proposal",
    "ProposalActivation",
    "ProposalOwner",
    "ProposalPage",
    "ProposalProvenance",
    "Proposals",
    "Provenance",
    "RankedEntry",
    "RefExtent",
    "RefPage",
    "Run",
    "RunEvent",
    "Undone",
    "WrittenBy",
    "memory_degradation",
]
