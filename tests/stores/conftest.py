"""Fixtures: a store of the service."""

import pytest

from ..support.engines import every_index
from ..support.service import Service
from ..support.stores import Object, store

__all__ = ["every_index"]


@pytest.fixture
def home(service: Service) -> Object:
    return store(service.http)
