"""Proposals: artifacts that hosts propose, each inert until it is applied (RFC 0096).

No request removes a proposal, and only the routes of proposals show one that is not applied. An
artifact is a JSON object as compact text, which is installed byte for byte as it is stored.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticKnownError

from ..engine.engine import Transaction, audited
from ..errors import BadFields, Conflict, NotFound, Refusal, Unreadable, required
from ..http.bodies import WRITTEN, Param, choice, fault
from ..http.protocol import Operation
from ..memory.access import Caller, Role
from ..memory.idempotency import is_due, once
from ..memory.redactor import JsonRedactor, as_json, is_plain, require_margin, require_room, texts
from ..memory.rows import UNSTORED, Column, RowMapper, micros, reads, tag_array
from ..memory.saves import Written
from ..memory.table import Sql
from ..recall.text import clean, object_of
from ..record import CamelRecord, Milliseconds, Record
from . import api
from .api import BASE, Page, Serving, limit, listed, op, reading
from .runs import RunEventType, RunTable

PROPOSALS, ARTIFACTS = f"{BASE}/proposals", f"{BASE}/artifacts"
ACTIVATION = "packs:publish"  # the scope needed to apply a proposal; here the role admin

LONGEST_TITLE, LONGEST_RATIONALE = 256, 10_000  # code points
MAX_SOURCES = 100  # most source runs of a proposal
EXAMPLE = {"name": "triage", "version": "1.0.0"}
MAX_ARTIFACT = 262_144  # bytes of an artifact's text as UTF-8
REF_DIGITS = 16  # hex digits of an artifact's SHA-256 in its ref
NOT_ALLOWED = "The proposal's state does not allow this."


class ArtifactKind(StrEnum):
    """What kind of artifact is proposed."""

    AGENT_PACK = "agent-pack"
    WORKFLOW_CHAIN_PACK = "workflow-chain-pack"
    PROMPT_TEMPLATE = "prompt-template"
    AUTOMATION = "automation"


# The members that an artifact must have to be applied; each must be a non-empty string.
REQUIRED_MEMBERS: Mapping[ArtifactKind, tuple[str, ...]] = {
    ArtifactKind.AGENT_PACK: ("name", "version"),
    ArtifactKind.WORKFLOW_CHAIN_PACK: ("name", "version"),
    ArtifactKind.PROMPT_TEMPLATE: ("templateId", "version", "text"),
    ArtifactKind.AUTOMATION: ("workflowId",),
}


class ArtifactInvalid(Refusal):
    code = "artifact_invalid"
    sentence = "The artifact lacks members that its kind needs to be applied."


class ArtifactText(Record, extra="allow"):
    """An artifact, byte for byte as it was stored: an object with any members."""

    text: str = Field(exclude=True)

    def json_bytes(self) -> bytes:
        return self.text.encode()


def _compact(value: object) -> str:
    """Return the object as it is stored: compact JSON with its members in order."""
    if not isinstance(value, dict):
        raise PydanticKnownError("dict_type")
    try:
        text = as_json(value)
        size = len(text.encode())  # ValueError for a lone surrogate
        if "\\u0000" in text and any(clean(it) != it for it in texts(value)):
            raise ValueError
    except (ValueError, RecursionError):
        raise fault("must be JSON without NUL, lone surrogates or infinite numbers") from None
    if size > MAX_ARTIFACT:
        raise fault(f"must have at most {MAX_ARTIFACT:,} bytes of UTF-8")
    return text


ArtifactObject = Annotated[
    str,
    BeforeValidator(_compact),
    WithJsonSchema({"type": "object", "additionalProperties": True, "examples": [EXAMPLE]}),
]
"""A JSON object in a body, as the text that is stored."""


class ProposalState(StrEnum):
    """The state of a proposal. The last two are final; an applied proposal can only be archived."""

    DRAFT = "draft"
    REVISED = "revised"
    APPLIED = "applied"
    REJECTED = "rejected"
    ARCHIVED = "archived"

    @property
    def is_open(self) -> bool:
        return self in (ProposalState.DRAFT, ProposalState.REVISED)


class ProposalStateConflict(Conflict):
    code = "proposal_state_conflict"


class ProvenanceOfProposal(CamelRecord):
    """The source runs of a proposal, and the model that made it."""

    source_run_ids: Annotated[tuple[str, ...], Column("p.source_runs")]
    synthesizer_model: Annotated[str | None, Column("p.synthesizer")] = None


class ProposalOwner(Record):
    """The owner of a proposal; the principal is the key that created it."""

    tenant: Annotated[str, UNSTORED]
    principal: Annotated[str | None, Column("p.principal")] = None


class AppliedProposal(CamelRecord):
    """The ref of the artifact that an applied proposal installed."""

    installed_artifact_ref: str


class InstalledArtifact(AppliedProposal):
    """An installed artifact, and the proposal that it came from."""

    kind: ArtifactKind
    proposal_id: str


class Proposal(CamelRecord):
    """A proposal, as it is stored and sent."""

    id: Annotated[str, Column("p.name")]  # `prop_` and the digits of a stable id
    kind: ArtifactKind
    state: ProposalState
    title: str | None = None
    rationale: str | None = None
    # The stored text of a JSON object, which `json_bytes` inserts as it is.
    artifact: Annotated[str, PlainSerializer(lambda _: {}, return_type=dict[str, Any])]
    provenance: ProvenanceOfProposal
    # An earlier equal proposal, or its installed artifact; empty for none, which is sent as null.
    duplicate_of: Annotated[
        str, UNSTORED, PlainSerializer(lambda it: it or None, return_type=str | None)
    ]
    owner: ProposalOwner
    activation: Annotated[AppliedProposal | None, UNSTORED] = None
    created_at: Milliseconds
    updated_at: Milliseconds
    number: Annotated[int, Column("p.id"), Field(exclude=True)]
    checksum: bytes = Field(exclude=True)  # SHA-256 of the artifact when it was stored
    revision: int = Field(exclude=True)  # 0 for a new one
    size: int = Field(exclude=True)  # bytes of its texts

    @property
    def installed(self) -> str:
        """The ref of the artifact once the proposal is applied."""
        return installed_ref(self.kind, self.id, self.checksum)

    def json_bytes(self) -> bytes:
        """Return the response, with the artifact byte for byte as it is stored."""
        sent, name = super().json_bytes(), b'"artifact":'  # unique: strings escape quotes
        return sent.replace(name + b"{}", name + self.artifact.encode(), 1)


def _require_whole(of: Proposal) -> None:
    if sha256(of.artifact.encode()).digest() != of.checksum:
        raise Unreadable


_PROPOSAL = RowMapper(Proposal, "proposals", "p.id", alias="p.", check=_require_whole)

Title = Annotated[str, Field(max_length=LONGEST_TITLE), api.Exact]
Rationale = Annotated[str, Field(max_length=LONGEST_RATIONALE), api.Exact]


class ProposalSources(api.CamelBody):
    """The source runs of a proposal, and the model that made it."""

    source_run_ids: Annotated[list[api.RunName], Field(max_length=MAX_SOURCES)]
    synthesizer_model: api.PlainName | None = None


class ProposalBody(api.CamelBody):
    """A new proposal."""

    kind: Literal["agent-pack", "workflow-chain-pack", "prompt-template", "automation"]
    artifact: ArtifactObject
    title: Title | None = None
    rationale: Rationale | None = None
    provenance: ProposalSources


class ProposalChangeBody(api.CamelBody):
    """The fields that a revision replaces; the others stay."""

    title: Title | None = None
    rationale: Rationale | None = None
    artifact: ArtifactObject | None = None


class ProposalMoveBody(api.CamelBody):
    """An empty body; the route says which state the proposal gets."""


Body = TypeVar("Body", ProposalBody, ProposalChangeBody)
Texts = TypeVar("Texts", ProposalBody, ProposalChangeBody, Proposal)


def operations(serving: Serving) -> Sequence[Operation]:
    it, one = partial(op, serving), f"{PROPOSALS}/{{proposalId}}"
    kind = choice("kind", ArtifactKind, "Only this kind.")
    return (
        it("POST", PROPOSALS, "create_proposal",
           "Propose an artifact for review; it stays inert until activated.", create,
           body=ProposalBody, answer=Proposal, status=201, headers=WRITTEN, refusals=(409,)),
        it("GET", PROPOSALS, "list_proposals", "Proposals, the oldest first.", list_proposals,
           answer=listed(Proposal, "proposals",
                         "Proposals, oldest first; `next` is the id to continue after."),
           query=(
               Param(name="after", help="A proposal's id; returns those after it."),
               choice("state", ProposalState, "Only this state."), kind, limit(),
           )),
        it("GET", one, "get_proposal", "One proposal.", reading(known_proposal), answer=Proposal),
        it("PATCH", one, "revise_proposal", "Revise a proposal's text; nothing is installed.",
           revise, body=ProposalChangeBody, answer=Proposal, headers=WRITTEN, refusals=(409,)),
        it("POST", f"{one}/apply", "apply_proposal", "Install the stored artifact, byte for byte.",
           apply, role=Role.ADMIN, scope=ACTIVATION, body=ProposalMoveBody, body_required=False,
           answer=AppliedProposal, refusals=(409, 422)),
        it("POST", f"{one}/reject", "reject_proposal", "Reject a proposal.",
           partial(move, to=ProposalState.REJECTED), body=ProposalMoveBody, body_required=False,
           answer=Proposal, refusals=(409,)),
        it("DELETE", one, "archive_proposal",
           "Archive a proposal; an applied one is uninstalled.",
           partial(move, to=ProposalState.ARCHIVED), answer=Proposal, refusals=(409,)),
        it("GET", ARTIFACTS, "list_artifacts", "Installed artifacts.", list_artifacts,
           answer=listed(InstalledArtifact, "artifacts",
                         "Installed artifacts; `next` is the ref to continue after."),
           query=(kind, Param(name="after", help="A ref; returns those after it."), limit())),
        it("GET", f"{ARTIFACTS}/{{artifactRef}}", "get_artifact",
           "The artifact installed under a ref, byte for byte.", reading(get_artifact),
           answer=ArtifactText),
    )  # fmt: skip


async def create(serving: Serving, caller: Caller, body: ProposalBody) -> Written[Proposal]:
    return await _write_screened(serving, caller, body, once(create_proposal))


async def list_proposals(
    serving: Serving, caller: Caller, *, limit: int, after: str | None = None, **where: str | None
) -> Page:
    """List proposals, oldest first; raises BadFields for an unknown `after`."""
    rows, has_more = await serving.engine.read(
        caller, lambda tx: proposals_after(tx, _number_of(tx, after), limit, **where)
    )
    return Page("proposals", rows, lambda it: it.id, has_more)


async def list_artifacts(
    serving: Serving, caller: Caller, *, limit: int, kind: str | None, after: str | None = None
) -> Page:
    """List installed artifacts, those of the oldest proposals first."""
    of, which = after and proposal_in(after), {"state": ProposalState.APPLIED.value, "kind": kind}
    rows, has_more = await serving.engine.read(
        caller, lambda tx: proposals_after(tx, _number_of(tx, of), limit, **which)
    )
    listed = [
        InstalledArtifact(installed_artifact_ref=it.installed, kind=it.kind, proposal_id=it.id)
        for it in rows
    ]
    return Page("artifacts", listed, lambda it: it.installed_artifact_ref, has_more)


async def revise(
    serving: Serving, caller: Caller, proposal_id: str, body: ProposalChangeBody
) -> Written[Proposal]:
    """Replace texts of an open proposal without installing it; raises OverQuota."""
    async with serving.locks.of(caller, "proposal", proposal_id):
        return await _write_screened(serving, caller, body, once(revise_proposal), proposal_id)


async def apply(serving: Serving, caller: Caller, **request: Any) -> AppliedProposal:
    """Install the stored artifact; raises ArtifactInvalid if it lacks required members."""
    moved = await move(serving, caller, to=ProposalState.APPLIED, **request)
    return AppliedProposal(installed_artifact_ref=moved.installed)


async def move(
    serving: Serving, caller: Caller, *, proposal_id: str, to: ProposalState,
    body: ProposalMoveBody | None = None,
) -> Proposal:  # fmt: skip
    """Apply, reject or archive an open proposal, or archive an applied one.

    Installing and withdrawing are audited first. Raises ProposalStateConflict, also if another
    process changes the proposal meanwhile.
    """
    async with serving.locks.of(caller, "proposal", proposal_id):  # audit and move must match
        plan = await serving.engine.read(caller, proposal_to_move, proposal_id, to)
        if plan and ProposalState.APPLIED in (to, plan.state):
            about = {"proposal": plan.id, "kind": plan.kind.value, "artifact": plan.installed}
            end = "applied" if to is ProposalState.APPLIED else "withdrawn"
            await audited(serving.audit, caller, f"proposal.{end}", **about)
        return await serving.engine.write(caller, once(move_proposal), proposal_id, to, plan)


async def _write_screened(
    serving: Serving, caller: Caller, body: Body, work: Callable[..., Proposal], *ids: str
) -> Written[Proposal]:
    async def screened(screen: api.Screen) -> Sequence[object]:
        return *ids, await asyncio.to_thread(_redacted_body, screen, body)

    return await serving.written(caller, work, screened)


def create_proposal(tx: Transaction, body: ProposalBody) -> Proposal:
    require_room(tx)
    id_, runs = f"prop_{tx.new_uid(tx.now).replace('-', '')}", body.provenance.source_run_ids
    tx[Sql].insert(
        "proposals", name=id_, kind=body.kind, state=ProposalState.DRAFT.value, title=body.title,
        rationale=body.rationale, **artifact_columns(body.artifact), place=_next_position(tx),
        size=_size(body.title, body.rationale, body.artifact, runs), source_runs=tag_array(runs),
        synthesizer=body.provenance.synthesizer_model, principal=tx.caller.key, revision=0,
        created_at=micros(tx.now), updated_at=micros(tx.now),
    )  # fmt: skip
    made = known_proposal(tx, id_)
    equal = made.duplicate_of or None  # null for none: RFC 0096 §D
    _record(tx, RunEventType.PROPOSED, made, sourceRunIds=runs, duplicateOf=equal)
    return made


def revise_proposal(tx: Transaction, id_: str, body: ProposalChangeBody) -> Proposal:
    known = known_proposal(tx, id_)
    if not known.state.is_open:
        raise ProposalStateConflict(NOT_ALLOWED)
    require_room(tx)
    columns: dict[str, object] = {}
    if body.artifact:
        columns = {**artifact_columns(body.artifact), "place": _next_position(tx)}
    _rewrite(
        tx, known.model_copy(update=body.model_dump(exclude_none=True)),
        state=ProposalState.REVISED.value, updated_at=micros(tx.now), **columns,
    )  # fmt: skip
    return known_proposal(tx, id_)


def proposal_to_move(tx: Transaction, id_: str, to: ProposalState) -> Proposal | None:
    """Return the proposal to move, or None if nothing is to be done; raises if not allowed."""
    known = known_proposal(tx, id_)
    if not is_due(tx) or known.state is to:
        return None
    is_withdrawn = to is ProposalState.ARCHIVED and known.state is ProposalState.APPLIED
    if not (known.state.is_open or is_withdrawn):
        raise ProposalStateConflict(NOT_ALLOWED)
    if to is ProposalState.APPLIED:
        members = object_of(known.artifact)
        named = {name for name, it in members.items() if isinstance(it, str) and it}
        if not named.issuperset(REQUIRED_MEMBERS[known.kind]):
            raise ArtifactInvalid
        require_margin(tx)
    return known


def move_proposal(tx: Transaction, id_: str, to: ProposalState, plan: Proposal | None) -> Proposal:
    """Move a proposal; raises ProposalStateConflict if it has changed since `plan` was read."""
    current = proposal_to_move(tx, id_, to)
    if current is None:
        return known_proposal(tx, id_)
    if plan is None or (plan.state, plan.checksum) != (current.state, current.checksum):
        raise ProposalStateConflict(NOT_ALLOWED)
    changed = {"id": current.number, "state": to.value, "updated_at": micros(tx.now)}
    tx[Sql].update("proposals", "id", changed)
    moved = known_proposal(tx, id_)
    if to is ProposalState.APPLIED:
        _record(tx, RunEventType.ACTIVATED, moved, installedArtifactRef=moved.installed)
    return moved


def get_artifact(tx: Transaction, artifact_ref: str) -> ArtifactText:
    """Return the installed artifact of a ref; raises NotFound."""
    known = known_proposal(tx, proposal_in(artifact_ref), "artifact")
    if known.activation is None or known.installed != artifact_ref:
        raise NotFound("artifact not found")
    return ArtifactText(text=known.artifact)


def redact_proposal(tx: Transaction, id_: str, screen: api.Screen) -> None:
    """Redact a proposal; the ref of an installed artifact changes with its bytes."""
    known = known_proposal(tx, id_)
    without = redacted(screen, known)
    _rewrite(tx, without, **artifact_columns(without.artifact))


def _record(tx: Transaction, type_: RunEventType, of: Proposal, **more: object) -> None:
    payload = {"proposalId": of.id, "kind": of.kind.value, **more}
    tx[RunTable].record(type_, (payload, ()))


def redacted(screen: api.Screen, of: Texts) -> Texts:
    """Return a body or stored proposal without secrets; its artifact may grow beyond the limit."""
    changes: dict[str, object] = {"artifact": of.artifact and _clean_artifact(screen, of.artifact)}
    for name, most in (("title", LONGEST_TITLE), ("rationale", LONGEST_RATIONALE)):
        text = getattr(of, name)
        if text and (without := screen.text(text)) != text:
            changes[name] = without[:most]
    return of.model_copy(update=changes)


def _redacted_body(screen: api.Screen, body: Body) -> Body:
    """Return the body without secrets; raises BadFields for secret names and grown artifacts."""
    if isinstance(body, ProposalBody):
        runs, model = body.provenance.source_run_ids, body.provenance.synthesizer_model
        names = {f"provenance.sourceRunIds[{at}]": run for at, run in enumerate(runs)}
        api.require_plain(screen, **names, **{"provenance.synthesizerModel": model})
    without = redacted(screen, body)
    if len((without.artifact or "").encode()) > MAX_ARTIFACT:
        raise BadFields([("artifact", f"must have at most {MAX_ARTIFACT:,} bytes when redacted")])
    return without


def _clean_artifact(screen: api.Screen, text: str) -> str:
    """Return the object without secrets in texts and names; it may be longer than before."""
    value = object_of(text)
    if is_plain(text, value, lambda its: not any(map(screen.changes, its))):
        return text
    return as_json(JsonRedactor(screen.redactor, screen.text).document(value))


def installed_ref(kind: ArtifactKind, proposal: str, checksum: bytes) -> str:
    return f"installed:{kind.value}:{proposal}:{checksum.hex()[:REF_DIGITS]}"


def proposal_in(ref: str) -> str:
    """Return the id of the proposal that a ref names; an invalid ref gives an unknown id."""
    return ref.removeprefix("installed:").partition(":")[2].partition(":")[0]


def artifact_columns(text: str) -> Mapping[str, object]:
    """Return an artifact's columns: `checksum` of its text, `digest` of its canonical JSON."""
    canonical = json.dumps(
        json.loads(text), ensure_ascii=False, separators=(",", ":"), sort_keys=True
    )
    checksum, digest = (sha256(it.encode()).digest() for it in (text, canonical))
    return {"artifact": text, "checksum": checksum, "digest": digest}


# The rows. A proposal duplicates the first open or applied proposal with an equal artifact.

_SELECT = f"SELECT {_PROPOSAL}, d.id, d.name, d.kind, d.state, d.checksum"
_FIRST_EQUAL = """LEFT JOIN proposals d
                         ON d.id = (SELECT o.id FROM proposals o
                                     WHERE o.kind = p.kind AND o.digest = p.digest
                                           AND o.place < p.place
                                           AND o.state IN ('draft', 'revised', 'applied')
                                  ORDER BY o.place LIMIT 1)"""


def known_proposal(tx: Transaction, proposal_id: str, noun: str = "proposal") -> Proposal:
    """Return the proposal; raises NotFound, whose message names `noun`."""
    statement = f"{_SELECT} FROM proposals p {_FIRST_EQUAL} WHERE p.name = :name"
    return required(
        tx[Sql].first(partial(_proposal_of, tx), statement, name=proposal_id), f"{noun} not found"
    )


def proposals_after(
    tx: Transaction, after: int, limit: int, **where: str | None
) -> tuple[Sequence[Proposal], bool]:
    """Return the next proposals after a number that fit an answer, and whether more follow."""
    conditions = [f"AND p.{column} = :{column}" for column, it in where.items() if it is not None]
    rows = tx[Sql].stream(
        f"""{_SELECT}
              FROM proposals p
             {_FIRST_EQUAL}
             WHERE p.id > :after {" ".join(conditions)}
          ORDER BY p.id""",
        after=after, **where,
    )  # fmt: skip
    proposals = tx[Sql].intact(rows, partial(_proposal_of, tx))
    return api.first_fitting(((it, it.size, 0) for it in proposals), limit)


def _number_of(tx: Transaction, proposal: str | None) -> int:
    """Return the number of a proposal, 0 for None; raises BadFields for an unknown id."""
    if proposal is None:
        return 0
    numbers = tx[Sql].column("SELECT id FROM proposals WHERE name = :name", name=proposal)
    if not numbers:
        raise BadFields([("after", "is not the id of a listed item")])
    return int(numbers[0])


def _next_position(tx: Transaction) -> int:
    return 1 + tx[Sql].number("SELECT coalesce(max(place), 0) FROM proposals")


def _size(title: str | None, rationale: str | None, artifact: str, runs: Sequence[str]) -> int:
    return sum(len(it.encode()) for it in (title or "", rationale or "", artifact, *runs))


def _rewrite(tx: Transaction, of: Proposal, **columns: object) -> None:
    size = _size(of.title, of.rationale, of.artifact, of.provenance.source_run_ids)
    row = {"title": of.title, "rationale": of.rationale, "size": size, "revision": of.revision + 1}
    tx[Sql].update("proposals", "id", {"id": of.number, **row, **columns})


def _proposal_of(tx: Transaction, row: Any) -> Proposal:
    made, (*_, number, name, kind, state, checksum) = _PROPOSAL(row), row
    owner = ProposalOwner(tenant=tx.caller.tenant, principal=made.owner.principal)
    equal = "" if number is None else _duplicate_ref((number, name, kind, state, checksum))
    is_applied = made.state is ProposalState.APPLIED
    applied = AppliedProposal(installed_artifact_ref=made.installed) if is_applied else None
    return made.model_copy(update={"owner": owner, "duplicate_of": equal, "activation": applied})


@reads("proposals")
def _duplicate_ref(
    _: int, name: str, kind: ArtifactKind, state: ProposalState, checksum: bytes
) -> str:
    """Return what duplicates of this proposal refer to: its installed artifact or its id."""
    is_applied = state is ProposalState.APPLIED
    return installed_ref(kind, name, checksum) if is_applied else name
