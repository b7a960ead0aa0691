"""Callbacks: the audit log, progress, and steps: methods that leave a span of what they decided."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from ..memory.model.access import Caller
from ..memory.model.retention import Held

Progress = Callable[[str], None]
"""Called with the name of each step before it is taken."""


Audit = Callable[..., None]
"""Called with caller, action and fields before the action is done; Unavailable if that fails."""


class AuditLog(Protocol):
    """The audit log, as those see it who look after it. Unavailable if it cannot be used."""

    def __call__(self, caller: Caller, action: str, **fields: object) -> None:
        """Record an action before it is done."""

    def trim(self, until: datetime) -> int:
        """Remove what is as old as that, or older, and has no newer before it; how much."""

    def measured(self, until: datetime | None) -> Held:
        """How much there is, and how much of it `trim` would remove."""


def noop(*_: object) -> None:
    """A callback that ignores its arguments."""


P = ParamSpec("P")
T = TypeVar("T")

Attributes = Mapping[str, str | int | None]
Tracing = Callable[[str], AbstractContextManager[Callable[[Attributes], None]]]
"""A span of that name for a while; what it yields gives it attributes."""


class PastStep(NamedTuple):
    """What a span tells of a step that is over."""

    name: str
    began: int  # nanoseconds since 1970, as is its end
    ended: int
    attributes: Attributes


TRACING: ContextVar[Tracing | None] = ContextVar("tracing", default=None)
"""How the steps of the transaction that runs leave spans; None where nothing is traced."""


def step(
    name: str, decided: Callable[..., Attributes]
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a method leave a span; `decided` makes its attributes of the answer and the arguments."""

    def traced(method: Callable[P, T]) -> Callable[P, T]:
        @wraps(method)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            tracing = TRACING.get()
            if tracing is None:
                return method(*args, **kwargs)
            with tracing(name) as annotate:
                answer = method(*args, **kwargs)
                annotate(decided(answer, *args[1:], **kwargs))
                return answer

        return run

    return traced
