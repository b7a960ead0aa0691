"""What probes are told of a service whose database is busy, or away."""

from datetime import timedelta

import pytest

from agentops_memory.http import app as health

from ..http.test_health import ready
from ..support.pods import Pods, one
from .test_postgres_group_commit import lock
from .test_postgres_waiting import holding

__all__ = ["one"]


@pytest.fixture(autouse=True)
def _looking_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RESULT_LIFETIME", timedelta(0))


def test_a_service_is_ready_while_a_long_write_has_its_tenant_alone(one: Pods) -> None:
    with holding(one.url, lock()):
        status, found = ready(one.http)

    assert (status, found["checks"]["database"]) == (200, {"status": "ok"})


def test_each_look_commits_something(one: Pods) -> None:
    def newest() -> int:
        ((number,),) = one.rows("SELECT CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT)")
        return int(number)

    before = newest()
    assert ready(one.http)[0] == 200

    assert newest() > before
