"""One span: how it begins, what it is told, and how it fails."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, get_current_span
from opentelemetry.util.types import AnyValue

from ..domain.errors import Conflict, Refusal
from ..domain.secrets.sanitizing import safe_message, trace
from .redaction import hidden


class Cut(NamedTuple):
    """The beginning of a text: its secrets are taken out first, so that no half of one is left."""

    text: str
    limit: int  # code points


Attributes = Mapping[str, AnyValue | Cut]

UNKNOWN_ERROR = "error"
ERROR_TYPES = frozenset(
    {"not_found", "validation_error", "invalid_input", "db_locked", "constraint_violation"}
)


@contextmanager
def span(
    tracer: Tracer,
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
) -> Iterator[Span]:
    """The current span for a while: a child of the current one, or of that in `parent`.

    An exception that passes through is written on it and goes on.
    """
    with tracer.start_as_current_span(
        name, context=parent, kind=kind, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            _fail(current, error)
            raise


def annotate(attributes: Attributes) -> None:
    """Give attributes to the current span; a value of None is left out."""
    current = get_current_span()
    if current.is_recording():
        current.set_attributes(_sendable(attributes))


def event(name: str, attributes: Attributes) -> None:
    """Add an event to the current span; a value of None is left out."""
    current = get_current_span()
    if current.is_recording():
        current.add_event(name, _sendable(attributes))


def _fail(current: Span, error: Exception) -> None:
    if not current.is_recording():
        return
    annotate({"error.type": _error_type(error)})
    name, message = type(error).__name__, safe_message(error)
    status = _encodable(f"{name}: {message}" if message else name)
    current.set_status(Status(StatusCode.ERROR, status))
    # Span.record_exception would write down what the message quotes.
    event(
        "exception",
        {
            "exception.type": f"{type(error).__module__}.{type(error).__qualname__}",
            "exception.message": message or None,
            "exception.stacktrace": trace(error),
        },
    )


def _error_type(error: Exception) -> str:
    if isinstance(error, Conflict):
        return Conflict.code  # each kind of it has a code of its own, which the contract lacks
    code = error.code if isinstance(error, Refusal) else UNKNOWN_ERROR
    return code if code in ERROR_TYPES else UNKNOWN_ERROR


def _sendable(attributes: Attributes) -> dict[str, AnyValue]:
    return {name: _shown(value) for name, value in attributes.items() if value is not None}


def _shown(value: AnyValue | Cut) -> AnyValue:
    if isinstance(value, Cut):
        return _encodable(value.text)[: value.limit]
    return _encodable(value) if isinstance(value, str) else value


def _encodable(text: str) -> str:
    """The text without secrets, and without lone surrogates: one would lose a batch of spans."""
    return hidden(text.encode("utf-8", "replace").decode("utf-8"))
