"""View *Projects*: how much each holds, how it grows, its types, and the days on which it grew."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from starlette.responses import Response

from agentops_memory_client.contract.errors import NotFound

from ..agentops.recall import project_of
from ..engine.engine import Transaction
from ..memory.memories import MemoryTable
from ..memory.model.liveness import ENDED, undeleted
from ..memory.model.rows import LAST, optional_instant
from ..memory.model.search import Filter
from ..memory.model.space import Project
from ..memory.model.table import FilteredTable
from ..memory.sessions import SessionTable
from ..recall.text.instants import EPOCH
from .page import PREFIX, View, Visit, address
from .search import COUNTED, counts, newest

PATH = f"{PREFIX}/projects"
SHOWN = 50  # projects of a page
WEEKS = 53  # of the heat map
GROWTH = 12  # weeks of a project in the list
SHADES = 4  # of the heat map, beside that of no memory
DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A project in the list; its growth is the memories saved in each week, the latest last."""

    project: Project
    memories: int
    sessions: int
    growth: list[int]
    used_at: datetime | None  # a memory was saved, or a session began


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A day of the heat map."""

    day: date
    count: int
    shade: int


@dataclass(eq=False)
class ActivityTable(FilteredTable):
    """When memories were saved: the live ones, as the statistics count them."""

    def days(self, within: Filter, since: date) -> Counter[date]:
        # Along an index, without the few that have expired.
        given = {"since": (since - EPOCH.date()).days * DAY, **self._values(within)}
        on_spaces = self._on_spaces(within)
        of_days = f"m.created_at BETWEEN :since AND {LAST} GROUP BY m.created_at / {DAY}"
        rows = self._execute(
            f"""SELECT m.created_at / {DAY}, count(*)
                  FROM spaces s
                  JOIN memories m {self._sql.hint("memories_by_time")} ON m.space_id = s.id
                 WHERE {on_spaces} AND {undeleted("m")} AND {of_days}
                 UNION ALL
                SELECT m.created_at / {DAY}, -count(*)
                  FROM lifecycles l
                 {self._sql.leads} memories m ON m.id = l.memory_id
                  JOIN spaces s ON s.id = m.space_id
                 WHERE {on_spaces} AND l.{ENDED} AND {undeleted("m")} AND {of_days}""",
            **given,
        )
        found: Counter[date] = Counter()
        for number, count in rows:
            found[EPOCH.date() + timedelta(days=number)] += count
        return found

    def used_at(self, project: Project) -> datetime | None:
        within = Filter(project=project)
        ((at,),) = self._execute(
            f"""SELECT max(at)
                  FROM (SELECT (SELECT max(m.created_at)
                                  FROM memories m {self._sql.hint("memories_by_time")}
                                 WHERE m.space_id = s.id AND {undeleted("m")}
                                       AND m.created_at <= {LAST}) AS at
                          FROM spaces s
                         WHERE {self._on_spaces(within)}
                         UNION ALL
                        SELECT max(started_at)
                          FROM sessions
                         WHERE project = :project AND {self._acts_on("project")}
                               AND started_at <= {LAST}) used""",
            **self._values(within),
        )
        return optional_instant(at)


async def show(visit: Visit) -> Response:
    project, after = project_of(visit.question), visit.query["after"]
    stats = await visit.memories.stats(project)
    if project is not None and project not in stats.projects:
        raise NotFound("No such project.")
    names = [Project(it) for it in stats.projects if it > after] if project is None else [project]
    engine, within = visit.console.agentops.engine, Filter(project=project)
    rows = await engine.read(visit.caller, listed, names[:SHOWN])
    days, types = await engine.read(visit.caller, activity, within)
    recent = address("/observations/recent", project=project, limit=COUNTED)
    weeks = heat_map(days, visit.console.clock().date())
    return await visit.page(
        "projects.html", section="projects", twin=[address("/stats", project=project), recent],
        stats=stats, rows=rows, weeks=weeks, types=types, selected=project, path=PATH, most=COUNTED,
        saved=sum(cell.count for week in weeks for cell in week),
        more=address(PATH, after=names[SHOWN - 1]) if len(names) > SHOWN else "",
    )  # fmt: skip


def listed(tx: Transaction, names: Iterable[Project]) -> list[Row]:
    today = tx.now.date()
    return [
        Row(
            project=it, memories=tx[MemoryTable].count(it), sessions=tx[SessionTable].count(it),
            growth=_by_week(_days(tx, Filter(project=it), today, GROWTH), today),
            used_at=tx[ActivityTable].used_at(it),
        )
        for it in names
    ]  # fmt: skip


def activity(tx: Transaction, within: Filter) -> tuple[Counter[date], list[tuple[str, int]]]:
    """How many memories were saved on each day; and the types of the newest."""
    types = counts(tx, newest(tx, within, ""))["type"]
    days = _days(tx, within, tx.now.date(), WEEKS)
    return days, sorted(types.items(), key=lambda it: (-it[1], it[0]))


def _days(tx: Transaction, within: Filter, today: date, weeks: int) -> Counter[date]:
    return tx[ActivityTable].days(within, today - timedelta(weeks=weeks))


def _by_week(days: Mapping[date, int], today: date) -> list[int]:
    """Of the last weeks, each of seven days; the last one ends today."""
    weeks: Counter[int] = Counter()
    for day, count in days.items():
        weeks[(today - day).days // 7] += count
    return [weeks[week] for week in reversed(range(GROWTH))]


def heat_map(days: Mapping[date, int], today: date) -> list[list[Cell]]:
    """Weeks from Monday to Sunday, the last one up to today."""
    monday = today - timedelta(days=today.weekday(), weeks=WEEKS - 1)
    every = [monday + timedelta(days=it) for it in range((today - monday).days + 1)]
    most = max((days.get(it, 0) for it in every), default=0) or 1
    cells = [
        Cell(day=it, count=days.get(it, 0), shade=-(-days.get(it, 0) * SHADES // most))
        for it in every
    ]
    return [cells[at : at + 7] for at in range(0, len(cells), 7)]


VIEWS = (View(path="/projects", name="projects", answer=show),)
