"""What can go wrong between a client and the service: errors that show no key, and retries.

Nothing is done twice.
"""

import asyncio
import gzip
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from operator import methodcaller
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory_client import (
    AsyncMemoryClient,
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
from agentops_memory_client.client import MAX_ANSWER
from agentops_memory_client.contract.models import BY_STATUS, Context, Imported, Saved, refused

from ..support.asking import Answering, Happening, Road, Time, answering, asking, over, saying
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
    ways = [(b"H", 60.0), (b"H" * 500, 0.01)]
    for answer, pause in ways if kind == "awaiting" else ways[:1]:
        with (
            saying(answer, pause=pause) as url,
            asking(kind, url, retries=0, timeout=timedelta(seconds=1)) as client,
        ):
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


def test_every_status_and_every_kind_of_failure_on_the_way_has_a_class(kind: str) -> None:
    for status in (*BY_STATUS, 405, 408, 418, 431, 499, 502, 599):
        road = Road([answering(status, {"error": "No."}, headers={"x-request-id": "r1"})])
        with asking(kind, road=road, retries=0) as client:
            error = failure(client, saving)

        assert isinstance(error, Refused)
        assert type(error) is BY_STATUS.get(status, Failed if status >= 500 else Invalid)
        assert (str(error), error.status, error.request_id) == ("No.", status, "r1")
        assert type(refused(status, "No.")) is type(error)

    kinds = [it for it in vars(httpx).values() if isinstance(it, type)]
    failures = [it for it in kinds if issubclass(it, httpx.RequestError)]
    assert len(failures) > 15
    for one in failures:
        with asking(kind, road=Road([one("no")]), retries=0) as client:
            failed = failure(client, saving)

        assert type(failed) in (Unreachable, UnexpectedAnswer)
        assert type(failed.__cause__) is one


HEALTHY = answering(json={"status": "ok"})
SAVED = answering(201, {"id": 1, "action": "created", "revision_count": 1, "duplicate_count": 1})
BUSY = answering(503, {"error": "Busy."}, headers={"retry-after": "1"})
OFTEN = answering(429, {"error": "Too often."}, headers={"retry-after": "4"})
REFUSED, CUT, LATE = httpx.ConnectError("no"), httpx.ReadError("cut"), httpx.ReadTimeout("")


def test_what_passes_is_sent_again_and_what_stays_is_not(kind: str) -> None:
    page = answering(503, html="<html>starting</html>")
    unsent: tuple[Happening, ...] = (
        REFUSED, httpx.ConnectTimeout(""), httpx.PoolTimeout(""), BUSY, OFTEN, page,
    )  # fmt: skip
    cut: tuple[Happening, ...] = (
        CUT, LATE, httpx.WriteError(""), httpx.WriteTimeout(""), httpx.CloseError(""),
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
    )  # fmt: skip
    for happening in (*unsent, *cut):
        road = Road([happening, happening, SAVED])
        with asking(kind, road=road) as client:
            client.save(**OBSERVATION)

        assert len(road.requests) == 3
        assert len({(it.headers["idempotency-key"], it.content) for it in road.requests}) == 1
    stays: tuple[Happening, ...] = (
        *(answering(status, {"error": "No."}) for status in (400, 401, 403, 404, 409, 500, 507)),
        answering(502, html="<html>"), answering(200, html="<html>"), answering(302),
        httpx.LocalProtocolError(""), httpx.RemoteProtocolError("illegal status line"),
    )  # fmt: skip
    for happening, retries in [*((it, 2) for it in stays), (BUSY, 0)]:
        road = Road([happening])
        with asking(kind, road=road, retries=retries) as client, pytest.raises(MemoryServiceError):
            client.save(**OBSERVATION)

        assert len(road.requests) == 1


def test_every_write_brings_a_key_of_its_own_and_a_question_none(kind: str) -> None:
    road = Road([answering(json={}), *[answering(404, {"error": "No."})] * 20])

    with asking(kind, road=road) as client:
        for write in (
            lambda: client.save(**OBSERVATION), lambda: client.save(**OBSERVATION),
            lambda: client.update(1, title="t"), lambda: client.delete(1),
            lambda: client.restore(1, 1), lambda: client.start_session("s", "p"),
            lambda: client.end_session("s", [Message(role="user", content="c")]), client.stats,
        ):  # fmt: skip
            with pytest.raises(MemoryServiceError):
                write()

    *written, asked = road.keys
    assert asked is None
    assert None not in written
    assert len(set(written)) == 7


def test_the_waits_double_up_to_a_bound_with_jitter_or_are_as_the_service_says(kind: str) -> None:
    time = Time()
    page = answering(503, html="<html>starting</html>", headers={"retry-after": "2"})
    with asking(kind, road=Road([OFTEN, BUSY, page, HEALTHY]), time=time, retries=3) as client:
        assert client.health() == "ok"
    assert time.waits == [4.25, 1.5, 3.0]

    time = Time()
    with asking(kind, road=Road([REFUSED]), time=time, retries=7) as client:
        for chance, waits in ((1.0, [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]), (0.0, [0.0] * 7)):
            time.waits.clear()
            time.chance = chance
            with pytest.raises(Unreachable):
                client.health()
            assert time.waits == waits


def test_no_wait_is_longer_than_the_time_that_there_is(kind: str) -> None:
    for seconds, waits in (("29", [29.25]), ("30", []), ("999999999", []), ("9" * 5000, [0.25])):
        time = Time()
        often = answering(429, {"error": "Too often."}, headers={"retry-after": seconds})
        road = Road([often, HEALTHY])
        with asking(kind, road=road, time=time) as client:
            if waits:
                assert client.health() == "ok"
            else:
                with pytest.raises(TooMany) as refusal:
                    client.health()
                assert refusal.value.retry_after == timedelta(seconds=int(seconds))

        assert time.waits == waits


def test_all_attempts_together_have_a_bound(kind: str) -> None:
    time = Time()

    def silent(request: httpx.Request) -> httpx.Response:
        allowed.append(request.extensions["timeout"]["read"])
        time.now += request.extensions["timeout"]["read"]
        raise LATE

    allowed: list[float] = []
    with (
        asking(kind, road=silent, time=time, timeout=timedelta(seconds=2), retries=3) as client,
        pytest.raises(Unreachable),
    ):
        client.health()

    assert allowed == [2.0, 2.0, 2.0, pytest.approx(0.25)]
    assert time.now == 8.0


def test_a_save_whose_answer_was_lost_is_not_doubled(kind: str, path: Path) -> None:
    with serving(path, MEMORY_DEDUPE_WINDOW="0s") as service:
        road = Road([over(service, lost=True), over(service, lost=True), over(service)])
        with asking(kind, road=road) as client:
            saved = client.save(**OBSERVATION)
            assert client.recent() == [client.get(saved.id)]
            again = client.save(**OBSERVATION)

        assert (saved.action, again.action) == ("created", "created")
        assert again.id != saved.id

        road = Road([over(service, lost=True), over(service)])
        with asking(kind, road=road) as client:
            receipt = client.delete(saved.id, hard=True)

        assert receipt
        assert len(road.requests) == 2


def test_an_import_whose_answer_was_lost_is_not_sent_again(kind: str, tmp_path: Path) -> None:
    document = tmp_path / "export.json"
    document.write_text('{"sessions": [{"id": "s", "project": "p"}], "observations": []}')
    with serving(tmp_path / "memory.db") as service:
        road = Road([over(service, lost=True)])
        with asking(kind, road=road) as client, pytest.raises(Unreachable) as failure:
            client.import_from(document)

        assert failure.value.may_be_done
        assert len(road.requests) == 1
        assert service.http.get("/stats").json()["total_sessions"] == 1

        road = Road([REFUSED, httpx.PoolTimeout(""), BUSY, over(service)])
        with asking(kind, road=road, retries=3) as client:
            assert client.import_from(document) == Imported(
                imported_sessions=0, imported_observations=0
            )


async def test_whoever_awaits_may_stop_at_any_time(service: Service) -> None:
    road = Road([BUSY])

    transport = httpx.MockTransport(road)
    async with AsyncMemoryClient(service.url, transport=transport, retries=10) as client:
        task = asyncio.create_task(client.health())
        while not road.requests:  # noqa: ASYNC110 - what is awaited is another's doing
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert len(road.requests) == 1
