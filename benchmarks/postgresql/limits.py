"""A share of a processor for each process: as if each had a machine of its own. For root."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
PERIOD = 20_000  # microseconds; a longer one would let a process wait for long in one request


@contextmanager
def limited(pids: Sequence[int], share: float) -> Iterator[None]:
    """Inside, each has at most this share of one processor, by a control group of its own."""
    quota = int(share * PERIOD)
    if (GROUPS / "cgroup.controllers").exists():  # version 2
        above, limits = GROUPS, {"cpu.max": f"{quota} {PERIOD}"}
    else:
        above = GROUPS / "cpu"
        limits = {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": str(quota)}
    groups = [above / f"agentops-memory-{pid}" for pid in pids]
    try:
        for pid, group in zip(pids, groups, strict=True):
            group.mkdir()
            for name, limit in (limits | {"cgroup.procs": str(pid)}).items():
                (group / name).write_text(limit, "ascii")
        yield
    except OSError as error:
        raise SystemExit(f"This wants root, and control groups: {error}") from error
    finally:
        for pid, group in zip(pids, groups, strict=True):
            if group.exists():
                (above / "cgroup.procs").write_text(str(pid), "ascii")
                group.rmdir()
