"""The process of a command: what nobody caught is logged, signals end it, its output is closed."""

import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TextIO

from ..secrets.sanitizing import message_of, trace
from .errors import TERMINATED

TIMEOUT = 5  # seconds for what SIGTERM undoes; a write that blocks could hold it up for ever

log = logging.getLogger(__name__)


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


def log_uncaught() -> None:
    """Log uncaught exceptions and warnings, without what their messages quote.

    Where no log is set up, as in most commands, it is on standard error.
    """
    sys.excepthook = _raised
    threading.excepthook = lambda raised: _raised(
        raised.exc_type, raised.exc_value, raised.exc_traceback
    )
    sys.unraisablehook = lambda ignored: log.critical(
        "an exception was ignored", exc_info=ignored.exc_value
    )
    warnings.showwarning = _warned
    if logging.lastResort:
        logging.lastResort.setFormatter(_PlainFormatter())


def escape_what_cannot_be_encoded() -> None:
    """Let an output that has no UTF-8 spell out what it cannot show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="backslashreplace")


def drop_unwritten_output() -> None:
    """Leave nothing to Python's own last flush, whose failure has words and an exit code."""
    with suppress(OSError, ValueError, AttributeError):  # closed, replaced, or never open
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(_: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGALRM, lambda *_: os._exit(TERMINATED))
    signal.alarm(TIMEOUT)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until what this raises has passed
    if callable(interrupt := signal.getsignal(signal.SIGINT)):
        interrupt(signal.SIGINT, frame)  # asyncio's cancels what runs, so that it is undone
        return
    raise Terminated


class _PlainFormatter(logging.Formatter):
    """A record as its message, and its traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        return message_of(record) + (f"\n{trace(error).rstrip()}" if error else "")


def _raised(
    kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, Exception):
        sys.__excepthook__(kind, error or kind(), traceback)
    else:
        log.critical("an exception was not caught", exc_info=error)


def _warned(
    message: Warning | str,  # noqa: ARG001 - it may quote anything
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 - the signature of warnings.showwarning
    line: str | None = None,  # noqa: ARG001 - as above
) -> None:
    log.warning("%s in %s:%d", category.__name__, filename, lineno)
