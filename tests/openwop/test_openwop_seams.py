"""The conformance seams: the service has none; the application that does needs a key."""

from functools import partial
from pathlib import Path

import pytest

from agentops_memory.errors import SettingRefused

from ..docs.test_docs import blocks, steps
from ..support.openwop_hosts import ok
from ..support.openwop_seams import (
    ACROSS,
    FIXTURES,
    OTHER,
    Suite,
    let_in,
)
from ..support.process import ANEW, ROOT, program
from ..support.requirements import requirement
from ..support.service import speaking
from .seams.application import with_seams


@requirement("OW-98")
def test_a_service_without_keys_does_not_start_with_them(path: Path) -> None:
    said = "^The conformance seams need a key, and there is none: create one with .*[.]$"
    for auth in ("", "none"):
        with (
            pytest.raises(SettingRefused, match=said),
            speaking(with_seams, path, {"MEMORY_AUTH": auth}),
        ):
            pytest.fail("it serves")


@pytest.mark.heavy
@requirement("OW-98")
def test_the_application_of_the_document_serves_the_suite(tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "openwop.md", "console-suite")
    create, start = (it.command.replace("/tmp", str(tmp_path)).split() for it in steps(block))  # noqa: S108 - the document's
    code = f"import runpy; runpy.run_module({start[2]!r}, run_name='__main__', alter_sys=True)"
    application = partial(program, *start[3:5], code=code, within=ANEW, cwd=ROOT)

    with application() as without_key:
        assert without_key.wait() == 1
        assert "The conformance seams need a key, and there is none" in without_key.errors
    with program(*create[1:]) as made:
        assert made.wait() == 0
    with application(variables={"MEMORY_LISTEN": "127.0.0.1:0"}) as suite, suite.client() as http:
        assert http.post("/v1/runs", json={}).status_code == 401
        http.headers["Authorization"] = f"Bearer {made.output.strip()}"
        run = ok(http.post("/v1/runs", json={"workflowId": "conformance-noop"}), 201)
        assert run["status"] == "completed"


@requirement("OW-99")
def test_discovery_tells_of_the_fixtures_that_are_served(suite: Suite) -> None:
    found = suite.discovered()
    assert found["fixtures"] == list(FIXTURES)
    assert "fixtures" not in found["capabilities"]

    with let_in(suite, "reader", OTHER) as other:
        assert suite.discovered()["fixtures"] == [*FIXTURES, *ACROSS]
        for workflow in ACROSS:
            answer = other.post("/runs", {"workflowId": workflow})
            assert answer.status_code == 403


@requirement("OW-99", "OW-100")
def test_each_fixture_completes_and_a_run_is_over_when_it_is_answered(suite: Suite) -> None:
    started = ok(suite.post("/runs", {"workflowId": "conformance-noop", "inputs": {}}), 201)
    run = started["runId"]

    assert started == {
        "runId": run, "status": "completed", "eventsUrl": f"/v1/runs/{run}/events",
        "statusUrl": f"/v1/runs/{run}",
    }  # fmt: skip
    with let_in(suite, "reader", OTHER):
        found = {it: suite.ran(it)["variables"] for it in (*FIXTURES, *ACROSS)}
    redacted = found["conformance-agent-memory-redaction"]["memoryReadback"]["content"]
    assert "[REDACTED:conformance-test-secret]" in redacted
    (fresh,) = found["conformance-agent-memory-ttl"]["memoryList"]
    assert fresh["id"] == found["conformance-agent-memory-ttl"]["freshId"]
    with let_in(suite, "reader") as reader:
        assert ok(reader.get("/host/sample/proposals"))["proposals"] == []
