"""Agents of the real package, one of which is killed at its work: its successor resumes it."""

import logging
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from openintent import OpenIntentClient
from openintent.exceptions import NotFoundError, OpenIntentError
from openintent.models import EventType

from ..support.archives import backed_up
from ..support.callers import made_key
from ..support.engines import is_postgresql
from ..support.erasing import remains
from ..support.openintent_agents import Agent, ok
from ..support.process import until
from ..support.requirements import requirement
from ..support.service import Service
from ..telemetry.test_tracing import traced

WORD = "quokka"  # a word that is no stem of another
WORKER = """
import sys, time
from openintent import OpenIntentClient
url, key, task, secret = sys.argv[1:]
with OpenIntentClient(url, api_key=key, agent_id="a") as a:
    a.update_task(task, a.get_task(task).version, "running")
    scope = {"task_id": task}
    a.create_memory("a", "invoices", "progress", {"done": 12, "total": 47}, scope=scope)
    a.create_memory("a", "invoices", "account", {"holder": secret}, scope=scope,
                    sensitivity="confidential")
    a.create_memory("a", "invoices", "slow", {"suppliers": ["Acme"]}, memory_type="episodic")
    print("working", flush=True)
    time.sleep(600)
"""


def sdk(service: Service, agent: str, *, coordinates: bool = False) -> OpenIntentClient:
    token = made_key(service.path, "writer", agents=(agent,), coordinates=coordinates)
    return OpenIntentClient(service.url, api_key=token, agent_id=agent)


@pytest.mark.slow
@requirement("OI-40", "OI-34", "OI-35", "OI-36", "OI-43", "OI-71", "OI-85", "OI-78", "OI-94")
def test_a_killed_agents_task_is_resumed_and_completed_by_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    folder = tmp_path / "data"
    folder.mkdir()
    with traced(folder) as (service, received), ExitStack() as clients:
        lead = clients.enter_context(sdk(service, "lead", coordinates=True))
        b = clients.enter_context(sdk(service, "b"))
        intent = lead.create_intent("Invoices of November")
        lead.create_coordinator_lease("lead", intent.id)
        task = lead.create_task(intent.id, "read them", assigned_agent="a")
        key = made_key(service.path, "writer", agents=("a",))
        with subprocess.Popen(
            [sys.executable, "-c", WORKER, service.url, key, task.id, WORD],
            stdout=subprocess.PIPE, text=True,
        ) as worker:  # fmt: skip
            assert worker.stdout is not None
            assert worker.stdout.readline() == "working\n"
            worker.kill()
        with pytest.raises(NotFoundError):
            b.get_task(task.id)

        lead.update_task(task.id, lead.get_task(task.id).version, assigned_agent="b")

        left = {it.key: it for it in b.list_memory("a")}
        assert {key: it.value for key, it in left.items()} == {
            "progress": {"done": 12, "total": 47}, "account": {"holder": WORD},
        }  # fmt: skip
        with pytest.raises(OpenIntentError):
            b.update_memory(left["progress"].id, left["progress"].version, value={})
        scope = {"task_id": task.id}
        b.create_memory("b", "invoices", "progress", {"done": 47, "total": 47}, scope=scope)
        b.update_task(task.id, b.get_task(task.id).version, "completed", output={"read": 47})

        archives = lead.get_events(intent.id, event_type=EventType.MEMORY_ARCHIVED)
        snapshots = [entry for it in archives for entry in it.payload["snapshot"]]
        assert sorted((it["key"], str(it.get("value"))) for it in snapshots) == [
            ("account", "None"), ("progress", "{'done': 12, 'total': 47}"),
            ("progress", "{'done': 47, 'total': 47}"),
        ]  # fmt: skip
        assert b.list_memory("a") == b.list_memory("b") == []
        a = clients.enter_context(sdk(service, "a"))
        assert [it.key for it in a.list_memory("a")] == ["slow"]
        assert lead.list_memory("a") == []  # its task is finished
        marked = a.create_memory(
            "a", "invoices", "slowest", {"supplier": WORD}, memory_type="episodic",
            sensitivity="restricted",
        )  # fmt: skip
        assert a.get_memory(marked.id).value == {"supplier": WORD}
        told = Agent(service.http, "a", {"Authorization": f"Bearer {key}"})
        prompt = ok(told.ask("GET", "/context?project=p&query=supplier&episodic=true"))
        assert WORD not in str(prompt)
        if not is_postgresql():
            backed_up(service.path, tmp_path / "backup.zip", "--without-seal")
        until(lambda: not remains(folder, WORD))
        spans = received()
    assert WORD not in repr(spans.spans)
    assert remains(tmp_path, WORD) == set()
    assert WORD not in caplog.text
