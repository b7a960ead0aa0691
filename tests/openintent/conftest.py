"""Fixtures: an agent of the service."""

import pytest

from ..support.engines import every_index
from ..support.openintent_agents import Agent
from ..support.service import Service

__all__ = ["every_index"]


@pytest.fixture
def ada(service: Service) -> Agent:
    return Agent(service.http)
