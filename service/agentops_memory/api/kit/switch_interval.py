"""Threads take turns sooner while a long body is read: Python's lock is what requests wait for."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

# A save changes threads five times; beside a thread that reads an import, each of these waits for
# as long as Python lets that one keep its lock: 5 ms, unless it is told otherwise.
INTERVAL = timedelta(microseconds=300)


class _Readers:
    """Those who have asked for it, and the interval that was in force before."""

    count = 0
    before = 0.0


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Inside, a thread keeps Python's lock for `INTERVAL` while others want it.

    For the loop's thread alone; it may be entered by many requests at once. Always on it would
    cost searches a tenth of their processor time.
    """
    if not _Readers.count:
        _Readers.before = sys.getswitchinterval()
        sys.setswitchinterval(INTERVAL.total_seconds())
    _Readers.count += 1
    try:
        yield
    finally:
        _Readers.count -= 1
        if not _Readers.count:
            sys.setswitchinterval(_Readers.before)
