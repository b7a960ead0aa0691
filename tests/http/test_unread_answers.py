"""Answers that nobody reads: how many large ones there may be, and what one of them keeps."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from starlette.responses import Response

from agentops_memory.http import gate

from ..support.callers import calling, made_key
from ..support.engine import SOON
from ..support.process import until
from ..support.raw import LOOPS, Wire, keep_little, request, serving_on, wire
from ..support.service import Service, observation

SHORT = 0.2  # seconds, in the place of the real limits
WINDOW = 4096  # bytes that the kernel takes for a client
LONG = ". " * 20_000  # 40 kB of a content
MANY = "/observations/recent?limit=1000"


@pytest.fixture(scope="module", params=LOOPS)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service whose export is longer than what the kernel keeps of it, with a key."""
    with serving_on(request.param, tmp_path_factory.mktemp("service") / "memory.db") as running:
        keep_little(running.url, WINDOW)
        rows = [observation(f"{number} apple" + LONG) for number in range(250)]
        running.http.post("/import", json={"observations": rows}).raise_for_status()
        running.http.headers["authorization"] = f"Bearer {made_key(running.path)}"
        yield running


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "SLOTS_OF_A_KEY", 2)
    monkeypatch.setattr(gate, "SLOTS", 3)
    monkeypatch.setattr(gate, "SLOT_TIMEOUT", 0)


def unread(stack: ExitStack, service: Service, token: str = "", path: str = "/export") -> Wire:
    """A client that has begun to read a large answer."""
    client = stack.enter_context(wire(service.url, receive_buffer=WINDOW))
    key = f"Bearer {token}" if token else service.http.headers["authorization"]
    client.send(request("GET", path, authorization=key))
    assert client.socket.recv(12) == b"HTTP/1.1 200"
    return client


def assert_refused(answer: httpx.Response, status: int, sentence: str) -> None:
    assert (answer.status_code, answer.json()) == (status, {"error": sentence})
    assert answer.headers["retry-after"] == "1"


VIEWER = "/docs/swagger-ui-bundle.js"  # one of the files of the page, which needs no key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "unread_path", "path", "refusal"),
    [
        (2, "/export", MANY, (429, gate.UNREAD_OF_KEY)), (3, "/export", MANY, (503, gate.UNREAD)),
        (2, VIEWER, VIEWER, (429, gate.UNREAD)),
        (1, "/export", MANY, (429, gate.UNREAD_OF_KEY)),  # a list that needs several slots
    ],
    ids=["of a key", "of all keys", "of none", "of a long one"],
)  # fmt: skip
def test_so_many_large_answers_are_unread_and_no_more(
    service: Service, monkeypatch: pytest.MonkeyPatch, count: int, unread_path: str, path: str,
    refusal: tuple[int, str],
) -> None:  # fmt: skip
    http = service.http
    if count == 1:
        monkeypatch.setattr(gate, "SLOT", 2 * gate.LARGE)  # the list needs more than there are
    with ExitStack() as stack:
        for _ in range(count):
            token = made_key(service.path) if count == 3 else ""
            unread(stack, service, token, unread_path)

        assert_refused(http.get(path), *refusal)
        assert http.get("/search?q=apple&limit=1").status_code == 200
        assert http.post("/observations", json=observation("a pear")).status_code == 201
        if count == 2:
            with calling(service, made_key(service.path, "reader")) as other:
                assert other.get(MANY).status_code == 200

    assert until(lambda: http.get(path).is_success)


@pytest.mark.slow
def test_a_request_for_many_rows_waits_for_one_that_leaves(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "SLOT_TIMEOUT", SOON)
    with ExitStack() as stack:
        first = [unread(stack, service) for _ in range(2)]
        waiting = stack.enter_context(wire(service.url))
        key = service.http.headers["authorization"]
        waiting.send(request("GET", "/sessions/recent?limit=101", authorization=key))
        assert service.http.get("/stats").status_code == 200
        assert waiting.is_quiet(0)

        first[0].reset()

        assert waiting.answer().status == 200


@pytest.mark.slow
def test_a_short_answer_to_a_request_for_many_rows_leaves_its_slot(service: Service) -> None:
    with ExitStack() as stack:
        unread(stack, service)
        for _ in range(3):
            unread(stack, service, path="/sessions/recent?limit=1000")

        assert service.http.get("/sessions/recent?limit=1000").status_code == 200


@pytest.mark.slow
def test_a_client_that_takes_a_piece_too_slowly_is_cut_off(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    def reasons() -> list[str]:
        told = (it for it in caplog.records if it.message == "response incomplete")
        return [it.reason for it in told]  # type: ignore[attr-defined]

    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gate, "PIECE_TIMEOUT", SHORT)
            slow = [unread(stack, service) for _ in range(2)]
        until(lambda: len(reasons()) == 2)

        assert service.http.get(MANY).status_code == 200
        assert not slow[0].rest().endswith(b"0\r\n\r\n")

    assert reasons() == [gate.TOO_SLOW] * 2


def test_a_key_has_so_many_lists_in_the_making_and_no_more(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "LISTS_OF_A_KEY", 0)
    monkeypatch.setattr(gate, "LISTS_TIMEOUT", 0)

    assert_refused(service.http.get("/search?q=apple&limit=1"), 429, gate.CROWD)
    assert service.http.get("/stats").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(("size", "most"), [(gate.LARGE + 1, 1), (100, gate.LISTS_OF_A_KEY)])
async def test_a_key_that_asks_for_large_lists_has_one_in_the_making(size: int, most: int) -> None:
    answers, open_, counts = gate.LargeAnswers(), set[object](), list[int]()

    async def make() -> Response:
        it = object()
        open_.add(it)
        counts.append(len(open_))
        for _ in range(20):
            await asyncio.sleep(0)
        open_.remove(it)
        return Response(b"x" * size)

    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(answers.made(None, make))

    first = gate.LISTS_OF_A_KEY  # before any was answered
    assert max(counts[:first]) == first
    assert max(counts[2 * first :]) == most


@pytest.mark.slow
def test_everything_else_goes_on_between_the_pieces_of_a_large_list() -> None:
    turns = [0, 0]  # of the loop: all, and those that the last part has waited for

    async def tick() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def rendered() -> list[int]:
        ticking, waited = asyncio.create_task(tick()), []
        async for _ in gate.paced([b"x" * gate.LARGE] * 3, len):
            waited.append(turns[0] - turns[1])
            turns[1] = turns[0]
        ticking.cancel()
        return waited

    _, *waited = asyncio.run(rendered())
    assert waited == [1, 1]
