"""numpy, where the extra `fast` has installed it."""

from functools import cache
from importlib import import_module
from typing import Any

LARGE = 500  # memories of an area, from which on it pays


@cache
def numpy() -> Any | None:
    """The module, or None; imported when it is first asked for."""
    try:
        return import_module("numpy")
    except ImportError:
        return None
