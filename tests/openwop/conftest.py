"""Fixtures: a host of the service, what it asks for, and the client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.engines import every_index
from ..support.openwop_clients import client, kind, memory
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import Host
from ..support.openwop_seams import Suite, driven
from ..support.service import Service
from ..support.service import lasting as closed

__all__ = ["client", "closed", "every_index", "kind", "memory"]


@pytest.fixture
def host(service: Service) -> Host:
    return Host(service.http)


@pytest.fixture
def intents(host: Host) -> Intents:
    return Intents(host)


@pytest.fixture
def suite(path: Path) -> Iterator[Suite]:
    with driven(path) as suite:
        yield suite
