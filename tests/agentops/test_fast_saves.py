"""A plain save that is answered in front of the application is as the long way makes it."""

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentops_memory.agentops.shortcuts import FastSaves
from agentops_memory.memory.saves import SAVE, save
from agentops_memory.sqlite import TenantsEngine

from ..support.callers import made_key
from ..support.fast_reads import without_date
from ..support.raw import wire
from ..support.service import Service, observation, serving

FAST, LONG = "/observations", "/observations?similar=0"  # which means the same
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3

PLAIN = observation("Deploy the worker after the queue.", tags=["deploy", "queue"])
BODIES = [
    PLAIN,
    PLAIN,  # a duplicate
    observation("One.", topic_key="a/b"),
    observation("Another.", topic_key="a/b"),
    observation("Ends soon.", ttl=60, pinned=True),
    observation("Instead.", supersedes=[1]),
    observation("Of another project.", project="other"),  # whose session is of the first
    observation(f"The token is {SECRET}.", title=f"About {SECRET}", tags=[SECRET]),
    observation("東京都 café \U0001d49c <private>no</private> yes", project=" CAFÉ "),
    observation("a\0b \ud800", scope="global"),
    observation("-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG: ", title="A key", tags=["t"]),
    observation("Null is absent.", topic_key=None, tags=None, ttl=None),
    observation("More than is known.", colour="blue"),
]
FAULTY: list[Any] = [
    {},
    [],
    None,
    observation("") | {"title": 7, "tags": "no list"},
    observation("x" * 50_001),
    observation("Two ends.", ttl=5, expires_at="2031-01-01T00:00:00Z"),
    observation("An invisible name.", session_id="a\u200bb"),
    observation("Nothing there.", supersedes=[77]),
    PLAIN | {"ttl": 10**20},
]
NOT_JSON = [b"", b"{", b"[]", b"nul", b'{"a": 1} more', b"\xff\xfe", b"{" * 20_000, b'{"a": 1e999}']


class Seen:
    """How many saves were answered in front, and how many were left to the long way."""

    def __init__(self) -> None:
        self.answered = self.declined = 0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen, answer = Seen(), FastSaves.answer

    async def answered(self: FastSaves, scope: Any, body: Any) -> Any:
        told = await answer(self, scope, body)
        if scope["path"] == FAST:
            seen.answered += told is not None
            seen.declined += told is None
        return told

    monkeypatch.setattr(FastSaves, "answer", answered)
    return seen


@contextmanager
def two(folder: Path, **variables: str) -> Iterator[list[tuple[Service, str]]]:
    """Two services of the same settings, each with the path by which it is told everything."""
    with ExitStack() as stack:
        made = []
        for name, path in (("fast", FAST), ("long", LONG)):
            service = stack.enter_context(serving(folder / name / "memory.db", **variables))  # type: ignore[arg-type]
            made.append((service, path))
        yield made


def stored(service: Service) -> Any:
    """All that was stored, but for the ids that are drawn."""
    text = service.http.get("/export").text
    for each in json.loads(text)["observations"]:
        text = text.replace(each["uid"], f"uid {each['id']}")
    return json.loads(text)


def measured(service: Service) -> list[str]:
    """What is counted of requests and of what came of them, but for times."""
    names = ("memory_requests_total", "memory_dedup", "memory_redactions", "memory_superseded")
    lines = service.http.get("/metrics").text.splitlines()
    return sorted(it for it in lines if it.startswith(names) and "/metrics" not in it)


@pytest.mark.slow
def test_a_save_is_answered_stored_counted_and_logged_as_by_the_long_way(
    tmp_path: Path, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    saved = 0
    names = ("method", "path", "status", "client", "tenant", "levelname", "name")
    caplog.set_level(logging.INFO)
    with two(tmp_path) as services:
        for data in [*map(str.encode, map(json.dumps, [*BODIES, *FAULTY])), *NOT_JSON]:
            answers = {without_date(it.http.post(path, content=data)) for it, path in services}
            assert len(answers) == 1, data
            saved += answers.pop().startswith(b"201")
        (one, _), (other, _) = services
        everything = stored(one)
        assert everything == stored(other)
        assert "MIIEvQIBADANBgkqhkiG" not in str(everything)
        assert measured(one) == measured(other)
        lines = [
            {name: vars(it)[name] for name in names}
            for it in caplog.records
            if it.getMessage() == "request" and vars(it)["path"] == FAST
        ]
        assert {count % 2 for count in Counter(map(repr, lines)).values()} == {0}
    assert seen.answered == saved == len(BODIES)


@pytest.mark.slow
def test_who_may_not_save_is_refused_alike(tmp_path: Path, seen: Seen) -> None:
    asked = [(body, place) for body in (PLAIN, PLAIN | {"project": "other"}) for place in range(4)]
    answers = []
    with two(tmp_path) as services:
        for service, path in services:
            reader = made_key(service.path, role="reader")
            writer = made_key(service.path, role="writer", projects=("demo",))
            sent = [{}, *({"Authorization": f"Bearer {it}"} for it in ("no", reader, writer))]
            found = [service.http.post(path, json=it, headers=sent[at]) for it, at in asked]
            answers.append(list(map(without_date, found)))
    assert answers[0] == answers[1]
    assert seen.answered == 1


@pytest.mark.slow
def test_a_rate_and_a_full_quota_refuse_it_alike(tmp_path: Path, seen: Seen) -> None:
    outside = observation("Nothing there.", supersedes=[77])
    with two(tmp_path / "rate", MEMORY_RATE_LIMIT="4/h") as services:
        for body in (PLAIN, outside, PLAIN, PLAIN, PLAIN):
            found = [it.http.post(path, json=body).status_code for it, path in services]
            assert len(set(found)) == 1
        assert found == [429, 429]
    seen.declined = 0
    with two(tmp_path / "quota", MEMORY_TENANT_QUOTA="1") as services:
        answers = {without_date(it.http.post(path, json=PLAIN)) for it, path in services}
        assert len(answers) == 1
        assert answers.pop().startswith(b"507")
    assert seen.declined == 1


BODY = json.dumps(PLAIN).encode()
HEAD = b"POST /observations HTTP/1.1\r\nHost: localhost\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(BODY)
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "is_fast"),
    [
        ([HEAD + LENGTH + BODY], True),
        ([HEAD + LENGTH, BODY], True),
        ([HEAD + LENGTH + BODY[:20], BODY[20:]], True),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS], False),
        ([HEAD + b"Expect: 100-continue\r\n" + LENGTH + BODY], False),
        ([HEAD + b"Connection: close\r\n" + LENGTH + BODY], True),
        ([HEAD.replace(b"1.1", b"1.0") + LENGTH + BODY], True),
        ([HEAD + b"Idempotency-Key: one\r\n" + LENGTH + BODY], False),
        ([HEAD + b"Origin: http://localhost\r\n" + LENGTH + BODY], False),
        ([HEAD + b"traceparent: 00-1-2-01\r\n" + LENGTH + BODY], True),
        ([HEAD.replace(b"localhost", b"elsewhere") + LENGTH + BODY], False),
    ],
)
def test_however_it_is_sent_it_is_saved_once(
    seen: Seen, service: Service, parts: list[bytes], is_fast: bool
) -> None:
    with wire(service.url) as connection:
        connection.send(*parts)
        answer = connection.answer()
        while answer.status == 100:
            answer = connection.answer()
    is_own = b"elsewhere" not in parts[0]
    assert answer.status == (201 if is_own else 403)
    assert service.http.get("/stats").json()["total_observations"] == is_own
    assert bool(seen.answered) == is_fast


def test_who_may_not_save_is_refused_before_the_body_comes(service: Service) -> None:
    assert service.http.get("/observations/recent%0A").json() == []  # a line end is passed over
    made_key(service.path)
    with wire(service.url) as connection:
        connection.send(HEAD + b"Authorization: Bearer no\r\n" + LENGTH)
        assert connection.answer().status == 401


def test_saves_sent_at_once_are_answered_in_their_order(tmp_path: Path, seen: Seen) -> None:
    with serving(tmp_path / "memory.db") as service, wire(service.url) as connection:
        for number in range(20):
            body = json.dumps(observation(f"Number {number}.")).encode()
            connection.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert [connection.answer().json["id"] for _ in range(20)] == list(range(1, 21))
    assert seen.answered == 20


@pytest.mark.sqlite_files
def test_a_refused_save_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries, write = list[bool](), TenantsEngine.write

    async def counted(self: TenantsEngine, caller: Any, work: Any, *given: Any) -> Any:
        tries.append(work in (save, SAVE))
        return await write(self, caller, work, *given)

    monkeypatch.setattr(TenantsEngine, "write", counted)
    with serving(tmp_path / "memory.db") as service:
        before = sum(tries)
        body = observation("Nothing there.", supersedes=[77])
        assert service.http.post(FAST, json=body).status_code == 404
        assert sum(tries) == before + 1
