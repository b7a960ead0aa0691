"""What the domain asks of storage about imports that are stored in many transactions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NewType, Protocol

from ..model.access import Patterns
from ..model.memory import Memory, Session
from ..model.space import Project

ImportId = NewType("ImportId", int)
Row = Session | Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """An import that is being staged, or that was accepted."""

    id: ImportId
    projects: Patterns  # of its caller
    staged: int = 0  # rows
    applied: int = 0  # of them
    sessions: int = 0  # that it has stored
    memories: int = 0
    is_accepted: bool = False
    is_finished: bool = False


class ImportTable(Protocol):
    """Large imports, and the rows of them that are not stored yet."""

    def begin(self, projects: Patterns) -> ImportId:
        """A new import of a caller with these patterns. Those that finished long ago go."""

    def get(self, import_: ImportId) -> Import | None:
        """The import."""

    def stage(self, import_: ImportId, rows: Sequence[Row]) -> None:
        """Keep the next rows of an import."""

    def size(self, import_: ImportId) -> int:
        """The bytes of this import's rows, and of those of all that are to be completed."""

    def accept(self, import_: ImportId) -> None:
        """Note that it will be completed from now on, whatever happens."""

    def rows(self, import_: ImportId) -> Iterator[tuple[int, Row | None]]:
        """The rows that are left, in order, each with its place from 1; None for a damaged one.

        To apply them takes a while, so nobody else shares the commit.
        """

    def applied(self, import_: ImportId, place: int, sessions: int, memories: int) -> None:
        """Let go of the rows up to a place, and count what was stored of them."""

    def finish(self, import_: ImportId) -> None:
        """Note that no row is left."""

    def has_rows(self) -> bool:
        """Whether rows of any import lie there."""

    def is_any_staged(self) -> bool:
        """Whether there is an import that was not accepted."""

    def unfinished(self) -> list[Import]:
        """Those that were accepted and are not finished, oldest first."""

    def silent(self, since: datetime, until: datetime) -> list[ImportId]:
        """Those that were not accepted, and of which nothing was staged between the instants."""

    def discard(self, import_: ImportId, most: int) -> bool:
        """Remove so many rows of an import that was not accepted; whether more are left."""

    def erase_some(self, project: Project, most: int) -> int:
        """Remove so many rows of a project from imports that were accepted; how many went."""
