"""Fixtures: a host of the service, and what it asks for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.new_file import every_index
from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import Host
from ..support.openwop_seams import Suite, driven
from ..support.service import Service

__all__ = ["every_index"]


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
