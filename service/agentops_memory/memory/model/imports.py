"""Imports that take many transactions."""

from dataclasses import dataclass
from typing import NewType

from .access import Patterns
from .memory import Memory, Session, Supersession

ImportId = NewType("ImportId", int)
Row = Session | Memory | Supersession


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """The progress of an import that is being staged or was accepted."""

    id: ImportId
    projects: Patterns  # of its caller
    staged: int = 0  # rows
    applied: int = 0  # of them
    sessions: int = 0  # that it has stored
    memories: int = 0
    refused: int = 0  # supersessions
    is_accepted: bool = False
    is_finished: bool = False
