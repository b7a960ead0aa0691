"""What is done to proposals, in one transaction with the event that tells of it."""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from ....engine.engine import Ids, Transaction
from ....errors import NotFound
from ....memory.idempotency import IdempotentRequest, is_due
from ....memory.limits import require_margin, require_room
from ....recall.text.instants import EPOCH, MICROSECOND
from ...model.entries import Recorded
from ...model.proposals import (
    ArtifactKind,
    InstalledArtifact,
    InstalledRef,
    Proposal,
    ProposalChange,
    ProposalDraft,
    ProposalId,
    ProposalPage,
    ProposalQuery,
    ProposalState,
    proposal_of,
)
from ...model.runs import JsonObject, RunEventType
from ...sql.proposals import ProposalTable
from ...sql.runs import RunTable
from ..changes import ScreenOutdated
from ..paging import fitting
from ..screened_writes import IsCurrent
from .artifacts import artifact_of
from .rules import (
    NO_ARTIFACT,
    ProposalStateConflict,
    known_proposal,
    require_complete,
    unknown_after,
)

ANSWER_LOST = "This was done, and the proposal was changed since."


class Move(Enum):
    """What ends a review: the state that it leads to."""

    APPLY = ProposalState.APPLIED
    REJECT = ProposalState.REJECTED
    ARCHIVE = ProposalState.ARCHIVED


class Unrecorded(Exception):
    """The proposal is not as it was when the move was recorded; it is to be looked at again."""


def create_proposal(tx: Transaction, draft: ProposalDraft, is_current: IsCurrent) -> Proposal:
    _require_current(tx, is_current)
    require_room(tx)
    made = tx[ProposalTable].add(draft, artifact_of(draft.artifact), tx.caller.key)
    tx[RunTable].record(RunEventType.PROPOSED, [Recorded(_told(made))])
    return made


def revise_proposal(
    tx: Transaction, id_: ProposalId, change: ProposalChange, is_current: IsCurrent
) -> Proposal:
    _require_current(tx, is_current)
    found = known_proposal(tx, id_)
    if not found.state.is_open:
        raise ProposalStateConflict
    require_room(tx)
    after = replace(
        found,
        state=ProposalState.REVISED,
        title=found.title if change.title is None else change.title,
        rationale=found.rationale if change.rationale is None else change.rationale,
    )
    artifact = None if change.artifact is None else artifact_of(change.artifact)
    return tx[ProposalTable].revise(after, artifact)


def planned(
    tx: Transaction, id_: ProposalId, move: Move, idempotency: IdempotentRequest | None
) -> Proposal | None:
    """The proposal that is to be moved, or the refusal; None if there is nothing to do."""
    found = known_proposal(tx, id_)
    if not is_due(tx, idempotency) or found.state is move.value:
        return None
    is_withdrawn = move is Move.ARCHIVE and found.state is ProposalState.APPLIED
    if not (found.state.is_open or is_withdrawn):
        raise ProposalStateConflict
    if move is Move.APPLY:
        require_complete(found.kind, found)
        require_margin(tx)
    return found


def move_proposal(tx: Transaction, id_: ProposalId, move: Move, seen: Proposal | None) -> Proposal:
    """Move a proposal that is as it was seen; one that is there already is left as it is."""
    found = planned(tx, id_, move, None)
    if found is None:
        return known_proposal(tx, id_)
    if seen is None or (seen.state, seen.checksum) != (found.state, found.checksum):
        raise Unrecorded
    moved = tx[ProposalTable].move(found, move.value)
    if move is Move.APPLY:
        tx[RunTable].record(RunEventType.ACTIVATED, [Recorded(_activated(moved))])
    return moved


def ids_of(proposal: Proposal) -> Ids:
    """What is kept of an answer: ids and numbers, of which the duplicate is one."""
    return {
        "proposal": proposal.id,
        "revision": proposal.revision,
        "state": proposal.state.value,
        "duplicate": proposal.duplicate_of or "",
        "updated": (proposal.updated_at - EPOCH) // MICROSECOND,
    }


def answered_again(tx: Transaction, ids: Ids, *_: Any) -> Proposal:
    """The proposal as it was answered; ProposalStateConflict if its texts are others by now."""
    found = known_proposal(tx, ProposalId(str(ids["proposal"])))
    if found.revision != ids["revision"]:
        raise ProposalStateConflict(ANSWER_LOST)
    return replace(
        found,
        state=ProposalState(str(ids["state"])),
        duplicate_of=str(ids["duplicate"]) or None,
        updated_at=EPOCH + int(ids["updated"]) * MICROSECOND,
    )


def list_proposals(tx: Transaction, query: ProposalQuery) -> ProposalPage:
    tx.caller.require_refs()
    listed = tx[ProposalTable].listed(query)
    if listed is None:
        raise unknown_after()
    chosen, has_more = fitting(
        listed, limit=query.limit, budget=None, size=lambda it: it.size, length=lambda _: 0
    )
    proposals = tx[ProposalTable].some([it.number for it in chosen])
    return ProposalPage(proposals=proposals, has_more=has_more)


def list_artifacts(
    tx: Transaction, kind: ArtifactKind | None, after: InstalledRef | None, limit: int
) -> list[InstalledArtifact]:
    tx.caller.require_refs()
    since = None if after is None else proposal_of(after)
    found = tx[ProposalTable].installed(kind, since, limit)
    if found is None:
        raise unknown_after()
    return found


def get_artifact(tx: Transaction, ref: InstalledRef) -> str:
    """The text of what is applied under this name; NotFound also for what is damaged."""
    tx.caller.require_refs()
    found = tx[ProposalTable].get(proposal_of(ref))
    is_installed = found is not None and found.state is ProposalState.APPLIED
    if found is None or not is_installed or found.installed != ref or not found.is_intact:
        raise NotFound(NO_ARTIFACT)
    return found.artifact


def _require_current(tx: Transaction, is_current: IsCurrent) -> None:
    if not is_current():
        raise ScreenOutdated
    tx.caller.require_refs()


def _told(made: Proposal) -> JsonObject:
    """What the event of a new proposal tells (RFC 0096 §D)."""
    return {
        **_named(made),
        "sourceRunIds": list(made.source_runs),
        "duplicateOf": made.duplicate_of,
    }


def _activated(moved: Proposal) -> JsonObject:
    return {**_named(moved), "installedArtifactRef": moved.installed}


def _named(proposal: Proposal) -> Mapping[str, object]:
    return {"proposalId": proposal.id, "kind": proposal.kind.value}
