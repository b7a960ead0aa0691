"""Fixtures: a host of the service, what it asks for, and the client, blocking and awaited."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.jobs import schedule
from agentops_memory_client import MemoryClient
from agentops_memory_client.openwop import OpenWopMemory

from ..support.asking import asking
from ..support.engines import every_index
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import Host
from ..support.openwop_seams import Suite, driven
from ..support.service import Service, lasting as closed

__all__ = ["closed", "every_index"]


@pytest.fixture
def host(service: Service) -> Host:
    return Host(service.http)


@pytest.fixture
def intents(host: Host) -> Intents:
    return Intents(host)


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service looks for due commitments all the time."""
    monkeypatch.setattr(schedule, "LOOK_EVERY", timedelta(milliseconds=5))


@pytest.fixture
def suite(path: Path) -> Iterator[Suite]:
    with driven(path) as suite:
        yield suite


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
