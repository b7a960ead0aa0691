"""The ports of passes over refs, and of what is known of a subject."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from ..model.hosts.entries import RefEntry
from ..model.hosts.passes import ArchiveIndex, Link, Pass
from ..model.hosts.runs import Offset, Run, Snapshot
from ..model.memory import MemoryId
from ..model.space import MemoryRef
from .refs import ListedRef


class Inputs(NamedTuple):
    """Which entries a pass reads, of those that a list shows."""

    archives: bool = False  # also these
    replaceable: bool = False  # those alone that another may stand for: no pinned or awaited ones


class Found(NamedTuple):
    """What is to be erased of a subject, and what comes of that."""

    entries: Sequence[MemoryId]  # what was made of others before these
    archives: int  # how many of them are archives
    restored: int  # entries of others that stand for themselves then
    commitments: int


class PassTable(Protocol):
    """Passes, what they made, and of what."""

    def inputs(self, ref: MemoryRef, which: Inputs) -> Iterator[ListedRef]:
        """The entries that a pass reads, oldest first."""

    def are_inputs(self, memories: Collection[MemoryId], which: Inputs) -> bool:
        """Whether these entries are still what such a pass reads."""

    def link(self, run: Run, links: Sequence[Link], *, counts: bool) -> None:
        """Let entries stand for others; with `counts` they were seen as often as these, too."""

    def add_archive(self, memory: MemoryId, ref: MemoryRef, sources: Sequence[RefEntry]) -> None:
        """Note that an entry is an archive of others."""

    def is_archive_of(self, memory: MemoryId, sources: Collection[MemoryId]) -> bool:
        """Whether an archive was made of just these entries."""

    def take_over(self, old: MemoryId, new: MemoryId) -> None:
        """Let an entry have what another stands for, what it was made of, and what of it."""

    def inherit(self, gone: Collection[MemoryId]) -> None:
        """Let what stands for entries that are going stand for what these stood for, too."""

    def put(self, done: Pass) -> None:
        """Store a pass, or what has come to it since."""

    def get(self, run: Run) -> Pass | None:
        """The pass that the run is; None for another run."""

    def unfinished(self, ref: MemoryRef) -> Sequence[Run]:
        """Passes over the ref that were broken off."""

    def is_whole(self, done: Pass) -> bool:
        """Whether all that a pass has written and replaced is there."""

    def undo(self, done: Pass) -> None:
        """End the links of a pass, with what they have counted."""

    def restored(self, done: Pass) -> int:
        """How many of those that a pass has replaced stand for themselves again."""

    def index(self, ref: MemoryRef, limit: int) -> ArchiveIndex:
        """The live archives of the ref."""

    def changed(self, after: MemoryRef, limit: int) -> Sequence[MemoryRef]:
        """Refs to which something was put since a pass has looked at all of each."""

    def looked_at(self, ref: MemoryRef, newest: MemoryId) -> None:
        """Note that a pass has looked at all of a ref, up to an entry."""


class SubjectTable(Protocol):
    """Whom entries are about: by a tag, or by the ref that they are in."""

    def found(self, subject: str, high: MemoryId) -> Found:
        """The entries of a subject up to a memory, deleted ones too, and what was made of any."""

    def newest(self) -> MemoryId:
        """The newest memory of all."""

    def unname_ref(self, subject: str) -> str | None:
        """What the ref that is the subject is called from now on, a name without a meaning.

        None if something is in it.
        """

    def may_have_been(self, ref: MemoryRef, at: Snapshot) -> bool:
        """Whether a ref of which nothing is known then may be one whose name is forgotten."""

    def naming(self, subject: str, after: Offset) -> Sequence[Offset]:
        """Events after one that may tell of the subject, in order."""

    def unname_events(self, events: Sequence[Offset], subject: str, alias: str | None) -> None:
        """Take the subject out of these events."""

    def unname_runs(self, subject: str, alias: str) -> None:
        """Let runs that name the ref call it by its alias."""
