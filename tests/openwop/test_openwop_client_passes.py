"""Passes and forgetting through the Python client, blocking and awaited."""

import json
from datetime import timedelta

import pytest

from agentops_memory_client import Conflict, Invalid, NotFound
from agentops_memory_client.openwop import (
    Compaction,
    Consolidation,
    Distillation,
    Forgotten,
    MemoryEntry,
    Merge,
    OpenWopMemory,
    Undone,
)

from ..support.openwop_clients import client, kind, memory
from ..support.openwop_hosts import REF, H
from ..support.requirements import requirement
from ..support.service import START, Service

__all__ = ["client", "kind", "memory"]

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
