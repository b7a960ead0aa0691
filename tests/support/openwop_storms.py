"""Thousands of commitments that fire together, stored as a database from before may hold them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from agentops_memory.memory.model.rows import micros

from .engines import broken, rows
from .openwop_commitments import Intents
from .process import until

STEP = 200  # of what one transaction fires
PADDED = "substr('00000000000' || n.number, length('00000000000' || n.number) - 11)"
OF = "(SELECT id FROM memories WHERE uid = :uid)"


def arm_rows(
    path: Path, memory: str, count: int, *, tag: str | None = None, due: datetime | None = None
) -> None:
    """Arm so many conditions of an entry, beside the service."""
    rows(
        path,
        f"""WITH RECURSIVE n (number) AS (
                SELECT (SELECT coalesce(max(id), 0) FROM commitments) + 1
                 UNION ALL
                SELECT number + 1
                  FROM n
                 WHERE number < (SELECT coalesce(max(id), 0) FROM commitments) + :count)
            INSERT INTO commitments (uid, memory_id, space_id, due_at, tag, state, created_at)
            SELECT '00000000-0000-7000-8000-' || {PADDED}, e.memory_id, e.space_id, :due, :tag,
                   'armed', e.created_at
              FROM n
              JOIN ref_entries e ON e.memory_id = {OF}
          ORDER BY n.number""",
        uid=_uid(memory),
        count=count,
        tag=tag,
        due=None if due is None else micros(due),
    )


def states(path: Path) -> dict[str, int]:
    """How many commitments are in each state that is stored."""
    return dict(rows(path, "SELECT state, count(*) FROM commitments GROUP BY state"))


def numbers(path: Path, state: str) -> list[int]:
    """The rows in a state, in order."""
    statement = "SELECT id FROM commitments WHERE state = :state ORDER BY id"
    return [number for (number,) in rows(path, statement, state=state)]


def assert_fired_in_order(path: Path, intents: Intents) -> None:
    """Each that has fired has one event, in a run whose log is whole, in the order of the rows."""
    told = [it["commitmentId"] for it in intents.fired()]
    statement = "SELECT uid FROM commitments WHERE state = 'fired' ORDER BY id"
    assert told == [f"cmt_{uid.replace('-', '')}" for (uid,) in rows(path, statement)]
    wrong = """SELECT r.id
                 FROM runs r
                 JOIN run_events v ON v.run = r.id AND v.sequence = 0
                WHERE r.kind = 'pass'
                      AND NOT (r.log_offset BETWEEN 1 AND v.id AND r.high = v.high)"""
    assert rows(path, wrong) == []  # each sees memory as it was then


@contextmanager
def firing_no_further(path: Path, first: int) -> Iterator[None]:
    """Inside, no transaction that fires the row of this number, or one after it, is committed."""
    when = f"NEW.state = 'fired' AND OLD.id >= {first}"
    with broken(path, "UPDATE", "commitments", when=when):
        yield


def until_fired(path: Path) -> None:
    """Until nothing that is due is left, although nobody looks."""
    until(lambda: not rows(path, "SELECT 1 FROM met_tags") and not _due(path))


def _due(path: Path) -> bool:
    return bool(
        rows(path, "SELECT 1 FROM commitments WHERE state = 'armed' AND due_at IS NOT NULL")
    )


def _uid(memory: str) -> str:
    digits = memory.removeprefix("mem_")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
