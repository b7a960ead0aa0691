"""Work that takes long and lets others go on: of the threads of a process one runs at a time."""

import time
from collections.abc import Callable

Resting = Callable[[], object]
"""Called between two pieces of work."""

WORKED = 0.001  # seconds, after which it rests


class Rest:
    """Rests as long as was worked: whoever waits meanwhile, waits a moment."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def __call__(self) -> None:
        worked = time.perf_counter() - self._since
        if worked >= WORKED:
            time.sleep(worked)
            self._since = time.perf_counter()
