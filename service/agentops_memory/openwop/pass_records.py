"""What a pass is: its records and rows, and the links between entries that it makes."""

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType

from pydantic import BaseModel, Field

from ..engine.engine import Transaction
from ..http.bodies import must
from ..light import dataclass
from ..memory.memory import MemoryId
from ..memory.rows import MOST, micros, tag_array
from ..memory.space import MemoryRef
from ..memory.table import Sql
from ..record import CamelRecord
from .api import CAMEL, ContentText, EntryName, Tags
from .entries import ListedRef, Method, RefEntry, sized
from .refs import RefEntryId, present, superseded
from .runs import Run


class Trigger(StrEnum):
    """Why a pass runs."""

    ON_DEMAND = "on-demand"
    HOST_MANAGED = "host-managed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDraft:
    """An archive to be put. Its id is made of what it is made of, so it is the same again."""

    id: RefEntryId
    ref: MemoryRef
    method: Method
    content: str
    subjects: tuple[str, ...]  # tags
    sources: Sequence[RefEntry]
    ends: datetime | None
    budget: int | None = None  # of a distillation, in tokens
    supersedes: bool

    @property
    def size(self) -> int:
        return len(self.content.encode())


class MergeBody(BaseModel):
    """Entries that become one, and what it says."""

    model_config = CAMEL
    ids: Annotated[
        list[EntryName], Field(min_length=2, max_length=100),
        must(lambda ids: len(set(ids)) == len(ids), "must name each entry once"),
    ]  # fmt: skip
    content: ContentText
    tags: Tags = []


class Link(NamedTuple):
    """The entry that stays, and one that it supersedes; by age it may be the older of the two."""

    newer: MemoryId
    older: MemoryId


class PassEvent(CamelRecord):
    """The event that tells of a pass."""

    type: Literal["memory.compacted", "agent.memory.consolidated"]
    payload: dict[str, Any]


class PassObject(CamelRecord):
    """A pass that was made: its run, and the event that tells of it."""

    run_id: str
    event: PassEvent


class DistilledObject(PassObject):
    """The same of a distillation; `created` is false where the archive was there."""

    archive_checksum: str
    created: bool


# Which entries of a ref a pass reads: conditions on `ref_entries e`.

Inputs = NewType("Inputs", str)

VISIBLE = Inputs(f"{present(None)} AND NOT {superseded(None)}")  # all that a list shows
NO_ARCHIVES = Inputs(
    f"{VISIBLE} AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.memory_id = e.memory_id)"
)
REPLACEABLE = Inputs(  # those that another entry may stand for
    f"""{NO_ARCHIVES}
        AND NOT EXISTS (SELECT 1
                          FROM ref_tags t
                         WHERE t.memory_id = e.memory_id AND t.tag = 'pinned')
        AND NOT EXISTS (SELECT 1
                          FROM commitments c
                         WHERE c.memory_id = e.memory_id AND c.state = 'armed')"""
)


def inputs(tx: Transaction, ref: MemoryRef, which: Inputs) -> Iterator[ListedRef]:
    """The entries that a pass reads, oldest first."""
    sql = tx[Sql]
    rows = sql.stream(
        f"""SELECT e.memory_id, e.size, e.length
              FROM refs f
             {sql.dialect.leads} ref_entries e {sql.dialect.hint("ref_entries_in_time")}
                   ON e.space_id = f.space_id
             WHERE f.ref = :ref AND {which}
          ORDER BY e.created_at, e.memory_id""",
        ref=ref, now=micros(tx.now),
    )  # fmt: skip
    return sql.intact(rows, sized)


def are_all(tx: Transaction, memories: Collection[MemoryId], condition: str) -> bool:
    """Whether a condition on `e` holds of each of these entries."""
    sql = tx[Sql]
    number = sql.number(
        f"""SELECT count(*)
              FROM {sql.dialect.ids("listed")}
             {sql.dialect.leads} ref_entries e ON e.memory_id = listed.value
             WHERE {condition}""",
        ids=json.dumps(list(memories)), now=micros(tx.now),
    )  # fmt: skip
    return number == len(memories)


def link(tx: Transaction, run: Run, links: Sequence[Link], *, counts: bool) -> None:
    """Let entries take the place of others; with `counts` each is then seen as often as both."""
    sql = tx[Sql]
    most, least = sql.dialect.greatest, sql.dialect.least
    times = f"(SELECT {most}(duplicates, 0) FROM memories WHERE id = :older)" if counts else "0"
    rows = [{"newer": it.newer, "older": it.older, "pass": run.number} for it in links]
    sql.run_all(
        f"""INSERT INTO ref_supersessions (newer_id, older_id, made_after, pass, seen)
            VALUES (:newer, :older, (SELECT coalesce(max(id), 0) FROM run_events), :pass,
                    {times})""",
        rows,
    )
    if counts:
        sql.run_all(
            f"""UPDATE memories
                  SET duplicates = {least}(memories.duplicates + o.duplicates, {MOST}),
                      last_seen_at = {most}(memories.last_seen_at, o.last_seen_at)
                 FROM (SELECT duplicates, last_seen_at FROM memories WHERE id = :older) o
                WHERE id = :newer""",
            rows,
        )
    derive(tx, links)


def derive(tx: Transaction, links: Sequence[Link]) -> None:
    """Note which entries were made of which."""
    tx[Sql].run_all(
        """INSERT INTO derivations (memory_id, source_id)
           VALUES (:newer, :older)
               ON CONFLICT DO NOTHING""",
        [it._asdict() for it in links],
    )


def add_archive(
    tx: Transaction, memory: MemoryId, ref: MemoryRef, sources: Sequence[RefEntry]
) -> None:
    tx[Sql].run(
        """INSERT INTO archives (memory_id, space_id, sources, first_at, last_at)
           SELECT :memory, space_id, :sources, :first, :last FROM refs WHERE ref = :ref""",
        memory=memory, ref=ref, sources=len(sources),
        first=micros(sources[0].created_at), last=micros(sources[-1].created_at),
    )  # fmt: skip
    derive(tx, [Link(memory, it.memory) for it in sources])


def is_archive_of(tx: Transaction, memory: MemoryId, sources: Collection[MemoryId]) -> bool:
    known = tx[Sql].column(
        "SELECT source_id FROM derivations WHERE memory_id = :memory", memory=memory
    )
    return set(known) == set(sources)


def put_pass(
    tx: Transaction, run: Run, ref: MemoryRef, written: Collection[MemoryId], replaced: int
) -> None:
    """Store what a pass has done, all of it so far: an undo has to know."""
    tx[Sql].run(
        """INSERT INTO passes (run, space_id, written, replaced)
           SELECT :run, space_id, :written, :replaced FROM refs WHERE ref = :ref
               ON CONFLICT (run) DO UPDATE SET written = :written, replaced = :replaced""",
        run=run.number, ref=ref, written=tag_array(map(str, written)), replaced=replaced,
    )  # fmt: skip
