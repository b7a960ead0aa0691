"""The two dialects of memory stores: how each names things, and a request for each operation.

Ids are the same in both, so what one has made is named in the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx
import pytest

from agentops_memory.http.protocol import Operation
from agentops_memory.stores import anthropic, cloud

from .stores import NEVER, Object, Refused, entry, refusal, store, update, versions

UNKNOWN = f"memstore_{NEVER}", f"mem_{NEVER}", f"memver_{NEVER}"


class Nothing:
    """In the place of services, where the table alone is looked at."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: self


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a dialect names what both have."""

    name: str
    prefix: str
    versions: str  # the last step of their path
    slash: str  # what a path begins with
    request_id: str  # the header
    operations: Callable[..., Sequence[Operation]]

    @property
    def stores(self) -> str:
        return f"{self.prefix}/memory_stores"

    def at(self, store: Object, *steps: str) -> str:
        """A path below a store; the step `versions` is the dialect's own."""
        own = [self.versions if it == "versions" else it for it in steps]
        return "/".join((self.stores, store["id"], *own))

    def fault(self, answer: httpx.Response) -> tuple[int, str]:
        """The status and the type of a refusal, whose shape is checked."""
        told = self.refusal(answer)
        return told.status, told.type

    def refusal(self, answer: httpx.Response) -> Refused:
        return refusal(answer, self.request_id)


CLOUD = Dialect(
    name="cloud", prefix="/api/v1/cloud", versions="versions", slash="", request_id="x-request-id",
    operations=lambda: cloud.operations(Nothing(), Nothing()),  # type: ignore[arg-type]
)  # fmt: skip
ANTHROPIC = Dialect(
    name="anthropic", prefix="/anthropic/v1", versions="memory_versions", slash="/",
    request_id="request-id",
    operations=lambda: anthropic.operations(Nothing()),  # type: ignore[arg-type]
)  # fmt: skip
DIALECTS = CLOUD, ANTHROPIC
in_both = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda it: it.name)


class Request(NamedTuple):
    """A request for one of the operations."""

    name: str
    role: str
    status: int  # of its success
    method: str
    path: str
    body: dict[str, Any] | None

    def send(self, client: httpx.Client, **options: Any) -> httpx.Response:
        return client.request(self.method, self.path, **{"json": self.body} | options)


BODIES: dict[str, dict[str, Any]] = {
    "create_store": {"name": "new"}, "update_store": {"name": "other"},
    "create_entry": {"path": "new", "content": "new"},
    "create_memory": {"path": "/new", "content": "new"},
    "update_entry": {"content": "newer"}, "update_memory": {"content": "newer"},
}  # fmt: skip
LAST = "redact_version", "delete_entry", "delete_memory", "archive_store", "delete_store"


def every_request(
    store_id: str, entry_id: str, version_id: str, dialect: Dialect = ANTHROPIC
) -> list[Request]:
    """A request for each operation; those that end something come last."""
    ids = {
        "store_id": store_id, "memory_store_id": store_id, "entry_id": entry_id,
        "memory_id": entry_id, "version_id": version_id, "memory_version_id": version_id,
    }  # fmt: skip
    every = [
        Request(
            it.name, str(it.role), it.status, it.method,
            it.path.format(**ids) + ("?q=second" if it.name == "search_store" else ""),
            BODIES.get(it.name.removeprefix("anthropic_")),
        )
        for it in dialect.operations()
    ]  # fmt: skip

    def place(it: Request) -> int:
        name = it.name.removeprefix("anthropic_")
        return LAST.index(name) if name in LAST else -1

    return sorted(every, key=place)


def stocked(http: httpx.Client, text: str = "first") -> tuple[str, str, str]:
    """The ids of a new store, of an entry in it, and of a version that is the entry's past."""
    home = store(http)
    held = entry(http, home, "a", text)
    update(http, home, held, "second")
    return home["id"], held["id"], versions(http, home)[-1]["id"]
