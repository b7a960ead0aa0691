"""Ages in words, as they stand behind a memory's title."""

MINUTE, HOUR, DAY = 60, 3600, 86_400
UNITS = (
    (365 * DAY, "year"), (30 * DAY, "month"), (7 * DAY, "week"), (DAY, "day"), (HOUR, "hour"),
    (MINUTE, "minute"),
)  # fmt: skip
JUST_NOW = "just now"


def age_words(seconds: float) -> str:
    """The age in its largest whole unit, rounded down; `just now` below a minute."""
    for length, unit in UNITS:
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return JUST_NOW


def age_suffix(seconds: float) -> str:
    """What follows a title, such as ` (3 weeks old)`."""
    words = age_words(seconds)
    return f" ({words})" if words == JUST_NOW else f" ({words} old)"
