"""What commitments cost others, and what a closed database and a trace have of them."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.errors import NotFound
from agentops_memory.memory.access import Caller, TenantId
from agentops_memory.openwop.commitments import Firing

from ..operations.test_tenants import count, opened
from ..operations.test_tenants import until as eventually
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import Host, ok
from ..support.requirements import requirement
from ..telemetry.test_tracing import traced


async def test_a_look_in_passing_opens_no_database_and_keeps_none_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = Caller(tenant=TenantId("acme"))

    loop, passed = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + passed)
    async with opened(path, idle=timedelta(hours=3)) as engine:
        firing = Firing(engine=engine.in_passing)
        with pytest.raises(NotFound):
            await firing.look(acme)
        assert engine.callers() == [Caller()]
        assert await count(engine, acme) == 0
        for _ in range(2):
            for caller in engine.callers():
                await firing.look(caller)
            passed += 2 * 3600
        await eventually(lambda: acme not in engine.callers())


@requirement("OW-101")
def test_each_operation_on_commitments_is_a_span_that_tells_of_the_entry_and_of_no_text(
    tmp_path: Path,
) -> None:
    with traced(tmp_path) as (service, received):
        host = Host(service.http)
        intents = Intents(host)
        made = host.put("hippopotamus", id="plan")
        armed = intents.on(made["id"], "saffron")
        ok(intents.get(armed["id"]))
        assert intents.listed(memoryRef=host.ref) == [armed]
        ok(intents.cancel(armed["id"]))
        collector = received()

    about: dict[str, object] = {"memory.ref": host.ref}
    told: dict[str, dict[str, object]] = {
        "create_commitment": about | {"memory.entry.id": "plan"},
        "list_commitments": about | {"memory.result_count": 1},
        "get_commitment": {},
        "cancel_commitment": {},
    }
    for name, attributes in told.items():
        span = collector.one(f"memory.openwop_{name}")
        assert {it: span.attributes.get(it) for it in attributes} == attributes, name
        assert (span.is_server, span.failed) == (True, False)
    for word in ("hippopotamus", "saffron"):
        assert word not in repr(collector.spans), word
