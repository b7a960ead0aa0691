"""Log lines: one JSON object a line, and one line a request."""

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

from opentelemetry.trace import Span, format_span_id, format_trace_id, get_current_span

from ..domain.secrets.redaction import DEFAULT_RULES, Rules
from ..domain.secrets.sanitizing import is_own, message_of, text_of, trace

CHATTY = ("mcp", "httpx", "httpcore")  # a line or more a request, some with its whole query

_Fields = dict[str, object]

_rules: ContextVar[Rules] = ContextVar("what is taken out of what leaves", default=DEFAULT_RULES)


def hide_by(rules: Rules) -> None:
    """Let these rules hold for what the current request says from now on: in logs and spans."""
    _rules.set(rules)


def hidden(text: str) -> str:
    """The text without secrets, by the rules of the current request."""
    return _rules.get().redacted(text).text


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
    `span_id` follow, then the fields of `extra` that have none of these names
    (of a library's record the `source` instead), then `exception`. An exception
    is told without what its message quotes.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = _head(record) | trace_ids(get_current_span())
        fields |= {name: value for name, value in _extra(record).items() if name not in fields}
        if record.exc_info and record.exc_info[1]:
            fields["exception"] = trace(record.exc_info[1])
        if record.stack_info:
            fields["stack"] = record.stack_info
        return _line(fields)


def _head(record: logging.LogRecord) -> _Fields:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return {
        "time": at.replace("+00:00", "Z"),
        "level": record.levelname,
        "logger": record.name,
        "message": message_of(record),
    }


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
    if not is_own(record):  # whose fields may hold anything
        return {"source": f"{record.filename}:{record.lineno}"}
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def _line(fields: Mapping[str, object]) -> str:
    try:
        safe = {
            name: value if name in _PLAIN else _without_secrets(value)
            for name, value in fields.items()
        }
        return json.dumps(safe, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # NaN, odd keys, circles
        return json.dumps({name: hidden(text_of(value)) for name, value in fields.items()})


def _without_secrets(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        return {_name(name): _without_secrets(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return hidden(text_of(value))


def _name(key: object) -> str:
    if not isinstance(key, str | int | float | None):
        raise TypeError
    return hidden(str(key))


_PLAIN = frozenset({"time", "level", "logger", "trace_id", "span_id"})  # what we made ourselves

_OWN = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "taskName"}  # every record's
