"""How a client is made, shown and shared."""

import inspect
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory_client import AsyncMemoryClient, MemoryClient, Misconfigured, Unreachable
from agentops_memory_client.contract.models import Observation
from agentops_memory_client.contract.service import Method, Questions
from agentops_memory_client.transport import tls_context

from ..docs.test_architecture import modules
from ..support.asking import KINDS, Road, answering, asking
from ..support.callers import made_key
from ..support.forks import SOURCES
from ..support.process import environment
from ..support.service import Service, lasting_with, serving

served = lasting_with()


@pytest.mark.slow
def test_several_threads_may_ask_at_once(served: Service) -> None:
    start = threading.Barrier(8)

    def save(number: int) -> list[int]:
        start.wait()
        of = partial(client.save, session_id="s1", project="threads", type="note", title="T")
        return [of(content=f"Number {number}-{n}").id for n in range(10)]

    with MemoryClient(served.url) as client, ThreadPoolExecutor(8) as threads:
        ids = [id_ for mine in threads.map(save, range(8)) for id_ in mine]

    assert len(set(ids)) == 80


def test_both_clients_show_the_signatures_and_texts_of_the_questions() -> None:
    questions = {
        name: method.awaited
        for name, method in inspect.getmembers_static(Questions)
        if isinstance(method, Method)
    }

    assert len(questions) == 17
    for client in (MemoryClient, AsyncMemoryClient):
        for name, question in questions.items():
            method = getattr(client, name)
            assert inspect.signature(method) == inspect.signature(question)
            assert (method.__name__, method.__doc__) == (name, question.__doc__)
            assert method.__doc__
            assert inspect.iscoroutinefunction(method) is (client is AsyncMemoryClient)
        exporting = inspect.signature(client.export_to)
        assert list(exporting.parameters) == ["self", "path", "project", "progress"]
    assert list(inspect.signature(MemoryClient.update).parameters)[:4] == [
        "self", "observation", "type", "title",
    ]  # fmt: skip
    assert inspect.signature(MemoryClient.recent).return_annotation == list[Observation]


def test_the_environment_names_the_service(
    served: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(tmp_path / "closed.db") as closed:
        monkeypatch.setenv("MEMORY_URL", closed.url)
        monkeypatch.setenv("MEMORY_API_KEY", made_key(closed.path))
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        with MemoryClient.from_environment(retries=0) as client:
            assert client.stats().projects == ()
        with asking("awaiting", closed.url, key=made_key(closed.path), retries=0) as client:
            assert client.stats().projects == ()
        served.save("One", project="environment")
        with MemoryClient.from_environment(url=served.url, retries=0) as client:
            assert client.stats("environment").total_observations == 1
    monkeypatch.setenv("MEMORY_URL", "")
    monkeypatch.setenv("MEMORY_API_KEY", "")

    assert repr(MemoryClient.from_environment()) == repr(MemoryClient())
    assert repr(AsyncMemoryClient.from_environment()) == (
        "AsyncMemoryClient('http://127.0.0.1:7437')"
    )


def test_a_url_may_have_a_path() -> None:
    for url in ("http://memory.test/a%2Fb/c", "http://memory.test/a%2Fb/c/?"):
        road = Road([answering(200, [])])
        with MemoryClient(url, transport=httpx.MockTransport(road)) as client:
            client.sessions("x y")
            client.history(1)

        assert [request.url.raw_path for request in road.requests] == [
            b"/a%2Fb/c/sessions/recent?project=x+y&limit=5",
            b"/a%2Fb/c/observations/1/history",
        ]


@pytest.mark.parametrize("client_of", [MemoryClient, AsyncMemoryClient])
def test_what_cannot_be_right_is_refused_at_once_and_not_repeated(
    client_of: type[MemoryClient] | type[AsyncMemoryClient],
) -> None:
    for url in (
        "", "127.0.0.1:7437", "localhost", "ftp://a", "http://", "http://a:b", "http://a b",
        "http://s3cret@a", "http://me:s3cret", "http://me:s3cret@a?x", "http://a?s3cret=1", "http://a/#s3cret",
        "http://a\ns3cret", "http://a/\udcffs3cret",
    ):  # fmt: skip
        with pytest.raises(Misconfigured, match=r"[Tt]he service URL ") as refusal:
            client_of(url)
        assert "s3cret" not in str(refusal.value)
        assert isinstance(refusal.value, ValueError)
    for key in ("s3cret ", "s3crét", "s3cret\r\nHost: b"):
        with pytest.raises(Misconfigured) as refusal:
            client_of(key=key)
        assert "s3cret" not in str(refusal.value)
    with pytest.raises(Misconfigured, match="timedelta"):
        client_of(timeout=timedelta(0))
    with pytest.raises(Misconfigured, match="timedelta"):
        client_of(timeout=10)  # type: ignore[arg-type]
    with pytest.raises(Misconfigured, match="retries"):
        client_of(retries=-1)


@pytest.mark.slow
def test_what_the_server_shares_with_the_client_loads_no_httpx(tmp_path: Path) -> None:
    (tmp_path / "httpx.py").write_text("raise ModuleNotFoundError('no', name='httpx')")
    shared = ", ".join(it for it in modules() if it.startswith("agentops_memory_client.contract"))

    done = subprocess.run(
        [sys.executable, "-c", f"import {shared}"],
        env=environment({"PYTHONPATH": f"{tmp_path}:{SOURCES}"}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


class Watched(ssl.SSLContext):
    """A context that says when it is used, and then trusts nobody."""

    uses = 0

    def wrap_socket(self, *_: Any, **__: Any) -> Any:
        type(self).uses += 1
        raise ssl.SSLCertVerificationError("trusts nobody")

    wrap_bio = wrap_socket


def test_who_answers_for_the_service_is_verified(served: Service) -> None:
    url = served.url.replace("http:", "https:")
    context = Watched(ssl.PROTOCOL_TLS_CLIENT)
    for kind in KINDS:
        with (
            asking(kind, url, verify=context, retries=0) as client,
            pytest.raises(Unreachable, match="trusts nobody"),
        ):
            client.health()
        with asking(kind, url, retries=0) as client, pytest.raises(Unreachable, match="SSL"):
            client.health()

    assert Watched.uses == 2
    assert tls_context(httpx.URL(url), verify=True) is True
    unused = tls_context(httpx.URL(served.url), verify=False)
    assert isinstance(unused, ssl.SSLContext)
    assert (unused.verify_mode, unused.cert_store_stats()["x509"]) == (ssl.CERT_REQUIRED, 0)
