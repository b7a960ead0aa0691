"""The outcome of a write."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[T]):
    """The outcome of a write: what is stored now, and how many secrets were removed."""

    value: T
    redacted: int = 0
    evicted: int = 0  # entries of agents' memory that made room
    archived: int = 0  # those of a task that has ended
    fired: int = 0  # commitments to whose conditions it came
    is_new: bool = False  # whether a write that makes or changes has made it
