"""What a client sends again, how long it waits before, and that nothing is done twice."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentops_memory_client import (
    AsyncMemoryClient,
    MemoryClient,
    MemoryServiceError,
    Message,
    TooMany,
    Unreachable,
)
from agentops_memory_client.contract.models import Imported

from ..support.asking import Happening, Road, Time, answering, asking, over
from ..support.process import free_port
from ..support.service import Service, serving

OBSERVATION: dict[str, Any] = {
    "session_id": "s", "project": "p", "type": "t", "title": "t", "content": "c",
}  # fmt: skip
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


def test_a_service_that_starts_late_is_waited_for(path: Path) -> None:
    port = free_port()
    with pytest.raises(Unreachable), MemoryClient(f"http://127.0.0.1:{port}", retries=0) as client:
        client.health()

    answers: list[str] = []
    with MemoryClient(f"http://127.0.0.1:{port}", retries=30) as client:
        asker = threading.Thread(target=lambda: answers.append(client.health()))
        asker.start()
        with serving(path, MEMORY_LISTEN=f"127.0.0.1:{port}"):
            asker.join(30)

    assert answers == ["ok"]


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
