"""What came of the domain's operations, counted."""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from opentelemetry.trace import get_current_span

from ..domain.memories.idempotency import IdempotentRequest
from ..domain.model.memory import Amended, Entered, Imported, Saved
from ..domain.model.search import Context, Method
from ..domain.model.stores import Written
from .metrics import CONTEXT_ANSWERS, CONTEXT_METHOD, DEDUP, REDACTIONS, Metrics

Service = TypeVar("Service")


def counted(service: Service, metrics: Metrics) -> Service:
    """The domain service, with what comes of its operations counted."""
    return cast("Service", _Counted(service, metrics))


class _Counted:
    """Stands for a service: what its operations answer is counted, by the kind of answer."""

    def __init__(self, service: object, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._service, name)
        if iscoroutinefunction(found):
            found = self._counted(found)
        setattr(self, name, found)  # found at once from now on
        return found

    def _counted(
        self, operation: Callable[..., Awaitable[object]]
    ) -> Callable[..., Awaitable[object]]:
        @wraps(operation)
        async def counting(
            *args: object, idempotency: IdempotentRequest | None = None, **kwargs: object
        ) -> object:
            given = kwargs if idempotency is None else kwargs | {"idempotency": idempotency}
            outcome = await operation(*args, **given)
            count = COUNTS.get(type(outcome))
            if count and not (
                idempotency and idempotency.is_replay
            ):  # that was counted when it was done
                count(self._metrics, outcome)
            return outcome

        return counting


def _saved(metrics: Metrics, saved: Saved) -> None:
    metrics.count(DEDUP, saved.action.value, span=get_current_span())
    _redacted(metrics, saved)


def _redacted(metrics: Metrics, of: Saved | Amended | Entered | Imported | Written[object]) -> None:
    if of.redacted:
        metrics.count(REDACTIONS, by=of.redacted, span=get_current_span())


def _reminded(metrics: Metrics, told: Context) -> None:
    methods = [hit.method for hit in told.found.hits]
    for method in set(methods):
        metrics.count(CONTEXT_METHOD, method.value, by=methods.count(method))
    metrics.count(CONTEXT_ANSWERS, _outcome(told, methods), span=get_current_span())


def _outcome(told: Context, methods: list[Method]) -> str:
    if told.found.is_degraded:
        return "degraded"
    if any(method is not Method.RECENCY for method in methods):
        return "found"
    return "recency" if methods else "empty"


COUNTS: Mapping[type, Callable[[Metrics, Any], None]] = {
    Saved: _saved,
    Amended: _redacted,
    Entered: _redacted,
    Imported: _redacted,
    Written: _redacted,
    Context: _reminded,
}
