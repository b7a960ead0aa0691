"""Proposals through the Python client, blocking and awaited."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agentops_memory_client import Conflict, Denied, Invalid, NotFound
from agentops_memory_client.openwop import (
    ArtifactPage,
    InstalledArtifact,
    OpenWopMemory,
    Proposal,
    ProposalActivation,
    ProposalOwner,
    ProposalProvenance,
)

from ..support.asking import asking
from ..support.callers import made_key
from ..support.openwop_clients import client, kind, memory
from ..support.requirements import requirement
from ..support.service import START, Service

__all__ = ["client", "kind", "memory"]

PROMPT = {"version": "1", "templateId": "triage", "text": "Sort.", "a": [1, {"ü": None}]}
UNKNOWN = "prop_" + "0" * 32


def proposed(memory: OpenWopMemory, **fields: Any) -> Proposal:
    return memory.proposals.create(
        fields.pop("kind", "prompt-template"), fields.pop("artifact", PROMPT),
        source_run_ids=["r1"], **fields,
    )  # fmt: skip


@requirement("OW-104")
def test_a_proposal_is_stored_and_revised(memory: OpenWopMemory) -> None:
    draft = proposed(memory, title="Triage", rationale="It is slow.", synthesizer_model="m-1")

    assert draft == Proposal(
        id=draft.id, kind="prompt-template", state="draft", title="Triage",
        rationale="It is slow.", artifact=PROMPT,
        provenance=ProposalProvenance(source_run_ids=("r1",), synthesizer_model="m-1"),
        owner=ProposalOwner(tenant="default", principal=draft.owner.principal),
        created_at=START, updated_at=START,
    )  # fmt: skip
    assert memory.proposals.get(draft.id) == draft
    newer = {**PROMPT, "version": "2"}
    revised = memory.proposals.revise(draft.id, title="Sorting", artifact=newer)
    assert revised == replace(draft, state="revised", title="Sorting", artifact=newer)
    assert memory.proposals.artifacts().artifacts == ()


@requirement("OW-104")
def test_an_applied_artifact_is_given_out_byte_for_byte(memory: OpenWopMemory) -> None:
    draft = proposed(memory)

    ref = memory.proposals.apply(draft.id)

    assert memory.proposals.apply(draft.id) == ref
    activation = ProposalActivation(installed_artifact_ref=ref)
    applied = memory.proposals.get(draft.id)
    assert applied == replace(draft, state="applied", activation=activation)
    installed = InstalledArtifact(
        installed_artifact_ref=ref, kind="prompt-template", proposal_id=draft.id
    )
    page = ArtifactPage(artifacts=(installed,))
    assert memory.proposals.artifacts() == page
    assert memory.proposals.artifacts(kind="prompt-template", limit=1) == page
    assert memory.proposals.artifacts(after=ref).artifacts == ()
    assert memory.proposals.artifacts(kind="automation").artifacts == ()
    given = memory.proposals.artifact(ref)
    assert isinstance(given, bytes)
    assert list(json.loads(given).items()) == list(PROMPT.items())
    assert proposed(memory).duplicate_of in (draft.id, ref)
    with pytest.raises(Conflict) as refusal:
        memory.proposals.reject(draft.id)
    assert refusal.value.code == "proposal_state_conflict"
    assert memory.proposals.archive(draft.id).state == "archived"
    with pytest.raises(NotFound):
        memory.proposals.artifact(ref)


@requirement("OW-104")
def test_proposals_are_rejected_archived_and_listed_in_pages(memory: OpenWopMemory) -> None:
    kept = proposed(memory)
    rejected = memory.proposals.reject(proposed(memory, kind="automation", artifact={}).id)
    archived = memory.proposals.archive(proposed(memory, kind="automation", artifact={"a": 1}).id)

    page = memory.proposals.list(limit=2)
    rest = memory.proposals.list(limit=2, after=page.next)

    assert (rejected.state, archived.state) == ("rejected", "archived")
    assert {it.id for it in page.proposals + rest.proposals} == {kept.id, rejected.id, archived.id}
    assert (len(page.proposals), rest.next) == (2, None)
    assert memory.proposals.list(kind="automation", state="rejected").proposals == (rejected,)
    assert memory.proposals.list(state="applied").proposals == ()


@requirement("OW-104")
def test_what_cannot_be_proposed_or_applied_is_refused(memory: OpenWopMemory) -> None:
    for fields in ({"kind": "rule"}, {"artifact": "text"}, {"title": "x" * 257}):
        with pytest.raises(Invalid):
            proposed(memory, **fields)
    incomplete = proposed(memory, artifact={"version": "1"})
    with pytest.raises(Invalid) as refusal:
        memory.proposals.apply(incomplete.id)
    assert (refusal.value.status, refusal.value.code) == (422, "artifact_invalid")
    assert memory.proposals.get(incomplete.id) == incomplete
    proposals = memory.proposals
    for id_ in (UNKNOWN, "a/b", "\ud800", ".."):
        for ask in (
            proposals.get, proposals.apply, proposals.reject, proposals.archive, proposals.artifact
        ):  # fmt: skip
            with pytest.raises(NotFound):
                ask(id_)
        with pytest.raises(NotFound):
            proposals.revise(id_, title="x")


@requirement("OW-104")
def test_who_is_no_admin_neither_applies_nor_forgets(kind: str, service: Service) -> None:
    key = made_key(service.path, role="writer")
    with asking(kind, service.url, key=key) as client:
        memory = client.openwop
        draft = proposed(memory)
        for ask in (lambda: memory.proposals.apply(draft.id), lambda: memory.forget("user:ada")):
            with pytest.raises(Denied) as refusal:
                ask()
            assert refusal.value.code == "forbidden"
        assert memory.proposals.get(draft.id) == draft
