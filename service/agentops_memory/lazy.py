"""Modules that are imported at their first use: imports are most of what a command takes."""

from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any


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
