"""How long an entry lives: a ttl, or an instant that was set and wins over it (RFC-0015 §1.1)."""

import re
from dataclasses import replace
from datetime import datetime, timedelta

from ...errors import Invalid
from ...memory.model.agent_memory import KEPT, AgentChange, Handling

TASK_LIFETIME = "task_lifetime"
PREFIX = "duration:"
LONGEST = timedelta(days=36_500)
YEAR, MONTH = 365, 30  # days
_DAY = 86_400  # seconds

_DURATION = re.compile(
    r"P(?:(?P<years>\d{1,9})Y)?(?:(?P<months>\d{1,9})M)?(?:(?P<weeks>\d{1,9})W)?"
    r"(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9}(?:[.,]\d{1,6})?)S)?)?",
    re.ASCII,
)


class BadField(Invalid):
    """A member of an entry is not what it should be, as things stand."""

    def __init__(self, field: str, said: str) -> None:
        super().__init__(f"{field} {said}.")
        self.field, self.said = field, said


def begun(handling: Handling, at: datetime) -> Handling:
    """What is said of a new entry, with its end; Invalid for one that has passed."""
    return _ending(replace(handling, is_own_expiry=handling.expires_at is not None), at)


def amended(before: Handling, change: AgentChange, at: datetime) -> Handling:
    """What is said of an entry after a change at an instant.

    A ttl counts from the change that sets it. An instant that is what it was already is
    no change; Invalid for one that has passed.
    """
    after = replace(
        before,
        tags=before.tags if change.tags is None else change.tags,
        is_pinned=before.is_pinned if change.is_pinned is None else change.is_pinned,
        priority=before.priority if change.priority is None else change.priority,
        sensitivity=before.sensitivity if change.sensitivity is KEPT else change.sensitivity,
        curated_by=before.curated_by if change.curated_by is KEPT else change.curated_by,
        ttl=before.ttl if change.ttl is KEPT else change.ttl,
    )
    if change.expires_at is KEPT:
        is_left = change.ttl is KEPT or before.is_own_expiry
        return after if is_left else _ending(replace(after, expires_at=None), at)
    if change.expires_at == before.expires_at and after.ttl == before.ttl:
        return after
    return begun(replace(after, expires_at=change.expires_at), at)


def lifetime(ttl: str) -> timedelta:
    """How long a ttl that is a duration lasts; Invalid for what is none, or nothing, or too long.

    A year has 365 days, a month 30.
    """
    found = _DURATION.fullmatch(ttl.removeprefix(PREFIX)) if ttl.startswith(PREFIX) else None
    parts = {name: said for name, said in found.groupdict().items() if said} if found else {}
    if not parts:
        raise Invalid(f"ttl must be {TASK_LIFETIME}, or {PREFIX} and a duration such as P30D.")
    number = {name: float(said.replace(",", ".")) for name, said in parts.items()}
    days = number.pop("years", 0) * YEAR + number.pop("months", 0) * MONTH
    try:
        lasts = timedelta(days=days) + timedelta(**number)
    except OverflowError:
        lasts = timedelta.max
    if not timedelta() < lasts <= LONGEST:
        raise Invalid("ttl must be more than nothing, and at most 100 years.")
    return lasts


def ttl_of(seconds: int) -> str:
    """The ttl that lasts so many seconds."""
    days, rest = divmod(seconds, _DAY)
    return f"{PREFIX}PT{seconds}S" if not days else f"{PREFIX}P{days}DT{rest}S"


def require_future(at: datetime | None, now: datetime) -> None:
    """Raise BadField for an end that has passed."""
    if at is not None and at <= now:
        raise BadField("expires_at", "must be in the future")


def _ending(handling: Handling, at: datetime) -> Handling:
    """With the end that its ttl comes to from then on, unless one was set."""
    ttl, end = handling.ttl, handling.expires_at
    require_future(end, at)
    if end is not None or ttl is None or ttl == TASK_LIFETIME:
        return handling
    return replace(handling, expires_at=at + lifetime(ttl))
