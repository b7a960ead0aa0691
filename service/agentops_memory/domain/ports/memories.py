"""The ports of memories, their revisions and sessions."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from ..model.memory import Memory, MemoryId, Revision, Session, SessionId, Shown, Text
from ..model.search import Filter
from ..model.space import Project, Space, StoreId
from ..text.summary import Transcript

MAX_LIST = 4 * 1024 * 1024  # characters of content in one list, whatever its limit
MAX_PAGE = 256 * 1024  # the same of a page of an export, which is kept while nobody reads it


class MemoryTable(Protocol):
    """Memories. Methods that do not say "live" include soft-deleted and expired ones.

    Entries of stores are visible only to methods that take a store or its space, and to `every`.
    """

    def get(self, memory: MemoryId) -> Memory | None:
        """The memory, live or deleted."""

    def in_store(self, store: StoreId, uid: str) -> Memory | None:
        """The memory of a store with this stable id."""

    def at_key(self, space: Space, key: str) -> Memory | None:
        """The memory at the key that is not deleted; a space holds at most one."""

    def twin(self, space: Space, key: str | None, text: Text, since: datetime) -> Memory | None:
        """The newest live memory since then with the same key, type, title and content hash."""

    def twins_of(self, memory: Memory) -> Iterator[Memory]:
        """Memories that an imported one without a uid duplicates, live ones first, then by id.

        They equal it in space, session, type, key, title, content and second of creation.
        """

    def by_uid(self, uid: str) -> Memory | None:
        """The memory with this stable id, wherever it is."""

    def in_bulk(self) -> AbstractContextManager[None]:
        """A context for many inserts: the index is updated when it ends."""

    def insert(self, memory: Memory) -> Memory:
        """Store and index a new memory; returns it with its id."""

    def insert_all(self, memories: Sequence[Memory]) -> list[MemoryId]:
        """Store and index new memories; their ids."""

    def replace(self, memory: Memory) -> None:
        """Update all fields of the memory and its index entry."""

    def set_lifecycle(self, memory: Memory) -> None:
        """Update the memory's lifecycle alone."""

    def release_key(self, memory: Memory) -> None:
        """Let others take the key of an expired memory, which still shows it."""

    def count_duplicate(self, memory: Memory) -> None:
        """Update `duplicates` and `last_seen_at` alone."""

    def erase(self, memory: MemoryId) -> None:
        """Remove the memory and its index entry, if it exists."""

    def must_scrub(self, memory: MemoryId) -> None:
        """Schedule a scrub of text that left this memory; `erase` does so by itself."""

    def erase_some(self, memories: Sequence[MemoryId]) -> int:
        """Remove memories from which no other borrows context; returns the count of revisions."""

    def newest(
        self, filter_: Filter, limit: int, *, before: MemoryId | None = None
    ) -> list[Memory]:
        """Live memories older than `before`, newest first, ties by id; at most MAX_LIST of text."""

    def loaded(self, ids: Iterable[MemoryId]) -> list[Memory]:
        """The memories with these ids, in their order, as far as one answer can hold them."""

    def shown(self, ids: Iterable[MemoryId]) -> list[Shown]:
        """As `loaded`, without what most answers do not tell."""

    def pinned(self, filter_: Filter, limit: int) -> list[Memory]:
        """Live pinned memories in the order of pinning, ties by id."""

    def around(self, memory: Memory, before: int, after: int) -> list[Memory]:
        """The timeline: a memory and its live neighbours in its project, oldest first."""

    def page(self, project: Project | None, after: MemoryId, limit: int) -> list[Memory]:
        """Live memories with higher ids, in id order; fewer than the limit if they are long."""

    def every(self, after: MemoryId, limit: int) -> list[Memory]:
        """Memories with higher ids, in id order; fewer than the limit if they are long.

        Includes entries of stores if the caller may access every project.
        """

    def total(self) -> int:
        """The count of memories."""

    def count(self, project: Project | None) -> int:
        """The count of live memories."""

    def projects(self) -> set[Project]:
        """The projects with a live memory."""


class SessionTable(Protocol):
    """Sessions, known by their id alone."""

    def get(self, session: SessionId) -> Session | None:
        """The session, ended or not."""

    def projects_of(self, sessions: Iterable[SessionId]) -> dict[SessionId, Project]:
        """The projects of those that there are."""

    def add(self, session: Session) -> None:
        """Store a new session, with its end and its summary."""

    def open(self, session: Session) -> Session:
        """Store the session unless its id exists; returns the stored one."""

    def close(self, session: Session) -> None:
        """Update the session's end, summary and message count."""

    def grow(self, session: Session) -> None:
        """Update the session's message count alone."""

    def newest(
        self, project: Project | None, limit: int, *, before: SessionId | None = None
    ) -> list[Session]:
        """Sessions, newest first by start, ties by insertion; only those older than `before`."""

    def summaries(self, project: Project, limit: int) -> list[str]:
        """The project's newest summaries that are not empty."""

    def page(self, project: Project | None, after: int, limit: int) -> list[tuple[int, Session]]:
        """Sessions in insertion order, each with its sequence number."""

    def count(self, project: Project | None) -> int:
        """The count of sessions."""

    def projects(self) -> set[Project]:
        """The projects with a session."""


class TranscriptTable(Protocol):
    """The digests of messages that sessions received since they last ended."""

    def get(self, session: SessionId) -> Transcript | None:
        """The session's digest."""

    def put(self, session: SessionId, transcript: Transcript) -> None:
        """Store the session's digest, received now."""

    def rewrite(self, session: SessionId, transcript: Transcript) -> None:
        """Replace the texts of the digest; the time of receipt stays."""

    def drop(self, session: SessionId) -> None:
        """Remove the session's digest, if there is one."""

    def idle(self, until: datetime, limit: int) -> list[tuple[SessionId, datetime]]:
        """Sessions idle since `until`, each with its last receipt; the longest idle first.

        Includes those whose last receipt is as far in the future, from a wrong clock.
        """


class RevisionTable(Protocol):
    """The revisions of memories; the newest one is the current state."""

    def add(self, memory: MemoryId, revision: Revision, *, is_only: bool = False) -> None:
        """Record a change; its text stays with the memory until the next one.

        If it is the only one that is kept, it takes the place of the one before.
        """

    def begin(self, memories: Iterable[tuple[MemoryId, Memory]]) -> None:
        """Record that memories are new, each by its id."""

    def keep(self, memory: Memory) -> None:
        """Copy the memory's text to its newest revision, unless redacted, before a change."""

    def absorb(self, memory: MemoryId, older: Revision) -> None:
        """Insert an older state before the newest revision, whose number grows by one."""

    def holds(self, memory: Memory, state: Memory) -> bool:
        """Whether a revision equals the state in text and second."""

    def count(self, memory: Memory) -> int:
        """The count of kept revisions."""

    def newest(self, memory: Memory) -> list[Revision]:
        """The kept revisions, newest first, each with its text."""

    def rewrite(self, memory: MemoryId, number: int, text: Text) -> None:
        """Replace the text of a revision that has its own copy."""
