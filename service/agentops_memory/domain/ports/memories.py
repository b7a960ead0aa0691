"""What the domain asks of storage about memories, their revisions, and sessions."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from ..model.memory import Memory, MemoryId, Revision, Session, SessionId, Text
from ..model.search import Filter
from ..model.space import Project, Space, StoreId
from ..text.summary import Transcript

MAX_LIST = 4 * 1024 * 1024  # characters of content in one list, whatever its limit
MAX_PAGE = 1024 * 1024  # the same of a page of an export, which holds it twice more as JSON


class MemoryTable(Protocol):
    """Memories. "Live" means not deleted; without that word, deleted ones count too.

    Those of stores are seen only where a store, its space or `every` memory is asked for.
    """

    def get(self, memory: MemoryId) -> Memory | None:
        """The memory, live or deleted."""

    def in_store(self, store: StoreId, uid: str) -> Memory | None:
        """The memory of a store with this stable id."""

    def at_key(self, space: Space, key: str) -> Memory | None:
        """The live memory at the key; a space holds at most one."""

    def twin(self, space: Space, key: str | None, text: Text, since: datetime) -> Memory | None:
        """The newest live memory that says the same, created at `since` or later.

        The same: key, type, title, and content by its hash.
        """

    def twins_of(self, memory: Memory) -> Iterator[Memory]:
        """The memories that an imported one already is, although it brings no uid.

        Live ones first, then by id. The same: space, session, type, key, title, content, and
        the second of their creation.
        """

    def by_uid(self, uid: str) -> Memory | None:
        """The memory with this stable id, wherever it is."""

    def in_bulk(self) -> AbstractContextManager[None]:
        """Inside, inserts cost less each, and are found by their words at the end."""

    def insert(self, memory: Memory) -> Memory:
        """Store a memory and index it; the answer carries its id."""

    def replace(self, memory: Memory) -> None:
        """Store every part of the memory under its id and bring the index into line."""

    def count_duplicate(self, memory: Memory) -> None:
        """Store the memory's `duplicates` and `last_seen_at`; nothing else changes."""

    def erase(self, memory: MemoryId) -> None:
        """Remove the memory and its index entry; one that is not there is no error."""

    def must_scrub(self, memory: MemoryId) -> None:
        """Note that words of a memory are to leave the storage for good.

        Erasing a memory notes it by itself.
        """

    def erase_some(self, memories: Sequence[MemoryId]) -> int:
        """Remove memories with their revisions; how many those were. No other borrows from them."""

    def newest(
        self, filter_: Filter, limit: int, *, before: MemoryId | None = None
    ) -> list[Memory]:
        """Live memories, newest first by creation, ties by id; only those older than `before`.

        A list ends early when its texts would pass the bound of one answer.
        """

    def around(self, memory: Memory, before: int, after: int) -> list[Memory]:
        """The live neighbours of a memory in its project, with itself, oldest first."""

    def page(self, project: Project | None, after: MemoryId, limit: int) -> list[Memory]:
        """Live memories with higher ids, in id order; fewer than the limit if they are long."""

    def every(self, after: MemoryId, limit: int) -> list[Memory]:
        """Memories with higher ids, in id order, deleted ones too; fewer if they are long.

        To a caller who acts on every project, those of stores, too.
        """

    def total(self) -> int:
        """How many memories there are, deleted ones too."""

    def count(self, project: Project | None) -> int:
        """How many live memories there are."""

    def projects(self) -> set[Project]:
        """The projects that have a live memory."""


class SessionTable(Protocol):
    """Sessions, known by their id alone."""

    def get(self, session: SessionId) -> Session | None:
        """The session, ended or not."""

    def open(self, session: Session) -> Session:
        """Store the session unless its id is known; the answer is what is stored."""

    def close(self, session: Session) -> None:
        """Store the session's end, summary and count."""

    def grow(self, session: Session) -> None:
        """Store the session's count; nothing else changes."""

    def newest(
        self, project: Project | None, limit: int, *, before: SessionId | None = None
    ) -> list[Session]:
        """Sessions, newest first by start, ties by insertion; only those older than `before`."""

    def summaries(self, project: Project, limit: int) -> list[str]:
        """The newest summaries of the project that are not empty."""

    def page(self, project: Project | None, after: int, limit: int) -> list[tuple[int, Session]]:
        """Sessions in the order in which they were stored, each with its place in it."""

    def count(self, project: Project | None) -> int:
        """How many sessions there are."""

    def projects(self) -> set[Project]:
        """The projects that have a session."""


class TranscriptTable(Protocol):
    """What was told of stored sessions since their last end; nothing of the others."""

    def get(self, session: SessionId) -> Transcript | None:
        """What was told of the session."""

    def put(self, session: SessionId, transcript: Transcript) -> None:
        """Store what was told of the session up to now."""

    def rewrite(self, session: SessionId, transcript: Transcript) -> None:
        """Store the texts of what was told; when that was stays as it is."""

    def drop(self, session: SessionId) -> None:
        """Forget what was told of the session; nothing told is no error."""

    def idle(self, until: datetime, limit: int) -> list[tuple[SessionId, datetime]]:
        """Sessions that were told nothing after `until`, and when the last was; longest first.

        Those too that were last told something as long after now, by a clock that was wrong.
        """


class RevisionTable(Protocol):
    """The record of each memory's changes. The newest revision is the current state."""

    def add(self, memory: MemoryId, revision: Revision) -> None:
        """Record a change. Its text is kept with the memory until the next change."""

    def keep(self, memory: Memory) -> None:
        """Give the newest revision its own copy of the memory's text, before a change.

        One that was redacted has lost its text, and gets none.
        """

    def absorb(self, memory: MemoryId, older: Revision) -> None:
        """Record an older state just below the newest revision, which moves up by one."""

    def holds(self, memory: Memory, state: Memory) -> bool:
        """Whether one of a memory's revisions says what the state does, and is of its second."""

    def count(self, memory: Memory) -> int:
        """How many revisions of a memory are kept."""

    def newest(self, memory: Memory) -> list[Revision]:
        """All that is kept of a memory's changes, newest first, each with its text."""

    def rewrite(self, memory: MemoryId, number: int, text: Text) -> None:
        """Put another text into a revision that has its own copy."""
