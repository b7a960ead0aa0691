"""Commitments: an entry and a condition under which it fires at most once (OpenWOP RFC 0068).

The condition is a future time, or an awaited tag. If its entry is deleted, superseded or expired, a
commitment reads as cancelled, even before its row is updated. A note (a row of `met_tags`) records
that an awaited tag was put and not all of its commitments have fired: one row for each put tag.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from ..engine.engine import Engine, Transaction, noop
from ..errors import BadFields, Conflict, NotFound, required
from ..http.bodies import WRITTEN, Param, choice, fault_of, parsing
from ..http.protocol import Operation
from ..http.query import instant, public_id, uid_of
from ..light import dataclass, replace
from ..memory import rows
from ..memory.access import Caller
from ..memory.idempotency import once
from ..memory.memories import MemoryTable
from ..memory.memory import ChangeKind, MemoryId
from ..memory.redactor import require_room
from ..memory.rows import Column, RowMapper, exact, micros, optional_micros, whole_milliseconds
from ..memory.saves import Written, revised
from ..memory.space import MemoryRef
from ..memory.table import Sql
from ..record import CamelRecord, Milliseconds
from . import api
from .api import BASE, Page, Query, Serving, op, present, reading
from .entries import RefEntry, RefTable
from .runs import RunEventType, RunTable

DUE, WHEN = "due:", "when:"  # prefixes of the tags that arm a time or an awaited tag
SPACE_OF_REF = "(SELECT space_id FROM refs WHERE ref = :ref)"


class Condition(NamedTuple):
    """When to fire: at an instant, or when the first live entry with a tag is put."""

    due_at: datetime | None = None
    tag: str | None = None


def conditions_of(tags: Iterable[str], now: datetime) -> Sequence[Condition]:
    """Return the distinct conditions in the tags of a new entry; raises BadFields if invalid."""
    armed = []
    for tag in tags:
        if tag.startswith(DUE):
            at = exact(tag.removeprefix(DUE), needs_offset=True)
            problem = "must not have a due time that is invalid or in the past"
            armed.append(due_condition(at, now, "tags", problem))
        elif tag == WHEN:
            raise BadFields([("tags", "must not wait for an empty tag")])
        elif tag.startswith(WHEN):
            armed.append(Condition(tag=tag.removeprefix(WHEN)))
    return tuple(dict.fromkeys(armed))


def due_condition(at: datetime | None, now: datetime, field_: str, problem: str) -> Condition:
    """Return the condition of an instant; raises BadFields if it is None or not in the future."""
    due = None if at is None else whole_milliseconds(at)
    if due is None or due <= now:
        raise BadFields([(field_, problem)])
    return Condition(due_at=due)


def note_awaited_tags(tx: Transaction, ref: MemoryRef, entry: RefEntry) -> int | None:
    """Note which tags of a new entry armed commitments wait for; return the id of the first note.

    If another live entry has a tag, only its own commitments fire; if two have it, none. The others
    fire in steps, even if the new entry is deleted meanwhile; those armed later do not.
    """
    if not entry.tags:
        return None
    sql = tx[Sql]
    # Up to two are looked for: a single one may be the source itself.
    others = f"""FROM ref_tags t
                 JOIN ref_entries e ON e.memory_id = t.memory_id
                WHERE t.space_id = f.space_id AND t.tag = listed.value AND t.memory_id <> :new
                      AND {present(None)}
             ORDER BY t.created_at DESC, t.memory_id DESC"""
    notes = sql.column(
        f"""INSERT INTO met_tags (space_id, tag, newest, source_id)
            SELECT f.space_id, listed.value, (SELECT max(id) FROM commitments),
                   (SELECT t.memory_id {others} LIMIT 1)
              FROM {sql.dialect.texts("listed")}
              JOIN refs f ON f.ref = :ref
             WHERE EXISTS (SELECT 1
                             FROM commitments c {sql.dialect.hint("commitments_by_tag")}
                            WHERE c.space_id = f.space_id AND c.tag = listed.value
                                  AND c.state = 'armed')
                   AND NOT EXISTS (SELECT 1 {others} LIMIT 1 OFFSET 1)
          ORDER BY listed.key
         RETURNING id""",
        ref=ref, new=entry.memory, texts=json.dumps(list(entry.tags)),
    )  # fmt: skip
    return min(notes, default=None)


def take_matched(tx: Transaction, most: int, first: int = 0) -> list[int]:
    """Return armed commitments whose tags were noted, from `first` on; delete finished notes."""
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
              ORDER BY c.id LIMIT :most""",
            note=note, most=most - len(ids),
        )  # fmt: skip
        if len(ids) == most:
            break
        sql.run("DELETE FROM met_tags WHERE id = :note", note=note)
    return ids


# Most commitments that one transaction fires or cancels. The tenant's writers wait for it: 10 ms on
# SQLite, and 40 ms on PostgreSQL.
STEP = 200
# Most armed commitments of a tag, and of a ref; bounds what one put can fire, and counting.
MOST_OF_TAG, MOST_ARMED = 1_000, 10_000

COMMITMENT = "cmt"  # prefix of public ids


class ConditionKind(StrEnum):
    """What a commitment waits for."""

    TIME = "time"
    PREDICATE = "predicate"


class CommitmentState(StrEnum):
    """Armed until it fires or is cancelled; these two states are final."""

    ARMED = "armed"
    FIRED = "fired"
    CANCELLED = "cancelled"


# An armed commitment whose entry is not live and current reads as cancelled.
_CURRENT = f"{api.present(None)} AND NOT {api.superseded(None)}"
_STATE = f"CASE WHEN c.state = 'armed' AND NOT ({_CURRENT}) THEN 'cancelled' ELSE c.state END"


class Commitment(CamelRecord):
    """A commitment: an entry, its condition and state."""

    id: Annotated[str, Column("c.uid", read=lambda uid: public_id(COMMITMENT, uid))]
    memory_ref: Annotated[str, Column("f.ref")]
    memory_id: Annotated[str, Column("m.uid", read=api.ref_entry_id, second="e.name")]
    condition: Annotated[
        ConditionKind, Column("CASE WHEN c.due_at IS NULL THEN 'predicate' ELSE 'time' END")
    ]
    due_at: Milliseconds | None = None
    tag: str | None = None
    state: Annotated[CommitmentState, Column(_STATE)]
    created_at: Milliseconds
    fired_at: Milliseconds | None = None


_JOINS = """JOIN ref_entries e ON e.memory_id = c.memory_id
            JOIN memories m ON m.id = c.memory_id
            JOIN refs f ON f.space_id = e.space_id"""
_COMMITMENT = RowMapper(Commitment, "commitments", "c.id", alias="c.", joins=_JOINS)


class CommitmentBody(api.CamelBody):
    """A condition of an entry: a future time, or an awaited tag."""

    memory_ref: api.MemoryRefText
    memory_id: api.EntryName
    condition: Literal["time", "predicate"]
    due_at: api.Zoned | None = None
    tag: Annotated[str, Field(min_length=1, max_length=api.LONGEST_TAG), api.Exact] | None = None

    @model_validator(mode="after")
    def _check_condition(self) -> "CommitmentBody":
        fields = [("dueAt", self.due_at), ("tag", self.tag)]
        (needed, value), (other, extra) = fields if self.condition == "time" else fields[::-1]
        if value is None:
            raise fault_of(needed, "is required")
        if extra is not None:
            raise fault_of(other, "belongs to another condition")
        return self


class TooManyArmed(Conflict):
    code = "too_many_commitments"
    sentence = (
        f"A ref holds at most {MOST_OF_TAG:,} armed commitments of a tag, and {MOST_ARMED:,} in "
        "all; nothing was stored. Cancel some, or wait until some have fired."
    )


def operations(serving: Serving) -> Sequence[Operation]:
    every, one = f"{BASE}/commitments", f"{BASE}/commitments/{{commitmentId}}"
    it = partial(op, serving)
    return (
        it("POST", every, "create_commitment",
           "Arm a condition for an entry.", create, body=CommitmentBody, answer=Commitment,
           status=201, headers=WRITTEN, refusals=(404,)),
        it("GET", every, "list_commitments", "Commitments in the order of their ids.",
           list_commitments,
           answer=api.listed(Commitment, "commitments",
                             "Commitments; `next` is the id to continue after."),
           query=(
               Param(name="memoryRef", help="Only those of this ref's entries.", read=Query.ref),
               choice("state", CommitmentState, "Only this state."),
               Param(name="after", help="An id; returns those after it.", read=parsing(
                   partial(uid_of, COMMITMENT), "is not the id of a commitment", absent=""
               )),
               api.limit(),
           )),
        it("GET", one, "get_commitment", "One commitment.", reading(known_commitment),
           answer=Commitment),
        it("DELETE", one, "cancel_commitment", "Cancel a commitment; one that has fired stays so.",
           cancel, answer=Commitment),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """Fires the due commitments of tenants in steps; each step is one transaction.

    After its commit, `on_fired` is called with each kind of condition and the number fired, and
    `on_due` if more may be due, so that another step follows.
    """

    engine: Engine
    on_fired: Callable[[ConditionKind, int], object] = noop
    on_due: Callable[[Caller], object] = noop

    async def step(self, caller: Caller, most: int = STEP) -> None:
        """Fire at most `most` due commitments of the tenant."""
        operator = Caller(tenant=caller.tenant)
        if not await self.engine.read(operator, has_due):
            return
        fired, has_more = await self.engine.write(operator, fire_due, most)
        for kind, number in fired.items():
            self.on_fired(kind, number)
        if has_more:
            self.on_due(operator)

    async def look(self, caller: Caller) -> None:
        """Fire one step, and cancel all commitments whose entries have expired."""
        await self.step(caller)
        operator = Caller(tenant=caller.tenant)
        while await self.engine.read(operator, _orphans, 1):
            await self.engine.write(operator, lambda tx: cancel_of(tx, _orphans(tx, STEP)))


async def create(serving: Serving, caller: Caller, body: CommitmentBody) -> Written[Commitment]:
    """Arm a condition for an entry.

    Raises BadFields for a time in the past, Denied for another tenant's ref, NotFound for an entry
    that is not live or is superseded, or TooManyArmed.
    """

    async def clean(screen: api.Screen) -> Sequence[object]:
        api.require_ref(body.memory_ref, caller.tenant, screen)
        tag = body.tag and screen.tags([body.tag])[0]
        return (body.model_copy(update={"tag": tag}),)

    return await serving.written(caller, once(arm_entry), clean)


async def list_commitments(
    serving: Serving, caller: Caller, memory_ref: str | None, **which: Any
) -> Page:
    ref = None if memory_ref is None else serving.readable(caller, memory_ref)
    return await _first_page(serving, caller, ref=ref, **which)


async def cancel(serving: Serving, caller: Caller, commitment_id: str) -> Commitment:
    return await serving.engine.write(caller, once(cancel_commitment), commitment_id)


def arm_entry(tx: Transaction, body: CommitmentBody) -> Commitment:
    condition = Condition(tag=body.tag)
    if body.due_at is not None:
        condition = due_condition(instant(body.due_at), tx.now, "dueAt", "must be in the future")
    source = tx[RefTable].get(body.memory_ref, body.memory_id)
    if source is None or not tx[Sql].exists(
        f"SELECT 1 FROM ref_entries e WHERE e.memory_id = :memory AND {_CURRENT}",
        memory=source.memory,
    ):
        raise NotFound(api.NO_ENTRY)
    require_room(tx)
    (made,) = arm(tx, source.memory, [condition])
    return known_commitment(tx, made)


def known_commitment(tx: Transaction, commitment_id: str) -> Commitment:
    uid = uid_of(COMMITMENT, commitment_id)
    known = tx[Sql].fetch(_COMMITMENT, "c.uid = :uid", uid=uid) if uid else None
    return required(known, "commitment not found")


def cancel_commitment(tx: Transaction, id_: str) -> Commitment:
    _settle(tx, [known_commitment(tx, id_)], "state = 'cancelled'")
    return known_commitment(tx, id_)


def arm(tx: Transaction, source: MemoryId, conditions: Sequence[Condition]) -> Sequence[str]:
    """Arm conditions that an entry has not armed yet; return ids or raise TooManyArmed."""
    if not conditions:
        return ()
    if not _has_room(tx, source, conditions):
        raise TooManyArmed
    uids = [tx.new_uid(tx.now) for _ in conditions]
    tx[Sql].run_all(
        """INSERT INTO commitments (uid, memory_id, space_id, due_at, tag, state, created_at)
           SELECT :uid, memory_id, space_id, :due_at, :tag, 'armed', :now
             FROM ref_entries
            WHERE memory_id = :source""",
        [
            {"uid": uid, "source": source, "now": micros(tx.now), "tag": it.tag,
             "due_at": optional_micros(it.due_at)}
            for uid, it in zip(uids, conditions, strict=True)
        ],
    )  # fmt: skip
    return [public_id(COMMITMENT, uid) for uid in uids]


def _has_room(tx: Transaction, source: MemoryId, conditions: Sequence[Condition]) -> bool:
    sql = tx[Sql]
    armed = f"""SELECT 1 FROM commitments {sql.dialect.hint("commitments_by_tag")}
                 WHERE space_id = (SELECT space_id FROM ref_entries WHERE memory_id = :source)
                       AND state = 'armed'"""
    free = MOST_ARMED - len(conditions)
    if sql.exists(f"{armed} LIMIT 1 OFFSET :free", source=source, free=free):
        return False
    tags = [it.tag for it in conditions if it.tag is not None]
    return not tags or not sql.exists(
        f"""SELECT 1 FROM {sql.dialect.texts("listed")}
             WHERE EXISTS ({armed} AND tag = listed.value LIMIT 1 OFFSET :free)""",
        source=source, texts=json.dumps(tags), free=MOST_OF_TAG - 1,
    )  # fmt: skip


def fire_matched(tx: Transaction, ref: MemoryRef, entry: RefEntry) -> int:
    """Note the awaited tags of a new entry, and fire at most STEP commitments; return how many."""
    first = note_awaited_tags(tx, ref, entry)
    return 0 if first is None else _fire(tx, take_matched(tx, STEP, first)).total()


def fire_due(tx: Transaction, most: int) -> tuple[Counter[ConditionKind], bool]:
    """Fire at most `most` due commitments; return counts by kind, and whether more are due."""
    due = take_matched(tx, most)
    if len(due) < most:
        due += tx[Sql].column(
            f"""SELECT id FROM commitments {tx[Sql].dialect.hint("commitments_by_time")}
                 WHERE {_IS_DUE}
              ORDER BY due_at, id LIMIT :most""",
            most=most - len(due),
        )
    return _fire(tx, due), has_due(tx)


def has_due(tx: Transaction) -> bool:
    """Return whether a note is left, or the time of an armed commitment has come."""
    return tx[Sql].exists("SELECT 1 FROM met_tags LIMIT 1") or tx[Sql].exists(
        f"""SELECT 1 FROM commitments {tx[Sql].dialect.hint("commitments_by_time")}
             WHERE {_IS_DUE}
             LIMIT 1"""
    )


def _fire(tx: Transaction, ids: Sequence[int]) -> Counter[ConditionKind]:
    """Fire armed commitments, with an event each; cancel the others; count the fired by kind."""
    sql = tx[Sql]
    statement = f"""SELECT {_COMMITMENT}
                      FROM {sql.dialect.ids("listed")}
                     {sql.dialect.leads} commitments c ON c.id = listed.value
                     {_JOINS}
                  ORDER BY listed.key"""
    due_rows = sql.run(statement, ids=json.dumps(list(dict.fromkeys(ids))))
    due = list(sql.intact(due_rows, _COMMITMENT))
    armed = [it for it in due if it.state is CommitmentState.ARMED]
    orphans = [it for it in due if it.state is not CommitmentState.ARMED]
    _settle(tx, orphans, "state = 'cancelled'")
    if armed:
        _settle(tx, armed, "state = 'fired', fired_at = :now")
        payloads = (
            {"commitmentId": it.id, "memoryRef": it.memory_ref, "memoryId": it.memory_id,
             "condition": it.condition.value}
            for it in armed
        )  # fmt: skip
        tx[RunTable].record(RunEventType.FIRED, *((it, (it["memoryRef"],)) for it in payloads))
    return Counter(it.condition for it in armed)


def cancel_of(tx: Transaction, sources: Sequence[MemoryId]) -> None:
    """Cancel the armed commitments of entries that were deleted, superseded or expired."""
    dialect = tx[Sql].dialect
    tx[Sql].run(
        f"""UPDATE commitments {dialect.hint("commitments_armed")}
               SET state = 'cancelled'
             WHERE state = 'armed'
                   AND memory_id IN (SELECT value FROM {dialect.ids("listed")})""",
        ids=json.dumps(list(sources)),
    )


def remove_entry(tx: Transaction, memory: MemoryId) -> None:
    """Delete an entry, and cancel its commitments; runs that are open still see it."""
    row = {"memory_id": memory, "deleted_after": tx[RunTable].newest()}
    tx[Sql].update("ref_entries", "memory_id", row)
    cancel_of(tx, [memory])
    (stored,) = tx[MemoryTable].loaded([memory])
    gone = replace(stored, deleted_at=tx.now)
    revised(tx, stored, gone, ChangeKind.DELETED, has_new_text=False)


def tags_of(tx: Transaction, source: MemoryId) -> list[str]:
    """Return the tags that commitments of an entry await or have awaited."""
    return tx[Sql].column(
        "SELECT tag FROM commitments WHERE memory_id = :source AND tag IS NOT NULL ORDER BY id",
        source=source,
    )


def screen_tags(tx: Transaction, source: MemoryId, screen: api.Screen) -> None:
    """Redact the tags that commitments of an entry await."""
    for tag in tags_of(tx, source):
        (clean,) = screen.tags([tag])
        if clean == tag:
            continue
        _fire(tx, take_matched(tx, rows.MOST))  # notes have the tag, too
        tx[Sql].run(
            "UPDATE commitments SET tag = :clean WHERE memory_id = :source AND tag = :tag",
            source=source, tag=tag, clean=clean,
        )  # fmt: skip


# The rows.
_IS_DUE = f"state = 'armed' AND due_at BETWEEN {rows.EARLIEST} AND :now"


def _listed(
    tx: Transaction, ref: str | None, state: CommitmentState | None, after: str, limit: int
) -> list[Commitment]:
    of_ref = "" if ref is None else f"AND c.space_id = {SPACE_OF_REF}"
    in_state = "" if state is None else f"AND {_STATE} = :state"
    which = f"c.uid > :after {of_ref} {in_state} ORDER BY c.uid LIMIT :limit"
    values = {"after": after, "ref": ref, "state": state, "limit": limit}
    return tx[Sql].fetch_all(_COMMITMENT, which, **values)


_first_page = api.first_page("commitments", _listed, lambda it: it.id)


def _orphans(tx: Transaction, most: int) -> list[MemoryId]:
    """Return the entries of armed commitments that are not live and current."""
    return tx[Sql].column(
        f"""SELECT DISTINCT c.memory_id
              FROM commitments c {tx[Sql].dialect.hint("commitments_armed")}
              JOIN ref_entries e ON e.memory_id = c.memory_id
             WHERE c.state = 'armed' AND NOT ({_CURRENT})
          ORDER BY c.memory_id LIMIT :most""",
        most=most,
    )


def _settle(tx: Transaction, commitments: Sequence[Commitment], change: str) -> None:
    if commitments:
        tx[Sql].run(
            f"""UPDATE commitments
                   SET {change}
                 WHERE state = 'armed'
                       AND uid IN (SELECT value FROM {tx[Sql].dialect.texts("listed")})""",
            texts=json.dumps([uid_of(COMMITMENT, it.id) for it in commitments]),
        )
