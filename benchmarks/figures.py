"""A figure and its aim, as rows of plain text."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a figure should be."""

    bound: float
    is_least: bool = False

    def is_met(self, value: float) -> bool:
        """Whether the value is on the right side of the bound."""
        return value >= self.bound if self.is_least else value <= self.bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row: a value beside its aim. Without a value, `beside` says why there is none."""

    what: str
    value: float | None
    aim: Aim | None = None
    unit: str = "x"
    beside: str = ""

    def __str__(self) -> str:
        value = "-" if self.value is None else f"{self.value:,.2f} {self.unit}"
        return f"{self.what:<70}{value:>13}   {self._verdict()}\n    {self.beside}"

    def _verdict(self) -> str:
        if self.aim is None:
            return ""
        side = "at least" if self.aim.is_least else "at most"
        aim = f"{side} {self.aim.bound:,.4g} {self.unit}"
        return f"{aim:<20} {self._outcome(self.aim)}"

    def _outcome(self, aim: Aim) -> str:
        if self.value is None:
            return "not measured"
        return "met" if aim.is_met(self.value) else "MISSED"


def at_most(bound: float) -> Aim:
    """No more than this."""
    return Aim(bound=bound)


def at_least(bound: float) -> Aim:
    """No less than this."""
    return Aim(bound=bound, is_least=True)


def show(figures: Iterable[Figure]) -> None:
    """Print each as soon as it is known."""
    for figure in figures:
        print(figure, flush=True)
