"""The package `anthropic` as a client of a service."""

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types.beta import BetaManagedAgentsMemoryStore as Store
from anthropic.types.beta.memory_stores import (
    BetaManagedAgentsMemory as Memory,
    BetaManagedAgentsMemoryVersion as Version,
)

from .service import PLAIN, Service

STORES = "/anthropic/v1/memory_stores"
ANY = "any"  # key, for a service without keys
NOWHERE = f"memstore_{'0' * 32}"
NOTHING = f"mem_{'0' * 32}"
NEVER = f"memver_{'0' * 32}"


@pytest.fixture
def sdk(service: Service) -> Iterator[anthropic.Anthropic]:
    with client(service) as one:
        yield one


def client(service: Service, token: str = ANY, **options: Any) -> anthropic.Anthropic:
    """The newest release, with its defaults, but for the certificates that it would load."""
    own = {"http_client": anthropic.DefaultHttpxClient(verify=PLAIN), **options}
    return anthropic.Anthropic(base_url=f"{service.url}/anthropic", api_key=token, **own)


def store(sdk: anthropic.Anthropic, name: str = "notes") -> Store:
    """A new store."""
    return sdk.beta.memory_stores.create(name=name)


def memory(sdk: anthropic.Anthropic, store: Store, path: str, content: str = "something") -> Memory:
    """A new memory."""
    return sdk.beta.memory_stores.memories.create(store.id, path=path, content=content)


def versions(sdk: anthropic.Anthropic, store: Store, **filters: Any) -> list[Version]:
    """Every version of a store's memories, newest first."""
    return list(sdk.beta.memory_stores.memory_versions.list(store.id, **filters))


def paths(sdk: anthropic.Anthropic, store: Store, **filters: Any) -> list[str]:
    """The paths of a store's memories and folders, as they are listed."""
    return [item.path for item in sdk.beta.memory_stores.memories.list(store.id, **filters)]


def refusal(
    call: Callable[[], object], kind: type[anthropic.APIStatusError] = anthropic.BadRequestError
) -> dict[str, Any]:
    """The error that a call is refused with, as the given exception."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    body = caught.value.body
    assert isinstance(body, dict)
    assert body.keys() == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert body["request_id"] == caught.value.request_id
    error = body["error"]
    assert isinstance(error, dict)
    return error
