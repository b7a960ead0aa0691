"""What makes commands start fast: light dataclasses, and modules imported at their first use."""

import dataclasses
from dataclasses import *  # noqa: F403 - all but the decorator
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from reprlib import recursive_repr
from types import ModuleType
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def dataclass(*, eq=True, frozen=False, **options):
        """As the standard one, with methods that are shared: `__init__` alone is compiled.

        The standard one compiles up to six for each class: with 136 classes, 23 percent of the
        instructions of a search by a command. Type checkers alone refuse to change a frozen object.
        """

        def decorated(cls):
            cls = dataclasses.dataclass(cls, eq=False, repr=False, **options)
            cls.__repr__ = _repr
            if eq:
                names = [it.name for it in dataclasses.fields(cls) if it.compare]
                key = attrgetter("__class__", *names)
                cls.__eq__ = lambda self, other: (
                    key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented
                )
                cls.__hash__ = (lambda self: hash(key(self))) if frozen else None
            return cls

        return decorated


@recursive_repr()
def _repr(self: Any) -> str:
    pairs = [(it.name, getattr(self, it.name)) for it in dataclasses.fields(self) if it.repr]
    return f"{type(self).__qualname__}({', '.join(f'{name}={it!r}' for name, it in pairs)})"


class Lazy:
    """A module of a package, which is imported when an attribute of it is first needed.

    It stands beside an import for type checkers alone, which gives it its types.
    """

    def __init__(self, package: str | None, name: str) -> None:
        self._place = name, package

    @cached_property
    def _module(self) -> ModuleType:
        return import_module(*self._place)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
