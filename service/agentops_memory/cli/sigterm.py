"""SIGTERM ends a command as Ctrl-C does: its temporary files are removed."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import TERMINATED

TIMEOUT = 5  # seconds for the removal; a write that blocks could hold it up for ever


class Terminated(KeyboardInterrupt):
    """SIGTERM has come."""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM is as Ctrl-C but raises Terminated, and ends the process if that does not.

    One that is ignored, or that somebody handles already, is left alone.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt as error:
        if signal.getsignal(signal.SIGTERM) is not _terminate:
            raise Terminated from error
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(_: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGALRM, lambda *_: os._exit(TERMINATED))
    signal.alarm(TIMEOUT)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until what this raises has passed
    if callable(interrupt := signal.getsignal(signal.SIGINT)):
        interrupt(signal.SIGINT, frame)  # asyncio's cancels what runs, so that it is undone
        return
    raise Terminated
