"""What probes are told of a service whose database is busy, or away."""

from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.http import middleware as health

from ..http.test_health import ready
from ..support.clusters import server
from ..support.pods import Pods, one, pods
from ..support.postgres import NOT_FOUND, is_found
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


@pytest.mark.heavy
@pytest.mark.skipif(not is_found(), reason=NOT_FOUND)
def test_a_database_that_is_away_is_told_of_as_a_check_that_failed(tmp_path: Path) -> None:
    with server() as database, pods(tmp_path / "postgresql", database.url, count=1) as one:
        database.stop()

        status, found = ready(one.http)

        assert (status, found["status"]) == (503, "failed")
        assert found["checks"]["database"]["status"] == "failed"
        assert found["error"] == found["checks"]["database"]["detail"]
        database.start()
        assert ready(one.http)[0] == 200


@pytest.mark.heavy
@pytest.mark.skipif(not is_found(), reason=NOT_FOUND)
def test_a_standby_that_no_commit_waits_for_is_none(tmp_path: Path) -> None:
    settings = ("synchronous_standby_names=absent", "synchronous_commit=local")
    with server(*settings) as database, pods(tmp_path / "a", database.url, count=1) as one:
        assert ready(one.http)[1]["checks"]["standby"]["status"] == "warning"
