"""The port of imports that take many transactions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NewType, Protocol

from ..model.access import Patterns
from ..model.memory import Imported, Memory, Session, Supersession
from ..model.space import Project

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


class ImportTable(Protocol):
    """Large imports, and their staged rows."""

    def begin(self, projects: Patterns) -> ImportId:
        """Start an import of a caller with these patterns; long finished ones are removed."""

    def get(self, import_: ImportId) -> Import | None:
        """The import."""

    def stage(self, import_: ImportId, rows: Sequence[Row]) -> None:
        """Stage the next rows of an import."""

    def size(self, import_: ImportId) -> int:
        """The size in bytes of the staged rows of this import and of all accepted ones."""

    def accept(self, import_: ImportId) -> None:
        """Mark an import as accepted: it will be completed."""

    def rows(self, import_: ImportId) -> Iterator[tuple[int, Row | None]]:
        """The staged rows in order, each with its place from 1; None for a corrupt one.

        The transaction that applies them takes no part in a group commit.
        """

    def matched(self, memories: Sequence[Memory]) -> set[int]:
        """The places of those that an import may find stored: by uid, by key, or as a twin.

        It may name one that is not; it leaves out none that is.
        """

    def applied(self, import_: ImportId, place: int, step: Imported) -> None:
        """Remove the staged rows up to a place, and add up what the step has stored."""

    def finish(self, import_: ImportId) -> None:
        """Mark an import as finished."""

    def has_rows(self) -> bool:
        """Whether there are staged rows of any import."""

    def is_any_staged(self) -> bool:
        """Whether any import is still being staged."""

    def unfinished(self) -> list[Import]:
        """The accepted and unfinished imports, oldest first."""

    def silent(self, since: datetime, until: datetime) -> list[ImportId]:
        """Abandoned imports: not accepted, and without a row staged between the instants."""

    def discard(self, import_: ImportId, most: int) -> bool:
        """Remove at most `most` rows of an import that was not accepted; whether more are left."""

    def erase_some(self, project: Project, most: int) -> int:
        """Remove at most `most` rows of a project from accepted imports; how many were removed."""
