"""What is answered of memory refs, runs, passes, commitments and proposals, as frozen nouns; and
how methods are declared: a signature, and what is sent for it.

Names and meanings are OpenWOP's.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Concatenate, cast, get_args

from pydantic import AwareDatetime, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ..contract import models as contract
from ..contract.models import Headers, Invalid, NotFound, json_object, read_as
from ..contract.service import Asks, Call, Method, P, T, once, params, plain, with_signature
from ..transport import SURROGATE, Exchange

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


class Noun(contract.Noun):
    """It is read by the protocol's names of fields."""

    __pydantic_config__: ClassVar = ConfigDict(alias_generator=to_camel)


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


Json = dict[str, Any]
# The member of an answer that is returned, or what makes it of the answer and what was sent.
Answer = str | Callable[[Json, Mapping[str, Any]], object]

NO_ENTRY = "memory entry not found"  # the one sentence for whatever is not there
LONGEST = 256  # code points of a ref, or of an entry's id

_REFUSAL: Any = object()


class Part(Asks):
    """A part of the client of OpenWOP."""

    _exchange: Exchange
    _run_id: str | None  # of a part of a run: whatever it sends names the run

    def __init__(self, exchange: Exchange, run_id: str | None = None) -> None:
        self._exchange, self._run_id = exchange, run_id


def sends(
    verb: str, path: str, *, answer: Answer = "", absent: Any = _REFUSAL,
    within: timedelta | None = None,
) -> Callable[[Callable[Concatenate[Any, P], T]], Method[P, T]]:  # fmt: skip
    """Declare a method by its signature: it sends its arguments, and reads what it returns.

    Its body, if it has one, returns what is sent `also`, or in the place of an argument.
    `absent` is returned for an entry that is not there, and for what can be no name of one.
    """

    def declare(question: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
        signature = inspect.signature(question)
        returned = signature.return_annotation
        kind: type[T] = get_args(returned)[0] if absent is None else returned

        async def send(self: Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
            fields = signature.bind(self, *args, **kwargs).arguments
            del fields["self"]
            names = [fields[it] for it in ("memory_ref", "memory_id") if it in fields]
            if absent is not _REFUSAL and not all(map(_is_name, names)):
                return absent  # type: ignore[no-any-return]
            fields.setdefault("run_id", self._run_id)
            fields |= cast("Json | None", question(self, *args, **kwargs)) or {}
            call = call_of(kind, verb, path, fields, answer=answer, within=within)
            try:
                return await self._ask(call)
            except NotFound as refusal:
                if absent is _REFUSAL or str(refusal) != NO_ENTRY:
                    raise
                return absent  # type: ignore[no-any-return]

        return Method(with_signature(question, send))

    return declare


def call_of(
    kind: type[T], verb: str, path: str, fields: Mapping[str, Any], *, answer: Answer = "",
    within: timedelta | None = None,
) -> Call[T]:  # fmt: skip
    """The call that sends the fields: in the path, in the query of a GET or DELETE, else as JSON.

    Invalid for a text in a query that would be sent as another.
    """
    steps = [fields[it[1:-1]] if it.startswith("{") else it for it in path.split("/")]
    named = {
        to_camel(name): plain(value)
        for name, value in fields.items()
        if value is not None and name != "idempotency_key" and f"{{{name}}}" not in path
    }
    has_body = verb not in ("GET", "DELETE")
    faults = [] if has_body else [name for name, it in named.items() if SURROGATE.search(str(it))]
    if faults:
        raise Invalid(f"{', '.join(faults)}: a lone surrogate is not text.")

    def read(body: bytes, _: Headers) -> T:
        if kind is bytes:
            return body  # type: ignore[return-value]
        document = json_object(body)
        if callable(answer):
            return read_as(kind, answer(document, fields))
        return read_as(kind, document.get(answer) if answer else document)

    return Call(
        operation=f"{verb} {path}", method=verb, path=("v1", "host", "agentops-memory", *steps),
        query={} if has_body else params(**named), body=named if has_body else None,
        headers={} if verb == "GET" else once(fields.get("idempotency_key")), within=within,
        read=read,
    )  # fmt: skip


def _is_name(text: str) -> bool:
    """Whether a text can name something in a request: others are sent as another, or as none."""
    return 0 < len(text) <= LONGEST and "\0" not in text and not SURROGATE.search(text)
