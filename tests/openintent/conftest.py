"""Fixtures: an agent of the service."""

import pytest

from ..support.openintent_agents import Agent
from ..support.service import Service


@pytest.fixture
def ada(service: Service) -> Agent:
    return Agent(service.http)
