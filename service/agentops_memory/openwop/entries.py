"""Entries of refs: immutable memories, each with a row of its own; and forgetting of subjects.

Entries are about a subject; forgetting the subject erases them, and what was derived from them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from ..engine.engine import Transaction, audited
from ..errors import BadFields, NotFound, required
from ..http import query
from ..http.protocol import Operation
from ..light import dataclass
from ..memory import rows
from ..memory.access import Caller, Role
from ..memory.erasure import UNKNOWN_COPIES, ErasureId, ReceiptTable
from ..memory.idempotency import IdempotencyTable, is_due, once
from ..memory.memories import MemoryTable, SpaceTable
from ..memory.memory import EXPIRES_AT, Lifecycle, Memory, MemoryId, Text
from ..memory.redactor import as_json
from ..memory.rows import Column, RowMapper, columns, micros, optional_micros, reads, tag_array
from ..memory.saves import created
from ..memory.space import ErasureKind, MemoryRef, SpaceKind
from ..memory.table import Sql, Table
from ..recall.text import content_hash
from ..record import CamelRecord, Milliseconds
from . import api
from .api import RefEntryId, Serving, Snapshot, op, present, put_by, ref_entry_id
from .runs import FORGOTTEN, RunEventType, RunId, RunTable

ENTRY_TYPE = "memory"
ALL = 1 << 62  # a limit above any number of rows or id
SUBJECT = "subject:"  # prefix of the tags that name whom an entry is about
STEP = 200  # most entries or events of one transaction, for which puts wait
LOGS = "the event logs of hosts"
COUNTS = "entries", "archives", "restored", "commitments"


class Method(StrEnum):
    """How the text of an entry was written."""

    PUT = "put"
    EXTRACT = "extract-1"  # extracted from other entries by a rule
    HOST = "host"  # written by a host to replace other entries


class Origin(CamelRecord):
    """Who wrote an entry, and how."""

    run: RunId | None = Field(default=None, serialization_alias="runId")
    node: str | None = Field(default=None, serialization_alias="nodeId")
    agent: str | None = Field(default=None, serialization_alias="agentId")
    method: Method = Field(default=Method.PUT, exclude=True)


UNKNOWN = Origin()  # the origin of an entry that no run put


class RefEntry(CamelRecord):
    """An entry of a ref."""

    id: Annotated[RefEntryId, Column("m.uid", read=ref_entry_id, second="e.name")]
    memory: Annotated[MemoryId, Column("m.id"), Field(exclude=True)]
    uid: str = Field(exclude=True)
    content: str
    tags: tuple[str, ...]
    created_at: Milliseconds
    expires_at: Annotated[Milliseconds | None, EXPIRES_AT] = None

    @property
    def size(self) -> int:
        return len(self.content.encode())

    @property
    def cursor(self) -> RefEntryId:
        """The stable id, which no other entry ever has; a name may be reused."""
        return ref_entry_id(self.uid, None)


ENTRY = RowMapper(RefEntry, "ref_entries", "m.id", alias="m.")


class Provenance(CamelRecord):
    """Who wrote an entry, its sources, and what replaces it."""

    memory_ref: Annotated[MemoryRef, rows.UNSTORED]
    memory_id: Annotated[RefEntryId, Column("m.uid", read=ref_entry_id, second="e.name")]
    origin: Annotated[Origin, Field(serialization_alias="writtenBy")]
    method: Method
    derived_from: Annotated[tuple[RefEntryId, ...], rows.UNSTORED]
    superseded_by: Annotated[tuple[RefEntryId, ...] | None, rows.UNSTORED] = None
    seen: Annotated[int, Column("m.duplicates")]
    last_seen_at: Annotated[Milliseconds, Column("m.last_seen_at")]


_PROVENANCE = RowMapper(Provenance, "ref_entries", "m.id", alias="e.")


class ListedRef(NamedTuple):
    """A listed entry before its content is read."""

    memory: MemoryId
    size: int  # bytes of its content
    length: int  # code points


def add_entry(  # noqa: PLR0913 - all that an entry is
    tx: Transaction, ref: MemoryRef, content: str, tags: tuple[str, ...], *,
    name: RefEntryId | None = None, origin: Origin = UNKNOWN, expires_at: datetime | None = None,
    like: Memory | None = None,
) -> RefEntry:  # fmt: skip
    """Store a new entry; it takes its creation time and duplicate count from `like`, if given."""
    at = tx[SpaceTable].named(SpaceKind.REF, "refs", {"ref": ref})
    memory = Memory(
        uid=tx.new_uid(tx.now), session=None, space=at, key=None,
        text=Text(type=ENTRY_TYPE, title="", content=content, tags=tags),
        duplicates=like.duplicates if like else 1,
        last_seen_at=like.last_seen_at if like else tx.now,
        created_at=like.created_at if like else tx.now, updated_at=tx.now,
        lifecycle=Lifecycle(expires_at=expires_at), content_hash=content_hash(content),
    )  # fmt: skip
    memory = created(tx, memory)
    space, _ = tx[SpaceTable].placed(memory.space)
    tx[Sql].insert(
        "ref_entries", memory_id=memory.id, space_id=space, name=name,
        created_at=micros(memory.created_at), ends_at=optional_micros(expires_at),
        run=origin.run, node=origin.node, agent=origin.agent, method=origin.method.value,
        **_measures(memory),
    )  # fmt: skip
    _tag(tx[Sql], memory, space)
    return RefEntry(
        id=ref_entry_id(memory.uid, name), memory=memory.id, uid=memory.uid,
        content=content, tags=tags, created_at=memory.created_at, expires_at=expires_at,
    )  # fmt: skip


def measure(tx: Transaction, memory: Memory) -> None:
    """Update the size and tags of an entry whose text was redacted."""
    tx[Sql].update("ref_entries", "memory_id", {"memory_id": memory.id, **_measures(memory)})
    tx[Sql].run("DELETE FROM ref_tags WHERE memory_id = :id", id=memory.id)
    space, _ = tx[SpaceTable].placed(memory.space)
    _tag(tx[Sql], memory, space)


def _measures(memory: Memory) -> dict[str, int]:
    content = memory.text.content
    return {"size": len(content.encode()), "length": len(content)}


def _tag(sql: Sql, memory: Memory, space: int) -> None:
    at = micros(memory.created_at)
    for tag in dict.fromkeys(memory.text.tags):
        sql.insert("ref_tags", memory_id=memory.id, space_id=space, tag=tag, created_at=at)


@reads("ref_entries")
def sized(id_: MemoryId, size: int, length: int) -> ListedRef:
    return ListedRef(id_, size, length)


_SOURCES = """SELECT older_id FROM ref_supersessions
               WHERE newer_id = :memory AND ended_after IS NULL
               UNION
              SELECT source_id FROM derivations WHERE memory_id = :memory"""
_NEWER = """SELECT newer_id FROM ref_supersessions
             WHERE older_id = :memory AND ended_after IS NULL"""


@dataclass(eq=False)
class RefTable(Table):
    """The entries of refs as of a snapshot, or the current entries without one.

    Expired entries are never returned.
    """

    _now: datetime

    def get(self, ref: MemoryRef, id_: RefEntryId, at: Snapshot | None = None) -> RefEntry | None:
        row = self._row(str(ENTRY), ref, id_, at)
        return None if row is None else ENTRY(row)

    def some(self, memories: Sequence[MemoryId]) -> list[RefEntry]:
        """Return the entries of these memories, in their order."""
        rows = self._execute(
            f"""SELECT {ENTRY}
                  FROM {self._sql.ids("listed")}
                 {self._sql.leads} ref_entries e ON e.memory_id = listed.value
                  JOIN memories m ON m.id = e.memory_id
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
              ORDER BY listed.key""",
            ids=json.dumps(list(memories)),
        )
        return list(self._intact(rows, ENTRY))

    def provenance(self, ref: MemoryRef, id_: RefEntryId) -> Provenance:
        """Return the provenance of an entry; raises NotFound."""
        row = required(self._row(str(_PROVENANCE), ref, id_), api.NO_ENTRY)
        newer = self._linked(_NEWER, row[0]) or None
        links = {"derived_from": self._linked(_SOURCES, row[0]), "superseded_by": newer}
        return _PROVENANCE(row).model_copy(update={"memory_ref": ref, **links})

    def listed(
        self, ref: MemoryRef, at: Snapshot | None, *, tag: str | None, before: RefEntryId | None
    ) -> Iterator[ListedRef]:
        """Yield entries that are not superseded, newest first; rows are read lazily.

        With `before`, an entry's id or cursor, only older entries; the entry may be deleted.
        Raises BadFields if it is unknown.
        """
        params: dict[str, object] = {"ref": ref, "tag": tag, **self._at(at)}
        condition = f"{present(at)} AND NOT {api.superseded(at)}"
        if before is not None:
            # A reused name means its newest entry, in a snapshot the newest there.
            visible = "" if at is None else f"WHERE {put_by('e')} AND {api.undeleted_at('e')}"
            row = self._execute(
                f"""SELECT e.created_at, e.memory_id
                      FROM {_entries_named(before)} {visible}
                  ORDER BY e.memory_id DESC LIMIT 1""",
                ref=ref, name=before, uid=query.uid_of(query.ENTRY, before), **api.values(at),
            ).fetchone()  # fmt: skip
            if row is None:
                raise BadFields([("before", "is not the id of an entry")])
            params["created_at"], params["before"] = row
            condition += " AND (e.created_at, e.memory_id) < (:created_at, :before)"
        rows = self._stream(self._listing(tag, at, condition), **params)
        return self._intact(rows, lambda row: sized(row[:3]))

    def _at(self, at: Snapshot | None = None) -> dict[str, object]:
        """Return the parameters; a clock set back must not revive expired entries in a snapshot."""
        return {"now": micros(max(self._now, at.at) if at else self._now), **api.values(at)}

    def _row(
        self, columns: str, ref: MemoryRef, id_: RefEntryId, at: Snapshot | None = None
    ) -> Any:
        """Return an entry's row or None; always one statement, so that timing reveals nothing."""
        return self._execute(
            f"""SELECT {columns}
                  FROM {_entries_named(id_)}
                  LEFT JOIN lifecycles l ON l.memory_id = m.id
                 WHERE {present(at)}
              ORDER BY m.id DESC LIMIT 1""",
            ref=ref, name=id_, uid=query.uid_of(query.ENTRY, id_), **self._at(at),
        ).fetchone()  # fmt: skip

    def _listing(self, tag: str | None, at: Snapshot | None, condition: str) -> str:
        leads = self._sql.leads
        if tag is not None:
            return f"""SELECT e.memory_id, e.size, e.length
                         FROM refs f
                        {leads} ref_tags t ON t.space_id = f.space_id
                        {leads} ref_entries e ON e.memory_id = t.memory_id
                        WHERE f.ref = :ref AND t.tag = :tag AND {condition}
                     ORDER BY t.created_at DESC, t.memory_id DESC"""
        kept = self._leg("ref_entries_in_time", "e.deleted_after IS NULL")
        if at is None:
            return f"{kept} AND {condition} ORDER BY e.created_at DESC, e.memory_id DESC"
        gone = self._leg("ref_entries_deleted", "e.deleted_after >= :offset")
        # Both parts are sorted before the other conditions are checked.
        return f"""SELECT e.memory_id, e.size, e.length
                     FROM ({kept} AND {put_by("e")}
                           UNION ALL
                           {gone} AND {put_by("e")}
                           ORDER BY created_at DESC, memory_id DESC LIMIT {ALL}) e
                    WHERE {condition}
                          {self._sql.reordered("e.created_at DESC, e.memory_id DESC")}"""

    def _leg(self, index: str, which: str) -> str:
        return f"""SELECT e.memory_id, e.size, e.length, e.created_at, e.deleted_after, e.renews
                     FROM refs f
                    {self._sql.leads} ref_entries e {self._sql.hint(index)}
                          ON e.space_id = f.space_id
                    WHERE f.ref = :ref AND {which}"""

    def _linked(self, linked: str, memory: MemoryId) -> tuple[RefEntryId, ...]:
        rows = self._execute(
            f"""SELECT m.uid, e.name
                  FROM ref_entries e
                  JOIN memories m ON m.id = e.memory_id
                 WHERE e.memory_id IN ({linked}) AND {present(None)}
              ORDER BY e.memory_id""",
            memory=memory, **self._at(),
        )  # fmt: skip
        return tuple(ref_entry_id(uid, name) for uid, name in rows)


def _entries_named(id_: RefEntryId) -> str:
    """Return SQL: the entries of a ref that have or had an id; a deletion frees a name."""
    if query.uid_of(query.ENTRY, id_) is None:
        return """refs f
                  JOIN ref_entries e ON f.ref = :ref AND e.space_id = f.space_id AND e.name = :name
                  JOIN memories m ON m.id = e.memory_id"""
    return """memories m
               JOIN ref_entries e ON m.uid = :uid AND e.memory_id = m.id
               JOIN refs f ON f.space_id = e.space_id AND f.ref = :ref"""


class ForgetBody(api.CamelBody):
    """The subject to forget."""

    subject: Annotated[str, Field(min_length=1, max_length=api.LONGEST_ID), api.Exact]
    dry_run: bool = False


class ForgottenSubject(CamelRecord):
    """The number of erased items of a subject; without a receipt if nothing was erased."""

    subject: str
    entries: int
    archives: int
    restored: int  # entries of other subjects that are no longer superseded
    commitments: int
    erasure_id: str | None = None
    dry_run: Literal[True] | None = None


class RefErasureReceipt(CamelRecord):
    """An erasure, when its bytes were gone, and which copies may still have them."""

    erasure_id: str
    entries: int
    erased_at: Milliseconds
    bytes_gone_at: Milliseconds | None = None
    not_reached: list[str]


def operations(serving: Serving) -> Sequence[Operation]:
    return (
        op(serving, "POST", f"{api.BASE}/forget", "forget",
           "Erase everything about a subject, including what was derived from it.",
           forget, role=Role.ADMIN, body=ForgetBody, answer=ForgottenSubject),
        op(serving, "GET", f"{api.BASE}/erasures/{{erasureId}}", "get_erasure",
           "The receipt of an erasure, which shows whether its bytes are gone.",
           receipt, answer=RefErasureReceipt),
    )  # fmt: skip


def subjects(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags that name whom an entry is about."""
    return tuple(tag for tag in tags if tag.startswith(SUBJECT))


async def forget(serving: Serving, caller: Caller, body: ForgetBody) -> ForgottenSubject:
    """Erase all entries of the subject, in any ref, and what was derived from them.

    Entries of other subjects that these superseded become current again. After the answer no
    read returns erased entries; their bytes are scrubbed later. Entries put meanwhile stay.
    Repeating the request completes an interrupted erasure.
    """
    subject, kind = body.subject, ErasureKind.SUBJECT
    report = ForgottenSubject(
        subject=serving.redaction.echo(caller, subject), dry_run=body.dry_run or None,
        entries=0, archives=0, restored=0, commitments=0,
    )  # fmt: skip
    finish = once(finish_forgetting, kept=lambda it: it.model_copy(update={"subject": ""}))
    async with serving.locks.of(caller, "forget"):  # so that no entry is counted twice
        if not await serving.engine.read(caller, is_due):
            first = await serving.engine.write(caller, finish, report)
            return first.model_copy(update={"subject": report.subject})
        high, erasure = await serving.engine.read(
            caller, lambda tx: (tx[RunTable].high(), ErasureId(tx.new_uid(tx.now)))
        )
        entries, report = await serving.engine.read(caller, to_erase, subject, high, report)
        if body.dry_run:
            return report
        if entries:
            about = {"erasure": erasure, **{name: getattr(report, name) for name in COUNTS}}
            await audited(serving.audit, caller, "memory.forgotten", **about)
            report = report.model_copy(update={"erasure_id": erasure})
        while entries:
            for start in range(0, len(entries), STEP):
                some = entries[start : start + STEP]
                await serving.engine.write(caller, erase_some, some, erasure, kind)
            entries, report = await serving.engine.read(caller, to_erase, subject, high, report)
        await _anonymize(serving, caller, subject)
        report = await serving.engine.write(caller, finish, report)
        serving.on_erased(caller)
        return report


async def receipt(serving: Serving, caller: Caller, erasure_id: str) -> RefErasureReceipt:
    id_ = ErasureId(erasure_id)
    erasure = await serving.engine.read(caller, lambda tx: tx[ReceiptTable].get(id_))
    if erasure is None or erasure.kind not in (ErasureKind.SUBJECT, ErasureKind.REF):
        raise NotFound("erasure not found")
    return RefErasureReceipt(
        erasure_id=id_, entries=erasure.observations,
        erased_at=erasure.erased_at, bytes_gone_at=erasure.bytes_gone_at,
        not_reached=[*serving.engine.maintenance.copies(caller), *UNKNOWN_COPIES, LOGS],
    )  # fmt: skip


async def _anonymize(serving: Serving, caller: Caller, subject: str) -> None:
    """Remove the subject from the names of refs and from the event log."""
    alias = await serving.engine.write(caller, anonymize_ref, subject)
    last = api.Offset(0)
    while events := await serving.engine.read(caller, events_about, subject, last):
        await serving.engine.write(caller, anonymize_events, events, subject, alias)
        last = events[-1]  # events copied meanwhile have higher offsets


# Entries put later have a higher id than `high`, so they stay. Entries derived meanwhile are
# erased: once their source is gone, nothing else shows that they are about the subject.
_FORGETTABLE = f"({put_by('e')} OR e.method <> '{Method.PUT.value}')"

# Live and deleted entries are each found by their own index.
_IN_REF = [
    f"""SELECT e.memory_id
          FROM refs f
          JOIN ref_entries e ON e.space_id = f.space_id AND e.deleted_after {which}
         WHERE f.ref = :subject AND {_FORGETTABLE}"""
    for which in ("IS NULL", "IS NOT NULL")
]

_GOING = f"""WITH RECURSIVE going (id) AS (
                SELECT e.memory_id
                  FROM ref_tags t
                  JOIN ref_entries e ON e.memory_id = t.memory_id
                 WHERE t.tag = :tag AND t.tag >= 'subject:' AND t.tag < 'subject;'
                       AND {_FORGETTABLE}
                 UNION
                {" UNION ".join(_IN_REF)}
                 UNION
                SELECT d.memory_id
                  FROM going
                  JOIN derivations d ON d.source_id = going.id)"""


def to_erase(
    tx: Transaction, subject: str, high: MemoryId, report: ForgottenSubject
) -> tuple[Sequence[MemoryId], ForgottenSubject]:
    """Return a subject's entries up to `high`, also deleted ones, and all derived from them.

    The newest come first, so that derived entries precede their sources. Also return the report
    with their counts added.
    """
    sql = tx[Sql]
    values: dict[str, object] = {"subject": subject, "tag": SUBJECT + subject, "high": high}
    entries = sql.column(f"{_GOING} SELECT id FROM going ORDER BY id DESC", **values)
    ((archives, commitments, restored),) = sql.run(
        f"""{_GOING}
            SELECT (SELECT count(*) FROM going JOIN archives a ON a.memory_id = going.id),
                   (SELECT count(*) FROM going JOIN commitments c ON c.memory_id = going.id),
                   (SELECT count(DISTINCT e.memory_id)
                      FROM going
                      JOIN ref_supersessions x
                           ON x.newer_id = going.id AND x.ended_after IS NULL
                      JOIN ref_entries e ON e.memory_id = x.older_id
                      JOIN ref_entries n ON n.memory_id = x.newer_id
                     WHERE e.memory_id NOT IN (SELECT id FROM going) AND {present(None)}
                           AND {present(None, "n")}
                           AND NOT EXISTS (
                               SELECT 1
                                 FROM ref_supersessions o
                                 JOIN ref_entries s ON s.memory_id = o.newer_id
                                WHERE o.older_id = e.memory_id AND o.ended_after IS NULL
                                      AND s.memory_id NOT IN (SELECT id FROM going)
                                      AND {present(None, "s")}))""",
        **values,
    )
    numbers = (len(entries) - archives, archives, restored, commitments)
    sums = {name: getattr(report, name) + it for name, it in zip(COUNTS, numbers, strict=True)}
    return entries, report.model_copy(update=sums)


def erase_some(
    tx: Transaction, memories: Sequence[MemoryId], erasure: ErasureId, kind: ErasureKind
) -> None:
    """Erase entries, and add them to the receipt of the erasure, which the first call creates."""
    revisions = tx[MemoryTable].erase_some(memories)
    if tx[ReceiptTable].get(erasure) is None:
        tx[ReceiptTable].add(kind, id_=erasure)
    tx[ReceiptTable].extend(erasure, memories, revisions)


def anonymize_ref(tx: Transaction, subject: str) -> str | None:
    """Rename the ref named like the subject to a random alias, also where runs name it.

    Return the alias, or None if the ref still has entries.
    """
    sql = tx[Sql]
    if sql.exists(" UNION ALL ".join(_IN_REF), subject=subject, high=ALL):
        return None
    alias = f"{FORGOTTEN}{tx.new_uid(tx.now)}"
    sql.run("UPDATE refs SET ref = :alias WHERE ref = :ref", alias=alias, ref=subject)
    reads, writes = (sql.dialect.contains(it, ":said") for it in ("refs", "wrote"))
    rows = sql.run(
        f"SELECT id, refs, wrote FROM runs WHERE {reads} OR {writes}",
        said=json.dumps(subject, ensure_ascii=False),
    )

    def renamed(refs: Iterable[str]) -> str:
        return tag_array(alias if ref == subject else ref for ref in refs)

    for id_, refs, wrote in map(_REFS, rows.fetchall()):
        sql.update("runs", "id", {"id": id_, "refs": renamed(refs), "wrote": renamed(wrote)})
    return alias


def events_about(tx: Transaction, subject: str, after: api.Offset) -> Sequence[api.Offset]:
    """Return the next events after an offset that may name the subject, in order."""
    names = tx[Sql].dialect.contains("payload", ":said")
    return tx[Sql].column(
        f"SELECT id FROM run_events WHERE id > :after AND {names} ORDER BY id LIMIT {STEP}",
        said=json.dumps(subject, ensure_ascii=False)[1:-1], after=after,
    )  # fmt: skip


def anonymize_events(
    tx: Transaction, events: Sequence[api.Offset], subject: str, alias: str | None
) -> None:
    """Remove the subject from these events, and replace the ref of that name by its alias."""
    sql, changed = tx[Sql], []
    rows = sql.run(
        f"""SELECT v.id, v.payload
              FROM {sql.dialect.ids("listed")}
              JOIN run_events v ON v.id = listed.value""",
        ids=json.dumps(list(events)),
    )
    for id_, known in map(_PAYLOAD, rows):
        clean = dict(known)
        if alias is not None and known.get("memoryRef") == subject:
            clean["memoryRef"] = alias
        if isinstance(tags := known.get("tags"), list):
            clean["tags"] = [tag for tag in tags if tag != SUBJECT + subject]
        if clean != known:
            changed.append({"id": id_, "payload": as_json(clean)})
    sql.run_all("UPDATE run_events SET payload = :payload WHERE id = :id", changed)


# Only these columns: damage in others must not keep the name.
_REFS = columns("runs", Any, tuple[str, ...], tuple[str, ...])
_PAYLOAD = columns("run_events", Any, dict[str, Any])


def finish_forgetting(tx: Transaction, report: ForgottenSubject) -> ForgottenSubject:
    """Record what was erased; its bytes and its name are gone after the next scrub."""
    tx[IdempotencyTable].erase_answers()
    tx[ReceiptTable].add_of_agents()
    if report.erasure_id is not None:
        tx[ReceiptTable].extend(ErasureId(report.erasure_id), (), 0)
        payload = {"erasureId": report.erasure_id, "entries": report.entries + report.archives}
        tx[RunTable].record(RunEventType.FORGOTTEN, (payload, ()))
    return report
