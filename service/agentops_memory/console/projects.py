"""View *Projects*: how much each holds, how it grows, its types, and the days on which it grew."""

from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta

from starlette.responses import Response

from agentops_memory_client.contract.errors import NotFound

from ..agentops.recall import project_of
from ..engine.engine import Transaction
from ..memory.memories import MemoryTable
from ..memory.model.liveness import live
from ..memory.model.rows import LAST
from ..memory.model.search import Filter
from ..memory.model.space import Project
from ..memory.model.table import FilteredTable
from ..memory.projects import Listed
from ..memory.sessions import SessionTable
from ..recall.text.instants import EPOCH
from .page import View, Visit, address
from .search import COUNTED, counts, newest

SHOWN = 40  # projects of a page
WEEKS = 53  # of the heat map
GROWTH = 12  # weeks of a project in the list
DAY = 86_400_000_000  # microseconds


@dataclass(eq=False)
class ActivityTable(FilteredTable):
    """When memories were saved: the live ones, as the statistics count them."""

    def days(self, within: Filter, since: date) -> Counter[date]:
        rows = self._execute(
            f"""SELECT m.created_at / {DAY}, count(*)
                  FROM spaces s
                  JOIN memories m {self._sql.hint("memories_by_time")} ON m.space_id = s.id
                 WHERE {self._on_spaces(within)} AND {live("m")}
                       AND m.created_at BETWEEN :since AND {LAST}
              GROUP BY m.created_at / {DAY}""",
            since=(since - EPOCH.date()).days * DAY,
            **self._values(within),
        )
        return Counter({EPOCH.date() + timedelta(days=day): count for day, count in rows})


async def show(visit: Visit) -> Response:
    project, after = project_of(visit.question), visit.query["after"]
    stats = await visit.memories.stats(project)
    if project is not None and project not in stats.projects:
        raise NotFound("No such project.")
    names = [Project(it) for it in stats.projects if it > after] if project is None else [project]
    rows = await visit.read(lambda tx: [listed(tx, it) for it in names[:SHOWN]])
    days, types = await visit.read(activity, Filter(project=project))
    recent = address("/observations/recent", project=project, limit=COUNTED)
    return await visit.page(
        "projects.html", address("/stats", project=project), recent, stats=stats, rows=rows,
        weeks=heat_map(days, visit.console.clock().date()), types=types, selected=project,
        most=COUNTED, most_of_day=max(days.values(), default=1), has_more=len(names) > SHOWN,
    )  # fmt: skip


def listed(tx: Transaction, project: Project) -> tuple[Listed, list[int]]:
    """A project, and how many memories were saved in each of the last weeks, the latest last."""
    memories, sessions, within = tx[MemoryTable], tx[SessionTable], Filter(project=project)
    today, growth = tx.now.date(), [0] * GROWTH
    since = today - timedelta(days=7 * GROWTH - 1)
    for day, count in tx[ActivityTable].days(within, since).items():
        if day <= today:  # unless the clock went back
            growth[(day - since).days // 7] += count
    used = [it.created_at for it in memories.newest(within, 1)]
    used += [it.ended_at or it.started_at for it in sessions.newest(project, 1)]
    counted = memories.count(project), sessions.count(project)
    return Listed(project, *counted, max(used, default=None)), growth


def activity(tx: Transaction, within: Filter) -> tuple[Counter[date], Counter[str]]:
    """How many memories were saved on each day; and the types of the newest."""
    since = tx.now.date() - timedelta(weeks=WEEKS)
    return tx[ActivityTable].days(within, since), counts(tx, newest(tx, within, ""))["type"]


def heat_map(days: Counter[date], today: date) -> list[list[tuple[date, int]]]:
    """The count of each day, by weeks from Monday to Sunday; the last one goes up to today."""
    monday = today - timedelta(days=today.weekday(), weeks=WEEKS - 1)
    every = [monday + timedelta(days=it) for it in range((today - monday).days + 1)]
    return [[(it, days[it]) for it in every[at : at + 7]] for at in range(0, len(every), 7)]


VIEWS = (View(path="/projects", name="projects", answer=show),)
