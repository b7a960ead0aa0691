"""Uncaught exceptions and warnings become log lines, without what their messages quote.

Where no log is set up, as in most commands, it is on standard error.
"""

import logging
import sys
import threading
import warnings
from types import TracebackType
from typing import TextIO

from ..domain.secrets.sanitizing import message_of, trace

log = logging.getLogger(__name__)


class PlainFormatter(logging.Formatter):
    """A record as its message, and its traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        return message_of(record) + (f"\n{trace(error).rstrip()}" if error else "")


def log_uncaught() -> None:
    """Let Python log what it would print: it prints whole messages."""
    sys.excepthook = _raised
    threading.excepthook = lambda raised: _raised(
        raised.exc_type, raised.exc_value, raised.exc_traceback
    )
    sys.unraisablehook = lambda ignored: _log("an exception was ignored", ignored.exc_value)
    warnings.showwarning = _warned
    if logging.lastResort:
        logging.lastResort.setFormatter(PlainFormatter())


def _raised(
    kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, Exception):
        sys.__excepthook__(kind, error or kind(), traceback)
    else:
        _log("an exception was not caught", error)


def _log(sentence: str, error: BaseException | None) -> None:
    log.critical(sentence, exc_info=error)


def _warned(
    message: Warning | str,  # noqa: ARG001 - it may quote anything
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 - the signature of warnings.showwarning
    line: str | None = None,  # noqa: ARG001 - as above
) -> None:
    log.warning("%s in %s:%d", category.__name__, filename, lineno)
