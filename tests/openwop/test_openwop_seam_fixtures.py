"""Fixtures over a memory that does one thing wrong: each says which, and none lets it pass."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from agentops_memory.errors import NotFound
from agentops_memory.memory.access import Caller
from agentops_memory.memory.memory import MemoryId
from agentops_memory.memory.saves import Written
from agentops_memory.memory.space import MemoryRef
from agentops_memory.openwop.adapter import OneRefEntry, RefEntryBody
from agentops_memory.openwop.api import Page
from agentops_memory.openwop.entries import RefDraft, RefEntry
from agentops_memory.openwop.host_runs import RegisteredSecret
from agentops_memory.openwop.refs import RefEntryId, fitting
from agentops_memory.openwop.runs import RunId

from ..support.openwop_hosts import Json
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import START
from .seams.fixtures import ACROSS, OWN
from .seams.seeding import Seed
from .seams.stage import FixtureFailed, Stage

VALUE = "0123456789abcdef" * 2
PREFIX = "conformance-agent-memory-"
FIXTURES = {**OWN, **ACROSS}


@dataclass(slots=True)
class Wrong:
    """Memory in a list, with the faults that it is told to have."""

    faults: tuple[str, ...]
    held: list[tuple[str, RefDraft, RefEntry]] = field(default_factory=list)

    async def put(self, caller: Caller, body: RefEntryBody) -> Written[OneRefEntry]:
        ref = body.memory_ref
        draft = RefDraft(ref=ref, content=body.content, tags=tuple(body.tags), id=body.id)
        entry = self._added(caller, draft, has_ended=False)
        return Written(value=OneRefEntry(memory_ref=ref, entry=entry))

    async def seed(self, caller: Caller, seeds: list[Seed]) -> None:
        for each in seeds:
            self._added(caller, each.draft, has_ended=True)

    async def get(
        self, caller: Caller, *, memory_id: RefEntryId, memory_ref: MemoryRef
    ) -> OneRefEntry:
        for entry in self._seen(caller, memory_ref):
            if entry.id == memory_id and "forgets" not in self.faults:
                return OneRefEntry(memory_ref=memory_ref, entry=entry)
        raise NotFound("none")

    async def list(
        self, caller: Caller, *, memory_ref: MemoryRef, tag: str, limit: int,
        token_budget: int | None,
    ) -> Page:  # fmt: skip
        found = [it for it in self._seen(caller, memory_ref) if tag in it.tags]
        hides = "lists nothing" in self.faults or f"hides {caller.tenant}" in self.faults
        budget = None if "has no budget" in self.faults else token_budget
        if "keeps one" in self.faults and len(found) == 1:
            budget = None
        is_wrong = "counts wrong" in self.faults
        sized = [(it, size, 1 if is_wrong else size) for it in found if (size := len(it.content))]
        shown, _ = fitting([] if hides else reversed(sized), limit, budget)
        return Page("entries", shown)

    async def register(self, *_: object) -> RegisteredSecret:
        registered = "registers nothing" not in self.faults
        return RegisteredSecret(secret_id="", registered=registered)

    async def forget(self, caller: Caller, _: str) -> None:
        self.held = [it for it in self.held if it[0] != caller.tenant]

    def _seen(self, caller: Caller, ref: MemoryRef) -> Sequence[RefEntry]:
        return [
            entry
            for tenant, draft, entry in self.held
            if draft.ref == ref
            and (tenant == caller.tenant or "has no tenants" in self.faults)
            and (entry.expires_at is None or "has no ends" in self.faults)
        ]

    def _added(self, caller: Caller, draft: RefDraft, *, has_ended: bool) -> RefEntry:
        marker = "" if "strips" in self.faults else "[REDACTED:conformance-test-secret]"
        number = len(self.held)
        entry = RefEntry(
            id=draft.id or RefEntryId(f"e{number}"), memory=MemoryId(number), uid=str(number),
            content=draft.content.replace(VALUE, VALUE if "tells" in self.faults else marker),
            tags=draft.tags, created_at=START,
            expires_at=START - timedelta(minutes=1) if has_ended else None,
        )  # fmt: skip
        self.held.append((caller.tenant, draft, entry))
        return entry


def done(workflow: str, *faults: str) -> Json:
    """What a fixture finds of such a memory."""
    memory = cast("Any", Wrong(faults))
    stage = Stage(
        entries=memory, runs=memory, forgetting=memory, seeding=memory, clock=lambda: START,
        new_secret=lambda: VALUE, caller=Caller(), run=RunId("r1"), workflow=workflow,
    )  # fmt: skip
    return asyncio.run(FIXTURES[workflow](stage))  # type: ignore[arg-type]


@requirement("OW-100")
@for_each("workflow", FIXTURES)
def test_a_memory_without_faults_passes(workflow: str) -> None:
    found = done(workflow)

    assert "" not in found.values()
    assert None not in found.values()


@requirement("OW-100")
@for_each(
    "workflow, fault, code",
    [
        ("roundtrip", "forgets", "memory_readback_failed"),
        ("redaction", "forgets", "memory_readback_failed"),
        ("redaction", "tells", "sr1_redaction_failed"),
        ("redaction", "strips", "sr1_marker_missing"),
        ("redaction", "registers nothing", "secret_not_registered"),
        ("ttl", "has no ends", "ttl_expired_entry_surfaced"),
        ("ttl", "lists nothing", "ttl_fresh_entry_missing"),
        ("injection-budget", "has no budget", "injection_budget_exceeded"),
        ("injection-budget", "lists nothing", "injection_budget_exceeded"),
        ("injection-budget", "counts wrong", "injection_budget_exceeded"),
        ("injection-budget", "keeps one", "injection_budget_giant_kept"),
        ("injection-budget", "tells", "sr1_redaction_failed"),
        ("injection-budget", "has no tenants", "cti1_cross_tenant_leak"),
        ("injection-budget", "hides conformance-other", "cti1_seed_not_visible_to_owner"),
        ("cross-tenant", "lists nothing", "cti1_owner_entry_not_readable"),
        ("cross-tenant", "hides conformance-other", "cti1_seed_not_visible_to_owner"),
        ("cross-tenant", "has no tenants", "cti1_cross_tenant_leak"),
    ],
)
def test_a_fault_fails_the_fixture_that_looks_for_it(workflow: str, fault: str, code: str) -> None:
    with pytest.raises(FixtureFailed) as failure:
        done(PREFIX + workflow, fault)

    assert failure.value.code == code
    assert str(failure.value).endswith(".")
