"""Refs with many entries, put as the service puts them, without a service."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle, islice
from pathlib import Path

from agentops_memory.memory.access import OPERATOR
from agentops_memory.memory.space import MemoryRef
from agentops_memory.openwop.api import RefEntryId
from agentops_memory.openwop.routes import RefEntryBody, put_entry
from agentops_memory.sqlite.connection import connect
from agentops_memory.sqlite.transaction import SqliteTransaction

from . import corpus
from .seeding import BATCH, CACHE, START

SMALL, LARGE, HALF, TWICE = "mem://small", "mem://large", "mem://half", "mem://twice"
OTHERS = "mem://other-"
OTHER = 10_000  # entries of each other ref
EVERY = 1000  # one in so many has the rare tag
COMMON, RARE = "note", "decision"
VALUE_BYTES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Refs:
    """How many entries there are in each of the large refs, in the small one, and in all.

    A ref that says everything twice has `repeating` ones.
    """

    large: int
    small: int
    total: int
    repeating: int = 0

    @property
    def live(self) -> dict[str, int]:
        """The entries of each ref but the one of which half is superseded; others fill up."""
        of = {SMALL: self.small, LARGE: self.large}
        left = max(self.total - sum(of.values()) - self.large, 0)
        for number, first in enumerate(range(0, left, OTHER)):
            of[f"{OTHERS}{number}"] = min(OTHER, left - first)
        return of

    @property
    def half(self) -> dict[str, int]:
        """The entries of the ref of which half is superseded."""
        return {HALF: self.large}

    @property
    def twice(self) -> dict[str, int]:
        """The entries of the ref in which every second entry says what the one before it says."""
        return {TWICE: self.repeating}


def refs_put(path: Path, counts: Mapping[str, int], seed: int) -> None:
    """Put so many entries into refs of the file, of which one in a thousand has a tag."""
    drafts = _drafts(counts, seed)
    at = START
    with closing(connect(path)) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute(f"PRAGMA cache_size = -{CACHE}")
        while batch := list(islice(drafts, BATCH)):
            database.execute("BEGIN")
            for draft in batch:
                at += timedelta(milliseconds=1)
                tx = SqliteTransaction(database, at, OPERATOR)
                put_entry(tx, draft, lambda _: {})
            database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def texts(seed: int, number: int) -> list[str]:
    """Texts of some 400 bytes."""
    prompts = cycle(corpus.prompts(seed, 900))
    return [" ".join(islice(prompts, 6))[:VALUE_BYTES] for _ in range(number)]


def entry_id(number: int) -> RefEntryId:
    """The id of the entry of this number in its ref."""
    return RefEntryId(f"note-{number}")


def _drafts(counts: Mapping[str, int], seed: int) -> Iterator[RefEntryBody]:
    said = texts(seed, 2000)
    for ref, entries in counts.items():
        for number in range(entries):
            is_newer = ref == HALF and number % 2 == 1
            what = number // 2 if ref == TWICE else number
            yield RefEntryBody(
                memory_ref=MemoryRef(ref),
                id=entry_id(number),
                content=f"{what} {said[what % len(said)]}",
                tags=[COMMON, RARE] if what % EVERY == 0 else [COMMON],
                supersedes=[entry_id(number - 1)] if is_newer else [],
            )
