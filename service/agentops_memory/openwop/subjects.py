"""Subjects: whom entries are about, and what forgetting one removes (OpenWOP)."""

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ..engine.engine import Transaction, audited
from ..errors import NotFound
from ..http.protocol import Operation
from ..memory.access import Caller, Role
from ..memory.erasure import UNKNOWN_COPIES, Erasure, ErasureId, ReceiptTable
from ..memory.idempotency import IdempotencyTable, is_due, once
from ..memory.memories import MemoryTable
from ..memory.memory import MemoryId
from ..memory.redactor import written as compact_text
from ..memory.rows import micros, reads, tag_array, texts_of
from ..memory.space import NO_PROJECT, ErasureKind
from ..memory.table import Sql
from ..recall.text import object_of
from ..record import CamelRecord, Milliseconds
from .api import BASE, CAMEL, LONGEST_ID, Exact, Offset, Serving, op, present, put_by
from .entries import ALL, Method
from .runs import FORGOTTEN, RunEventType, RunTable

SUBJECT = "subject:"  # how tags begin that tell whom an entry is about
STEP = 200  # entries, or events, of one transaction; puts wait for it
LOGS = "the event logs of hosts"
COUNTS = "entries", "archives", "restored", "commitments"


class ForgetBody(BaseModel):
    """Whom to forget."""

    model_config = CAMEL
    subject: Annotated[str, Field(min_length=1, max_length=LONGEST_ID), Exact]
    dry_run: bool = False


class ForgottenSubject(CamelRecord):
    """What was erased of a subject; no receipt where there was nothing."""

    subject: str
    entries: int
    archives: int
    restored: int  # entries of others that stand for themselves again
    commitments: int
    erasure_id: str | None = None
    dry_run: Literal[True] | None = None


class RefErasureReceipt(CamelRecord):
    """An erasure, when its bytes were gone, and where they may still be."""

    erasure_id: str
    entries: int
    erased_at: Milliseconds
    bytes_gone_at: Milliseconds | None = None
    not_reached: list[str]


def operations(serving: Serving) -> Sequence[Operation]:
    return (
        op(serving, "POST", f"{BASE}/forget", "forget",
           "Erase everything about a subject, including what was derived from it.",
           forget, role=Role.ADMIN, body=ForgetBody, answer=ForgottenSubject),
        op(serving, "GET", f"{BASE}/erasures/{{erasureId}}", "get_erasure",
           "The receipt of an erasure, which shows whether its bytes are gone.",
           receipt, answer=RefErasureReceipt),
    )  # fmt: skip


def subjects(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags that tell whom an entry is about."""
    return tuple(tag for tag in tags if tag.startswith(SUBJECT))


async def forget(serving: Serving, caller: Caller, body: ForgetBody) -> ForgottenSubject:
    """Erase every entry of the subject, in any ref, with what was made of any of them.

    What these stood for and is of others stands for itself again. When this answers,
    nothing of it is read any more; the bytes follow. What is put meanwhile stays. It may
    be done again: what a killed one has left then goes.
    """
    subject, kind = body.subject, ErasureKind.SUBJECT
    report = ForgottenSubject(
        subject=serving.redaction.echo(caller, subject), dry_run=body.dry_run or None,
        entries=0, archives=0, restored=0, commitments=0,
    )  # fmt: skip
    finish = once(finish_forgetting, kept=lambda it: it.model_copy(update={"subject": ""}))
    async with serving.locks.of(caller, "forget"):  # each entry counts once
        if not await serving.engine.read(caller, is_due):
            first = await serving.engine.write(caller, finish, report)
            return first.model_copy(update={"subject": report.subject})
        high, erasure = await serving.engine.read(
            caller, lambda tx: (tx[RunTable].high(), ErasureId(tx.new_uid(tx.now)))
        )
        entries, report = await serving.engine.read(caller, look, subject, high, report)
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
            entries, report = await serving.engine.read(caller, look, subject, high, report)
        await _unname(serving, caller, subject)
        report = await serving.engine.write(caller, finish, report)
        serving.on_erased(caller)
        return report


async def receipt(serving: Serving, caller: Caller, erasure_id: str) -> RefErasureReceipt:
    """The receipt of an erasure of entries; NotFound."""
    id_ = ErasureId(erasure_id)
    erasure = await serving.engine.read(caller, lambda tx: tx[ReceiptTable].get(id_))
    if erasure is None or erasure.kind not in (ErasureKind.SUBJECT, ErasureKind.REF):
        raise NotFound("erasure not found")
    return RefErasureReceipt(
        erasure_id=id_, entries=erasure.observations,
        erased_at=erasure.erased_at, bytes_gone_at=erasure.bytes_gone_at,
        not_reached=[*serving.engine.maintenance.copies(caller), *UNKNOWN_COPIES, LOGS],
    )  # fmt: skip


async def _unname(serving: Serving, caller: Caller, subject: str) -> None:
    """Let the log tell of the subject no more."""
    alias = await serving.engine.write(caller, unname, subject)
    last = Offset(0)
    while events := await serving.engine.read(caller, naming, subject, last):
        await serving.engine.write(caller, unname_events, events, subject, alias)
        last = events[-1]  # what is copied meanwhile comes after it


# What is put later has a higher id than the newest memory, so it stays; what was made meanwhile
# does not: once its source is erased, nothing else tells that it goes, too.
_FORGETTABLE = f"({put_by('e')} OR e.method <> '{Method.PUT.value}')"

# Live entries and deleted ones, each along an index of its own.
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


def look(
    tx: Transaction, subject: str, high: MemoryId, report: ForgottenSubject
) -> tuple[Sequence[MemoryId], ForgottenSubject]:
    """The entries of a subject up to a memory, deleted ones too, and what was made of any.

    The newest come first, so that what was made of others comes before these. With all that was
    counted before, and what comes of them.
    """
    sql = tx[Sql]
    values: dict[str, object] = {
        "subject": subject, "tag": SUBJECT + subject, "high": high, "now": micros(tx.now),
    }  # fmt: skip
    entries = sql.column(f"{_GOING} SELECT id FROM going ORDER BY id DESC", **values)
    archives, commitments, restored = sql.run(
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
    ).fetchone()
    numbers = (len(entries) - archives, archives, restored, commitments)
    sums = {name: getattr(report, name) + it for name, it in zip(COUNTS, numbers, strict=True)}
    return entries, report.model_copy(update=sums)


def erase_some(
    tx: Transaction, memories: Sequence[MemoryId], erasure: ErasureId, kind: ErasureKind
) -> None:
    """Erase entries; the first time with a receipt, which then grows."""
    revisions = tx[MemoryTable].erase_some(memories)
    if tx[ReceiptTable].get(erasure) is None:
        tx[ReceiptTable].add(Erasure(id=erasure, kind=kind, project=NO_PROJECT, erased_at=tx.now))
    tx[ReceiptTable].extend(erasure, memories, revisions)


def unname(tx: Transaction, subject: str) -> str | None:
    """Give the ref that is the subject a name without a meaning, also where runs name it.

    The new name; None if something is in the ref.
    """
    sql = tx[Sql]
    if sql.exists(" UNION ALL ".join(_IN_REF), subject=subject, high=ALL):
        return None
    alias = f"{FORGOTTEN}{tx.new_uid(tx.now)}"
    sql.run("UPDATE refs SET ref = :alias WHERE ref = :ref", alias=alias, ref=subject)
    reads, wrote = (sql.dialect.contains(it, ":said") for it in ("refs", "wrote"))
    rows = sql.run(
        f"SELECT id, refs, wrote FROM runs WHERE {reads} OR {wrote}",
        said=json.dumps(subject, ensure_ascii=False),
    )

    def renamed(refs: Iterable[str]) -> str:
        return tag_array(alias if ref == subject else ref for ref in refs)

    sql.run_all(
        "UPDATE runs SET refs = :refs, wrote = :wrote WHERE id = :id",
        [
            {"id": id_, "refs": renamed(refs), "wrote": renamed(wrote)}
            for id_, refs, wrote in map(_refs, rows)
        ],
    )
    return alias


def naming(tx: Transaction, subject: str, after: Offset) -> Sequence[Offset]:
    """The next events after one that may tell of the subject, in order."""
    names = tx[Sql].dialect.contains("payload", ":said")
    return tx[Sql].column(
        f"SELECT id FROM run_events WHERE id > :after AND {names} ORDER BY id LIMIT {STEP}",
        said=json.dumps(subject, ensure_ascii=False)[1:-1], after=after,
    )  # fmt: skip


def unname_events(
    tx: Transaction, events: Sequence[Offset], subject: str, alias: str | None
) -> None:
    """Take the subject out of these events; a ref of that name is called by its alias."""
    sql, changed = tx[Sql], []
    rows = sql.run(
        f"""SELECT v.id, v.payload
              FROM {sql.dialect.ids("listed")}
              JOIN run_events v ON v.id = listed.value""",
        ids=json.dumps(list(events)),
    )
    for id_, known in map(_parsed_event, rows):
        clean = dict(known)
        if alias is not None and known.get("memoryRef") == subject:
            clean["memoryRef"] = alias
        if isinstance(tags := known.get("tags"), list):
            clean["tags"] = [tag for tag in tags if tag != SUBJECT + subject]
        if clean != known:
            changed.append({"id": id_, "payload": compact_text(clean)})
    sql.run_all("UPDATE run_events SET payload = :payload WHERE id = :id", changed)


@reads("runs")
def _refs(id_: int, refs: str, wrote: str) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    return id_, texts_of(refs), texts_of(wrote)


@reads("run_events")
def _parsed_event(id_: int, payload: str) -> tuple[int, dict[str, Any]]:
    return id_, object_of(payload)


def finish_forgetting(tx: Transaction, report: ForgottenSubject) -> ForgottenSubject:
    """Tell of what was erased. Its bytes, and those of its name, are gone after the next scrub."""
    tx[IdempotencyTable].erase_answers()
    tx[ReceiptTable].add_of_agents(ErasureId(tx.new_uid(tx.now)))
    if report.erasure_id is not None:
        tx[ReceiptTable].extend(ErasureId(report.erasure_id), (), 0)
        payload = {"erasureId": report.erasure_id, "entries": report.entries + report.archives}
        tx[RunTable].record(RunEventType.FORGOTTEN, (payload, ()))
    return report
