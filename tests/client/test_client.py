"""Both clients: how they are made and shared, and what each question answers, as whole values."""

import inspect
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory.recall.text import clean, invisible
from agentops_memory_client import (
    AsyncMemoryClient,
    Conflict,
    Invalid,
    MemoryClient,
    MemoryServiceWarning,
    Misconfigured,
    NotFound,
    Unreachable,
)
from agentops_memory_client.client import tls_context
from agentops_memory_client.contract import models as m
from agentops_memory_client.contract.service import Method, Operations

from ..docs.test_architecture import modules
from ..support.asking import KINDS, Road, answering, asking
from ..support.callers import made_key
from ..support.forks import SOURCES
from ..support.process import environment
from ..support.service import START, Service, lasting_with, serving

served = lasting_with()

SECRET = "AKIA" + "QZXV7RARE" + "K3YQ9AB"
PRIVATE = "<private>to the green door of the old harbour</private>"
IDS = (
    "a/b", "/", "x/end", "..", ".", "a/../b", "ü 漢 ?#%2F&=+", "line\nbreak\r\n", "\ud800", "a\0b",
)  # fmt: skip
shares_sessions = pytest.mark.filterwarnings(
    "ignore::agentops_memory_client.MemoryServiceWarning"
)  # both clients use the same ids, in projects of their own


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, served: Service) -> Iterator[MemoryClient]:
    with asking(request.param, served.url) as client:
        yield client


@pytest.fixture
def project(request: pytest.FixtureRequest) -> str:
    """A project of the test's own."""
    return f"{request.node.name.lower()}"[-150:]


def noted(client: MemoryClient, project: str, content: str, title: str = "Note") -> m.Saved:
    return client.save(
        session_id=project, project=project, type="note", title=title, content=content
    )  # fmt: skip


def test_a_memory_is_saved_updated_and_counted(client: MemoryClient, project: str) -> None:
    fields: dict[str, Any] = {
        "session_id": project, "project": project, "type": "decision", "title": "Queue",
        "tags": ("orders", "queue"), "scope": "team", "topic_key": "shop/queue",
    }  # fmt: skip

    first = client.save(content="Orders go through a queue.", **fields)
    again = client.save(content=f"Two queues; {SECRET}.", **fields)
    noted(client, project, "The same.")
    same = noted(client, project, "The same.")

    assert first == m.Saved(id=first.id, action="created", revision_count=1, duplicate_count=1)
    assert again == m.Saved(
        id=first.id, action="updated", revision_count=2, duplicate_count=1, redacted=1
    )
    assert (same.action, same.duplicate_count) == ("deduplicated", 2)
    assert client.get(first.id) == m.Observation(
        id=first.id, session_id=project, type="decision", title="Queue",
        content="Two queues; [REDACTED:aws-key-id].", project=project, scope="team",
        normalized_hash=client.get(first.id).normalized_hash, revision_count=2,
        duplicate_count=1, last_seen_at=START, created_at=START, updated_at=START,
        tags=("orders", "queue"), topic_key="shop/queue",
    )  # fmt: skip


def test_lists_go_on_and_a_timeline_has_the_neighbours(client: MemoryClient, project: str) -> None:
    ids = [noted(client, project, f"Number {n}").id for n in range(5)]
    assert [it.id for it in client.timeline(ids[2])] == ids
    tagged = client.save(
        session_id=f"of {project}", project=project, type="pattern", title="T", content="c",
        tags=["one"], scope="team",
    ).id  # fmt: skip

    assert [it.id for it in client.recent(project, type="note")] == ids[::-1]
    assert client.recent(project, limit=1, before=ids[1]) == [client.get(ids[0])]
    assert [it.id for it in client.recent(project, tag="one", scope="team")] == [tagged]
    assert client.recent("nobody's") == []
    assert client.timeline(ids[2], before=1, after=1) == [
        m.TimelineEntry(
            id=ids[n], type="note", title="Note", content=f"Number {n}", created_at=START
        )
        for n in (1, 2, 3)
    ]
    with pytest.raises(NotFound):
        client.timeline(10**6)
    counted = client.stats(project)
    assert counted == m.Stats(
        total_sessions=counted.total_sessions, total_observations=6, projects=counted.projects
    )
    assert project in counted.projects
    assert client.stats().total_observations >= 6
    assert client.health() == "ok"


def test_a_memory_is_changed_and_brought_back(client: MemoryClient, project: str) -> None:
    saved = client.save(
        session_id=project, project=project, type="note", title="Old", content="Was so.", tags=["t"]
    )

    changed = client.update(saved.id, type="decision", title="New", content="Is so.", tags=())
    told = client.history(saved.id)
    restored = client.restore(saved.id, 1)

    first = m.Revision(
        revision=1, action="created", created_at=START, type="note", title="Old",
        content="Was so.", tags=("t",),
    )  # fmt: skip
    second = m.Revision(
        revision=2, action="updated", created_at=START, type="decision", title="New",
        content="Is so.",
    )  # fmt: skip
    assert (changed.title, changed.tags, changed.revision_count) == ("New", (), 2)
    assert told == [second, first]
    assert (restored.title, restored.tags, restored.revision_count) == ("Old", ("t",), 3)
    assert restored == client.get(saved.id)
    assert client.update(saved.id) == restored


def test_a_memory_has_a_life(client: MemoryClient, project: str) -> None:
    end, look = START + timedelta(days=1, microseconds=1), START + timedelta(days=7)
    of = partial(client.save, session_id=project, project=project, type="note", title="Queue")

    old = of(content="The queue is rabbit.", ttl=60)
    same = of(content="The queue is rabbit.", ttl=timedelta(minutes=2))
    new = of(
        content="The queue is a stream.", expires_at=end, pinned=True, supersedes=[old.id],
        review_at=look,
    ).id  # fmt: skip
    confirmed = client.confirm(new)

    assert [it.expires_at for it in (old, same)] == [START + timedelta(minutes=n) for n in (1, 2)]
    assert confirmed == client.get(new) == replace(
        confirmed, expires_at=end, pinned=True, supersedes=(old.id,), review_at=look,
        confirmed_at=START,
    )  # fmt: skip
    assert client.get(old.id).superseded_by == (new,)
    hits = client.search("queue", project=project, superseded=True)
    assert {hit.id: hit.superseded_by for hit in hits} == {old.id: (new,), new: ()}
    (line,) = client.context(project=project, query="queue", ages=True).observations
    assert (line.age, line.superseded) == (0, 1)

    ended = client.update(new, ttl=timedelta(hours=1), pinned=False, supersedes=())
    assert (ended.expires_at, ended.review_at) == (START + timedelta(hours=1), look)
    assert (ended.pinned, ended.supersedes) == (False, ())
    endless = client.update(new, expires_at=None, review_at=None)
    assert (endless.expires_at, endless.review_at) == (None, None)
    assert client.update(new, expires_at=START).expired
    with pytest.raises(Invalid, match="supersedes must be a list"):
        client.update(new, supersedes="a uid")


def test_a_memory_is_forgotten_or_erased(client: MemoryClient, project: str) -> None:
    saved = noted(client, project, "To be gone")

    assert client.delete(saved.id) is None
    assert client.delete(saved.id) is None
    with pytest.raises(NotFound, match=r"^No such observation\.$"):
        client.get(saved.id)
    receipt = client.delete(saved.id, hard=True)

    assert receipt == client.delete(saved.id, hard=True)
    assert receipt
    with pytest.raises(NotFound):
        client.history(saved.id)
    assert client.delete(10**6, hard=True) is None


def test_a_search_finds_and_explains(client: MemoryClient, project: str) -> None:
    saved = client.save(
        session_id=project, project=project, type="note", title="Fruit", content="Apples are red.",
        tags=["t"], topic_key="fruit/apple",
    )  # fmt: skip

    found = client.search("apples", project=project, type="note", tag="t", scope="project", limit=5)
    explained = client.search("apples", project=project, explain=True)

    (hit,) = found
    assert hit == m.Hit(
        id=saved.id, type="note", title="Fruit", content="Apples are red.", rank=hit.rank,
        topic_key="fruit/apple",
    )  # fmt: skip
    assert hit.rank < 0
    assert len(found) == 1
    assert (explained.hits[0].explain or {})["matched"][0]["term"] == "apples"
    assert (explained.explanation or {})["terms"] == [["apples"]]
    assert client.search("", project=project) == m.Found()
    assert client.search("apples", project=project, type="other") == m.Found()


def test_a_context_has_summaries_then_memories(client: MemoryClient, project: str) -> None:
    client.end_session(f"of {project}", [m.Message(role="user", content="Go on")], project=project)
    client.save(
        session_id=project, project=project, type="note", title="Fruit",
        content="Apples are red, sometimes.", tags=["t"],
    )  # fmt: skip
    noted(client, project, "Pears.", "Other")
    summary = "Session: 1 messages (1 user, 0 assistant). Started with: Go on"
    apples = m.Line(type="note", title="Fruit", content="Apples are red, sometimes.")

    assert client.context(project=project, query="apples", limit=1) == m.Context(
        summaries=(summary,), observations=(apples,)
    )
    assert client.context(project=project, tag="t", scope="project").observations == (apples,)
    cut = client.context(project=project, query="apples", limit=1, content_chars=6)
    assert [line.content for line in cut.observations] == ["Apples..."]
    assert client.context(project=project, max_tokens=0) == m.Context()
    assert client.context(project=project, max_chars=100).summaries == (summary,)
    explained = client.context(project=project, query="apples", explain=True)
    assert (explained.explanation or {})["method"] == "fts5_bm25"
    assert (explained.observations[0].explain or {})["place"] == 1
    assert client.context(project="nobody's") == m.Context()


@pytest.mark.slow
def test_stores_and_agents_memory_join_a_context(
    client: MemoryClient, project: str, served: Service
) -> None:
    cloud = "/api/v1/cloud/memory_stores"
    stores = [served.http.post(cloud, json={"name": "Shelf"}).json()["id"] for _ in range(2)]
    fruit = {"path": "kiwi.md", "content": "Kiwis are green."}
    served.http.post(f"{cloud}/{stores[1]}/memories", json=fruit).raise_for_status()
    for tier in ("episodic", "semantic"):
        entry = {
            "agent_id": project, "namespace": project, "key": tier, "memory_type": tier,
            "value": {"fruit": "quinces"},
        }  # fmt: skip
        own = {"X-Agent-ID": project}
        served.http.post("/api/v1/memory", json=entry, headers=own).raise_for_status()
    query: dict[str, Any] = {"project": project, "query": "kiwis quinces"}

    joined = client.context(**query, stores=stores)
    agents = client.context(**query, namespaces=[project], episodic=True, agent=project)

    assert joined.observations == (
        m.Line(type="memory", title="kiwi.md", content="Kiwis are green."),
    )
    assert {(it.type, it.title) for it in agents.observations} == {
        ("episodic", f"{project}/episodic"), ("semantic", f"{project}/semantic"),
    }  # fmt: skip
    assert client.context(**query).observations == ()
    for unknown in ({"stores": ["memstore_none"]}, {"namespaces": ["nowhere"], "agent": project}):
        with pytest.raises(NotFound):
            client.context(project=project, **unknown)


def test_a_session_is_opened_and_ended(client: MemoryClient, project: str) -> None:
    first, other = f"one of {project}", f"two of {project}"
    said = [
        m.Message(role="user", content=f"Go {PRIVATE}"),
        m.Message(role="assistant", content="Yes"),
    ]
    summary = "Session: 2 messages (1 user, 1 assistant). Started with: Go [REDACTED:private]"

    opened = client.start_session(first, project.upper())
    ended = client.end_session(other, said, project=project)

    assert opened == m.Session(id=first, project=project, started_at=START, message_count=0)
    with pytest.warns(MemoryServiceWarning, match="belongs to the project"):
        again = client.start_session(first, "another")
    assert replace(again, warning=None) == opened
    assert ended == m.SessionEnd(session_id=other, summary=summary, message_count=2, redacted=1)
    assert client.end_session(other) == m.SessionEnd(
        session_id=other, summary=summary, message_count=2
    )
    assert client.end_session(first).summary == ""
    row = m.Session(
        id=other, project=project, started_at=START, message_count=2, ended_at=START,
        summary=summary,
    )  # fmt: skip
    assert client.sessions(project, limit=1) == [row]
    assert [it.id for it in client.sessions(project, before=other)] == [first]

    third, message = f"three of {project}", said[0]
    assert client.append_messages(third, [], project=project) == m.Appended()
    assert client.append_messages(third, [message], project=project) == m.Appended(redacted=1)
    for _ in range(2):
        client.append_messages(third, [message], idempotency_key=project)
    assert client.sessions(project, limit=1)[0].message_count == 2
    assert client.end_session(third).summary == (
        "Session: 2 messages (2 user, 0 assistant). "
        "Started with: Go [REDACTED:private] Ended with: Go [REDACTED:private]"
    )


@shares_sessions
def test_a_session_may_have_any_id(client: MemoryClient, project: str, served: Service) -> None:
    for number, id_ in enumerate(IDS):
        session = f"{id_}{number}" if id_ not in (".", "..") else id_
        if invisible(clean(session)):  # no new one has such an id
            stored = {"sessions": [{"id": session, "project": project}]}
            served.http.post("/import", json=stored).raise_for_status()
        client.start_session(session, project)

        ended = client.end_session(session, [m.Message(role="user", content=id_)])

        assert ended.session_id == clean(session)
        assert clean(id_) in ended.summary
    assert client.sessions("unknown") == []


def test_what_no_request_can_hold_is_refused_and_every_fault_is_named(
    client: MemoryClient, project: str
) -> None:
    for telling in (client.append_messages, client.end_session):
        with pytest.raises(Invalid, match="Each message must be a Message"):
            telling("s", [{"role": "user", "content": "Hi."}])  # type: ignore[list-item]
    with pytest.raises(Invalid, match="too long for the URL"):
        client.search("x", tag="t" * 100_000)
    with pytest.raises(Invalid, match="too long for the URL"):
        client.end_session("s" * 100_000)
    with pytest.raises(Invalid) as refusal:
        client.search("x", tag="t" * 65_400)
    assert refusal.value.status == 431
    with pytest.raises(Invalid) as refusal:
        client.save(
            session_id="", project=project, type="t", title="x" * 501, content="c",
            tags="no list",
        )  # fmt: skip
    assert str(refusal.value) == (
        "validation failed: session_id is required; title exceeds 500 chars; tags must be a list"
    )
    assert (refusal.value.status, refusal.value.retry_after) == (400, None)
    noted(client, project, "Whales sing.")  # a prompt of any length is a question
    assert len(client.search("whales " + "漢" * 200_000, project=project)) == 1
    assert client.context(query="whales " + "漢" * 200_000, project=project).observations


def test_a_write_under_a_key_of_ones_own_is_done_once(client: MemoryClient, project: str) -> None:
    key = f"key-{abs(hash(project))}"
    fields: dict[str, Any] = {"session_id": project, "project": project, "type": "n", "title": "T"}

    first = client.save(content="Once", idempotency_key=key, **fields)

    assert client.save(content="Once", idempotency_key=key, **fields) == first
    with pytest.raises(Conflict, match=r"^Idempotency key reused"):
        client.save(content="Twice", idempotency_key=key, **fields)
    for bad in ("", "ü", "a\r\nb", "x" * 256, " "):
        with pytest.raises(Invalid, match=r"^An idempotency key must have 1 to 255 visible"):
            client.delete(1, idempotency_key=bad)


def test_both_clients_show_the_signatures_and_texts_of_the_questions() -> None:
    questions = {
        name: method.awaited
        for name, method in inspect.getmembers_static(Operations)
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
    assert inspect.signature(MemoryClient.recent).return_annotation == list[m.Observation]


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
            b"/a%2Fb/c/sessions/recent?project=x+y",
            b"/a%2Fb/c/observations/1/history",
        ]


@pytest.mark.parametrize("client_of", [MemoryClient, AsyncMemoryClient])
def test_what_cannot_be_right_is_refused_at_once_and_not_repeated(
    client_of: type[MemoryClient] | type[AsyncMemoryClient],
) -> None:
    for url in (
        "", "127.0.0.1:7437", "localhost", "ftp://a", "http://", "http://a:b", "http://a b",
        "http://a:65536", "http://a:0", "http://a%2fb",
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
