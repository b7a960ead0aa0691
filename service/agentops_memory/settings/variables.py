"""Where a setting comes from: an environment variable, a flag, and how both are read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """Where a setting comes from: its environment variable, its flag, and how it is read."""

    field: str
    name: str
    flag: str  # empty for a secret: everybody sees the arguments of a process
    kind: str
    default: str
    parse: Callable[[str], Any]
    help: str


def variable(
    name: str,
    flag: str,
    kind: str,
    parse: Callable[[str], Any],
    default: str = "",
    *,
    help: str,  # noqa: A002 - as click calls it
) -> dict[str, Any]:
    """The metadata of a field: all of its Variable but the field's name."""
    return {
        "name": name, "flag": flag, "kind": kind, "parse": parse, "default": default, "help": help
    }  # fmt: skip
