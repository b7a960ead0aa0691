"""Connections without end: the service is afterwards as it was before them."""

import itertools
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from ..support.losses import Losses
from ..support.process import Load, Program, served, stored, until
from ..support.raw import HEALTH, Wire, request
from ..support.service import PLAIN, observation
from ..support.vitals import open_files, resident

pytestmark = pytest.mark.slow

ASKED: tuple[tuple[str, str, object], ...] = (
    ("POST", "/observations", observation("meanwhile")),
    ("POST", "/sessions", {"id": "s2", "project": "demo"}),
    ("POST", "/import", {"observations": [observation("y" * 100_000)] * 20}),
    ("GET", "/context?project=demo", None), ("GET", "/search?q=before", None),
    ("GET", "/export", None), ("GET", "/openapi.json", None), ("GET", "/docs", None),
    ("GET", "/metrics", None), ("GET", "/health", None), ("GET", "/health/ready", None),
    ("POST", "/mcp/demo", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ("POST", "/anthropic/v1/memory_stores", {"name": "store"}),
    ("DELETE", "/projects/gone?hard=true", None),
)  # fmt: skip

MANY = 10_000
AT_ONCE = 100  # that are open before any of them is dropped
GROWTH = 16  # MiB
SAVES = 200
ROOM = 40  # files that the service may still open
BEGUN = (
    b"", b"GET / HT", HEALTH,
    request("POST", "/observations", b'{"content": "ha', content_length="99"),
    request("GET", "/export"),
)  # fmt: skip


@pytest.mark.heavy
def test_ten_thousand_connections_that_were_dropped_leave_nothing_behind(
    path: Path, lost: Losses
) -> None:
    with served(path) as (program, http):
        load = Load(str(http.base_url), saves=SAVES).start()
        drop(str(http.base_url).rstrip("/"), 1000)  # what the first of all kinds take is kept
        load.join()
        until(lambda: is_alone(program, http))
        before, files = resident(program.pid), open_files(program.pid)
        drop(str(http.base_url).rstrip("/"), MANY)
        until(lambda: open_files(program.pid) <= files)
        grown = resident(program.pid) - before

    lost(
        f"{MANY:,} connections opened and dropped",
        acknowledged=load.acknowledged.items(),
        found=stored(path).items(),
        remark=f"it grew by {grown:.0f} MiB",
    )
    assert load.refused == {}
    assert grown < GROWTH


def test_a_service_that_may_open_no_more_files_serves_those_it_has_and_recovers(
    path: Path, lost: Losses
) -> None:
    with served(path) as (program, http):
        http.get("/health")
        with few_files(program, open_files(program.pid) + ROOM):
            waiting = [Wire(str(http.base_url).rstrip("/")) for _ in range(3 * ROOM)]
            meanwhile = {f"{how} {what}": asked(http, how, what, body) for how, what, body in ASKED}
            for connection in waiting:
                connection.reset()
            until(lambda: is_let_in(http))
            load = Load(str(http.base_url), saves=SAVES).start()
            load.join()
        afterwards = {f"{how} {what}": asked(http, how, what, body) for how, what, body in ASKED}

    refused = [answered for answered in meanwhile.values() if answered == 503]
    lost(
        "too many files are open",
        acknowledged=load.acknowledged.items(),
        found=stored(path).items(),
        remark=f"{3 * ROOM} connections for {ROOM} places; {len(refused)} of {len(ASKED)} "
        "other requests were refused meanwhile, none afterwards",
    )
    assert refused
    assert (meanwhile["POST /observations"], meanwhile["GET /context?project=demo"]) == (201, 200)
    assert [*meanwhile.values(), *afterwards.values()].count(500) == 0, (meanwhile, afterwards)
    assert max(afterwards.values()) < 500, afterwards
    assert not load.refused
    assert not load.unanswered
    assert not [line for line in program.lines if "Exception in ASGI" in line]


def is_let_in(http: httpx.Client) -> bool:
    """Whether a new connection is served, as all are that came before it."""
    with suppress(httpx.TransportError):
        return httpx.get(http.base_url.join("/health"), verify=PLAIN).is_success
    return False


def asked(http: httpx.Client, how: str, what: str, body: object) -> int:
    """The status that a request is answered with."""
    return http.request(how, what, json=body).status_code


def drop(url: str, count: int) -> None:
    """Open so many connections, say something on each or nothing, and leave."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    kinds = itertools.cycle(BEGUN)
    for _ in range(count // AT_ONCE):
        opened = [socket.create_connection((host, int(port)), timeout=30) for _ in range(AT_ONCE)]
        for number, (connection, begun) in enumerate(zip(opened, kinds, strict=False)):
            connection.sendall(begun)
            if number % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        for connection in opened:
            connection.close()


def is_alone(program: Program, http: httpx.Client) -> bool:
    """Whether the service has no connection but this client's."""
    http.get("/health")
    sockets = (link.readlink() for link in Path(f"/proc/{program.pid}/fd").iterdir())
    return sum(str(target).startswith("socket:") for target in sockets) < 10


@contextmanager
def few_files(program: Program, most: int) -> Iterator[None]:
    """Inside, the program may have no more files open than this."""
    limits = resource.prlimit(program.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, limits)
