"""Lists of reviews: what is asked, and what is answered. Pure."""

import re
from collections.abc import Collection

from agentops_memory_client.contract import models as c

from ..errors import Invalid
from ..http.requests import Query, parameter
from ..memory.model.memory import MemoryId
from ..memory.model.review import ReviewItem, ReviewList, ReviewPlace, ReviewReason
from ..memory.reviews import EVERY_REASON
from ..recall.text.instants import EPOCH, MICROSECOND
from . import wire
from .wire import MOST_BESIDE

_REASONS = ", ".join(ReviewReason)
_PLACE = re.compile(
    rf"(-?\d{{1,18}})-({'|'.join(ReviewReason)})-(\d{{1,18}})-(\d{{1,18}})", re.ASCII
)


def reasons(query: Query) -> Collection[ReviewReason]:
    """The reason that is asked for; every one if none is."""
    reason = parameter(query, "reason")
    if reason is None:
        return EVERY_REASON
    if reason not in set(ReviewReason):
        raise Invalid(f"reason must be one of {_REASONS}.")
    return {ReviewReason(reason)}


def place(text: str | None) -> ReviewPlace | None:
    """The place that `next` of a list named."""
    if text is None:
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise Invalid("before is not the next of a list of reviews.")
    micros, reason, memory, other = match.groups()
    try:
        at = EPOCH + int(micros) * MICROSECOND
    except OverflowError:
        raise Invalid("before is not the next of a list of reviews.") from None
    return ReviewPlace(at, ReviewReason(reason), MemoryId(int(memory)), MemoryId(int(other)))


async def listed(told: ReviewList) -> c.ReviewList:
    """The lines that one answer can hold, and where the next begin."""
    fit = await wire.held(list(map(_item, told.items)), beside=MOST_BESIDE)
    follows = told.items[len(fit) - 1].place if fit.omitted and fit else told.next
    return c.ReviewList(items=fit, next=None if follows is None else _name(follows))


def _item(item: ReviewItem) -> c.ReviewItem:
    return c.ReviewItem(
        reason=item.place.reason.value,
        at=item.place.at,
        observation=wire.observation(item.memory),
        other=None if item.other is None else wire.observation(item.other),
        score=None if item.score is None else round(item.score, 2),
    )


def _name(place: ReviewPlace) -> str:
    at = (place.at - EPOCH) // MICROSECOND
    return f"{at}-{place.reason.value}-{place.memory}-{place.other}"
