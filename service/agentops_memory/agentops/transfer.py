"""Exports and imports, row by row: neither is held, however long it is."""

import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import BinaryIO
from uuid import UUID

from agentops_memory_client.contract import models as c

from ..errors import Invalid, InvalidFields
from ..http.json_reader import entries, members
from ..memory.model.access import Caller
from ..memory.model.memory import (
    NO_LIFECYCLE,
    NO_LINKS,
    Imported,
    Lifecycle,
    Links,
    Memory,
    Session,
    SessionId,
)
from ..memory.model.space import PROJECT_SCOPE, Project, Space, project_name
from ..recall.text.instants import parsed, rendered
from ..telemetry import hidden
from . import models as m
from .transfers.storing import CONFLICTS, Row, RowConflict, RowOutcome, Tally
from .transfers.transfer import Transfer
from .wire import columns, json_bytes, session, text

HEAD = 64 * 1024  # bytes; JSON lines whose first line is longer are not recognized
NAMED = 5  # members that a refusal names
_UID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Only what looks like a field of a format: another name may be data, which a refusal never quotes.
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")

_EXPECTED = (
    "an object with sessions and observations is expected, as `agentops-memory export` writes"
)
_UNREAD = "which no importer reads"
_BY_START = {
    b"SQLite format 3\0": "a SQLite database: `agentops-memory export --db FILE` exports one of "
    "this service",
    b"PK\x03\x04": "a ZIP file: `agentops-memory restore` reads one that `backup` wrote",
    b"\x1f\x8b": "compressed by gzip: decompress it first",
    b"[": f"a list, {_UNREAD}",
    b'"': "a string",
    b"null": "null",
    b"true": "a boolean",
    b"false": "a boolean",
    **dict.fromkeys((b"-", *(b"%d" % digit for digit in range(10))), "a number"),
}
_BY_MEMBER = {
    "prompts": " It looks like an export of Engram: `agentops-memory import` reads one.",
    "results": f" It looks like a list of memories from mem0, {_UNREAD}.",
}


def recognized(file: BinaryIO) -> str | None:
    """Why a file that is no JSON object cannot be imported; None if it is not recognized."""
    file.seek(0)
    head = file.read(HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not head:
        kind: str | None = "empty"
    elif _is_json_lines(head):
        kind = f"JSON lines, {_UNREAD}"
    else:
        kind = next((it for start, it in _BY_START.items() if head.startswith(start)), None)
    return kind and f"invalid JSON: {_EXPECTED}, and this is {kind}."


def require_export(file: BinaryIO, lists: Collection[str]) -> None:
    """Invalid for an object that has members, but none of the lists of an export.

    An object without members is an export of nothing, as the original takes it.
    """
    names: dict[str, None] = {}
    count, hint = 0, ""
    for name, place, _ in members(file):
        if name in lists:
            return
        count += place is None  # and else an item of the member before
        if place is None and len(names) < NAMED and _is_shown(name):
            names[name] = None
        hint = hint or _BY_MEMBER.get(name, "")
    if not count:
        return
    more = count - len(names)
    others = f"{more:,} more" if names else "1 member" if more == 1 else f"{more:,} members"
    has = ", ".join([*names, *([others] if more else [])])
    raise Invalid(f"validation failed: {_EXPECTED}; this one has {has}.{hint}")


def _is_shown(name: str) -> bool:
    """Whether a refusal may name a member: it looks like a field, and holds no secret."""
    return bool(_FIELD.fullmatch(name)) and hidden(name) == name


def _is_json_lines(head: bytes) -> bool:
    first, _, rest = head.partition(b"\n")
    if not rest.lstrip().startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


PROJECTS = 1024  # of a document whose names are remembered
KEPT, ROW = 4 * 1024 * 1024, 1024  # characters of what is not read again, and of a row beside
NAMED_ROWS = 20  # whose faults a refusal names
FAULTY = "validation failed: "

Named = Callable[[str], Project]
"""The project of a name that a row has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedObservation(c.Observation):
    """A memory with the id by which an import knows it again, as it knows what is superseded."""

    supersedes: tuple[str, ...] = ()  # type: ignore[assignment]
    uid: str
    pinned_at: datetime | None = None


async def exported(
    transfer: Transfer, caller: Caller, project: Project | None, now: datetime
) -> AsyncIterator[bytes]:
    """The JSON of every session and every memory of the project, or of all."""
    piece = f'{{"exported_at":"{rendered(now)}","sessions":['.encode()
    comma = b""
    async for sessions in transfer.sessions(caller, project):
        yield piece + comma + _joined(list(map(session, sessions)))
        piece, comma = b"", b","
    piece, comma = piece + b'],"observations":[', b""
    async for memories in transfer.memories(caller, project):
        yield piece + comma + _joined(list(map(exported_memory, memories)))
        piece, comma = b"", b","
    yield piece + b"]}"


def _joined(rows: Sequence[object]) -> bytes:
    return json_bytes(rows)[1:-1]


class Document:
    """An import in a file: its rows, sessions first. A longer one is read anew each time."""

    def __init__(self, file: BinaryIO, now: datetime) -> None:
        self._file = file
        self._now = now
        self._project = lru_cache(PROJECTS)(project_name)
        self._kept: list[Row] | None = None  # once it was checked, if they are few
        self._counts = dict.fromkeys(_ROWS, 0)

    def __len__(self) -> int:
        """How many rows it has, once it was checked."""
        return sum(self._counts.values())

    def check(self) -> None:
        """Read it whole; Invalid names the faults of the first rows that are wrong."""
        faults: list[str] = []
        kept: dict[str, list[Row]] = {name: [] for name in _ROWS}
        room = KEPT
        self._counts = dict.fromkeys(_ROWS, 0)
        try:
            for name, place, given in entries(self._file, _ROWS):
                self._counts[name] += 1
                try:
                    row = self._row(name, place, given)
                except InvalidFields as error:
                    faults.append(str(error).removeprefix(FAULTY))
                    if len(faults) == NAMED_ROWS:
                        break
                    continue
                room -= ROW + len(row.text.content if isinstance(row, Memory) else row.summary)
                if room > 0:
                    kept[name].append(row)
        except Invalid as error:
            if reason := recognized(self._file):
                raise Invalid(reason) from error
            raise
        if faults:
            raise InvalidFields(FAULTY + "; ".join(faults))
        if not len(self):
            require_export(self._file, _ROWS)
        if room > 0:
            self._kept = [*kept["sessions"], *kept["observations"]]

    def __iter__(self) -> Iterator[Row]:
        if self._kept is not None:
            yield from self._kept
            return
        for name, count in self._counts.items():
            # What follows the last of them is left to the next reading.
            for _, place, given in islice(entries(self._file, (name,)), count):
                yield self._row(name, place, given)

    def _row(self, name: str, place: int, given: object) -> Row:
        return _ROWS[name](given, f"{name}[{place}]", self._now, self._project)


def imported_session(given: object, place: str, now: datetime, named: Named) -> Session:
    row = m.body(m.ImportedSession, given, place)
    return Session(
        id=SessionId(row.id),
        project=named(row.project),
        started_at=_instant(row.started_at, f"{place}.started_at") or now,
        ended_at=_instant(row.ended_at, f"{place}.ended_at"),
        summary=row.summary or "",
        message_count=row.message_count or 0,
    )


def imported_memory(given: object, place: str, now: datetime, named: Named) -> Memory:
    row = m.body(m.ImportedObservation, given, place)
    created = _instant(row.created_at, f"{place}.created_at") or now
    updated = _instant(row.updated_at, f"{place}.updated_at") or created
    return Memory(
        uid=_uid(row.uid, f"{place}.uid"),
        session=SessionId(row.session_id),
        space=Space(project=named(row.project), scope=row.scope or PROJECT_SCOPE),
        key=row.topic_key or None,
        text=text(row),
        revision=row.revision_count or 1,
        duplicates=row.duplicate_count or 1,
        last_seen_at=_instant(row.last_seen_at, f"{place}.last_seen_at") or updated,
        promoted_to=row.promoted_to or None,
        created_at=created,
        updated_at=updated,
        lifecycle=_lifecycle(row, place, now),
        links=_links(row, place),
    )


def _lifecycle(row: m.ImportedObservation, place: str, now: datetime) -> Lifecycle:
    if not any((row.pinned, row.pinned_at, row.expires_at, row.review_at, row.confirmed_at)):
        return NO_LIFECYCLE
    pinned_at = _instant(row.pinned_at, f"{place}.pinned_at") or (now if row.pinned else None)
    lifecycle = Lifecycle(
        expires_at=_instant(row.expires_at, f"{place}.expires_at"),
        pinned_at=None if row.pinned is False else pinned_at,
        review_at=_instant(row.review_at, f"{place}.review_at"),
        confirmed_at=_instant(row.confirmed_at, f"{place}.confirmed_at"),
    )
    return NO_LIFECYCLE if lifecycle == NO_LIFECYCLE else lifecycle


def _links(row: m.ImportedObservation, place: str) -> Links:
    if not row.supersedes:
        return NO_LINKS
    return Links(uids=tuple(_uid(it, f"{place}.supersedes") for it in row.supersedes))


_ROWS: dict[str, Callable[[object, str, datetime, Named], Row]] = {
    "sessions": imported_session,
    "observations": imported_memory,
}


def _instant(given: str | None, name: str) -> datetime | None:
    if not given:
        return None
    at = parsed(given)
    if at is None:
        raise InvalidFields(f"validation failed: {name} is no RFC 3339 time")
    return at


def _uid(given: str | None, name: str) -> str:
    if given and _UID.fullmatch(given):
        return given
    try:
        return str(UUID(given)) if given else ""
    except ValueError as error:
        raise InvalidFields(f"validation failed: {name} is no UUID") from error


def exported_memory(memory: Memory) -> ExportedObservation:
    given = columns(memory) | {"supersedes": memory.links.uids}
    return ExportedObservation(**given, uid=memory.uid, pinned_at=memory.lifecycle.pinned_at)


def imported(counts: Imported) -> c.Imported:
    return c.Imported(
        imported_sessions=counts.sessions,
        imported_observations=counts.memories,
        refused_supersessions=counts.refused or None,
        redacted=counts.redacted,
    )


def import_plan(plan: Tally) -> c.ImportPlan:
    memories = plan.memories
    return c.ImportPlan(
        new_sessions=plan.sessions[RowOutcome.NEW],
        same_sessions=plan.sessions[RowOutcome.SAME],
        conflicting_sessions=plan.sessions[RowOutcome.CHANGED],
        new_observations=memories[RowOutcome.NEW],
        restored_observations=memories[RowOutcome.RESTORED],
        same_observations=memories[RowOutcome.SAME] + memories[RowOutcome.RECORDED],
        conflicting_observations=sum(memories[outcome] for outcome in CONFLICTS),
        conflicts=tuple(map(_import_conflict, plan.conflicts)),
    )


def _import_conflict(conflict: RowConflict) -> c.ImportConflict:
    return c.ImportConflict(
        place=conflict.place,
        id=conflict.existing,
        reason="changed" if conflict.outcome is RowOutcome.CHANGED else "topic_key",
        kept="imported" if conflict.outcome is RowOutcome.LATER else "stored",
        project=conflict.project,
        title=conflict.title,
    )
