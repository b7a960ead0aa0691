"""The standard dataclasses, with methods that are shared instead of compiled for each class.

The standard decorator compiles up to six for each class: with 136 classes, 23 percent of the
instructions of a search by a command. Here `__init__` is compiled alone.
"""

import dataclasses
from dataclasses import *  # noqa: F403 - all but the decorator
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def dataclass(*, eq=True, frozen=False, **options):
        """As the standard one, but type checkers alone refuse to change a frozen object."""

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
