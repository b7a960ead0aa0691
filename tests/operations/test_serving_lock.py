"""One service at a time has a database, and says its name."""

import fcntl
import os
import socket
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agentops_memory.errors import StartRefused
from agentops_memory.operations.files import service_lock as serving_lock
from agentops_memory.operations.files.service_lock import (
    UNNAMED,
    InUse,
    holder,
    service_lock,
)


def test_one_holds_a_database_and_all_others_are_told_who_it_is(tmp_path: Path) -> None:
    database, link = tmp_path / "new" / "memory.db", tmp_path / "link.db"
    link.symlink_to(database)
    assert holder(database) is None

    with service_lock(database):
        found = holder(link)
        assert found is not None
        who, _, since = found.partition(", since ")
        assert who == f"{socket.gethostname()} (process {os.getpid()})"
        assert abs(datetime.now(UTC) - datetime.fromisoformat(since)) < timedelta(minutes=1)
        for path in (database, link):
            with pytest.raises(InUse) as refused, service_lock(path):
                pass
            assert f"{path} is served by {found}. End that service" in str(refused.value)
        assert stat.S_IMODE((tmp_path / "new" / "memory.db.lock").stat().st_mode) == 0o600

    assert holder(database) is None
    assert (tmp_path / "new" / "memory.db.lock").read_text() == ""
    with pytest.raises(ConnectionError), service_lock(database):
        raise ConnectionError  # which is not taken for a fault of the lock
    assert holder(database) is None
    with service_lock(database):
        assert holder(database) not in (None, UNNAMED)


RECORDS = ["", "\n", "a (process 1),\nsince 2030", "\x1b[2J", "a\0"]


def test_a_holder_whose_name_cannot_be_read_holds_it_nevertheless(tmp_path: Path) -> None:
    database, lock = tmp_path / "memory.db", tmp_path / "memory.db.lock"
    with service_lock(database):
        for record in RECORDS:
            lock.write_text(record)
            assert holder(database) == UNNAMED, record
            with pytest.raises(InUse, match="is served by another service"), service_lock(database):
                pass


def test_a_lock_that_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "memory.db.lock").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link.lock").symlink_to(tmp_path / "file")
    for name in ("memory.db", "file/memory.db", "link"):
        with (
            pytest.raises(StartRefused, match=r"The lock .*\.lock cannot be taken: [A-Z].+\."),
            service_lock(tmp_path / name),
        ):
            pass


def test_a_lock_that_is_removed_while_it_is_taken_is_another_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: object) -> bool:
        (tmp_path / "memory.db.lock").unlink()
        return True

    monkeypatch.setattr(serving_lock, "has_locked", taken)
    with pytest.raises(InUse), service_lock(tmp_path / "memory.db"):
        pass


def test_one_who_looks_is_not_taken_for_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "memory.db.lock").open("w") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        assert holder(tmp_path / "memory.db") is None
        monkeypatch.setattr("time.sleep", lambda _: fcntl.flock(look, fcntl.LOCK_UN))

        with service_lock(tmp_path / "memory.db"):
            assert holder(tmp_path / "memory.db") not in (None, UNNAMED)
