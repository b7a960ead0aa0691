"""Figures as lines of a table."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .metrics import BUDGETS, NO_HIT, TOKENS, Figures, kept_in, recall_in, tokens_in

NAME = 26  # characters of a row's name
MEASURES = ("recall@5", "recall@10", "nDCG@10", "MRR")

Columns = Mapping[str, str]  # a column's name, and the figure in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Groups of columns, each below its title."""

    groups: Mapping[str, Columns]
    cell: int  # characters of a figure

    def head(self) -> str:
        """Two lines: the titles, and the names of the columns."""
        titles = "".join(
            f" | {title:{len(columns) * (self.cell + 1) - 1}}"
            for title, columns in self.groups.items()
        )
        names = {
            figure: name for columns in self.groups.values() for name, figure in columns.items()
        }
        return f"{'':{NAME}}{titles.rstrip()}\n{self._line('', names)}"

    def row(self, name: str, figures: Figures) -> str:
        """The figures below the names."""
        return self._line(name, {figure: _shown(figure, it) for figure, it in figures.items()})

    def kinds(self, groups: Mapping[str, Figures]) -> Iterator[str]:
        """A row for each kind of query."""
        for kind, figures in groups.items():
            if kind != "all":
                yield self.row(f"  {kind}", figures)

    def _line(self, name: str, texts: Mapping[str, str]) -> str:
        groups = (
            " ".join(f"{texts[figure]:>{self.cell}}" for figure in columns.values())
            for columns in self.groups.values()
        )
        return f"{name:{NAME}}" + "".join(f" | {group}" for group in groups)


def _shown(figure: str, value: float) -> str:
    return f"{value:.0f}" if figure.startswith(TOKENS) else f"{value:.3f}"


def _by_budget(figure_in: Callable[[int], str]) -> dict[str, str]:
    return {f"{budget:,}": figure_in(budget) for budget in BUDGETS}


RANKINGS = Table(
    groups={
        "context": {name: f"context {name}" for name in MEASURES},
        "search": {name: f"search {name}" for name in MEASURES},
        "": {NO_HIT: NO_HIT},
    },
    cell=9,
)
IN_BUDGETS = Table(
    groups={
        "context recall@5 in tokens": _by_budget(recall_in) | {"any": recall_in(None)},
        "share of recall@5": _by_budget(kept_in),
        "tokens taken": _by_budget(tokens_in) | {"any": tokens_in(None)},
    },
    cell=7,
)
