"""Fixtures: a store of the service."""

import pytest

from ..support.service import Service
from ..support.stores import Object, store


@pytest.fixture
def home(service: Service) -> Object:
    return store(service.http)
