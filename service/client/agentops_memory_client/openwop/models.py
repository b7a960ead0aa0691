"""What is answered of memory refs, runs, passes, commitments and proposals, as frozen nouns.

Names and meanings are OpenWOP's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import AwareDatetime, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Noun:
    """What is read by the protocol's names of its fields."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(alias_generator=to_camel)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEntry(Noun):
    """An entry of a memory ref, which never changes; the id is unique within the ref."""

    id: str
    content: str
    tags: tuple[str, ...]
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedEntry(Noun):
    """An entry that a search has found; the lower its rank, the better."""

    entry: MemoryEntry
    rank: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBy(Noun):
    """Who wrote an entry, as far as that was said."""

    run_id: str | None = None
    node_id: str | None = None
    agent_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RefExtent(Noun):
    """How much a memory ref holds."""

    memory_ref: str
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefPage(Noun):
    """Memory refs in code point order; `next` is what `after` takes, if there are more."""

    refs: tuple[RefExtent, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent(Noun):
    """What happened in a run, without the content of memory; sequences have no gaps."""

    event_id: str
    run_id: str
    type: str
    payload: Mapping[str, Any] = field(hash=False)
    timestamp: AwareDatetime
    sequence: int
    node_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage(Noun):
    """Events of all runs in order of commit; `next` is what `after` takes, also at the end."""

    events: tuple[RunEvent, ...]
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction(Noun):
    """What a compaction did: the archive `output_id` says what its sources said.

    `run_id` is the pass, which tells of it, and which `undo` takes.
    """

    run_id: str
    memory_ref: str
    output_id: str
    source_ids: tuple[str, ...] | None = None  # None if there are more than are named
    source_count: int
    trigger: str
    byte_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation(Compaction):
    """What a distillation did, whose sources stay; not `created`: the archive was there."""

    token_budget: int
    tokens_used: int
    archive_checksum: str  # SHA-256 of the archive's text
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(Noun):
    """A text that is to take the place of entries: 2 to 100, by their ids."""

    ids: Sequence[str]
    content: str
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation(Noun):
    """What a consolidation did: how many entries a list showed before it, and shows now."""

    run_id: str
    memory_ref: str
    input_count: int
    output_count: int
    merged_ids: tuple[str, ...] | None = None  # None if there are more than are named
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone(Noun):
    """What the undoing of a pass did: entries that are back, and such as are gone."""

    run_id: str
    restored: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedArchive(Noun):
    """An archive, without its text, and the time of what it was made of."""

    memory_ref: str
    memory_id: str
    archive_checksum: str
    entry_count: int
    since: Annotated[AwareDatetime, Field(alias="from")]
    until: Annotated[AwareDatetime, Field(alias="to")]
    created_at: AwareDatetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryIndex(Noun):
    """The live archives of a ref, newest first; `document` is what `MEMORY-INDEX.json` holds."""

    version: int
    archive_checksum: str | None = None
    entry_count: int
    updated_at: AwareDatetime | None = None
    archives: tuple[IndexedArchive, ...]
    document: Mapping[str, Any] = field(repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten(Noun):
    """What was erased of a subject, or would be, and how many entries of others are back."""

    subject: str = field(repr=False)  # whoever was forgotten stands in no log
    entries: int
    archives: int
    restored: int
    commitments: int
    erasure_id: str | None = None  # None if nothing was erased
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure(Noun):
    """The receipt of a forgetting: how much, when its bytes were gone, and what it cannot reach."""

    erasure_id: str
    entries: int
    erased_at: AwareDatetime
    bytes_gone_at: AwareDatetime | None = None
    not_reached: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentPage(Noun):
    """Commitments, oldest first; `next` is what `after` takes, if there are more."""

    commitments: tuple[Commitment, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalProvenance(Noun):
    """What a proposal was made of: runs, and the model that made it."""

    source_run_ids: tuple[str, ...]
    synthesizer_model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalOwner(Noun):
    """Whose a proposal is: a tenant's, by the id of the key that created it."""

    tenant: str
    principal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalActivation(Noun):
    """What is installed of a proposal that is applied."""

    installed_artifact_ref: str


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalPage(Noun):
    """Proposals, oldest first; `next` is what `after` takes, if there are more."""

    proposals: tuple[Proposal, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledArtifact(Noun):
    """An artifact that was applied, by the ref under which its bytes are."""

    installed_artifact_ref: str
    kind: str
    proposal_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactPage(Noun):
    """Installed artifacts; `next` is what `after` takes, if there are more."""

    artifacts: tuple[InstalledArtifact, ...]
    next: str | None = None
