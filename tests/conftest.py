"""Fixtures: a service of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .service import Clock, Service, serving


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(tmp_path: Path, clock: Clock) -> Iterator[Service]:
    with serving(tmp_path / "memory.db", clock=clock) as running:
        yield running
