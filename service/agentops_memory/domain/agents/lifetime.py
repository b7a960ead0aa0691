"""How long an entry lives: `duration:` and an ISO 8601 duration (RFC-0015 §1.1). Pure."""

import re
from datetime import timedelta

from ..errors import Invalid

TASK_LIFETIME = "task_lifetime"
PREFIX = "duration:"
LONGEST = timedelta(days=36_500)
YEAR, MONTH = 365, 30  # days

_DURATION = re.compile(
    r"P(?:(?P<years>\d{1,9})Y)?(?:(?P<months>\d{1,9})M)?(?:(?P<weeks>\d{1,9})W)?"
    r"(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9}(?:[.,]\d{1,6})?)S)?)?",
    re.ASCII,
)


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
