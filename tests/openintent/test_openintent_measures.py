"""What is measured of agents' memory."""

from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.jobs import schedule as gauges

from ..support.measures import key, measured
from ..support.openintent_agents import (
    BATCH,
    INTENTS,
    MEMORY,
    TASKS,
    Agent,
    ok,
    refused,
    report,
    working,
)
from ..support.process import until
from ..support.service import Service, serving

MEASURES = {
    "working": key("memory_agent_entries", tier="working"),
    "episodic": key("memory_agent_entries", tier="episodic"),
    "semantic": key("memory_agent_entries", tier="semantic"),
    "evicted": key("memory_agent_evictions_total"),
    "archived": key("memory_agent_archived_total"),
    "log swept": key("memory_swept_rows_total", kind="log"),
    "working refused": key("memory_capacity_refusals_total", limit="working"),
    "episodic refused": key("memory_capacity_refusals_total", limit="episodic"),
}


def seen(service: Service) -> dict[str, float]:
    """The measures that are not 0."""
    found = measured(service)
    return {name: found[it] for name, it in MEASURES.items() if found[it]}


def test_entries_evictions_and_refusals_are_measured(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "COUNTED_FOR", timedelta(0))
    monkeypatch.setattr(gauges, "COUNT_PAUSE", 0)
    with serving(path, MEMORY_EPISODIC_CAPACITY="2", MEMORY_WORKING_CAPACITY="1") as service:
        ada = Agent(service.http)
        assert seen(service) == {}

        ada.make(memory_type="working")
        ada.make(memory_type="semantic")
        for name in ("a", "b", "c"):
            ada.make(key=name)
        assert seen(service) == {"working": 1, "episodic": 2, "semantic": 1, "evicted": 1}

        pinned = {"entries": [ada.body(key=name, pinned=True) for name in ("d", "e")]}
        ok(ada.ask("POST", BATCH, pinned))
        assert refused(ada.post(key="f"))[0] == 429
        assert refused(ada.ask("POST", BATCH, {"entries": [ada.body(key="f")]}))[0] == 429
        assert refused(ada.post(key="f", memory_type="working"))[0] == 429
        assert seen(service) == {
            "working": 1, "episodic": 2, "semantic": 1, "evicted": 3, "working refused": 1,
            "episodic refused": 2,
        }  # fmt: skip

        ok(ada.ask("DELETE", f"{BATCH}?key=e"))
        ada.make(key="g")
        for _ in range(2):  # a repetition evicts nothing
            headers = {"Idempotency-Key": "once"}
            ok(ada.ask("POST", MEMORY, ada.body(key="h"), headers=headers), 201)
        assert seen(service)["evicted"] == 4


@pytest.mark.slow
def test_archives_are_measured_and_what_is_swept_of_logs(path: Path) -> None:
    with serving(path, MEMORY_KEEP_LOG="1d", MEMORY_SWEEP_EVERY="20ms") as service:
        ada = Agent(service.http)
        intent = ok(ada.ask("POST", INTENTS, {"title": "Invoices"}), 201)
        body = {"intent_id": intent["id"], "name": "read", "assigned_agent": "ada"}
        task = ok(ada.ask("POST", TASKS, body), 201)
        for name in ("a", "b"):
            working(ada, task, key=name)
        ended = {"headers": {"If-Match": "1", "Idempotency-Key": "once"}}
        for _ in range(2):  # a repetition archives nothing
            ok(ada.ask("PATCH", f"{TASKS}/{task['id']}", {"status": "completed"}, **ended))
        assert measured(service)[MEASURES["archived"]] == 2
        assert measured(service)[MEASURES["log swept"]] == 0
        assert refused(report(ada, task, status="failed"))[0] == 409

        service.clock.advance(days=2)
        rows = 1 + 4  # the task; and that it was made, assigned, archived and completed
        until(lambda: measured(service)[MEASURES["log swept"]] == rows)
