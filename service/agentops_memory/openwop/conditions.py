"""What commitments wait for: the conditions that tags arm, and the tags that were met.

A note tells of a tag that was put and whose commitments have not all fired: one for each tag,
however many commitments wait for it.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from ..engine.engine import Transaction
from ..errors import BadFields
from ..memory.memory import MemoryId
from ..memory.rows import micros
from ..memory.space import MemoryRef
from ..memory.table import Sql
from ..recall.instants import exact, whole_milliseconds
from .entries import RefEntry
from .refs import present

DUE, WHEN = "due:", "when:"  # tags that arm a time, and a tag that is waited for
SPACE = "(SELECT space_id FROM refs WHERE ref = :ref)"


class Condition(NamedTuple):
    """When to fire: at an instant, or with the first live entry of a tag."""

    due_at: datetime | None = None
    tag: str | None = None


def conditions_of(tags: Iterable[str], now: datetime) -> Sequence[Condition]:
    """What the tags of a new entry arm, each once; BadFields for one that never comes true."""
    armed = []
    for tag in tags:
        if tag.startswith(DUE):
            at = exact(tag.removeprefix(DUE), needs_offset=True)
            problem = "has a due time that is invalid or in the past"
            armed.append(time_to_come(at, now, "tags", problem))
        elif tag == WHEN:
            raise BadFields([("tags", "waits for an empty tag")])
        elif tag.startswith(WHEN):
            armed.append(Condition(tag=tag.removeprefix(WHEN)))
    return tuple(dict.fromkeys(armed))


def time_to_come(at: datetime | None, now: datetime, field_: str, problem: str) -> Condition:
    """The condition that an instant has come; BadFields for none, or one that is past."""
    due = None if at is None else whole_milliseconds(at)
    if due is None or due <= now:
        raise BadFields([(field_, problem)])
    return Condition(due_at=due)


def meet(tx: Transaction, ref: MemoryRef, entry: RefEntry) -> int | None:
    """Note the tags of an entry that was put and that armed commitments wait for; the first note.

    Not where another live entry has the tag, unless that is the source itself. What is armed later
    is not met. What waits fires in steps from then on, whatever becomes of the entry.
    """
    if not entry.tags:
        return None
    sql = tx[Sql]
    awaited = sql.column(
        f"""SELECT listed.value
              FROM {sql.dialect.texts("listed")}
             WHERE EXISTS (SELECT 1
                             FROM commitments c {sql.dialect.hint("commitments_by_tag")}
                            WHERE c.space_id = {SPACE} AND c.tag = listed.value
                                  AND c.state = 'armed')
          ORDER BY listed.key""",
        ref=ref, texts=json.dumps(list(entry.tags)),
    )  # fmt: skip
    notes = []
    for tag in awaited:
        others = sql.column(
            f"""SELECT t.memory_id
                  FROM ref_tags t
                  JOIN ref_entries e ON e.memory_id = t.memory_id
                 WHERE t.space_id = {SPACE} AND t.tag = :tag AND t.memory_id <> :new
                       AND {present(None)}
              ORDER BY t.created_at DESC, t.memory_id DESC
                 LIMIT 2""",
            ref=ref, tag=tag, new=entry.memory, now=micros(tx.now),
        )  # fmt: skip
        if len(others) < 2:  # the one may be the source itself; two are as good as all
            notes.append({"memory": entry.memory, "tag": tag, "source": next(iter(others), None)})
    if not notes:
        return None
    first = sql.number("SELECT coalesce(max(id), 0) FROM met_tags") + 1
    sql.run_all(
        """INSERT INTO met_tags (space_id, tag, newest, source_id)
           SELECT space_id, :tag, (SELECT max(id) FROM commitments), :source
             FROM ref_entries
            WHERE memory_id = :memory""",
        notes,
    )
    return first


def take_matched(tx: Transaction, most: int, first: int = 0) -> list[int]:
    """Armed commitments that notes tell of, from the first note on; notes used up go."""
    sql, ids = tx[Sql], list[int]()
    for note in sql.column(
        "SELECT id FROM met_tags WHERE id >= :first ORDER BY id LIMIT :most", first=first, most=most
    ):
        ids += sql.column(
            f"""SELECT c.id
                  FROM met_tags t
                 {sql.dialect.leads} commitments c {sql.dialect.hint("commitments_by_tag")}
                       ON c.space_id = t.space_id AND c.tag = t.tag AND c.id <= t.newest
                          AND (t.source_id IS NULL OR c.memory_id = t.source_id)
                 WHERE t.id = :note AND c.state = 'armed'
              ORDER BY c.id
                 LIMIT :most""",
            note=note, most=most - len(ids),
        )  # fmt: skip
        if len(ids) == most:
            break
        sql.run("DELETE FROM met_tags WHERE id = :note", note=note)
    return ids


def rename_matched(tx: Transaction, source: MemoryId, tag: str, clean: str) -> None:
    """What has met the commitments of an entry by a tag has met them by its new name, too."""
    tx[Sql].run(
        """INSERT INTO met_tags (space_id, tag, newest, source_id)
           SELECT t.space_id, :clean, t.newest, e.memory_id
             FROM met_tags t
             JOIN ref_entries e ON e.space_id = t.space_id AND e.memory_id = :source
            WHERE t.tag = :tag AND (t.source_id IS NULL OR t.source_id = :source)""",
        source=source, tag=tag, clean=clean,
    )  # fmt: skip
    tx[Sql].run(
        """DELETE FROM met_tags
            WHERE tag = :tag
                  AND NOT EXISTS (SELECT 1
                                    FROM commitments c
                                   WHERE c.space_id = met_tags.space_id AND c.tag = :tag
                                         AND c.state = 'armed')""",
        tag=tag,
    )
