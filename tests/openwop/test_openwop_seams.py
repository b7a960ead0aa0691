"""The conformance seams: the service has none; the application that does needs a key."""

import logging
import re
from functools import partial
from pathlib import Path

import pytest

from agentops_memory.errors import SettingRefused

from ..docs.test_docs import blocks, steps
from ..support.callers import audit, calling, key_file, made_key
from ..support.openwop_hosts import DISCOVERY, ok, refused
from ..support.openwop_seams import (
    ACROSS,
    FIXTURES,
    HOSTILE,
    OTHER,
    REF,
    ROUTES,
    Suite,
    driven,
    let_in,
)
from ..support.process import ANEW, ROOT, program, until
from ..support.requirements import requirement
from ..support.service import serving, speaking
from ..telemetry.test_tracing import traced
from .seams.application import with_seams

VARIABLE = re.compile(r"\{\w+\}")
SEEDS = [{"id": "a", "content": "saffron"}]
OF_SEAMS = ("/v1/runs", "/v1/test/", "/v1/memory/", "/v1/host/sample/", "/v1/host/openwop-app/")


@pytest.mark.slow
@requirement("OW-98", "OW-5")
def test_the_service_has_no_seam(path: Path) -> None:
    token = made_key(path)
    with serving(path) as service, calling(service, token) as http:
        unknown = http.get("/v1/nothing")
        for method, route in ROUTES:
            answer = http.request(method, f"/v1{route}", json={})
            assert answer.status_code == 404, route
            assert answer.content == unknown.content
        paths = ok(http.get("/v1/openapi.json"))["paths"]
        assert not [it for it in paths if it.startswith(OF_SEAMS)]
        assert "fixtures" not in ok(http.get(DISCOVERY))
        assert "seams.enabled" not in {line["action"] for line in audit(path)}


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


@requirement("OW-98")
def test_no_seam_is_for_a_caller_without_a_key(suite: Suite) -> None:
    with calling(suite.service, None) as http:
        for method, route in ROUTES:
            answer = http.request(method, f"/v1{route}", json={})
            assert refused(answer) == (401, "unauthenticated"), route


@pytest.mark.slow
@requirement("OW-98")
def test_once_the_keys_are_reset_the_seams_are_nobodys(suite: Suite) -> None:
    key_file(suite.service.path).reset(at=suite.service.clock.now, by={"user": "tester"})

    with calling(suite.service, None) as http:
        until(lambda: http.get("/v1/host/agentops-memory/memory").is_success)
        assert ok(http.get("/v1/host/agentops-memory/memory"))["entries"] == []
        for method, route in ROUTES:
            answer = http.request(method, f"/v1{route}", json={})
            assert refused(answer) == (401, "unauthenticated"), route


@pytest.mark.slow
@requirement("OW-98", "OW-8")
def test_a_reader_changes_nothing_through_a_seam(suite: Suite) -> None:
    with let_in(suite, "reader") as reader:
        for method, route in ROUTES:
            answer = reader.http.request(method, f"/v1{route}", json={})
            if method == "GET":
                assert answer.status_code in (200, 404), route
            else:
                assert refused(answer) == (403, "forbidden"), route


@pytest.mark.slow
@requirement("OW-98", "OW-33", "OW-34")
def test_what_is_another_tenants_is_nowhere(suite: Suite) -> None:
    run = suite.ran("conformance-agent-memory-roundtrip")
    entry, ref = run["variables"]["memoryReadback"]["id"], f"mem://{run['workflowId']}"
    with let_in(suite, "writer", "acme") as other:
        for path, never in (
            (f"/runs/{run['runId']}", "/runs/never"),
            (f"/runs/{run['runId']}/events", "/runs/never/events"),
            (f"/runs/{run['runId']}/events/poll", "/runs/never/events/poll"),
            (f"/host/sample/memory/{entry}?memoryRef={ref}", "/host/sample/memory/never"),
        ):
            answers = [other.get(it) for it in (path, never)]
            assert [refused(it) for it in answers] == [(404, "not_found")] * 2
            assert answers[0].content == answers[1].content
        assert other.listed(ref) == []
        forked = other.post(f"/runs/{run['runId']}:fork", {"mode": "replay"})
        assert refused(forked) == (404, "not_found")


@requirement("OW-98")
def test_that_they_are_on_is_told_at_the_start(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), driven(path) as suite:
        assert [line["action"] for line in audit(suite.service.path)] == [
            "key.created", "seams.enabled"
        ]  # fmt: skip
    assert "the conformance seams of OpenWOP are served, which no host needs" in caplog.messages


@pytest.mark.heavy
@requirement("OW-5")
def test_on_each_of_them_is_described(suite: Suite) -> None:
    paths = ok(suite.http.get("/v1/openapi.json"))["paths"]

    served = {
        (method.upper(), VARIABLE.sub("x", path).removeprefix("/v1"))
        for path, each in paths.items()
        for method in each
        if path.startswith(OF_SEAMS)
    }
    assert served == set(ROUTES)
    for path in ("/v1/openapi.json", "/openapi.json", "/docs"):
        answer = suite.http.get(path)
        assert answer.status_code == 200
        assert "agentops_memory__" not in answer.text  # each shape has a name of its own
    operations = [each["operationId"] for path in paths.values() for each in path.values()]
    assert len(set(operations)) == len(operations)


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


@pytest.mark.heavy
@pytest.mark.representative(5)
@requirement("OW-99", "OW-12")
@pytest.mark.parametrize("route", HOSTILE)
def test_a_hostile_body_is_refused_and_never_a_fault_of_the_service(
    suite: Suite, route: str
) -> None:
    for body in HOSTILE[route]:
        answer = suite.post(route, body)
        assert refused(answer)[0] in (400, 403, 404, 409, 422), (body, answer.text)
    for raw in (b"", b"[]", b"{", b'"x"', b"\xff", b'{"memoryRef": "\\u0000"}', b"null"):
        answer = suite.http.post(f"/v1{route}", content=raw)
        assert refused(answer)[0] in (400, 404, 409, 422), (raw, answer.text)


@pytest.mark.heavy
@pytest.mark.representative(4)
@requirement("OW-99", "OW-11")
@pytest.mark.parametrize("route", [path for method, path in ROUTES if method == "GET"])
def test_a_hostile_path_is_refused_and_never_a_fault_of_the_service(
    suite: Suite, route: str
) -> None:
    for name in ("%FF", "%00", "%ED%A0%80", "..%2F..", "x" * 5000, "%0A", "a:fork", "", "%2F%2F"):
        for query in ("", "?limit=-1", "?after=%FF&lastSequence=" + "9" * 400, "?before=x&tag=%00"):
            answer = suite.http.get(f"/v1{route.replace('/x', '/' + name)}{query}")
            assert answer.status_code in (200, 400, 404), (name, query, answer.text)


@pytest.mark.slow
@requirement("OW-101", "OW-40")
def test_all_seams_have_one_span_which_tells_no_content(tmp_path: Path) -> None:
    token = made_key(tmp_path / "memory.db", "writer")
    with traced(tmp_path, with_seams) as (service, received):
        with calling(service, token) as http:
            suite = Suite(service=service, http=http)
            suite.ran("conformance-agent-memory-redaction")
            suite.post("/test/memory/seed", {"memoryRef": REF, "entries": SEEDS})
            ok(suite.get("/memory/mem%3A%2F%2Fsuite"))
            ok(suite.get("/host/sample/memory"))
        collector = received()

    names = [it.name for it in collector.spans if it.is_server]
    assert names == ["memory.openwop_seam"] * 5
    told = repr(collector.spans)
    assert "saffron" not in told
    assert "must not remember" not in told
