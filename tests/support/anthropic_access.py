"""A request for each operation of the Anthropic dialect, as its table has them."""

from dataclasses import dataclass
from typing import Any

import httpx

from agentops_memory.stores.anthropic import operations


class Nothing:
    """In the place of services, where the table alone is looked at."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: self


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for one of the operations."""

    name: str
    role: str
    method: str
    path: str
    body: dict[str, Any] | None

    def of(self, client: httpx.Client) -> httpx.Response:
        return client.request(self.method, self.path, json=self.body)


BODIES: dict[str, dict[str, Any]] = {
    "anthropic_create_store": {"name": "new"},
    "anthropic_update_store": {"name": "other"},
    "anthropic_create_memory": {"path": "/new", "content": "new"},
    "anthropic_update_memory": {"content": "newer"},
}


def every_request(store_id: str, memory_id: str, version_id: str) -> list[Asked]:
    """A request for each operation; those that end something come last."""
    ids = {"memory_store_id": store_id, "memory_id": memory_id, "memory_version_id": version_id}
    table = [
        Asked(
            name=operation.name,
            role=str(operation.role),
            method=operation.method,
            path=operation.path.format(**ids),
            body=BODIES.get(operation.name),
        )
        for operation in operations(Nothing())  # type: ignore[arg-type]
    ]
    last = ("anthropic_redact_version", "anthropic_delete_memory", "anthropic_archive_store",
            "anthropic_delete_store")  # fmt: skip
    return sorted(table, key=lambda asked: last.index(asked.name) if asked.name in last else -1)
