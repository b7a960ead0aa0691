"""Passes, forgetting, commitments and proposals through the Python client."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from agentops_memory_client import Conflict, Denied, Invalid, NotFound
from agentops_memory_client.contract.errors import Refused
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
def test_a_compaction_keeps_its_sources_or_takes_their_place(
    memory: OpenWopMemory, facts: tuple[MemoryEntry, ...]
) -> None:
    beside = memory.compact(REF, content="The proxy is too quick.", keep_sources=True)

    assert [it.content for it in memory.list(REF)] == ["The proxy is too quick.", *FACTS[::-1]]
    found = memory.provenance(REF, beside.output_id)
    assert found is not None
    assert (found.method, set(found.derived_from)) == ("host", {it.id for it in facts})

    done = memory.compact(REF)

    archive, _ = memory.list(REF)
    text = "\n".join(f"- {FIRST}: {fact}" for fact in FACTS)
    assert (archive.id, archive.content) == (done.output_id, text)
    assert done == Compaction(
        run_id=done.run_id, memory_ref=REF, output_id=archive.id,
        source_ids=tuple(it.id for it in facts), source_count=2, trigger="host-managed",
        byte_size=len(text.encode()),
    )  # fmt: skip
    assert f"compacted-from:{done.run_id}" in archive.tags


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


@requirement("OW-104")
def test_a_pass_is_undone_once(memory: OpenWopMemory, facts: tuple[MemoryEntry, ...]) -> None:
    done = memory.compact(REF)

    assert memory.undo(done.run_id) == Undone(run_id=done.run_id, restored=2, removed=1)
    assert memory.list(REF) == facts[::-1]
    with pytest.raises(Conflict) as refusal:
        memory.undo(done.run_id)
    assert refusal.value.code == "pass_not_undoable"


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


PROMPT = {"version": "1", "templateId": "triage", "text": "Sort.", "a": [1, {"ü": None}]}


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
def test_each_refusal_is_of_its_class_and_has_its_code(memory: OpenWopMemory) -> None:
    entry, proposals, commitments = memory.put(REF, "alone"), memory.proposals, memory.commitments
    incomplete = proposed(memory, artifact={"version": "1"})
    due = START + timedelta(days=1)
    merges = [Merge(ids=["a", "b"], content="Both.")]
    refusals: list[tuple[type[Refused], str | None, Callable[[], object]]] = [
        (Conflict, "nothing_to_compact", lambda: memory.compact(REF)),
        (Conflict, "nothing_to_distill", lambda: memory.distill("mem://nobody")),
        (Conflict, "memory_changed", lambda: memory.consolidate(REF, merges=merges)),
        (Invalid, None, lambda: memory.consolidate(REF, merges=[{"ids": ["a"]}])),  # type: ignore[list-item]
        *((Invalid, None, partial(memory.forget, it)) for it in ("", "x" * 257)),
        *(
            (Invalid, None, partial(write, ref))
            for write in (memory.compact, memory.distill, memory.consolidate)
            for ref in ("", "a/../b", "x" * 257)
        ),
        (Invalid, None, lambda: commitments.create(REF, entry.id)),
        (Invalid, None, lambda: commitments.create(REF, entry.id, due_at=START)),
        (Invalid, None, lambda: commitments.create(REF, entry.id, tag="")),
        (Invalid, None,
         lambda: commitments.create(REF, entry.id, due_at=due, tag="bob")),
        (NotFound, "not_found", lambda: commitments.create(REF, "unknown", tag="bob")),
        (Invalid, None, lambda: commitments.list(state="odd")),  # type: ignore[arg-type]
        *(
            (Invalid, None, partial(proposed, memory, **fields))
            for fields in ({"kind": "rule"}, {"artifact": "text"}, {"title": "x" * 257})
        ),
        (Invalid, "artifact_invalid", lambda: proposals.apply(incomplete.id)),
        *(
            (NotFound, None, partial(ask, id_))
            for ask in (
                memory.undo, memory.erasure, commitments.get, commitments.cancel, proposals.get,
                proposals.apply, proposals.reject, proposals.archive, proposals.artifact,
                partial(proposals.revise, title="x"),
            )
            for id_ in ("a/../b", "\ud800", "..")  # of which no path can be made
        ),
    ]  # fmt: skip
    for error, code, ask in refusals:
        with pytest.raises(error) as refusal:
            ask()
        assert type(refusal.value) is error
        assert code in (None, refusal.value.code)
    assert memory.list(REF) == (entry,)
    assert (commitments.list().commitments, proposals.get(incomplete.id)) == ((), incomplete)


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
