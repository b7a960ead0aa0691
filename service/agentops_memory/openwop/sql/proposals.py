"""SQL for proposals."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...memory.sql.rows import StrictRow, count, instant, micros, tag_array, tag_tuple
from ...memory.sql.table import Table
from ...recall.text.ids import Uids
from ..model.proposals import (
    Artifact,
    ArtifactKind,
    InstalledArtifact,
    ListedProposal,
    Proposal,
    ProposalDraft,
    ProposalId,
    ProposalQuery,
    ProposalState,
    installed_ref,
)

# Of equal artifacts the first that is open or applied is what later ones repeat.
_PROPOSAL = """p.id, p.name, p.kind, p.state, p.title, p.rationale, p.artifact, p.checksum,
               p.source_runs, p.synthesizer, p.principal, p.revision, p.created_at, p.updated_at,
               d.id, d.name, d.kind, d.state, d.checksum"""
_FIRST_EQUAL = """LEFT JOIN proposals d
                         ON d.id = (SELECT o.id
                                      FROM proposals o
                                     WHERE o.kind = p.kind AND o.digest = p.digest
                                           AND o.place < p.place
                                           AND o.state IN ('draft', 'revised', 'applied')
                                  ORDER BY o.place
                                     LIMIT 1)"""


@dataclass(eq=False)
class ProposalTable(Table):
    """Proposals and what was applied of them. Nothing removes one."""

    _now: datetime
    _uids: Uids

    def add(self, draft: ProposalDraft, artifact: Artifact, principal: str | None) -> Proposal:
        """Insert a new one, as a draft."""
        id_ = ProposalId(f"prop_{self._uids.make(self._now).replace('-', '')}")
        now = micros(self._now)
        self._inserted(
            "proposals",
            name=id_,
            kind=draft.kind.value,
            state=ProposalState.DRAFT.value,
            title=draft.title,
            rationale=draft.rationale,
            **self._placed(artifact),
            size=_size(draft.title, draft.rationale, artifact.text, draft.source_runs),
            source_runs=tag_array(draft.source_runs),
            synthesizer=draft.synthesizer,
            principal=principal,
            revision=0,
            created_at=now,
            updated_at=now,
        )
        return self._known(id_)

    def get(self, id_: ProposalId) -> Proposal | None:
        """The proposal."""
        return self._first(
            _proposal, f"SELECT {_PROPOSAL} FROM proposals p {_FIRST_EQUAL} WHERE p.name = :name",
            name=id_,
        )  # fmt: skip

    def listed(self, query: ProposalQuery) -> Iterator[ListedProposal] | None:
        """Those that a query asks for, the oldest first; None for an unknown `after`.

        Its limit is the domain's.
        """
        after = self._number_of(query.after)
        if after is None:
            return None
        state = "" if query.state is None else "AND state = :state"
        kind = "" if query.kind is None else "AND kind = :kind"
        rows = self._stream(
            f"SELECT id, size FROM proposals WHERE id > :after {state} {kind} ORDER BY id",
            after=after,
            state=query.state,
            kind=query.kind,
        )
        return map(_listed, rows)

    def some(self, numbers: Sequence[int]) -> list[Proposal]:
        """The proposals with these numbers, in their order."""
        rows = self._execute(
            f"""SELECT {_PROPOSAL}
                  FROM {self._sql.ids("given")}
                 {self._sql.leads} proposals p ON p.id = given.value
                 {_FIRST_EQUAL}
              ORDER BY given.key""",
            ids=json.dumps(list(numbers)),
        )
        return list(self._intact(rows, _proposal))

    def move(self, proposal: Proposal, state: ProposalState) -> Proposal:
        """Let a proposal be in another state from now on."""
        self._execute(
            "UPDATE proposals SET state = :state, updated_at = :now WHERE id = :id",
            id=proposal.number,
            state=state.value,
            now=micros(self._now),
        )
        return self._known(proposal.id)

    def revise(self, proposal: Proposal, artifact: Artifact | None) -> Proposal:
        """Replace the texts, and the artifact where there is one, in the next revision.

        The state is the proposal's; a new artifact comes after all that there are.
        """
        if artifact is not None:
            self._execute(
                """UPDATE proposals
                      SET artifact = :artifact, checksum = :checksum, digest = :digest,
                          place = :place
                    WHERE id = :id""",
                id=proposal.number,
                **self._placed(artifact),
            )
        text = proposal.artifact if artifact is None else artifact.text
        self._rewrite(proposal, text)
        self._execute(
            "UPDATE proposals SET state = :state, updated_at = :now WHERE id = :id",
            id=proposal.number,
            state=proposal.state.value,
            now=micros(self._now),
        )
        return self._known(proposal.id)

    def redact(self, proposal: Proposal, artifact: Artifact | None) -> None:
        """Replace the texts in the next revision, that of the artifact, too.

        Its sums are those of the artifact; without one they stay, and tell that it is damaged.
        """
        self._execute(
            """UPDATE proposals
                  SET artifact = :artifact, checksum = coalesce(:checksum, checksum),
                      digest = coalesce(:digest, digest)
                WHERE id = :id""",
            id=proposal.number,
            artifact=proposal.artifact,
            checksum=artifact and artifact.checksum,
            digest=artifact and artifact.digest,
        )
        self._rewrite(proposal, proposal.artifact)

    def installed(
        self, kind: ArtifactKind | None, after: ProposalId | None, limit: int
    ) -> list[InstalledArtifact] | None:
        """What is applied, in order of its proposals; None for an unknown `after`."""
        first = self._number_of(after)
        if first is None:
            return None
        of_kind = "" if kind is None else "AND kind = :kind"
        rows = self._execute(
            f"""SELECT id, name, kind, checksum
                  FROM proposals
                 WHERE state = 'applied' AND id > :after {of_kind}
              ORDER BY id
                 LIMIT :limit""",
            after=first,
            kind=kind,
            limit=limit,
        )
        return list(self._intact(rows, _installed))

    def every(self, after: int, most: int) -> list[ListedProposal]:
        """Proposals after a number, in order."""
        rows = self._execute(
            "SELECT id, size FROM proposals WHERE id > :after ORDER BY id LIMIT :most",
            after=after,
            most=most,
        )
        return list(map(_listed, rows))

    def total(self) -> int:
        """How many there are."""
        return self._number("SELECT count(*) FROM proposals")

    def _known(self, id_: ProposalId) -> Proposal:
        found = self.get(id_)
        assert found is not None  # this transaction has just written it
        return found

    def _number_of(self, id_: ProposalId | None) -> int | None:
        """The number after which a list goes on; None for an unknown proposal."""
        if id_ is None:
            return 0
        return self._first(
            lambda row: int(row[0]), "SELECT id FROM proposals WHERE name = :name", name=id_
        )

    def _placed(self, artifact: Artifact) -> dict[str, object]:
        """The columns of an artifact that comes after all that there are."""
        last = self._number("SELECT coalesce(max(place), 0) FROM proposals")
        return {
            "artifact": artifact.text,
            "checksum": artifact.checksum,
            "digest": artifact.digest,
            "place": last + 1,
        }

    def _rewrite(self, proposal: Proposal, artifact: str) -> None:
        title, rationale = proposal.title, proposal.rationale
        self._execute(
            """UPDATE proposals
                  SET title = :title, rationale = :rationale, size = :size,
                      revision = revision + 1
                WHERE id = :id""",
            id=proposal.number,
            title=title,
            rationale=rationale,
            size=_size(title, rationale, artifact, proposal.source_runs),
        )


def _size(title: str | None, rationale: str | None, artifact: str, runs: Sequence[str]) -> int:
    return sum(len(it.encode()) for it in (title or "", rationale or "", artifact, *runs))


def _proposal(row: Any) -> Proposal:
    """The proposal in a row of _PROPOSAL."""
    (number, name, kind, state, title, rationale, artifact, checksum, runs, synthesizer, principal,
     revision, created_at, updated_at, *equal) = row  # fmt: skip
    return Proposal(
        number=number,
        id=ProposalId(name),
        kind=_kind(number, kind),
        state=_state(number, state),
        title=title,
        rationale=rationale,
        artifact=artifact,
        checksum=checksum,
        source_runs=tag_tuple(runs),
        synthesizer=synthesizer,
        duplicate_of=None if equal[0] is None else _repeated(*equal),
        principal=principal,
        revision=count(revision),
        created_at=instant(created_at),
        updated_at=instant(updated_at),
    )


def _repeated(number: int, name: str, kind: str, state: str, checksum: bytes) -> str:
    """What an equal artifact repeats: what is installed, or else the proposal."""
    if _state(number, state) is ProposalState.APPLIED:
        return installed_ref(_kind(number, kind), ProposalId(name), checksum)
    return name


def _installed(row: Any) -> InstalledArtifact:
    number, name, kind, checksum = row
    id_, of_kind = ProposalId(name), _kind(number, kind)
    return InstalledArtifact(ref=installed_ref(of_kind, id_, checksum), kind=of_kind, proposal=id_)


def _listed(row: Any) -> ListedProposal:
    number, size = row
    return ListedProposal(number, count(size))


def _kind(number: int, value: str) -> ArtifactKind:
    return StrictRow("proposals", number).member("kind", ArtifactKind, value)


def _state(number: int, value: str) -> ProposalState:
    """The state in a row: by another one, what was rejected could be applied."""
    return StrictRow("proposals", number).member("state", ProposalState, value)
