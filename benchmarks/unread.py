"""`python -m benchmarks.unread`: what answers that nobody reads cost: memory, and others' time.

300 connections each ask one route for a large answer and read nothing of it, while another
tenant saves. Each route has a service of its own. `--keys 20` spreads them over so many keys.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from socket import MSG_DONTWAIT, MSG_PEEK, SO_RCVBUF, SOL_SOCKET, socket

from agentops_memory.memory.access import EVERYTHING, Role, TenantId, agent_patterns, issued
from agentops_memory.operations.files.keys import KeyFile

from .client import Client, Request, get, with_body
from .figures import Figure, at_most, show
from .measures import Times
from .process import Running, running

READERS = 300
PAGE = 4096  # bytes of a socket
SAVES = 1_000  # without readers; with them at least as many
LASTING = 10.0  # seconds, at least, in which the readers are there
SETTINGS = {"MEMORY_INDEX_CACHE": "0"}  # which is no part of an answer, and takes memory for itself
STARTED = get("/health/startup")
CLOUD, WOP, INTENT = "/api/v1/cloud/memory_stores", "/v1/host/agentops-memory", "/api/v1/memory"
WORDS = "The import holds its lock until the last row is stored. "

RESIDENT, SLOWER = at_most(128), at_most(5)


class Tenant:
    """A connection that brings a key."""

    def __init__(self, port: int, token: str) -> None:
        self._headers = _headers(token)
        self._client = Client(port)
        self.close = self._client.close

    def post(self, path: str, body: object) -> bytes:
        """The answer to a body that is taken."""
        return self._client.ask(self.request("POST", path, json.dumps(body).encode()))

    def request(self, method: str, path: str, body: bytes = b"") -> Request:
        """A request under the key."""
        return with_body(method, path, body, self._headers)


def main() -> None:
    """Seed once; then, for each route, start, measure, print. The exit code is 1 over a bound."""
    options = argparse.ArgumentParser(prog="benchmarks.unread", description=__doc__)
    options.add_argument("--keys", type=int, default=1, help="of the readers; 1 unless given")
    options.add_argument("--only", default="", help="routes with this in their address")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        tokens = [_key(path, "readers") for _ in range(given.keys)]
        others = _key(path, "others")
        with (
            running(path, first=STARTED) as service,
            closing(Tenant(service.port, tokens[0])) as readers,
        ):
            routes = _seeded(readers)
        figures = []
        for route in routes:
            if given.only in route:
                with running(path, first=STARTED, settings=SETTINGS) as service:
                    figures += _measured(service, route, tokens, others)
                show(figures[-2:])
    sys.exit(0 if all(it.aim is None or it.aim.is_met(it.value or 0) for it in figures) else 1)


def _headers(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}", "X-Agent-ID": "ada"}


def _key(path: Path, tenant: str) -> str:
    now = datetime.now(UTC)
    agents = agent_patterns(["*"])
    key, token = issued(tenant, TenantId(tenant), Role.ADMIN, EVERYTHING, now, agents=agents)
    KeyFile(Path(f"{path}.keys"), Path(f"{path}.audit")).create(key, at=now, by={})
    return token


def _seeded(tenant: Tenant) -> list[str]:
    """What can be asked for much at once, of each protocol, once all that is stored."""
    for start in range(0, 1_000, 100):
        items = [
            {"namespace": "n", "key": f"k{number}", "memory_type": "semantic",
             "value": {"text": WORDS * 45}}
            for number in range(start, start + 100)
        ]  # fmt: skip
        tenant.post(f"{INTENT}/batch", {"entries": items})
    for number in range(300):
        row = {"session_id": "s", "type": "note", "title": f"Lock {number}", "project": "demo"}
        tenant.post("/observations", row | {"content": f"{number} " + WORDS * 850})
    store = json.loads(tenant.post(CLOUD, {"name": "store"}))["id"]
    for number in range(60):
        entry = {"path": f"p{number}.md", "content": f"{number} " + WORDS * 1_700}
        tenant.post(f"{CLOUD}/{store}/memories", entry)
    for number in range(200):
        entry = {"memoryRef": "memory:a", "content": f"{number} " + WORDS * 1_000}
        tenant.post(f"{WOP}/memory", entry)
    return [
        f"{INTENT}?limit=1000", f"{INTENT}?limit=150", "/export", "/search?q=lock&limit=1000",
        "/search?q=lock&limit=20", "/search?q=lock&limit=100",
        "/observations/recent?limit=1000",
        "/context?project=demo&query=lock&limit=1000&content_chars=50000",
        f"{CLOUD}/{store}/memories?limit=100", f"{CLOUD}/{store}/search?q=lock&limit=100",
        f"/anthropic/v1/memory_stores/{store}/memories?view=full",
        f"{WOP}/memory?memoryRef=memory:a&limit=500", "/openapi.json", "/docs/swagger-ui-bundle.js",
    ]  # fmt: skip


def _measured(service: Running, route: str, tokens: list[str], others: str) -> list[Figure]:
    with ExitStack() as stack:
        saving = stack.enter_context(closing(Tenant(service.port, others)))
        _saved(saving, lambda times: len(times.taken) >= SAVES // 5)
        alone = _saved(saving, lambda times: len(times.taken) >= SAVES)
        unread = [stack.enter_context(closing(_unread(service.port))) for _ in range(READERS)]
        end = time.monotonic() + LASTING
        threading.Thread(target=_ask, args=(unread, route, tokens)).start()
        among = _saved(saving, lambda times: len(times.taken) >= SAVES and time.monotonic() > end)
        answers = Counter(map(_status, unread))
        resident, peak = service.memory()
    said = ", ".join(f"{count} answered {status}" for status, count in sorted(answers.items()))
    return [
        Figure(what=f"GET {route}", value=peak, aim=RESIDENT, unit="MiB",
               beside=f"resident at its peak, {resident:.0f} MiB in the end; {said}"),
        Figure(what="    p99 of another tenant's saves, against none", value=among.p99 / alone.p99,
               aim=SLOWER, beside=f"{among}, longest {max(among.taken):.2f} s, against {alone}"),
    ]  # fmt: skip


def _unread(port: int) -> socket:
    connection = socket()
    connection.setsockopt(SOL_SOCKET, SO_RCVBUF, PAGE)  # so that the kernel keeps little of it
    connection.connect(("127.0.0.1", port))
    return connection


def _ask(unread: list[socket], route: str, tokens: list[str]) -> None:
    for connection, token in zip(unread, cycle(tokens), strict=False):
        connection.sendall(with_body("GET", route, b"", _headers(token)))


def _status(unread: socket) -> str:
    try:
        return unread.recv(12, MSG_PEEK | MSG_DONTWAIT)[9:].decode() or "by closing"
    except BlockingIOError:
        return "not yet"
    except ConnectionError:
        return "by closing"


def _saved(tenant: Tenant, is_enough: Callable[[Times], bool]) -> Times:
    times = Times()
    while not is_enough(times):
        row = {"session_id": "s", "type": "note", "title": "Note", "project": "demo",
               "content": f"{time.monotonic_ns()} {WORDS}"}  # fmt: skip
        began = time.perf_counter()
        tenant.post("/observations", row)
        times.taken.append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    main()
