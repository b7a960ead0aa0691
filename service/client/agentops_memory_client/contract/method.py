"""Methods that are declared once, for a class that blocks and for one that is awaited.

A class of methods, as `_Run`, has two public ones: `Run(Blocking, _Run)`, whose methods wait for
the answer, and `AsyncRun(Awaited, _Run)`, whose methods are coroutines. Type checkers know both.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, get_args, overload

from .call import Call, T

P = ParamSpec("P")
Shown = TypeVar("Shown", bound=Callable[..., Any])

_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Method(Generic[P, T]):
    """A method of a class that is `Blocking`, and of one that is `Awaited`."""

    def __init__(self, work: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        def wait(self: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return finished(work(self, *args, **kwargs))

        self.awaited = work
        self.blocking = with_signature(work, wait, beside=1)

    @overload
    def __get__(
        self, asks: None, kind: "type[Blocking]", /
    ) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(
        self, asks: None, kind: "type[Awaited]", /
    ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, asks: None, kind: type, /) -> Self: ...
    @overload
    def __get__(self, asks: "Blocking", kind: type, /) -> Callable[P, T]: ...
    @overload
    def __get__(self, asks: "Awaited", kind: type, /) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, asks: object, kind: type, /) -> Any:
        return self  # the class of an instance has a function instead


class Asks:
    """Something that asks the service."""

    _way = ""  # of a public class: which function of each method is its own

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, it in inspect.getmembers_static(cls) if cls._way else ():
            if isinstance(it, Method):
                setattr(cls, name, getattr(it, cls._way))

    async def _ask(self, call: Call[T], /) -> T:
        """What is answered to a call."""
        raise NotImplementedError


class Blocking(Asks):
    """Its methods wait for their answer: what they ask never suspends."""

    _way = "blocking"


class Awaited(Asks):
    """Its methods are coroutines."""

    _way = "awaited"


def asking(question: Callable[P, Call[T]]) -> Method[P, T]:

    async def ask(self: Asks, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._ask(question(*args, **kwargs))

    return Method(with_signature(question, ask))


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine over a backend that blocks: it never suspends."""
    try:
        work.send(None)
    except StopIteration as returned:
        result: T = returned.value
        return result
    raise AssertionError("The backend of a blocking client has suspended.")


def with_signature(question: Callable[..., object], method: Shown, *, beside: int = 0) -> Shown:
    """The method, as `help` and `inspect` see the question with `self` before its parameters.

    It answers what a call reads. The first parameters that stand beside the
    question are omitted.
    """
    signature = inspect.signature(question)
    answer = signature.return_annotation
    if getattr(answer, "__origin__", None) is Call:
        (answer,) = get_args(answer)
    parameters = list(signature.parameters.values())[beside:]
    functools.update_wrapper(method, question, ("__name__", "__qualname__", "__doc__"), ())
    method.__dict__["__signature__"] = inspect.Signature(
        [_SELF, *parameters], return_annotation=answer
    )
    method.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": answer}
    return method
