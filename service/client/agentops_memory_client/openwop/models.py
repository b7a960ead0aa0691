"""What is answered of memory refs, runs, passes, commitments and proposals, as frozen nouns.

Names and meanings are OpenWOP's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, dataclass_transform

from pydantic import AwareDatetime, ConfigDict, Field
from pydantic.alias_generators import to_camel

__all__ = [
    "ArtifactPage", "Commitment", "CommitmentPage", "Compaction", "Consolidation", "Distillation",
    "Erasure", "EventPage", "Forgotten", "IndexedArchive", "InstalledArtifact", "MemoryEntry",
    "MemoryIndex", "Merge", "Proposal", "ProposalActivation", "ProposalOwner", "ProposalPage",
    "ProposalProvenance", "Provenance", "RankedEntry", "RefExtent", "RefPage", "RunEvent",
    "Undone", "WrittenBy", "memory_degradation",
]  # fmt: skip

BACKEND = "long-term"  # a value of memoryBackends; the dimension has another name
# What a shape can ask for, of the eight dimensions.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "scratchpad": ("read", "write"),
    "conversation": ("read", "write"),
    "longTerm": ("read", "write", "long-term-durability"),
}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Noun:
    """Each is a frozen dataclass, made by keywords, and read by the protocol's names of fields."""

    __pydantic_config__: ClassVar = ConfigDict(alias_generator=to_camel)

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class MemoryEntry(Noun):
    """An entry of a memory ref, which never changes; the id is unique within the ref."""

    id: str
    content: str
    tags: tuple[str, ...]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None


class RankedEntry(Noun):
    entry: MemoryEntry
    rank: float  # the lower, the better


class WrittenBy(Noun):
    run_id: str | None = None
    node_id: str | None = None
    agent_id: str | None = None


class Provenance(Noun):
    """Where an entry comes from: who wrote it, of what it was made, and what replaces it."""

    memory_ref: str
    memory_id: str
    written_by: WrittenBy
    method: str  # put, or how it was derived
    derived_from: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    seen: int
    last_seen_at: AwareDatetime


class RefExtent(Noun):
    memory_ref: str
    entries: int
    bytes: int


class RefPage(Noun):
    refs: tuple[RefExtent, ...]
    next: str | None = None  # what `after` takes, if there are more; so in every page


class RunEvent(Noun):
    """What happened in a run, without the content of memory; sequences have no gaps."""

    event_id: str
    run_id: str
    type: str
    payload: Mapping[str, Any] = field(hash=False)
    timestamp: AwareDatetime
    sequence: int
    node_id: str | None = None


class EventPage(Noun):
    events: tuple[RunEvent, ...]
    next: str  # also at the end


class Compaction(Noun):
    """What a compaction did."""

    run_id: str  # of the pass, which `undo` takes
    memory_ref: str
    output_id: str  # of the archive that says what its sources said
    source_ids: tuple[str, ...] | None = None  # None if there are more than are named
    source_count: int
    trigger: str
    byte_size: int


class Distillation(Compaction):
    """What a distillation did, whose sources stay; not `created`: the archive was there."""

    token_budget: int
    tokens_used: int
    archive_checksum: str  # SHA-256 of the archive's text
    created: bool


class Merge(Noun):
    """A text that is to take the place of entries: 2 to 100, by their ids."""

    ids: Sequence[str]
    content: str
    tags: Sequence[str] = ()


class Consolidation(Noun):
    """What a consolidation did: how many entries a list showed before it, and shows now."""

    run_id: str
    memory_ref: str
    input_count: int
    output_count: int
    merged_ids: tuple[str, ...] | None = None  # None if there are more than are named
    trigger: str


class Undone(Noun):
    """What the undoing of a pass did: entries that are back, and such as are gone."""

    run_id: str
    restored: int
    removed: int


class IndexedArchive(Noun):
    """An archive, without its text, and the time of what it was made of."""

    memory_ref: str
    memory_id: str
    archive_checksum: str
    entry_count: int
    since: Annotated[AwareDatetime, Field(alias="from")]
    until: Annotated[AwareDatetime, Field(alias="to")]
    created_at: AwareDatetime


class MemoryIndex(Noun):
    """The live archives of a ref, newest first; `document` is what `MEMORY-INDEX.json` holds."""

    version: int
    archive_checksum: str | None = None
    entry_count: int
    updated_at: AwareDatetime | None = None
    archives: tuple[IndexedArchive, ...]
    document: Mapping[str, Any] = field(repr=False, hash=False)


class Forgotten(Noun):
    """What was erased of a subject, or would be, and how many entries of others are back."""

    subject: str = field(repr=False)  # a forgotten subject appears in no log
    entries: int
    archives: int
    restored: int
    commitments: int
    erasure_id: str | None = None  # None if nothing was erased
    dry_run: bool = False


class Erasure(Noun):
    """The receipt of a forgetting: how much, when its bytes were gone, and what it cannot reach."""

    erasure_id: str
    entries: int
    erased_at: AwareDatetime
    bytes_gone_at: AwareDatetime | None = None
    not_reached: tuple[str, ...]


class Commitment(Noun):
    """A condition of an entry, whose content is the intention; it fires once."""

    id: str
    memory_ref: str
    memory_id: str
    condition: str  # time, or predicate
    due_at: AwareDatetime | None = None
    tag: str | None = None
    state: str
    created_at: AwareDatetime
    fired_at: AwareDatetime | None = None


class CommitmentPage(Noun):
    commitments: tuple[Commitment, ...]
    next: str | None = None


class ProposalProvenance(Noun):
    source_run_ids: tuple[str, ...]
    synthesizer_model: str | None = None


class ProposalOwner(Noun):
    tenant: str
    principal: str | None = None  # the id of the key that created it


class ProposalActivation(Noun):
    installed_artifact_ref: str


class Proposal(Noun):
    """An artifact as it is proposed: without secrets, and inert until it is `applied`."""

    id: str
    kind: str
    state: str
    title: str | None = None
    rationale: str | None = None
    artifact: Mapping[str, Any] = field(hash=False)
    provenance: ProposalProvenance
    duplicate_of: str | None = None  # what has an equal artifact
    owner: ProposalOwner
    activation: ProposalActivation | None = None  # while it is applied
    created_at: AwareDatetime
    updated_at: AwareDatetime


class ProposalPage(Noun):
    proposals: tuple[Proposal, ...]
    next: str | None = None


class InstalledArtifact(Noun):
    installed_artifact_ref: str  # under which its bytes are
    kind: str
    proposal_id: str


class ArtifactPage(Noun):
    artifacts: tuple[InstalledArtifact, ...]
    next: str | None = None


def memory_degradation(
    shape: Mapping[str, Any], advertisement: Mapping[str, Any]
) -> dict[str, bool | list[str]]:
    """What of an agent's `memoryShape` a host lacks, as fields of its inventory (RFC 0080).

    `advertisement` is the host's discovery document, or the `capabilities` of it. Empty if all is
    satisfied; else `memoryDegraded`, and `degradedMemoryDimensions` in the order of publication.
    """
    memory = _family(advertisement, "memory")
    backends = _family(advertisement, "agents").get("memoryBackends")
    reads = memory.get("supported") is True
    has = {
        "read": reads,
        "write": reads and memory.get("writable") is not False,
        "long-term-durability": isinstance(backends, list | tuple) and BACKEND in backends,
    }
    required = {it for name, asks in REQUIRED.items() if shape.get(name) is True for it in asks}
    lacking = [name for name, is_available in has.items() if name in required and not is_available]
    return {"memoryDegraded": True, "degradedMemoryDimensions": lacking} if lacking else {}


def _family(host: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A family of capabilities, at the root or, as older hosts have it, below `capabilities`."""
    wrapper = host.get("capabilities")
    places = (host, wrapper if isinstance(wrapper, Mapping) else {})
    return next((it[name] for it in places if isinstance(it.get(name), Mapping)), {})
