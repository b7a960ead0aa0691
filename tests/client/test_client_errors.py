"""What can go wrong between a client and the service, as errors; and that none shows the key."""

import gzip
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from operator import methodcaller
from typing import Any

import httpx
import pytest

from agentops_memory_client import (
    Denied,
    Failed,
    Invalid,
    MemoryClient,
    MemoryServiceError,
    Message,
    NotFound,
    OverQuota,
    Refused,
    TooLarge,
    TooMany,
    Unauthenticated,
    UnexpectedAnswer,
    Unreachable,
)
from agentops_memory_client.contract.errors import BY_STATUS, refused
from agentops_memory_client.contract.models import Context, Saved
from agentops_memory_client.transport import MAX_ANSWER

from ..support.asking import Answering, Road, Time, answering, asking, dripping, saying, silence
from ..support.callers import made_key
from ..support.process import free_port
from ..support.samples import for_each
from ..support.service import Service, serving

KEY = "amk_s3cret"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
HTML = "<html>502 Bad Gateway</html>"
OBSERVATION: dict[str, Any] = {
    "session_id": "s", "project": "p", "type": "t", "title": "t", "content": "c",
}  # fmt: skip

Question = Callable[[MemoryClient], object]
STATS: Question = methodcaller("stats")
SESSIONS: Question = methodcaller("sessions")
HEALTH: Question = methodcaller("health")
SEARCH: Question = methodcaller("search", "why", explain=True)
CONTEXT: Question = methodcaller("context")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with keys and low limits."""
    path = tmp_path_factory.mktemp("closed") / "memory.db"
    made_key(path)
    with serving(
        path, MEMORY_RATE_LIMIT="2/h", MEMORY_MAX_UPLOAD="3KiB", MEMORY_TENANT_QUOTA="1"
    ) as running:
        yield running


def failure(client: MemoryClient, question: Question) -> MemoryServiceError:
    with pytest.raises(MemoryServiceError) as raised:
        question(client)
    return raised.value


def saving(client: MemoryClient) -> object:
    return client.save(**OBSERVATION)


def test_a_refusal_is_what_the_service_says(kind: str, closed: Service) -> None:
    def refusal(role: str | None, question: Question) -> Refused:
        key = made_key(closed.path, role) if role else None
        with asking(kind, closed.url, key=key, retries=0) as client:
            error = failure(client, question)
        assert isinstance(error, Refused)
        assert type(error) is BY_STATUS[error.status]
        return error

    def asking_often(client: MemoryClient) -> None:
        for _ in range(3):
            client.stats()

    big = "x" * 4096
    large = [Message(role="u", content=big)]
    refusals = [
        refusal("writer", lambda client: client.save(**{**OBSERVATION, "title": ""})),
        refusal(None, STATS), refusal("reader", saving), refusal("reader", methodcaller("get", 9)),
        refusal("writer", lambda client: client.end_session(big)), refusal("reader", asking_often),
        refusal("writer", saving), refusal("writer", lambda it: it.end_session("s", large)),
    ]  # fmt: skip

    assert [type(error) for error in refusals] == [
        Invalid, Unauthenticated, Denied, NotFound, Invalid, TooMany, OverQuota, TooLarge,
    ]  # fmt: skip
    assert refusals[5].retry_after == timedelta(seconds=1800)
    assert all(str(error).endswith((".", "required", "chars")) for error in refusals)
    assert str(refusals[7]) == "The body is larger than 3,072 bytes; nothing was stored."


@pytest.mark.slow
@for_each("status", [*BY_STATUS, 405, 408, 418, 431, 499, 502, 599])
def test_every_status_of_a_refusal_has_a_class(kind: str, status: int) -> None:
    road = Road([answering(status, {"error": "No."}, headers={"x-request-id": "r1"})])

    with asking(kind, road=road, retries=0) as client:
        error = failure(client, saving)

    assert isinstance(error, Refused)
    assert type(error) is BY_STATUS.get(status, Failed if status >= 500 else Invalid)
    assert (str(error), error.status, error.request_id) == ("No.", status, "r1")
    assert type(refused(status, "No.")) is type(error)


# what answers -> what it is asked
STRANGE: dict[str, tuple[Answering, Question]] = {
    "a page": (answering(200, html=HTML), STATS),
    "a page where nothing is said": (answering(200, html=HTML), lambda it: it.delete(1)),
    "nothing": (answering(200), STATS),
    "no content": (answering(204), lambda it: it.get(1)),
    "a page that refuses": (answering(404, html=HTML), lambda it: it.get(1)),
    "another's refusal": (answering(404, {"error": {"type": "not_found"}}), lambda it: it.get(1)),
    "a list of refusals": (answering(500, ["error"]), STATS),
    "half of it": (answering(200, content=b'{"status":'), HEALTH),
    "a list": (answering(200, []), HEALTH),
    "an object": (answering(200, {}), SESSIONS),
    "other fields": (answering(200, {"id": 1}), lambda it: it.get(1)),
    "other values": (answering(201, {"id": "one"}), saving),
    "no number": (
        answering(200, content=b'[{"id":1,"type":"","title":"","content":"","rank":NaN}]'),
        SEARCH,
    ),
    "no explanation": (answering(200, {"results": [], "explain": "why"}), SEARCH),
    "no summary": (answering(200, {"recent_sessions": [{"summary": 1}]}), CONTEXT),
    "no UTF-8": (answering(200, content=b'{"status":"\xff"}'), HEALTH),
    "a deep list": (answering(200, content=b"[" * 10**6), SESSIONS),
    "too much": (answering(200, content=b"[%b]" % (b" " * MAX_ANSWER)), SESSIONS),
    "something packed": (
        answering(200, content=gzip.compress(b"[]"), headers={"content-encoding": "gzip"}),
        SESSIONS,
    ),
    "no export": (answering(200, html=HTML), lambda it: next(it.export())),
    "half an export": (answering(200, content=b'{"a":1'), lambda it: list(it.export())),
    "an empty export": (answering(200), lambda it: list(it.export())),
}


@for_each("what", STRANGE)
def test_what_is_not_the_service_is_told_from_it(kind: str, what: str) -> None:
    answer, question = STRANGE[what]

    with asking(kind, road=Road([answer])) as client:
        error = failure(client, question)

    assert type(error) is UnexpectedAnswer
    assert str(error).startswith(("The service returned ", "http://memory.test "))
    assert error.status == (500 if "list of refusals" in what else 404 if "refus" in what else 0)


def test_a_redirect_is_not_followed_and_a_request_says_who_asks(kind: str) -> None:
    road = Road([answering(307, headers={"location": "http://thief.test/"})])

    with asking(kind, "http://memory.test:80/x", road=road) as client:
        error = failure(client, SESSIONS)

    assert type(error) is UnexpectedAnswer
    assert str(error) == "http://memory.test/x redirected (307), which is not followed."
    (request,) = road.requests
    assert dict(request.headers) == {
        "host": "memory.test", "accept": "application/json", "accept-encoding": "identity",
        "user-agent": "agentops-memory-python/0.1.0",
    }  # fmt: skip


def test_what_a_newer_service_adds_is_ignored_and_a_count_that_is_none_is_nothing(
    kind: str,
) -> None:
    told = {"recent_sessions": [{"summary": "Done.", "message_count": 3}],
            "recent_observations": [], "new": {}}  # fmt: skip
    with asking(kind, road=Road([answering(200, told)])) as client:
        assert client.context() == Context(summaries=("Done.",))
    saved = {"id": 1, "action": "created", "revision_count": 1, "duplicate_count": 1}
    for said in ("9" * 5000, "-1", "many", "\u0661"):
        headers = {b"x-redacted": said.encode()}
        with asking(kind, road=Road([answering(201, saved, headers=headers)])) as client:
            assert saving(client) == Saved(**saved)  # type: ignore[arg-type]


@for_each(
    "said, expected",
    [
        (b"", "closed the connection before it answered."),
        (HEAD + b"Content-Length: 9\r\n\r\n[", "closed the connection before it answered."),
        (CHUNKED + b"1\r\n[\r\n", "closed the connection before it answered."),
        (HEAD[:20], "closed the connection before it answered."),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "answered, but not as the service does."),
        (CHUNKED + b"xyz\r\n[\r\n", "answered, but not as the service does."),
        (HEAD + b"X: " + b"x" * 10**6, "answered, but not as the service does."),
    ],
)  # fmt: skip
def test_a_broken_answer_is_an_error(kind: str, said: bytes, expected: str) -> None:
    for reset in (False, True):
        with saying(said, reset=reset) as url, asking(kind, url, retries=1) as client:
            error = failure(client, SESSIONS)

        assert str(error) == f"{url} {expected}" or reset
        assert isinstance(error, Unreachable | UnexpectedAnswer)
        assert getattr(error, "may_be_done", True)


def test_where_nobody_listens_the_error_says_how_to_start(kind: str) -> None:
    url = f"http://127.0.0.1:{free_port()}/memory"

    with asking(kind, url, key=KEY) as client:
        error = failure(client, saving)

    assert type(error) is Unreachable
    assert not error.may_be_done
    assert str(error).startswith(f"{url} cannot be reached (")
    assert str(error).endswith("). Is it running? `agentops-memory serve` starts it.")


@pytest.mark.slow
def test_who_is_silent_or_never_ends_the_head_of_an_answer_is_left(kind: str) -> None:
    ways = (silence, dripping) if kind == "awaiting" else (silence,)
    for way in ways:
        with way() as url, asking(kind, url, retries=0, timeout=timedelta(seconds=1)) as client:
            error = failure(client, STATS)

        assert type(error) is Unreachable
        assert error.may_be_done
        assert str(error) == f"{url} did not answer in time."


class Said(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that comes without an end, and knows whether it was left."""

    def __init__(self, told: Callable[[], object]) -> None:
        self.told = told
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(10**6):
            self.told()
            yield b" " * 999

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.close()


def test_who_answers_slower_and_slower_is_left(kind: str) -> None:
    time = Time()
    said = Said(lambda: time.sleep(1))
    road = Road([answering(stream=said)])

    with asking(kind, road=road, time=time) as client:
        error = failure(client, STATS)

        assert said.is_closed

    assert type(error) is Unreachable
    assert time.now == 30
    assert len(road.requests) == 1


@pytest.mark.slow
def test_an_answer_that_is_not_read_to_its_end_is_closed(kind: str) -> None:
    questions: list[Question] = [STATS, lambda client: next(client.export())]
    for status, packed in ((200, ""), (500, ""), (200, "gzip"), (302, "")):
        for question in questions:
            said = Said(lambda: None)
            headers = {"content-encoding": packed} if packed else {}
            road = Road([answering(status, stream=said, headers=headers)])
            with asking(kind, road=road, retries=0) as client:
                assert type(failure(client, question)) is UnexpectedAnswer
                assert said.is_closed


def test_the_key_is_sent_and_never_shown(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    road = Road([httpx.ReadError("cut"), answering(502, html=HTML), answering(500, {})])

    with asking(kind, road=road, key=KEY, retries=0) as client:
        shown += [repr(client), str(vars(client))]
        for _ in road.happenings:
            error = failure(client, saving)
            told = traceback.TracebackException.from_exception(error, capture_locals=True)
            shown += [repr(error), str(error), "".join(told.format())]

    assert [it.headers["authorization"] for it in road.requests] == [f"Bearer {KEY}"] * 3
    assert KEY not in "".join(shown)
    assert KEY not in caplog.text


def test_every_kind_of_failure_on_the_way_has_a_class(kind: str) -> None:
    kinds = [
        it
        for it in vars(httpx).values()
        if isinstance(it, type) and issubclass(it, httpx.RequestError)
    ]
    assert len(kinds) > 15
    for one in kinds:
        with asking(kind, road=Road([one("no")]), retries=0) as client:
            error = failure(client, saving)

        assert type(error) in (Unreachable, UnexpectedAnswer)
        assert type(error.__cause__) is one
