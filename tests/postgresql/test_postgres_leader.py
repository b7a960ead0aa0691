"""The one service that does what is due by the clock goes on while others are in its way."""

from datetime import timedelta
from pathlib import Path

import pytest

from agentops_memory.jobs import schedule

from ..support.openwop_commitments import Intents
from ..support.openwop_hosts import Host
from ..support.pods import pods
from ..support.process import until
from ..support.service import START
from .test_postgres_waiting import holding

WAITING = """SELECT 1
               FROM pg_stat_activity
              WHERE datname = current_database() AND wait_event_type = 'Lock'
                    AND query LIKE 'ANALYZE %'"""


@pytest.mark.slow
def test_what_is_due_is_done_while_statistics_of_a_table_cannot_be_made(
    tmp_path: Path, blank_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "LOOK_EVERY", timedelta(milliseconds=20))
    with pods(tmp_path / "postgresql", blank_database, count=1) as one:
        host = Host(one.http)
        intents = Intents(host)
        with holding(one.url, "LOCK TABLE postings IN SHARE UPDATE EXCLUSIVE MODE"):
            entry = host.put(" ".join(f"heron{number}" for number in range(30)))["id"]
            intents.at(entry, START + timedelta(minutes=1))
            # The database counts what a session has written when the session has more to do.
            until(lambda: host.put("storks nest") and one.rows(WAITING))
            one.clock.advance(minutes=2)
            until(lambda: one.rows("SELECT 1 FROM commitments WHERE state = 'fired'"))
