"""Every write of every protocol is answered again as before by another service of its database."""

import pytest

from ..support.answers import Writer, described, every_write
from ..support.pods import Pods, two

__all__ = ["two"]


@pytest.mark.heavy
def test_every_write_is_answered_again_as_before_through_another_pod(two: Pods) -> None:
    write = Writer(two.http)
    every_write(write)

    assert set(write.sent) == described(two.http) | {"delete_observation, hard"}
    write.assert_same(two.services[1].http)
