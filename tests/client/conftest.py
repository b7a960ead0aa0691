"""Fixtures: either kind of client."""

import pytest

from ..support.asking import KINDS


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind
