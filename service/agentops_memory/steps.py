"""Steps: methods of a transaction's tables that leave a span of what they decided."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

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
