"""View *Review*: what is due for a look, ends soon or looks alike; a decision a line."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from markupsafe import Markup
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
COMPARED = 1200  # characters of each of two memories that look alike
MOST_OF_DIFF = 4_000  # bytes of HTML, so that twenty of them stay small
LONGER = timedelta(days=30)
FILTERS = ("project", "reason", "before")

REASONS: Mapping[str, str] = {
    ReviewReason.DUE: "Due for a look",
    ReviewReason.EXPIRES: "Ends soon",
    ReviewReason.SIMILAR: "Look-alikes",
}
# What can be decided for each reason: the action, its label and its key.
CHOICES: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    ReviewReason.DUE: (
        ("confirm", "Still true", "c"),
        ("expire", "Let it end now", "x"),
        ("delete", "Delete", "d"),
    ),
    ReviewReason.EXPIRES: (
        ("keep", "Keep it", "c"),
        ("extend", "30 more days", "m"),
        ("expire", "Let it end now", "x"),
    ),
    ReviewReason.SIMILAR: (
        ("confirm", "Both are true", "c"),
        ("newer", "Newer supersedes older", "s"),
        ("older", "Older supersedes newer", "o"),
    ),
}
DONE: Mapping[str, str] = {
    **memory.DONE,
    "extend": "It ends in 30 days now.",
    "newer": memory.DONE["supersede"],
    "older": "Agents get the older memory instead of the newer one.",
}


async def show(visit: Visit) -> Response:
    return await _shown(visit)


async def _shown(visit: Visit, *, status: int = 200, problem: str = "") -> Response:
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
        choices=CHOICES, projects=await visit.projects(), compared=_compared,
        older=address(PATH, **listed, before=told.next) if told.next else "",
        is_empty=not (told.items or (await visit.memories.stats()).total_observations),
    )  # fmt: skip


def counts(tx: Transaction, within: Filter, periods: ReviewPeriods) -> Counter[str]:
    """How many lines there are for each reason."""
    lines = tx[ReviewTable].lines(within, set(ReviewReason), periods, None, COUNTED)
    return Counter(place.reason.value for place, _ in lines)


def _compared(older: str, newer: str) -> Markup:
    return markup.compared(older[:COMPARED], newer[:COMPARED], MOST_OF_DIFF)


async def decide(visit: Visit) -> Response:
    """Do what was decided; the line that follows it is where the browser goes on."""
    form, action = visit.form, visit.form.get("action", "")
    id_, place = (memory.whole_number(form.get(name, ""), name) for name in ("id", "place"))
    if action not in ACTIONS:
        raise Invalid("A form says what is to be done.")
    try:
        await ACTIONS[action](visit, id_)
    except Refused as refusal:
        return await _shown(visit, status=refusal.status, problem=str(refusal))
    filters = {name: visit.query[name] for name in FILTERS}
    following = f"{address(PATH, **filters, done=action, about=id_)}#line-{place}"
    return RedirectResponse(following, status_code=303)


async def _extend(visit: Visit, id_: int) -> None:
    await visit.memories.update(id_, ttl=LONGER)


async def _newer(visit: Visit, id_: int) -> None:
    await memory.supersede(visit, id_, _other(visit))


async def _older(visit: Visit, id_: int) -> None:
    await memory.supersede(visit, _other(visit), id_)


def _other(visit: Visit) -> int:
    return memory.whole_number(visit.form.get("other", ""), "other")


ACTIONS: Mapping[str, memory.Action] = {
    **{name: memory.ACTIONS[name] for name in ("confirm", "expire", "keep", "delete")},
    "extend": _extend,
    "newer": _newer,
    "older": _older,
}

VIEWS = (
    View(path="/review", name="review", answer=show),
    View(path="/review", name="decide", answer=decide, role=Role.WRITER, is_form=True),
)
