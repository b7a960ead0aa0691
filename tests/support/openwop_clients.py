"""Fixtures: the client of OpenWOP, blocking and awaited."""

from collections.abc import Iterator

import pytest

from agentops_memory_client import MemoryClient
from agentops_memory_client.openwop import OpenWopMemory

from .asking import asking
from .service import Service


@pytest.fixture(params=["blocking", pytest.param("awaiting", marks=pytest.mark.slow)])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def client(kind: str, service: Service) -> Iterator[MemoryClient]:
    with asking(kind, service.url) as client:
        yield client


@pytest.fixture
def memory(client: MemoryClient) -> OpenWopMemory:
    return client.openwop
