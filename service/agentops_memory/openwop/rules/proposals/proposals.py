"""Proposals: handed in, reviewed, and applied as they were stored (OpenWOP, RFC 0096)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ....engine.callbacks import Audit
from ....engine.engine import Engine
from ....memory.idempotency import IdempotentRequest, idempotent
from ....memory.model.access import Caller, Role
from ....memory.model.stores import Written
from ....memory.redactor import Redaction
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
)
from ..screen import Screen
from ..screened_writes import IsCurrent, written
from ..turns import Turns
from .changes import (
    Move,
    Unrecorded,
    answered_again,
    create_proposal,
    get_artifact,
    ids_of,
    list_artifacts,
    list_proposals,
    move_proposal,
    planned,
    revise_proposal,
)
from .rules import ACTIVATION, clean_change, clean_draft, known_proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """The proposals of one service; no other route, list or search shows what is not applied.

    Denied for callers without access to every project; NotFound for what is not there;
    ProposalStateConflict for a move that a state does not allow.
    """

    engine: Engine
    redaction: Redaction
    audit: Audit
    _turns: Turns = field(default_factory=Turns)  # of each: what is audited is what is done

    async def create(
        self, caller: Caller, draft: ProposalDraft, *, idempotency: IdempotentRequest | None = None
    ) -> Written[Proposal]:
        """Make a proposal; BadFields for names that hold a secret, OverQuota."""
        caller.require(Role.WRITER)
        caller.require_refs()
        work = idempotent(create_proposal, idempotency, again=answered_again, ids=ids_of)

        async def write(screen: Screen, is_current: IsCurrent) -> Proposal:
            clean = await asyncio.to_thread(clean_draft, screen, draft)
            return await self.engine.write(caller, work, clean, is_current)

        return await written(self.redaction, caller, write)

    async def get(self, caller: Caller, proposal: ProposalId) -> Proposal:
        """The proposal."""
        caller.require(Role.READER)
        return await self.engine.read(caller, known_proposal, proposal)

    async def page(self, caller: Caller, query: ProposalQuery) -> ProposalPage:
        """Proposals, the oldest first; BadFields for an unknown `after`."""
        caller.require(Role.READER)
        return await self.engine.read(caller, list_proposals, query)

    async def revise(
        self,
        caller: Caller,
        proposal: ProposalId,
        change: ProposalChange,
        *,
        idempotency: IdempotentRequest | None = None,
    ) -> Written[Proposal]:
        """Replace texts of a proposal that is open; nothing is installed. OverQuota."""
        caller.require(Role.WRITER)
        caller.require_refs()
        work = idempotent(revise_proposal, idempotency, again=answered_again, ids=ids_of)

        async def write(screen: Screen, is_current: IsCurrent) -> Proposal:
            clean = await asyncio.to_thread(clean_change, screen, change)
            return await self.engine.write(caller, work, proposal, clean, is_current)

        async with self._turns.of(caller, proposal):
            return await written(self.redaction, caller, write)

    async def apply(
        self, caller: Caller, proposal: ProposalId, *, idempotency: IdempotentRequest | None = None
    ) -> InstalledRef:
        """Install the stored artifact, byte for byte; ArtifactInvalid for one that lacks something.

        For administrators alone. Again it is the same.
        """
        caller.require(Role.ADMIN, ACTIVATION)
        return (await self._move(caller, proposal, Move.APPLY, idempotency)).installed

    async def reject(
        self, caller: Caller, proposal: ProposalId, *, idempotency: IdempotentRequest | None = None
    ) -> Proposal:
        """Decline a proposal that is open."""
        caller.require(Role.WRITER)
        return await self._move(caller, proposal, Move.REJECT, idempotency)

    async def archive(
        self, caller: Caller, proposal: ProposalId, *, idempotency: IdempotentRequest | None = None
    ) -> Proposal:
        """Put away a proposal that is open; one that is applied is withdrawn, with its artifact."""
        caller.require(Role.WRITER)
        return await self._move(caller, proposal, Move.ARCHIVE, idempotency)

    async def artifacts(
        self, caller: Caller, kind: ArtifactKind | None, after: InstalledRef | None, limit: int
    ) -> tuple[Sequence[InstalledArtifact], bool]:
        """What is applied, in order of its proposals; and whether there is more."""
        caller.require(Role.READER)
        found = await self.engine.read(caller, list_artifacts, kind, after, limit + 1)
        return found[:limit], len(found) > limit

    async def artifact(self, caller: Caller, ref: InstalledRef) -> str:
        """The JSON text of what is applied, as it was stored."""
        caller.require(Role.READER)
        return await self.engine.read(caller, get_artifact, ref)

    async def _move(
        self,
        caller: Caller,
        proposal: ProposalId,
        move: Move,
        idempotency: IdempotentRequest | None,
    ) -> Proposal:
        caller.require_refs()
        work = idempotent(move_proposal, idempotency, again=answered_again, ids=ids_of)
        async with self._turns.of(caller, proposal):
            while True:
                seen = await self.engine.read(caller, planned, proposal, move, idempotency)
                await self._record(caller, move, seen)
                try:
                    return await self.engine.write(caller, work, proposal, move, seen)
                except Unrecorded:  # by another process
                    continue

    async def _record(self, caller: Caller, move: Move, seen: Proposal | None) -> None:
        """Audit what is about to be installed, or withdrawn."""
        if seen is None:
            return
        if move is Move.APPLY:
            action = "proposal.applied"
        elif seen.state is ProposalState.APPLIED:
            action = "proposal.withdrawn"
        else:
            return
        said = {"proposal": seen.id, "kind": seen.kind.value, "artifact": seen.installed}
        await asyncio.to_thread(self.audit, caller, action, tenant=caller.tenant, **said)
