"""SQL for what is past its retention: found by the indexes that there are, erased in steps."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ..model.erasure import MAX_ROWS, MAX_STEP, Erasable
from ..model.kinds import SpaceKind
from ..model.memory import MemoryId
from ..model.retention import Kind
from ..model.space import NO_PROJECT, Project
from .liveness import seen_by_a_run
from .rows import EARLIEST, micros, reads
from .table import Table

# A store that is going is left to its own erasure.
NOT_GOING = "m.space_id NOT IN (SELECT space_id FROM stores WHERE erasure_id IS NOT NULL)"

# Of a memory. An instant out of range is a damaged one, by which nothing is erased.
# One whose end was changed since, by mistake perhaps, is not past it; and of one
# that is in the index still, others may borrow.
PAST = {
    Kind.DELETED: f"""m.deleted_at BETWEEN {EARLIEST} AND :until
                     AND NOT {seen_by_a_run("m")}""",
    Kind.EXPIRED: f"""m.updated_at <= :until
                      AND m.id IN (SELECT memory_id
                                     FROM lifecycles
                                    WHERE expires_at BETWEEN {EARLIEST} AND :until AND is_swept)""",
}


class RetentionTable(Table):
    """Rows past their retention, in steps short enough for saves to wait."""

    def memories(self, kind: Kind, until: datetime, most: int) -> list[MemoryId]:
        # That index alone holds the instant for all of them, and none of their texts.
        """Memories deleted, or expired and unchanged, by then; at most `most`.

        None of a store that is being erased.
        """
        hint = self._sql.hint("memories_in_session") if kind is Kind.DELETED else ""
        return self._scalars(
            f"""SELECT m.id
                  FROM memories m {hint}
                 WHERE {PAST[kind]} AND {NOT_GOING}
                 LIMIT :most""",
            until=micros(until),
            most=most,
        )

    def first(self, kind: Kind, memories: Sequence[MemoryId], until: datetime) -> list[Erasable]:
        # No more of a history is looked at than is needed to see that it is long.
        """Those of the memories that still are, as many as one step may erase.

        A long one is returned alone, after all others.
        """
        rows = self._execute(
            f"""SELECT s.id, s.kind, s.project, m.id, length(m.content),
                       (SELECT count(*)
                          FROM (SELECT 1
                                  FROM revisions
                                 WHERE memory_id = m.id
                                 LIMIT {MAX_ROWS}) first),
                       (SELECT coalesce(sum(length(content)), 0)
                          FROM (SELECT content
                                  FROM revisions
                                 WHERE memory_id = m.id
                                 LIMIT {MAX_ROWS}) first)
                  FROM {self._sql.ids("found")}
                 {self._sql.leads} memories m ON m.id = found.value
                  JOIN spaces s ON s.id = m.space_id
                 WHERE {PAST[kind]} AND {NOT_GOING}
                       {self._sql.reordered("found.key")}""",
            ids=json.dumps(memories),
            until=micros(until),
        )
        first: list[Erasable] = []
        room, size = MAX_ROWS, MAX_STEP
        for one, length, revisions, lengths in self._intact(rows, _sized):
            is_long = revisions > 1 and (revisions >= MAX_ROWS or lengths >= MAX_STEP)
            room -= 1 + revisions
            size -= length + lengths
            if first and (is_long or room < 0 or size < 0):
                break
            first.append(replace(one, is_long=is_long))
            if is_long:
                break
        return first


@reads("spaces")
def _sized(
    _: int, kind: str, project: str | None, id_: int, length: int, revisions: int, lengths: int
) -> tuple[Erasable, int, int, int]:
    """What a step may erase of a space, and how much: of a damaged space nothing."""
    of = Project(project or NO_PROJECT)
    one = Erasable(memory=MemoryId(id_), project=of, kind=SpaceKind(kind), is_long=False)
    return one, length, revisions, lengths
