"""Log lines: one JSON object a line, and one line a request."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

from opentelemetry.trace import Span, format_span_id, format_trace_id, get_current_span

from .hidden import hidden

CHATTY = ("mcp", "httpx", "httpcore")  # a line or more a request, some with its whole query

_Fields = dict[str, object]


def configure_logging(level: str = "INFO", stream: TextIO = sys.stdout) -> None:
    """Write every logger's lines of this level and above to the stream, as JSON.

    Libraries that tell of each request are heard from warnings on.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        theirs = logging.getLogger(name)
        theirs.handlers = []
        theirs.propagate = True
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class JsonFormatter(logging.Formatter):
    """A record as one line of ASCII, whatever is in it, but without secrets. It never raises.

    `time`, `level`, `logger` and `message` lead; inside a span `trace_id` and
    `span_id` follow, then the fields of `extra` that have none of these names,
    then `exception`.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = _head(record) | trace_ids(get_current_span())
        fields |= {name: value for name, value in _extra(record).items() if name not in fields}
        if record.exc_info and record.exc_info[0]:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return _line(fields)


def _head(record: logging.LogRecord) -> _Fields:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return {
        "time": at.replace("+00:00", "Z"),
        "level": record.levelname,
        "logger": record.name,
        "message": _message(record),
    }


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a log line with wrong arguments is still a log line
        return _text(record.msg)


def trace_ids(span: Span) -> _Fields:
    """The names of a span in a line; none for one that is not recorded."""
    context = span.get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
    }


def _extra(record: logging.LogRecord) -> _Fields:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _line(fields: Mapping[str, object]) -> str:
    try:
        safe = {
            name: value if name in _PLAIN else _without_secrets(value)
            for name, value in fields.items()
        }
        return json.dumps(safe, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # NaN, odd keys, circles
        return json.dumps({name: hidden(_text(value)) for name, value in fields.items()})


def _without_secrets(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        return {_name(name): _without_secrets(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return hidden(_text(value))


def _name(key: object) -> str:
    if not isinstance(key, str | int | float | None):
        raise TypeError
    return hidden(str(key))


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the value may be what the line complains about
        return f"<{type(value).__name__}>"


_PLAIN = frozenset({"time", "level", "logger", "trace_id", "span_id"})  # what we made ourselves

# What each record has by itself; `color_message` is uvicorn's, for terminals.
_OWN = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName", "color_message"}
