"""View *Review*: what is due for a look, ends soon or looks alike; a decision a line."""

from collections import Counter
from datetime import timedelta
from typing import Any

from starlette.responses import Response

from agentops_memory_client.contract.errors import Refused

from ..agentops.operations import project_of
from ..engine.engine import Transaction
from ..memory.lifecycles import ReviewPeriods, ReviewReason, ReviewTable
from ..memory.search import Filter
from . import memory
from .page import PREFIX, Visit, address, project_names

PATH = f"{PREFIX}/review"
ROWS = 20  # lines of a page
COUNTED = 1000  # lines at most, as many as a list of REST has
COMPARED, MOST_OF_DIFF = 1200, 4_000  # characters of each look-alike, and bytes of HTML of both
LONGER = timedelta(days=30)
FILTERS = ("project", "reason", "before")


async def show(visit: Visit, *, status: int = 200, problem: str = "", **values: Any) -> Response:
    filters, api = visit.only(*FILTERS), visit.console.agentops
    due = await api.review(visit.question_of(**filters, limit=ROWS))
    count = await visit.read(counts, Filter(project=project_of(visit.question)), api.periods)
    return await visit.page(
        "review.html", address("/review", **filters, limit=ROWS), status=status, problem=problem,
        filters=filters, due=due, count=count, most=COUNTED, cut=(COMPARED, MOST_OF_DIFF),
        projects=await visit.read(project_names), **values,
    )  # fmt: skip


def counts(tx: Transaction, within: Filter, periods: ReviewPeriods) -> Counter[str]:
    lines = tx[ReviewTable].lines(within, set(ReviewReason), periods, None, COUNTED)
    return Counter(key.reason.value for key, _ in lines)


async def decide(visit: Visit) -> Response:
    """Apply a decision to what was seen; the browser continues at the line that follows."""
    form, action = visit.form, visit.form.get("action", "")
    id_, other, line = (
        memory.whole_number(form.get(name) or form.get("id", ""), name)
        for name in ("id", "other", "place")
    )
    try:
        if unseen := await memory.unseen(visit):
            return await show(visit, status=409, unseen=unseen)
        match action:
            case "newer":
                await memory.supersede(visit, id_, other)
            case "older":
                await memory.supersede(visit, other, id_)
            case "extend":
                revision = memory.revisions_of(visit).get(id_)
                await visit.memories.update(id_, ttl=LONGER, revision=revision)
            case _:
                await memory.perform(visit, id_, action)
    except Refused as refusal:
        return await show(visit, status=refusal.status, problem=str(refusal))
    filters = visit.only(*FILTERS)
    return visit.see(PATH, anchor=f"#line-{line}", **filters, done=action, about=id_)
