"""Writes of what was screened: a value that is registered meanwhile holds for them, too."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...memory.model.access import Caller
from ...memory.model.stores import Written
from ...memory.redactor import Redaction, Redactor
from .screen import Screen

T = TypeVar("T")

IsCurrent = Callable[[], bool]
"""Whether the values of a screen are those of now; if not, a write raises ScreenOutdated."""


class ScreenOutdated(Exception):
    """A value was registered after the entry was screened, and before it is written."""


def screen_of(redaction: Redaction, caller: Caller) -> Screen:
    """The screen of what a caller writes now."""
    return Screen(Redactor(redaction.rules(caller)))


def currency(redaction: Redaction, caller: Caller, screen: Screen) -> IsCurrent:
    """What tells whether the screen is still the caller's."""
    return lambda: redaction.rules(caller).values == screen.redactor.rules.values


async def written(
    redaction: Redaction, caller: Caller, write: Callable[[Screen, IsCurrent], Awaitable[T]]
) -> Written[T]:
    """What is written through a screen, which is done again as long as its values are outdated."""
    while True:
        screen = screen_of(redaction, caller)
        try:
            done = await write(screen, currency(redaction, caller, screen))
        except ScreenOutdated:
            continue
        return Written(value=done, redacted=screen.redactor.count)
