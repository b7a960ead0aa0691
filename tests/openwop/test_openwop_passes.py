"""Requests for passes, their undo and forgetting: what they may say, of whom, and at once."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest

from agentops_memory.engine.engine import Engine
from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.redactor import Redactor
from agentops_memory.memory.space import MemoryRef
from agentops_memory.openwop import archives, consolidation, passes, routes
from agentops_memory.openwop.api import MemoryChanged, RefEntryId, Screen
from agentops_memory.openwop.entries import RefTable
from agentops_memory.secrets.redaction import DEFAULT_RULES

from ..support.callers import audit
from ..support.engine import run
from ..support.files import assert_index_is_whole
from ..support.openwop_hosts import REF, Host, Json, ok, refused, together
from ..support.openwop_passes import (
    CHANGED,
    COMPACTED,
    CONSOLIDATED,
    about,
    events,
    ids,
    of_type,
    passed,
    state,
)
from ..support.openwop_proposals import moved, proposed
from ..support.openwop_tenants import counted, keyed
from ..support.process import until
from ..support.requirements import requirement
from ..support.samples import for_each
from ..support.service import Service, serving

FORBIDDEN = (403, "forbidden")

Ask = Callable[[Host], httpx.Response]
PASSES: dict[str, Ask] = {
    "compact": lambda it: it.compact(),
    "distill": lambda it: it.distill(),
    "consolidate": lambda it: it.consolidate(),
}


@for_each("name", PASSES)
@requirement("OW-30", "OW-31", "OW-44", "OW-14")
def test_refs_of_others_are_not_written(closed: Service, name: str) -> None:
    with keyed(closed) as host:
        held = counted(host), len(events(host))
        for ref in ("tenants/acme/x", "tenant:ACME", "mem_tenant:acme_agent:7"):
            assert refused(PASSES[name](replace(host, ref=ref))) == FORBIDDEN, ref
        assert (counted(host), len(events(host))) == held


@requirement("OW-12")
def test_unknown_fields_are_ignored_and_null_is_absent(host: Host) -> None:
    host.put("herons wade"), host.put("egrets fly")
    more = {"runId": "no", "nodeId": None, "tenantId": "acme", "more": {"x": [1]}}

    answers = [
        host.consolidate(merges=None, **more), host.consolidate(merges=[], **more),
        host.distill(content=None, tokenBudget=None, recursive=None, expiresAt=None, **more),
        host.compact(content=None, keepSources=None, **more),
        host.forget("nobody", dryRun=None, **more),
    ]  # fmt: skip

    assert [it.status_code for it in answers] == [200] * 5
    assert ids(host.entries(limit=1)) == [passed(answers[3])["outputId"]]


@pytest.mark.slow
@requirement("OW-32", "OW-33", "OW-34", "OW-71", "OW-73", "OW-76", "OW-83", "OW-95", "OW-97")
def test_passes_their_undo_the_index_and_forgetting_are_of_one_tenant_and_passes_of_one_ref(
    service: Service,
) -> None:
    with keyed(service, "admin") as ours, keyed(service, "admin", "acme") as theirs:
        other = replace(ours, ref=f"{REF}/")
        for host in (ours, theirs, other):
            for name, text in (("a", "herons wade"), ("b", "egrets fly")):
                host.put(text, id=name, tags=["subject:ada"])

        def beside() -> list[object]:
            indexes = [it.index()["archives"] for it in (theirs, other)]
            return [state(theirs), state(other)[:2], indexes]

        held = beside()
        for name in ("distill", "consolidate"):
            ok(PASSES[name](ours))
        done = ours.compact(tenantId="acme")
        run, archive = ok(done)["runId"], passed(done)
        assert (archive["memoryRef"], archive["sourceCount"]) == (REF, 2)
        assert beside() == held
        with keyed(service, "reader") as reader:
            assert reader.index() == ours.index() != theirs.index() == other.index()

        refusal, listed = theirs.undo(run), ours.entries()
        assert refusal.content == theirs.undo("run_" + "0" * 32).content
        assert refused(refusal) == (404, "not_found")
        assert ours.entries() == listed
        equal = passed(theirs.compact())["outputId"]
        assert equal == archive["outputId"] != passed(other.compact())["outputId"]
        assert about(theirs, equal)["writtenBy"] != about(ours, equal)["writtenBy"]
        ok(theirs.delete(equal))
        assert (ours.entries(), ids(theirs.entries())) == (listed, ["b", "a"])

        before = state(theirs)
        told = ok(ours.forget("ada"))
        assert (told["entries"], told["archives"], state(theirs)) == (4, 3, before)
        receipt = theirs.ask("GET", f"/erasures/{told['erasureId']}")
        assert receipt.content == theirs.ask("GET", "/erasures/7").content
        assert refused(receipt) == (404, "not_found")
        merge = {"ids": ["a", "b"], "content": "theirs"}
        assert passed(theirs.consolidate(merge), CONSOLIDATED)["outputCount"] == 1


@pytest.mark.slow
@requirement("OW-77", "OW-82")
def test_refs_that_changed_are_consolidated_by_themselves(path: Path) -> None:
    with serving(path, MEMORY_CONSOLIDATE_EVERY="5ms") as service:
        host, other = Host(service.http), Host(service.http, "other")

        def settles(at: Host, text: str) -> None:
            at.put(text), at.put(text)
            until(lambda: at.contents().count(text) == 1)

        settles(host, "herons wade")
        for number in range(2):
            settles(other, f"egrets {number}")
        done = [it for it in of_type(host, CONSOLIDATED) if it["memoryRef"] == REF]
        for number in range(2, 4):
            settles(other, f"egrets {number}")
        assert [it for it in of_type(host, CONSOLIDATED) if it["memoryRef"] == REF] == done
        assert {it["trigger"] for it in done} == {"host-managed"}
        assert sum(it["inputCount"] - it["outputCount"] for it in done) == 1


@pytest.mark.slow
@requirement("OW-82", "OW-29", "OW-66")
def test_compactions_and_puts_take_each_source_once(service: Service, host: Host) -> None:
    def put(number: int) -> list[Json]:
        words = "herons storks egrets".split()
        return [host.put(f"{words[turn % 3]} of {number % 2}", tags=["t"]) for turn in range(12)]

    def compact() -> list[Json]:
        refusals = {refused(it) for it in [host.compact() for _ in range(6)] if it.is_error}
        assert refusals <= {CHANGED, (409, "nothing_to_compact")}
        return []

    written = together(*[partial(put, number) for number in range(4)], *[compact] * 3)

    made = [it for of_one in written for it in of_one]
    compacted = of_type(host, COMPACTED)
    sources = [it for one in compacted for it in one["sourceIds"]]
    archives = [it["outputId"] for it in compacted]
    assert (len(sources), len(archives)) == (len({*sources}), len({*archives}))
    assert {*ids(host.entries())} == ({*ids(made)} - {*sources}) | {*archives}
    every = [ok(host.get(it))["entry"] for it in [*ids(made), *archives]]
    assert every[: len(made)] == made
    assert counted(host) == {REF: (len(every), sum(len(it["content"]) for it in every))}
    assert_index_is_whole(service.path)


@pytest.mark.slow
@requirement("OW-82", "OW-29")
def test_what_was_deleted_since_a_pass_read_it_takes_no_part(path: Path) -> None:
    with serving(path) as service:
        for it in "abc":
            Host(service.http).put("herons wade", id=it)
    ref, screen = MemoryRef(REF), Screen(Redactor(DEFAULT_RULES))

    async def race(engine: Engine) -> None:
        listed, _ = await engine.read(OPERATOR, consolidation.corpus, ref)
        known = await engine.read(OPERATOR, lambda tx: tx[RefTable].some(listed))
        (step,) = consolidation.plan_steps(known, screen)
        draft = archives.archive_of(ref, known, screen, None, supersedes=True)
        begun = await engine.write(OPERATOR, consolidation.begin_pass, ref, [], [], screen)
        await engine.write(OPERATOR, routes.delete_entry, ref, RefEntryId("a"), None)
        for work in (
            partial(engine.write, OPERATOR, consolidation.take_step, begun, step),
            partial(engine.write, OPERATOR, archives.put_archive, draft, passes.REPLACEABLE),
        ):
            with pytest.raises(MemoryChanged):
                await work()

    run(path, race)

    with serving(path) as service:
        assert ids(Host(service.http).entries()) == ["c", "b"]


@requirement("OW-82", "OW-73", "OW-29")
def test_racing_distillations_of_the_same_make_one_archive(host: Host) -> None:
    sources = [host.put(it) for it in ("herons wade", "egrets fly")]

    (archive,) = {passed(it)["outputId"] for it in together(*[host.distill] * 12)}

    assert ids(host.entries()) == [archive, *ids(sources[::-1])]
    assert counted(host)[REF][0] == 3


@pytest.mark.slow
@requirement("OW-101")
def test_what_is_withdrawn_undone_or_forgotten_is_audited_once_with_its_tenant(
    service: Service, host: Host
) -> None:
    for text in ("The proxy waits.", "The checkout works."):
        host.put(text, tags=["subject:ada"])
    run, id_ = ok(host.compact())["runId"], proposed(host)["id"]
    ok(moved(host, id_, "apply"))
    before = len(audit(service.path))

    together(*[partial(host.undo, run), partial(moved, host, id_, "archive")] * 4)
    together(*[partial(host.forget, "ada")] * 4)

    told = audit(service.path)[before:]
    actions = ["memory.forgotten", "pass.undone", "proposal.withdrawn"]
    assert sorted(str(it["action"]) for it in told) == actions
    assert {it["tenant"] for it in told} == {"default"}
