"""What makes starts and requests cheap.

Light dataclasses, modules that are imported on first use, and values that are computed once in a
turn of the event loop.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import *  # noqa: F403 - all but the decorator
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from reprlib import recursive_repr
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if not TYPE_CHECKING:

    def dataclass(*, eq=True, frozen=False, **options):
        """The standard decorator, but only `__init__` is compiled; other methods are shared.

        The standard one compiles up to six methods a class: with 136 classes, 23 percent of the
        instructions of a command's search. Only type checkers prevent changes of frozen objects.
        """

        def decorated(cls):
            cls = dataclasses.dataclass(cls, eq=False, repr=False, **options)
            cls.__repr__ = _repr
            if eq:
                names = [it.name for it in dataclasses.fields(cls) if it.compare]
                key = attrgetter("__class__", *names)
                cls.__eq__ = lambda self, other: (
                    other is self or key(self) == key(other)
                    if other.__class__ is self.__class__
                    else NotImplemented
                )
                cls.__hash__ = (lambda self: hash(key(self))) if frozen else None
            return cls

        return decorated


@recursive_repr()
def _repr(self: Any) -> str:
    pairs = [(it.name, getattr(self, it.name)) for it in dataclasses.fields(self) if it.repr]
    return f"{type(self).__qualname__}({', '.join(f'{name}={it!r}' for name, it in pairs)})"


class Lazy:
    """A module that is imported when one of its attributes is first used.

    It is paired with an import for type checkers only, which provides the types.
    """

    def __init__(self, package: str | None, name: str) -> None:
        self._arguments = name, package

    @cached_property
    def _module(self) -> ModuleType:
        return import_module(*self._arguments)

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(self._module, name)
        return value


T = TypeVar("T")


class OncePerTurn(Generic[T]):
    """A value that is computed once in each turn of the event loop, when first needed.

    In one turn, the event loop reads all requests that have begun to arrive before it. So a
    check within the turn is as new as any of them needs. Outside of an event loop, and in its
    tasks, each call computes the value.
    """

    def __init__(self, compute: Callable[[], T]) -> None:
        self._compute = compute
        self._values: dict[object, T] = {}  # by event loop

    def get(self) -> T:
        """Return the value of this turn; an error is raised, and not kept."""
        import asyncio  # noqa: PLC0415 - commands start without it

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._compute()
        if asyncio.current_task(loop):  # uvloop runs tasks, reads requests, then calls `clear`
            return self._compute()
        if loop not in self._values:
            self._values[loop] = self._compute()
            loop.call_soon(self._values.clear)
        return self._values[loop]

    def renewed(self) -> T:
        """Compute the value again, and return it."""
        self._values.clear()
        return self.get()
