"""View *Review*: what is due for a look, ends soon or looks alike; a decision a line."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from starlette.responses import RedirectResponse, Response

from agentops_memory_client.contract.errors import Refused

from ..agentops.recall import project_of
from ..engine.engine import Transaction
from ..errors import Invalid
from ..memory.lifecycles import ReviewPeriods, ReviewReason, ReviewTable
from ..memory.model.access import Role
from ..memory.model.search import Filter
from . import markup, memory
from .page import PREFIX, View, Visit, address

PATH = f"{PREFIX}/review"
SHOWN = 20  # lines of a page
COUNTED = 1000  # lines at most, as many as a list of REST has
COMPARED, MOST_OF_DIFF = 1200, 4_000  # characters of each look-alike, and bytes of HTML of both
LONGER = timedelta(days=30)
FILTERS = ("project", "reason", "before")

REASONS: Mapping[str, str] = {
    ReviewReason.DUE: "Due for a look",
    ReviewReason.EXPIRES: "Ends soon",
    ReviewReason.SIMILAR: "Look-alikes",
}
CHOICES: Mapping[str, Mapping[str, str]] = {
    ReviewReason.DUE: {
        "confirm": "Still true", "expire": "Let it end now", "delete": "Delete",
    },
    ReviewReason.EXPIRES: {
        "keep": "Keep it", "extend": "30 more days", "expire": "Let it end now",
    },
    ReviewReason.SIMILAR: {
        "confirm": "Both are true", "newer": "Newer supersedes",
        "older": "Older supersedes",
    },
}  # fmt: skip
KEYS: Mapping[str, str] = {
    "confirm": "c", "keep": "c", "expire": "x", "delete": "d", "extend": "m", "newer": "s",
    "older": "o",
}  # fmt: skip
DONE: Mapping[str, str] = {
    **memory.DONE,
    "extend": "It ends in 30 days now.",
    "newer": memory.DONE["supersede"],
    "older": "Agents get the older memory instead of the newer one.",
}


async def show(visit: Visit, *, status: int = 200, problem: str = "") -> Response:
    filters = {name: visit.query[name] for name in FILTERS}
    api = visit.console.agentops
    told = await api.review(visit.question_of(**filters, limit=SHOWN))
    within = Filter(project=project_of(visit.question))
    count = await api.engine.read(visit.caller, counts, within, api.periods)
    listed = {name: filters[name] for name in ("project", "reason")}
    return await visit.page(
        "review.html", section="review", twin=address("/review", **filters, limit=SHOWN),
        status=status, problem=problem, done=DONE.get(visit.query["done"], ""), path=PATH,
        here=address(PATH, **filters), told=told, count=count, most=COUNTED, reasons=REASONS,
        choices=CHOICES, keys=KEYS, projects=await visit.projects(), compared=markup.compared,
        cut=(COMPARED, MOST_OF_DIFF), older=told.next and address(PATH, **listed, before=told.next),
        is_empty=not (told.items or (await visit.memories.stats()).total_observations),
    )  # fmt: skip


def counts(tx: Transaction, within: Filter, periods: ReviewPeriods) -> Counter[str]:
    """How many lines there are for each reason."""
    lines = tx[ReviewTable].lines(within, set(ReviewReason), periods, None, COUNTED)
    return Counter(place.reason.value for place, _ in lines)


async def decide(visit: Visit) -> Response:
    """Do what was decided; the line that follows it is where the browser goes on."""
    form, action = visit.form, visit.form.get("action", "")
    id_, other, place = (
        memory.whole_number(form.get(name) or form.get("id", ""), name)
        for name in ("id", "other", "place")
    )
    if action not in KEYS:
        raise Invalid("A form says what is to be done.")
    try:
        match action:
            case "newer":
                await memory.supersede(visit, id_, other)
            case "older":
                await memory.supersede(visit, other, id_)
            case "extend":
                await visit.memories.update(id_, ttl=LONGER)
            case _:
                await memory.ACTIONS[action](visit, id_)
    except Refused as refusal:
        return await show(visit, status=refusal.status, problem=str(refusal))
    filters = {name: visit.query[name] for name in FILTERS}
    following = f"{address(PATH, **filters, done=action, about=id_)}#line-{place}"
    return RedirectResponse(following, status_code=303)


VIEWS = (
    View(path="/review", name="review", answer=show),
    View(path="/review", name="decide", answer=decide, role=Role.WRITER, is_form=True),
)
