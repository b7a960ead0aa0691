"""Requests for passes, their undo, the index and forgetting: what they may say, and of whom."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ..support.openwop_hosts import REF, Host, ok, refused
from ..support.openwop_passes import CONSOLIDATED, events, ids, of_type, passed, state
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
@requirement("OW-34", "OW-32", "OW-83")
def test_passes_are_of_one_tenant(closed: Service) -> None:
    with keyed(closed) as ours, keyed(closed, "writer", "acme") as theirs:
        at = [replace(it, ref="both") for it in (ours, theirs)]
        for it in at:
            for name in ("a", "b"):
                it.put("green apples", id=name)
        held = state(at[1])

        for name in ("distill", "consolidate"):
            ok(PASSES[name](at[0]))
        at[0].put("herons wade")
        assert passed(at[0].compact())["sourceCount"] == 2
        again = at[0].consolidate(tenantId="acme")

        assert passed(again, CONSOLIDATED)["memoryRef"] == "both"
        assert state(at[1]) == held
        merge = {"ids": ["a", "b"], "content": "theirs"}
        assert passed(at[1].consolidate(merge), CONSOLIDATED)["outputCount"] == 1


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
