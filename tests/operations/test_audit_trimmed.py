"""The audit file loses what is over its time, and nothing else, whatever happens meanwhile."""

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from agentops_memory.errors import Unavailable
from agentops_memory.operations.files.keys import AuditFile, record

from ..support.process import until
from ..support.service import START, Clock, serving

DAY = timedelta(days=1)
ODD = [
    b"no JSON\n", b'{"at": 7}\n', b"{}\n", b"[]\n", b'{"at": "2001-01-01T00:00:00"}\n', b"\xff\n",
]  # fmt: skip


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """A line a day, ten of them, and others that are none of ours."""
    path = tmp_path / "memory.db.audit"
    for number in range(10):
        record(path, START + number * DAY, "key.created", {"user": "ada"}, number=number)
    with path.open("ab") as file:
        file.writelines(ODD)
    return path


def audit_file(path: Path) -> AuditFile:
    return AuditFile(path, lambda: START)


def numbers(path: Path) -> list[int]:
    """Which of the lines are there."""
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line not in ODD]
    return [json.loads(line)["number"] for line in lines]


def test_old_lines_go_and_what_is_no_line_stays(audit: Path) -> None:
    audit.chmod(0o640)
    audit.with_name(f"{audit.name}.new").write_bytes(b"half of it")  # a draft of one that died
    before = audit.read_bytes()

    assert audit_file(audit).trim(START - DAY / 2) == 0
    assert audit.read_bytes() == before
    assert audit_file(audit).trim(START + 3 * DAY) == 4
    assert audit_file(audit).trim(START + 3 * DAY) == 0

    assert numbers(audit) == [4, 5, 6, 7, 8, 9]
    assert audit.read_bytes().endswith(b"".join(ODD))
    assert audit.stat().st_mode & 0o777 == 0o640
    assert [it.name for it in audit.parent.iterdir()] == [audit.name]
    assert audit_file(audit.with_name("none")).trim(START) == 0
    assert [it.name for it in audit.parent.iterdir()] == [audit.name]


def test_what_was_written_while_the_clock_was_behind_stays_with_what_is_before_it(
    audit: Path,
) -> None:
    record(audit, START - 800 * DAY, "key.revoked", {"user": "ada"}, number=10)
    assert audit_file(audit).measured(START + 3 * DAY).past_retention == 4

    assert audit_file(audit).trim(START + 3 * DAY) == 4

    assert numbers(audit) == [*range(4, 11)]
    assert audit_file(audit).trim(START + 9 * DAY) == 7


def test_a_line_that_was_cut_short_stays_and_the_next_one_is_whole(audit: Path) -> None:
    with audit.open("ab") as file:
        file.write(b'{"at": "2001-01-')

    assert audit_file(audit).trim(START + 9 * DAY) == 10
    record(audit, START, "key.created", {"user": "ada"}, number=10)

    assert audit.read_bytes().startswith(b"".join([*ODD, b'{"at": "2001-01-\n{"at"']))


def test_whoever_waited_for_the_old_file_writes_into_the_new_one(audit: Path) -> None:
    writer = threading.Thread(
        target=record, args=(audit, START, "key.created", {"user": "ada"}), kwargs={"number": 11}
    )
    with audit.open("rb") as old:
        flock(old, LOCK_EX)
        writer.start()
        until(lambda: opened(audit) == 2)
        audit.with_name("draft").write_bytes(b"")
        audit.with_name("draft").replace(audit)

    writer.join(60)

    assert numbers(audit) == [11]


def test_what_fails_leaves_the_file_as_it_was(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = audit.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for broken in ("os.fsync", "os.fchmod", "pathlib.Path.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(broken, full)
            with pytest.raises(Unavailable, match=r"cannot be trimmed: No space left on device\.$"):
                audit_file(audit).trim(START + 3 * DAY)
        assert audit.read_bytes() == before
        assert len(list(audit.parent.iterdir())) == 1


@pytest.mark.sqlite_files
def test_the_service_trims_its_audit_file(path: Path) -> None:
    audit = Path(f"{path}.audit")
    clock = Clock(datetime(2030, 1, 1, tzinfo=UTC))
    for days in (401, 399):
        record(audit, clock.now - days * DAY, "tenant.created", {"user": "ada"}, number=days)
    with serving(path, clock=clock, MEMORY_SWEEP_EVERY="5ms"):
        clock.advance(minutes=6)
        until(lambda: numbers(audit) == [399])


def opened(path: Path) -> int:
    """How many descriptors of the file this process has."""
    links = [Path(f"/proc/self/fd/{it}") for it in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return sum(os.path.realpath(link) == str(path) for link in links)
