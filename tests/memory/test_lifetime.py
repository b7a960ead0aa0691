"""How the service ends: nothing that was accepted is lost, and nothing is left behind."""

import json
import logging
import signal
import socket
import time
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from agentops_memory import server
from agentops_memory.sqlite.connection import connect

from ..support.engine import locked
from ..support.files import assert_sound
from ..support.process import Load, served, stored, until
from ..support.raw import HEALTH, request, wire
from ..support.service import observation, serving


@pytest.mark.slow
def test_sigterm_under_load_drains_and_loses_nothing_that_it_accepted(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with served(path, MEMORY_DRAIN="1s") as (process, http):
        load = Load(str(http.base_url), saves=100_000).start()
        load.reach(50)
        began = time.monotonic()
        process.send(signal.SIGTERM)
        until(lambda: is_draining(http))
        before = len(load.acknowledged)
        load.reach(before + 1)
        assert process.wait() == 0
        lasted = time.monotonic() - began
        load.join()

    assert lasted >= 1
    assert load.refused == {}
    assert stored(path) == load.acknowledged
    assert not (tmp_path / "memory.db-wal").exists()
    assert process.errors == ""
    assert_sound(path, live=len(load.acknowledged))


@pytest.mark.slow
def test_a_second_signal_ends_the_drain(path: Path) -> None:
    with served(path, MEMORY_DRAIN="1h") as (process, http):
        process.send(signal.SIGTERM)
        until(lambda: is_draining(http))
        process.send(signal.SIGTERM)

        assert process.wait() == 0


@pytest.mark.slow
def test_a_request_that_was_accepted_is_finished_before_the_end(path: Path) -> None:
    body = json.dumps(observation("accepted")).encode()
    head = f"POST /observations HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with served(path) as (process, http):
        address = (http.base_url.host, http.base_url.port)
        with socket.create_connection(address, timeout=60) as client:
            client.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 100 ")
            process.send(signal.SIGINT)
            process.line("finishing accepted requests")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address, timeout=60).close()
            client.sendall(body)
            answer = client.recv(1000)

        assert process.wait() == 0

    assert answer.startswith(b"HTTP/1.1 201 ")
    assert stored(path) == {"accepted": 1}


@pytest.mark.slow
def test_a_save_whose_client_has_left_is_finished_before_the_end(path: Path) -> None:
    body = json.dumps(observation("left behind")).encode()
    with served(path) as (process, http):
        with locked(path):
            with wire(str(http.base_url)) as client:
                client.send(request("POST", "/observations", body))
            assert http.get("/health").status_code == 200
            process.send(signal.SIGINT)
            process.line("finishing accepted requests")

        assert process.wait() == 0
        assert [line for line in process.lines if '"ERROR"' in line] == []

    assert stored(path) == {"left behind": 1}


@pytest.mark.parametrize("begun", [b"", HEALTH], ids=["new", "idle"])
def test_a_connection_without_a_request_does_not_delay_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(server, "SECOND", timedelta(hours=1))
    monkeypatch.setattr(server, "GRACE", timedelta(hours=1))
    with ExitStack() as clients:
        with serving(path) as service:
            client = clients.enter_context(wire(service.url))
            client.send(begun)
            if begun == HEALTH:
                assert client.answer().status == 200
            with wire(service.url) as later:  # accepted after the first
                later.send(HEALTH)
                assert later.answer().status == 200

        assert client.rest() == b""


def test_a_request_that_does_not_go_on_is_cut_off_in_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "GRACE", timedelta(milliseconds=50))
    with ExitStack() as clients:
        with serving(path) as service:
            client = clients.enter_context(wire(service.url))
            client.send(request("POST", "/sessions", content_length="9", expect="100-continue"))
            assert client.answer().status == 100

        assert client.rest() == b""

    errors = [it.message for it in caplog.records if it.levelno == logging.ERROR]
    assert errors == ["unfinished requests were cut off"]


def test_the_date_of_an_answer_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SECOND", timedelta(milliseconds=5))
    with serving(path) as service:
        assert "date" in service.http.get("/health").headers

        monkeypatch.setattr("uvicorn.server.time", SimpleNamespace(time=lambda: 0.0))

        beginning = "Thu, 01 Jan 1970 00:00:00 GMT"
        until(lambda: service.http.get("/health").headers["date"] == beginning)


@pytest.mark.slow
@pytest.mark.sqlite_files
def test_a_reader_of_the_file_elsewhere_delays_the_end_little_and_the_log_says_so(
    path: Path,
) -> None:
    with served(path) as (process, http), closing(connect(path)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM memories").fetchone()
        http.post("/observations", json=observation("kept"))
        process.send(signal.SIGINT)

        assert process.wait() == 0
        assert json.loads(process.line("write-ahead log"))["level"] == "WARNING"

    assert stored(path) == {"kept": 1}


def is_draining(http: httpx.Client) -> bool:
    return http.get("/health").status_code == 503
