"""Views *Projects*, *Sessions* and *Service*.

Of projects: how much each holds, how it grows, its types, and the days on which it grew. Of
sessions: each with its summary, and turn by turn with the memories that it saved. Of the service:
whether it is well, what it holds and keeps, who has keys, what took long.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from starlette.responses import Response

from ..agentops import wire
from ..agentops.operations import project_of
from ..engine.engine import Transaction
from ..errors import NotFound
from ..http.middleware import READY
from ..http.query import amount
from ..light import dataclass
from ..memory.access import DEFAULT_TENANT, Role
from ..memory.erasure import ReceiptTable
from ..memory.keys import Key
from ..memory.memories import MemoryTable
from ..memory.memory import MemoryId, SessionId, live
from ..memory.projects import Listed
from ..memory.rows import LAST
from ..memory.search import Filter
from ..memory.sessions import SessionTable, TranscriptTable, recent_sessions
from ..memory.space import Project
from ..memory.table import FilteredTable, Sql
from ..recall.instants import EPOCH
from ..recall.summary import parsed_summary
from ..recall.text import clean
from ..telemetry.metrics import SLOW
from .memories import COUNTED, facets_of, loaded, newest
from .page import Visit, address, project_names

MOST_PROJECTS = 40  # projects of a page
WEEKS = 53  # of the heat map
GROWTH = 12  # weeks of a project in the list
DAY = 86_400_000_000  # microseconds


@dataclass(eq=False)
class ActivityTable(FilteredTable):
    """When memories were saved: the live ones, as the statistics count them."""

    def days(self, within: Filter, since: date) -> list[tuple[Project, int, int]]:
        """How many of each project were saved on each day, by its number."""
        rows = self._execute(
            f"""SELECT s.project, m.created_at / {DAY}, count(*)
                  FROM spaces s
                  JOIN memories m {self._sql.hint("memories_by_time")} ON m.space_id = s.id
                 WHERE {self._on_spaces(within)} AND {live("m")}
                       AND m.created_at BETWEEN :since AND {LAST}
              GROUP BY s.project, m.created_at / {DAY}""",
            since=(since - EPOCH.date()).days * DAY,
            **self._values(within),
        )
        return list(rows)


async def show_projects(visit: Visit) -> Response:
    project, after = project_of(visit.question), visit.query["after"]
    stats = await visit.memories.stats(project)
    if project is not None and project not in stats.projects:
        raise NotFound("No such project.")
    names = [Project(it) for it in stats.projects if it > after] if project is None else [project]
    rows, days, types = await visit.read(activity, Filter(project=project), names[:MOST_PROJECTS])
    # The count of each day, by weeks from Monday to Sunday; the last one goes up to today.
    today = visit.console.clock().date()
    monday = today - timedelta(days=today.weekday(), weeks=WEEKS - 1)
    every = [
        (it := monday + timedelta(days=at), days[it]) for at in range((today - monday).days + 1)
    ]
    recent = address("/observations/recent", project=project, limit=COUNTED)
    return await visit.page(
        "projects.html", address("/stats", project=project), recent, stats=stats, rows=rows,
        weeks=[every[at : at + 7] for at in range(0, len(every), 7)], types=types, selected=project,
        most=COUNTED, most_of_day=max(days.values(), default=1),
        has_more=len(names) > MOST_PROJECTS,
    )  # fmt: skip


def listed_project(tx: Transaction, project: Project) -> Listed:
    memories, sessions = tx[MemoryTable], tx[SessionTable]
    used = [it.created_at for it in memories.newest(Filter(project=project), 1)]
    used += [it.ended_at or it.started_at for it in sessions.newest(project, 1)]
    last = max(used, default=None)
    return Listed(project, memories.count(project), sessions.count(project), last)


def activity(
    tx: Transaction, within: Filter, names: Sequence[Project]
) -> tuple[list[tuple[Listed, list[int]]], Counter[date], Counter[str]]:
    """These projects with their last weeks, the latest last; all by days; the newest by types."""
    today, days = tx.now.date(), Counter[date]()
    growth = {it: [0] * GROWTH for it in names}
    for project, number, count in tx[ActivityTable].days(within, today - timedelta(weeks=WEEKS)):
        day = EPOCH.date() + timedelta(days=number)
        days[day] += count
        week = GROWTH - 1 - (today - day).days // 7  # beyond, if the clock went back
        if project in growth and 0 <= week < GROWTH:
            growth[project][week] += count
    rows = [(listed_project(tx, it), growth[it]) for it in names]
    return rows, days, facets_of(tx, newest(tx, within, ""))["type"]


MOST_SESSIONS = 25  # sessions of a page
MOST_MEMORIES = 50  # memories of a page


@dataclass(eq=False)
class SessionMemoryTable(FilteredTable):
    """The live memories of sessions, as the lists of memories have them."""

    def counts(self, sessions: list[str]) -> dict[str, int]:
        rows = self._execute(
            f"""SELECT m.session_id, count(*)
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.session_id IN (SELECT value FROM {self._sql.texts("listed")})
                       AND {self._on_spaces(Filter())} AND {live("m")}
              GROUP BY m.session_id""",
            **{**self._values(Filter()), "texts": json.dumps(sessions)},
        )
        return dict(iter(rows))

    def ids(self, session: SessionId, after: int, limit: int) -> list[MemoryId]:
        return self._scalars(
            f"""SELECT m.id
                  FROM memories m
                  JOIN spaces s ON s.id = m.space_id
                 WHERE m.session_id = :session AND m.id > :after
                       AND {self._on_spaces(Filter())} AND {live("m")}
              ORDER BY m.id
                 LIMIT :limit""",
            **{**self._values(Filter()), "session": session, "after": after, "limit": limit},
        )


async def show_sessions(visit: Visit) -> Response:
    filters = visit.only("project", "before_id")
    values = await visit.read(listed_sessions, project_of(visit.question), filters.get("before_id"))
    twin = address("/sessions/recent", **filters, limit=MOST_SESSIONS)
    return await visit.page("sessions.html", twin, most=MOST_SESSIONS, **values)


def listed_sessions(tx: Transaction, project: Project | None, before: str | None) -> dict[str, Any]:
    """Everything at once: with three reads a page under load took three times its twin."""
    sessions = recent_sessions(tx, project, MOST_SESSIONS, SessionId(before) if before else None)
    counts = tx[SessionMemoryTable].counts([it.id for it in sessions])
    rows = [wire.session(it) for it in sessions]
    return {"sessions": rows, "counts": counts, "projects": project_names(tx)}


async def show_one(visit: Visit) -> Response:
    id_ = SessionId(clean(visit.request.path_params["id"]))
    after = amount(visit.question.query, "after") or 0
    values = await visit.read(conversation, id_, after)
    own = {"project": values["session"].project}
    return await visit.page(
        "session.html", address("/sessions/recent", **own, before_id=[*values["newer"]], limit=1),
        address("/observations/recent", **own, limit=COUNTED), most=MOST_MEMORIES, **values,
    )  # fmt: skip


def conversation(tx: Transaction, id_: SessionId, after: int) -> dict[str, Any]:
    """A session with what was said first and last, memories of it, and its neighbors."""
    sessions, transcripts = tx[SessionTable], tx[TranscriptTable]
    session = sessions.get(id_)
    if session is None or not tx.caller.projects.match(session.project):
        raise NotFound("No such session.")
    newer = tx[Sql].texts(
        """SELECT id
             FROM sessions
            WHERE project = :project
                  AND (started_at, number) > (SELECT started_at, number
                                                FROM sessions
                                               WHERE id = :id)
         ORDER BY started_at, number
            LIMIT 1""",
        project=session.project, id=id_,
    )  # fmt: skip
    return {
        "session": wire.session(session),
        "said": transcripts.get(id_) or parsed_summary(session.summary),
        "memories": loaded(tx, tx[SessionMemoryTable].ids(id_, after, MOST_MEMORIES + 1)),
        "newer": newer,
        "older": [it.id for it in sessions.newest(session.project, 1, before=id_)],
    }


ERASURES = 20  # receipts in the list
# What an operator does about a check, at the terminal.
COMMANDS: Mapping[str, str] = {
    "database": "agentops-memory doctor",
    "migrations": "agentops-memory migrate",
    "index": "agentops-memory index",
    "backup": "agentops-memory backup --to FILE",
}
# What is removed, after how long: each with the setting that says so.
RETENTION = (
    ("Deleted memories", "keep_deleted", "after their deletion"),
    ("Expired memories", "keep_expired", "after their expiry"),
    ("Requests with an idempotency key", "keep_idempotency", "after the request"),
    ("Events of agents and runs", "keep_events", "after the event"),
    ("Receipts of erasures", "keep_receipts", "once the bytes are gone"),
    ("Lines of the audit file", "keep_audit", "after they were written"),
)


async def show_service(visit: Visit) -> Response:
    console, caller = visit.console, visit.caller
    sees_all = caller.role.includes(Role.ADMIN) and caller.projects.are_everything
    settings = console.settings
    is_operator = sees_all and caller.tenant == DEFAULT_TENANT  # others have files of their own
    twins = [READY, "/stats"]
    if is_operator and settings.metrics != "off":
        twins.append("/metrics")
    return await visit.page(
        "service.html", *twins,
        health=await console.readiness(), commands=COMMANDS, stats=await visit.memories.stats(),
        sizes=await console.maintenance.sizes(caller) if sees_all else None,
        counts=await console.maintenance.count(caller) if sees_all else None,
        settings=settings, is_on_postgresql=bool(settings.database_url), sees_all=sees_all,
        sees_path=is_operator and not settings.database_url,
        retention=[
            (what, f"MEMORY_{name.upper()}", _period(getattr(settings, name)), since)
            for what, name, since in RETENTION
        ],
        backup_every=_period(settings.backup_every),
        erasures=await visit.read(lambda tx: tx[ReceiptTable].newest(ERASURES)) if sees_all else [],
        keys=_keys(visit) if sees_all else [],
        slow=[
            (datetime.fromtimestamp(it.at, UTC), it)
            for it in reversed(console.metrics.slow)
            if it.tenant == caller.tenant
        ] if sees_all else [],
        slow_from=round(SLOW * 1000),
    )  # fmt: skip


def _keys(visit: Visit) -> list[tuple[Key, bool, datetime | None]]:
    """The keys of the caller's tenant, whether they work, and when each was last used."""
    console, now = visit.console, visit.console.clock()
    lines = [
        (key, not key.revoked_at and any(it.works_at(now) for it in key.secrets),
         console.used.get(key.id))
        for key in console.keys().keys.values() if key.tenant == visit.caller.tenant
    ]  # fmt: skip
    return sorted(lines, key=lambda line: (not line[1], line[0].name, line[0].id))


def _period(time: timedelta) -> str:
    if not time:
        return "never"
    for unit in ("days", "hours", "minutes"):
        length = timedelta(**{unit: 1})
        if not time % length:
            count = time // length
            return f"{count} {unit if count > 1 else unit[:-1]}"
    return f"{time.total_seconds():g} seconds"
