"""MCP through standard input and output: hosts that start `agentops-memory mcp`."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..support.agents import BARE, agent, hosted
from ..support.callers import made_key
from ..support.process import environment
from ..support.service import Service, serving
from .test_mcp_http import ENVELOPE, INITIALIZE, OF


@pytest.mark.slow
def test_an_agent_works_on_a_file_that_another_host_and_a_service_use(path: Path) -> None:
    arguments = ["--project", "Shop ", "--db", str(path), "--tools", "all"]
    with hosted(arguments, BARE) as one, hosted(arguments, BARE) as two:
        saved = one.said("mem_save", title="Use WAL mode", content="Readers do not block.")
        seen = two.said("mem_search", query="why wal?")
        also = two.said("mem_save", title="Beside", content="Of the second.")
        two.said("mem_session_start", session_id="monday")
        named = two.said("mem_save", title="In it", content="Of Monday.")
        with serving(path) as service, agent(f"{service.url}/mcp/shop") as third:
            third.said("mem_save", title="Through the service", content="Of the third.")
            assert "Through the service" in one.said("mem_context")
            assert "project shop" in one.prompt()

    assert "[discovery] Use WAL mode\n    Readers do not block." in seen
    assert saved.partition("in session ")[2] != also.partition("in session ")[2]
    assert named.endswith("in session monday.")


@pytest.mark.slow
def test_an_agent_speaks_to_a_running_service_with_its_key(service: Service) -> None:
    key = made_key(service.path, "writer", projects=("shop",))
    with hosted(
        ["--project", "shop", "--url", service.url], variables={"MEMORY_API_KEY": key}
    ) as remote:
        remote.said("mem_save", title="There", content="On the service.")
        assert remote.said("mem_search", query="service").startswith("1 memory")
    with hosted(["--project", "shop", "--url", service.url]) as stranger:
        refused = stranger.refusal("mem_search", query="service")

    assert refused.endswith("This connection needs an API key; ask the user to configure one.")


@pytest.mark.slow
def test_a_dead_service_is_told_to_the_agent_and_to_nobody_else() -> None:
    with hosted(["--project", "shop", "--url", "http://127.0.0.1:9"]) as lonely:
        told = lonely.refusal("mem_save", title="Lost?", content="Not silently.")
        again = lonely.refusal("mem_context")

    for text in (told, again):
        assert "127.0.0.1:9" in text
        assert text.endswith("save what you wanted to save later.")
        assert "Traceback" not in text


@pytest.mark.slow
def test_what_is_no_message_is_answered_and_nothing_but_the_protocol_is_written(
    path: Path,
) -> None:
    ping = {"jsonrpc": "2.0", "id": 5, "method": "ping"}
    save = {"name": "mem_save", "arguments": {"title": "Last words", "content": "The end."}}
    sent = [
        b"no JSON", b"\xff\xfe", b"", b'{"jsonrpc": "2.0",', b"  ", b"7", b"[]",
        json.dumps([ping]).encode(), b'{"id": 3, "method": "ping"}', _message(id=4),
        _message(id=True, method="ping"), _message(id=6, result={}), _message(**INITIALIZE),
        _message(method="notifications/unknown"), _message(**ping),
        _message(id=8, method="tools/call", params=save),
        _message(id=8, method="ping"), _message(id="8", method="ping"),  # none loses its answer
    ]  # fmt: skip
    path.touch()  # which another program is about to make
    place = ("--db", str(path), "--url", "", "--log-level", "debug")  # an empty URL is none
    spoken = _mcp("--project", "p", *place, sent=sent)
    answers = [json.loads(line) for line in spoken.stdout.splitlines()]

    assert spoken.returncode == 0
    assert {answer["jsonrpc"] for answer in answers} == {"2.0"}
    refused = [(it["id"], it["error"]["code"]) for it in answers if "error" in it]
    assert refused == [
        (None, -32700), (None, -32700), (None, -32700), (None, -32600), (None, -32600),
        (None, -32600), (3, -32600), (4, -32600), (None, -32600),
    ]  # fmt: skip
    results = [str(it["id"]) for it in answers if "result" in it]
    assert sorted(results) == ["1", "5", "8", "8", "8"]
    assert b"Saved [discovery] Last words" in spoken.stdout
    assert all(json.loads(line) for line in spoken.stderr.splitlines())


@pytest.mark.slow
def test_a_host_may_speak_with_envelopes_or_after_a_handshake(path: Path) -> None:
    tools = {"method": "tools/list", "params": {"_meta": ENVELOPE}}
    wrong = {"method": "tools/list", "params": {"_meta": {f"{OF}protocolVersion": "2031-01-01"}}}
    sent = [{**tools, "id": 1}, {**INITIALIZE, "id": 2}, {**tools, "id": 3}, {**wrong, "id": 4},
            {"id": 5, "method": "tools/list"}]  # fmt: skip
    spoken = _mcp("--project", "p", "--db", str(path), sent=[_message(**it) for it in sent])
    answers = {it["id"]: it for it in map(json.loads, spoken.stdout.splitlines())}

    assert ["result" in answers[id_] for id_ in range(1, 6)] == [True, True, True, False, True]
    assert "resultType" in answers[3]["result"]
    assert "resultType" not in answers[5]["result"]


@pytest.mark.slow
def test_ctrl_c_ends_the_program_while_it_waits_for_a_line(path: Path) -> None:
    with _started("--project", "p", "--db", str(path)) as waiting:
        assert waiting.stdin
        assert waiting.stdout
        waiting.stdin.write(_message(**INITIALIZE) + b"\n")
        waiting.stdin.flush()
        assert b"serverInfo" in waiting.stdout.readline()
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(60) == -signal.SIGINT


@pytest.mark.slow
def test_what_cannot_start_says_why_and_writes_nothing(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_text("This is no database, and has been something else for a long time.")
    starts = {
        "project is required": ["--project", " ", "--db", str(other)],
        "There is no tenant nobody": ["--project", "p", "--db", str(other), "--tenant", "nobody"],
        "A tenant's name must have": ["--project", "p", "--db", str(other), "--tenant", "../other"],
        "begin with http:// or https://": ["--project", "p", "--url", "memory.example:7437"],
        "file is not a database": ["--project", "p", "--db", str(other)],
    }
    for sentence, arguments in starts.items():
        refused = _mcp(*arguments)
        assert (refused.returncode, refused.stdout) == (1, b""), refused
        assert sentence in refused.stderr.decode()
        assert refused.stderr.startswith(b"agentops-memory: ")


@pytest.mark.slow
def test_a_file_that_is_named_goes_before_a_url_of_the_environment(path: Path) -> None:
    place, variables = ["--db", str(path)], {"MEMORY_URL": "http://127.0.0.1:9"}
    with hosted(["--project", "p", *place], variables=variables) as here:
        assert here.said("mem_save", title="Here", content="In the file.").startswith("Saved")

    both = _mcp("--project", "p", *place, "--url", variables["MEMORY_URL"])
    assert (both.returncode, both.stdout) == (2, b"")
    assert b"--url selects a service; --db and --tenant work on files." in both.stderr


def _message(**parts: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **parts}).encode()


def _mcp(*arguments: str, sent: Sequence[bytes] = ()) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "agentops_memory", "mcp", *arguments],
        input=b"\n".join(sent) + b"\n", env=environment({}), capture_output=True, timeout=120,
        check=False,
    )  # fmt: skip


@contextmanager
def _started(*arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(
        [sys.executable, "-m", "agentops_memory", "mcp", *arguments],
        env=environment({}), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
