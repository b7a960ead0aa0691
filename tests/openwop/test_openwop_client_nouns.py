"""Passes, forgetting, commitments and proposals through the Python client."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agentops_memory_client import Conflict, Denied, Invalid, NotFound
from agentops_memory_client.openwop import (
    ArtifactPage,
    Commitment,
    Compaction,
    Consolidation,
    Distillation,
    Forgotten,
    InstalledArtifact,
    MemoryEntry,
    Merge,
    OpenWopMemory,
    Proposal,
    ProposalActivation,
    ProposalOwner,
    ProposalProvenance,
    Undone,
)

from ..support.asking import asking
from ..support.callers import made_key
from ..support.openwop_hosts import REF, H
from ..support.requirements import requirement
from ..support.service import START, Service

FACTS = ("Checkout timed out behind the proxy.", "The provider needs up to 12 s.")
FIRST = "2030-01-01"


@pytest.fixture
def facts(memory: OpenWopMemory) -> tuple[MemoryEntry, ...]:
    return tuple(memory.put(REF, fact) for fact in FACTS)


@requirement("OW-104")
def test_a_compaction_lets_an_archive_take_the_place_of_its_sources(
    memory: OpenWopMemory, facts: tuple[MemoryEntry, ...]
) -> None:
    done = memory.compact(REF)

    (archive,) = memory.list(REF)
    text = "\n".join(f"- {FIRST}: {fact}" for fact in FACTS)
    assert (archive.id, archive.content) == (done.output_id, text)
    assert done == Compaction(
        run_id=done.run_id, memory_ref=REF, output_id=archive.id,
        source_ids=tuple(it.id for it in facts), source_count=2, trigger="host-managed",
        byte_size=len(text.encode()),
    )  # fmt: skip
    assert f"compacted-from:{done.run_id}" in archive.tags
    assert [memory.get(REF, it.id) for it in facts] == list(facts)


@requirement("OW-104")
def test_a_compaction_takes_a_text_and_keeps_the_sources(
    memory: OpenWopMemory, facts: tuple[MemoryEntry, ...]
) -> None:
    done = memory.compact(REF, content="The proxy is too quick.", keep_sources=True)

    assert [it.content for it in memory.list(REF)] == ["The proxy is too quick.", *FACTS[::-1]]
    found = memory.provenance(REF, done.output_id)
    assert found is not None
    assert (found.method, set(found.derived_from)) == ("host", {it.id for it in facts})


@requirement("OW-104")
def test_a_distillation_leaves_its_sources_and_is_made_once(
    memory: OpenWopMemory, facts: tuple[MemoryEntry, ...]
) -> None:
    ends = START + timedelta(days=1)

    done = memory.distill(REF, token_budget=500, expires_at=ends)

    archive = memory.get(REF, done.output_id)
    assert archive is not None
    assert (archive.expires_at, "distilled" in archive.tags) == (ends, True)
    assert {it.content for it in memory.list(REF)} == {archive.content, *FACTS}
    assert isinstance(done, Distillation)
    assert (done.source_count, done.source_ids) == (2, tuple(it.id for it in facts))
    assert (done.token_budget, done.created) == (500, True)
    assert 0 < done.tokens_used <= 500
    again = memory.distill(REF, token_budget=500, expires_at=ends)
    assert (again.created, again.output_id) == (False, archive.id)
    assert again.archive_checksum == done.archive_checksum
    text = memory.distill(REF, content="The proxy is too quick.")
    assert getattr(memory.get(REF, text.output_id), "content", None) == "The proxy is too quick."
    assert memory.distill(REF, recursive=True).source_count == 4
    with pytest.raises(Invalid) as refusal:
        memory.distill(REF, token_budget=3)
    assert (refusal.value.status, refusal.value.code) == (422, "token_budget_exceeded")
    assert refusal.value.details["budget"] == 3
    least = refusal.value.details["minimumRequired"]
    assert memory.distill(REF, token_budget=least).tokens_used <= least


@requirement("OW-104")
def test_a_consolidation_replaces_what_is_stale_and_what_is_merged(memory: OpenWopMemory) -> None:
    old, new = (memory.put(REF, f"The timeout is {n} s.", tags=["key:timeout"]) for n in (5, 30))
    one, two = memory.put(REF, "Red."), memory.put(REF, "Green.")

    done = memory.consolidate(
        REF, merges=[Merge(ids=(one.id, two.id), content="Red and green.", tags=["colours"])]
    )

    merged = memory.list(REF, tag="colours")
    assert [it.content for it in merged] == ["Red and green."]
    assert set(memory.list(REF)) == {new, *merged}
    assert done == Consolidation(
        run_id=done.run_id, memory_ref=REF, input_count=4, output_count=2,
        merged_ids=done.merged_ids, trigger="on-demand",
    )  # fmt: skip
    assert set(done.merged_ids or ()) == {old.id, one.id, two.id}
    again = memory.consolidate(REF)
    assert (again.input_count, again.output_count) == (2, 2)
    empty = memory.consolidate("mem://nobody")
    assert (empty.input_count, empty.output_count) == (0, 0)
    with pytest.raises(Conflict) as refusal:
        memory.consolidate(REF, merges=[Merge(ids=["a", "b"], content="Both.")])
    assert refusal.value.code == "memory_changed"
    with pytest.raises(Invalid, match="Merge"):
        memory.consolidate(REF, merges=[{"ids": ["a", "b"]}])  # type: ignore[list-item]


@requirement("OW-104")
def test_a_pass_is_undone_once(memory: OpenWopMemory, facts: tuple[MemoryEntry, ...]) -> None:
    done = memory.compact(REF)

    assert memory.undo(done.run_id) == Undone(run_id=done.run_id, restored=2, removed=1)
    assert memory.list(REF) == facts[::-1]
    with pytest.raises(Conflict) as refusal:
        memory.undo(done.run_id)
    assert refusal.value.code == "pass_not_undoable"
    for unknown in ("run_" + "0" * 32, "a/../b", "\ud800", ".."):
        with pytest.raises(NotFound):
            memory.undo(unknown)


@requirement("OW-104")
def test_an_index_lists_archives_and_is_a_document(
    memory: OpenWopMemory, facts: tuple[MemoryEntry, ...], service: Service
) -> None:
    done = memory.distill(REF)

    index = memory.index(REF)

    (archive,) = index.archives
    assert (archive.memory_ref, archive.memory_id) == (REF, done.output_id)
    assert (archive.archive_checksum, archive.entry_count) == (done.archive_checksum, 2)
    assert archive.since <= archive.until == facts[-1].created_at
    assert (index.version, index.updated_at) == (1, archive.created_at)
    asked = service.http.get(f"{H}/index", params={"memoryRef": REF})
    assert json.dumps(index.document) == json.dumps(asked.json())
    assert memory.index("mem://nobody").archives == ()


@requirement("OW-104")
def test_a_pass_over_nothing_is_refused(memory: OpenWopMemory) -> None:
    memory.put(REF, "alone")
    with pytest.raises(Conflict) as refusal:
        memory.compact(REF)
    assert refusal.value.code == "nothing_to_compact"
    with pytest.raises(Conflict) as refusal:
        memory.distill("mem://nobody")
    assert refusal.value.code == "nothing_to_distill"
    for ref in ("", "a/../b", "\ud800", "x" * 257):
        for write in (memory.compact, memory.distill, memory.consolidate):
            with pytest.raises(Invalid):
                write(ref)


@requirement("OW-104")
def test_a_subject_is_forgotten_with_a_receipt(memory: OpenWopMemory) -> None:
    subject = "user:ada"
    memory.put(REF, "Ada came at noon.", tags=[f"subject:{subject}"])
    other = memory.put(REF, "It rained.")
    memory.put(subject, "of her own ref")
    memory.compact(REF)

    wouldbe = memory.forget(subject, dry_run=True)

    assert (wouldbe.dry_run, wouldbe.erasure_id) == (True, None)
    assert len(memory.list(subject)) == 1
    done = memory.forget(subject)
    assert done == Forgotten(
        subject=subject, entries=wouldbe.entries, archives=1, restored=1, commitments=0,
        erasure_id=done.erasure_id,
    )  # fmt: skip
    assert memory.list(subject) == ()
    assert memory.list(REF) == (other,)
    assert subject not in repr(done)
    assert done.erasure_id is not None
    receipt = memory.erasure(done.erasure_id)
    assert (receipt.erasure_id, receipt.erased_at) == (done.erasure_id, START)
    assert receipt.entries == done.entries + done.archives
    assert receipt.not_reached
    assert subject not in str(receipt)
    nobody = memory.forget("nobody")
    assert (nobody.entries, nobody.erasure_id) == (0, None)
    with pytest.raises(NotFound):
        memory.erasure("unknown")
    with pytest.raises(Invalid):
        memory.forget("")


NO_COMMITMENT = "cmt_" + "0" * 32


@requirement("OW-104")
def test_a_predicate_fires_by_the_put_that_makes_it_true(memory: OpenWopMemory) -> None:
    entry = memory.put(REF, "Renew the certificate.")

    armed = memory.commitments.create(REF, entry.id, tag="new-domain")

    assert armed == Commitment(
        id=armed.id, memory_ref=REF, memory_id=entry.id, condition="predicate", tag="new-domain",
        state="armed", created_at=START,
    )  # fmt: skip
    assert memory.commitments.get(armed.id) == armed
    memory.put(REF, "shop.example is ours.", tags=["new-domain"])
    fired = memory.commitments.get(armed.id)
    assert (fired.state, fired.fired_at) == ("fired", START)
    (event,) = memory.events(type="commitment.fired").events
    assert event.payload == {
        "commitmentId": armed.id, "memoryRef": REF, "memoryId": entry.id, "condition": "predicate"
    }  # fmt: skip
    assert memory.commitments.cancel(armed.id) == fired


@requirement("OW-104")
def test_a_time_is_armed_and_cancelled(memory: OpenWopMemory) -> None:
    due = START + timedelta(hours=1)
    entry = memory.put(REF, "Call Bob.")

    armed = memory.commitments.create(REF, entry.id, due_at=due)

    assert (armed.condition, armed.due_at, armed.tag) == ("time", due, None)
    cancelled = memory.commitments.cancel(armed.id)
    assert (cancelled.id, cancelled.state, cancelled.fired_at) == (armed.id, "cancelled", None)


@requirement("OW-104")
def test_commitments_are_listed_in_pages(memory: OpenWopMemory) -> None:
    entries = [memory.put(ref, "Call.") for ref in (REF, REF, "mem://other")]
    made = [
        memory.commitments.create(it_ref, entry.id, tag="bob")
        for it_ref, entry in zip((REF, REF, "mem://other"), entries, strict=True)
    ]
    memory.commitments.cancel(made[0].id)

    page = memory.commitments.list(limit=2)
    rest = memory.commitments.list(limit=2, after=page.next)

    assert {it.id for it in page.commitments + rest.commitments} == {it.id for it in made}
    assert (len(page.commitments), rest.next) == (2, None)
    assert [it.id for it in memory.commitments.list(REF, state="armed").commitments] == [made[1].id]
    assert memory.commitments.list("mem://nobody").commitments == ()


@requirement("OW-104")
def test_what_cannot_be_armed_is_refused(memory: OpenWopMemory) -> None:
    entry = memory.put(REF, "Call Bob.")
    for condition in (
        {}, {"due_at": START - timedelta(seconds=1)}, {"tag": ""}, {"tag": "x" * 257},
    ):  # fmt: skip
        with pytest.raises(Invalid):
            memory.commitments.create(REF, entry.id, **condition)
    with pytest.raises(Invalid):
        memory.commitments.create(REF, entry.id, due_at=START + timedelta(days=1), tag="bob")
    with pytest.raises(NotFound):
        memory.commitments.create(REF, "unknown", tag="bob")
    for id_ in (NO_COMMITMENT, "", "a/b", "\ud800"):
        with pytest.raises(NotFound):
            memory.commitments.cancel(id_)
    for id_ in (NO_COMMITMENT, "a/b", "\ud800"):
        with pytest.raises(NotFound):
            memory.commitments.get(id_)
    with pytest.raises(Invalid):
        memory.commitments.list(state="odd")  # type: ignore[arg-type]
    assert memory.commitments.list().commitments == ()


PROMPT = {"version": "1", "templateId": "triage", "text": "Sort.", "a": [1, {"ü": None}]}
NO_PROPOSAL = "prop_" + "0" * 32


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
    for id_ in (NO_PROPOSAL, "a/b", "\ud800", ".."):
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
