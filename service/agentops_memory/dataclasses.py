"""The standard dataclasses, whose methods are shared instead of compiled for each class.

The standard decorator compiles up to six methods for each class. With 136 classes, that was
30 percent of the instructions of a search by a command. Here it compiles `__init__` alone.
"""

from dataclasses import KW_ONLY, MISSING, Field, asdict, field, fields, is_dataclass, replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = [
    "KW_ONLY", "MISSING", "Field", "asdict", "dataclass", "field", "fields", "is_dataclass",
    "replace",
]  # fmt: skip

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses

    def dataclass(cls=None, /, *, eq=True, frozen=False, **options):
        """As the standard one, but that type checkers alone refuse to change a frozen object."""

        def made(cls: type) -> type:
            cls = dataclasses.dataclass(cls, eq=False, repr=False, **options)
            cls.__repr__ = _repr
            if eq:
                _compare(cls, is_hashable=frozen)
            return cls

        return made if cls is None else made(cls)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{it.name}={getattr(self, it.name)!r}" for it in fields(self) if it.repr)
    return f"{type(self).__qualname__}({shown})"


def _compare(cls: Any, *, is_hashable: bool) -> None:
    key = attrgetter("__class__", *(it.name for it in fields(cls) if it.compare))

    def equal(self: object, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    cls.__eq__ = equal
    cls.__hash__ = (lambda self: hash(key(self))) if is_hashable else None
