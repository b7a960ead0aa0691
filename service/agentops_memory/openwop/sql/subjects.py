"""SQL for subjects: which entries are about one, what was made of them, where its name stands."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...memory.model.memory import MemoryId
from ...memory.model.space import MemoryRef
from ...memory.sql.rows import micros, tag_array, tag_tuple
from ...memory.sql.table import Table
from ...recall.text.ids import Uids
from ...recall.text.json_words import stored_object
from ..entries import ALL, Method
from ..model.passes import Found
from ..model.subjects import SUBJECT, without
from ..refs import Offset, Snapshot, put_by, there, undeleted_at
from ..runs import payload_text

# What was put by then, and what was made of that meanwhile: once its source is erased, nothing else
# tells that it goes, too.
_ASKED = f"({put_by('e')} OR e.method <> '{Method.PUT.value}')"

# Live entries and deleted ones, each along an index of its own.
_IN_REF = f"""SELECT e.memory_id
                  FROM refs f
                  JOIN ref_entries e ON e.space_id = f.space_id AND e.deleted_after {{}}
                 WHERE f.ref = :subject AND {_ASKED}"""

FORGOTTEN = "forgotten:"  # how refs are called whose names are

# Whether anything was in a ref by then, in the order in which it is soonest found.
_KNOWN = " UNION ALL ".join(
    f"""SELECT 1
          FROM refs f
          JOIN {rows} e ON e.space_id = f.space_id {which}
         WHERE f.ref = :ref AND e.memory_id <= :high"""
    for rows, which in (
        ("ref_entries", "AND e.deleted_after IS NULL"),
        ("ref_losses", ""),
        ("ref_entries", "AND e.deleted_after IS NOT NULL"),
    )
)

# What was put later has a higher id, so that what was made of others stands before these.
_GOING = f"""WITH RECURSIVE going (id) AS (
                SELECT e.memory_id
                  FROM ref_tags t
                  JOIN ref_entries e ON e.memory_id = t.memory_id
                 WHERE t.tag = :tag AND t.tag >= 'subject:' AND t.tag < 'subject;'
                       AND {_ASKED}
                 UNION
                {_IN_REF.format("IS NULL")}
                 UNION
                {_IN_REF.format("IS NOT NULL")}
                 UNION
                SELECT d.memory_id
                  FROM going
                  JOIN derivations d ON d.source_id = going.id)"""


@dataclass(eq=False)
class SubjectTable(Table):
    """Whom entries are about: by a tag, or by the ref that they are in."""

    _now: datetime
    _uids: Uids

    def found(self, subject: str, high: MemoryId) -> Found:
        """The entries of a subject up to a memory, deleted ones too, and what was made of any."""
        given: dict[str, object] = {
            "subject": subject,
            "tag": SUBJECT + subject,
            "high": high,
            "now": micros(self._now),
        }
        entries = self._scalars(f"{_GOING} SELECT id FROM going ORDER BY id DESC", **given)
        archives, commitments, restored = self._execute(
            f"""{_GOING}
                SELECT (SELECT count(*) FROM going JOIN archives a ON a.memory_id = going.id),
                       (SELECT count(*) FROM going JOIN commitments c ON c.memory_id = going.id),
                       (SELECT count(DISTINCT e.memory_id)
                          FROM going
                          JOIN ref_supersessions x
                               ON x.newer_id = going.id AND x.ended_after IS NULL
                          JOIN ref_entries e ON e.memory_id = x.older_id
                          JOIN ref_entries n ON n.memory_id = x.newer_id
                         WHERE e.memory_id NOT IN (SELECT id FROM going) AND {there(None)}
                               AND {there(None, "n")}
                               AND NOT EXISTS (
                                   SELECT 1
                                     FROM ref_supersessions o
                                     JOIN ref_entries s ON s.memory_id = o.newer_id
                                    WHERE o.older_id = e.memory_id AND o.ended_after IS NULL
                                          AND s.memory_id NOT IN (SELECT id FROM going)
                                          AND {there(None, "s")}))""",
            **given,
        ).fetchone()
        return Found(entries, archives=archives, restored=restored, commitments=commitments)

    def newest(self) -> MemoryId:
        """The newest memory of all."""
        return MemoryId(self._number("SELECT coalesce(max(id), 0) FROM memories"))

    def unname_ref(self, subject: str) -> str | None:
        """What the ref that is the subject is called from now on, a name without a meaning.

        None if something is in it.
        """
        if self._exists(
            f"{_IN_REF.format('IS NULL')} UNION ALL {_IN_REF.format('IS NOT NULL')}",
            subject=subject,
            high=ALL,
        ):
            return None
        alias = f"{FORGOTTEN}{self._uids.make(self._now)}"
        self._execute("UPDATE refs SET ref = :alias WHERE ref = :ref", alias=alias, ref=subject)
        return alias

    def may_have_been(self, ref: MemoryRef, at: Snapshot) -> bool:
        """Whether a ref of which nothing is known then may be one whose name is forgotten."""
        given: dict[str, object] = {"ref": ref, "high": at.high}
        is_known = self._exists(_KNOWN, **given)
        return not is_known and self._exists(
            f"""SELECT 1
                  FROM refs f
                  JOIN ref_losses l ON l.space_id = f.space_id
                 WHERE f.ref >= '{FORGOTTEN}' AND f.ref < '{FORGOTTEN[:-1]};'
                       AND l.memory_id <= :high AND {undeleted_at("l")}
                 LIMIT 1""",
            offset=at.offset,
            **given,
        )

    def naming(self, subject: str, after: Offset) -> Sequence[Offset]:
        """Events after one that may tell of the subject, in order."""
        names = self._sql.contains("payload", ":said")
        return self._scalars(
            f"SELECT id FROM run_events WHERE id > :after AND {names} ORDER BY id",
            said=json.dumps(subject, ensure_ascii=False)[1:-1],
            after=after,
        )

    def unname_events(self, events: Sequence[Offset], subject: str, alias: str | None) -> None:
        """Take the subject out of these events."""
        rows: list[Any] = self._execute(
            f"""SELECT v.id, v.payload
                  FROM {self._sql.ids("given")}
                  JOIN run_events v ON v.id = given.value""",
            ids=json.dumps(list(events)),
        ).fetchall()
        for id_, payload in rows:
            known = stored_object(payload)
            if known is not None and (rid := without(known, subject, alias)) != known:
                self._execute(
                    "UPDATE run_events SET payload = :payload WHERE id = :id",
                    id=id_,
                    payload=payload_text(rid),
                )

    def unname_runs(self, subject: str, alias: str) -> None:
        """Let runs that name the ref call it by its alias."""
        reads, wrote = (self._sql.contains(each, ":said") for each in ("refs", "wrote"))
        rows: list[Any] = self._execute(
            f"SELECT id, refs, wrote FROM runs WHERE {reads} OR {wrote}",
            said=json.dumps(subject, ensure_ascii=False),
        ).fetchall()
        for id_, *lists in rows:
            refs, wrote = (
                tag_array(alias if ref == subject else ref for ref in tag_tuple(each))
                for each in lists
            )
            self._execute(
                "UPDATE runs SET refs = :refs, wrote = :wrote WHERE id = :id",
                id=id_,
                refs=refs,
                wrote=wrote,
            )
