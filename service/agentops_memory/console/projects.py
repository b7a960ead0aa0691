"""View *Projects*: how much each holds, how it grows, its types, and the days on which it grew."""

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta

from starlette.responses import Response

from agentops_memory_client.contract.models import NotFound

from ..agentops.operations import project_of
from ..engine.engine import Transaction
from ..light import dataclass
from ..memory.memories import MemoryTable
from ..memory.memory import live
from ..memory.projects import Listed
from ..memory.rows import LAST
from ..memory.search import Filter
from ..memory.sessions import SessionTable
from ..memory.space import Project
from ..memory.table import FilteredTable
from ..recall.instants import EPOCH
from .memories import COUNTED, facets_of, newest
from .page import Visit, address

ROWS = 40  # projects of a page
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


async def show(visit: Visit) -> Response:
    project, after = project_of(visit.question), visit.query["after"]
    stats = await visit.memories.stats(project)
    if project is not None and project not in stats.projects:
        raise NotFound("No such project.")
    names = [Project(it) for it in stats.projects if it > after] if project is None else [project]
    rows, days, types = await visit.read(activity, Filter(project=project), names[:ROWS])
    recent = address("/observations/recent", project=project, limit=COUNTED)
    return await visit.page(
        "projects.html", address("/stats", project=project), recent, stats=stats, rows=rows,
        weeks=heat_map(days, visit.console.clock().date()), types=types, selected=project,
        most=COUNTED, most_of_day=max(days.values(), default=1), has_more=len(names) > ROWS,
    )  # fmt: skip


def listed(tx: Transaction, project: Project) -> Listed:
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
    rows = [(listed(tx, it), growth[it]) for it in names]
    return rows, days, facets_of(tx, newest(tx, within, ""))["type"]


def heat_map(days: Counter[date], today: date) -> list[list[tuple[date, int]]]:
    """The count of each day, by weeks from Monday to Sunday; the last one goes up to today."""
    monday = today - timedelta(days=today.weekday(), weeks=WEEKS - 1)
    every = [monday + timedelta(days=it) for it in range((today - monday).days + 1)]
    return [[(it, days[it]) for it in every[at : at + 7]] for at in range(0, len(every), 7)]
