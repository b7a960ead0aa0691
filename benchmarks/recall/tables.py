"""Figures as lines of a table."""

from collections.abc import Iterator, Mapping

from .metrics import NO_HIT, Figures

MEASURES = ("recall@5", "recall@10", "nDCG@10", "MRR")
COLUMNS = (*(f"{route} {name}" for route in ("context", "search") for name in MEASURES), NO_HIT)
NAME = 26  # characters of a row's name
CELL = 9
ROUTE = len(MEASURES) * (CELL + 1) - 1


def head() -> str:
    """Two lines: the routes, and what is measured of each."""
    routes = "".join(f" | {route:{ROUTE}}" for route in ("context", "search"))
    names = [column.partition(" ")[2] if column != NO_HIT else column for column in COLUMNS]
    return f"{'':{NAME}}{routes} |\n{'':{NAME}}{_cells(names)}"


def row(name: str, figures: Figures) -> str:
    """The figures under their names."""
    return f"{name:{NAME}}{_cells([f'{figures[column]:.3f}' for column in COLUMNS])}"


def differences(first: Figures, figures: Figures) -> str:
    """How far the figures are from the first ones, in points."""
    points = [f"{(figures[column] - first[column]) * 100:+.1f}" for column in COLUMNS]
    return f"{'  points':{NAME}}{_cells(points)}"


def kinds(groups: Mapping[str, Figures]) -> Iterator[str]:
    """A row for each kind of query."""
    for kind, figures in groups.items():
        if kind != "all":
            yield row(f"  {kind}", figures)


def _cells(texts: list[str]) -> str:
    """Three groups of cells: a route, a route, and what is left."""
    width = len(MEASURES)
    groups = (texts[:width], texts[width : 2 * width], texts[2 * width :])
    return "".join(" | " + " ".join(f"{text:>{CELL}}" for text in group) for group in groups)
