"""`python -m benchmarks.recall`: what recall finds in sets of documents and judged queries."""

import argparse
import json
from pathlib import Path

from . import tables
from .configurations import NAMES, Configurations, asked, each, single
from .judged import Judged, judged
from .metrics import figures_by_kind
from .typos import with_typos

OWN = Path(__file__).parents[2] / "tests" / "data" / "recall"
FIGURES = "figures.json"

Groups = dict[str, dict[str, float]]  # of each kind of query, and of all


def main() -> None:
    """Load, ask, compare, print."""
    options = _options()
    measured = {place: _measured(place, options) for place in options.folders}
    if options.json:
        _write(options.json, measured)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=__doc__)
    parser.add_argument(
        "folders",
        nargs="*",
        default=[str(OWN)],
        metavar="FOLDER[:DOCUMENTS]",
        help="a folder with documents.jsonl (id, project, session, title, text) and queries.jsonl"
        " (project, query, relevant); tags, scope and kind if they have them; or one with queries"
        " alone, and after a colon the folder of their documents; without any, the set that"
        " the tests watch",
    )
    off = parser.add_mutually_exclusive_group()
    off.add_argument(
        "--without",
        type=_names,
        default=(),
        metavar="NAME[,NAME]",
        help=f"techniques to switch off: {', '.join(NAMES)}",
    )
    off.add_argument("--each", action="store_true", help="each technique off alone, and all off")
    parser.add_argument("--kinds", action="store_true", help="a row for each kind of query, too")
    parser.add_argument("--typos", type=int, metavar="SEED", help="one typo in every query")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument(
        "--write-figures",
        action="store_true",
        help=f"write {FIGURES} into each FOLDER: what a test compares with",
    )
    options = parser.parse_args()
    if options.write_figures and (options.each or options.without or options.typos is not None):
        parser.error("--write-figures is for everything on and nothing mistyped")
    return options


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := set(names) - set(NAMES):
        raise argparse.ArgumentTypeError(f"no technique is called {', '.join(sorted(unknown))}")
    return names


def _measured(place: str, options: argparse.Namespace) -> dict[str, Groups]:
    of = judged(place)
    if options.typos is not None:
        of = with_typos(of, options.typos)
    configurations = each() if options.each else single(options.without)
    print(f"\n{of.name}: {len(of.documents):,} documents, {len(of.queries):,} queries")
    measured = _rows(of, configurations, kinds=options.kinds)
    if options.write_figures:
        _write(Path(place.partition(":")[0]) / FIGURES, *measured.values())
    return measured


def _rows(of: Judged, configurations: Configurations, *, kinds: bool) -> dict[str, Groups]:
    """The figures of each configuration; each is printed when it is known."""
    measured: dict[str, Groups] = {}
    print(tables.head())
    for name, without in configurations.items():
        groups = measured[name] = figures_by_kind(asked(of, without))
        print(tables.row(name, groups["all"]))
        first = next(iter(measured.values()))
        if groups is not first:
            print(tables.differences(first["all"], groups["all"]))
        if kinds:
            print(*tables.kinds(groups), sep="\n")
    return measured


def _write(path: Path, figures: object) -> None:
    path.write_text(json.dumps(_rounded(figures), indent=1) + "\n", "utf-8")


def _rounded(figures: object) -> object:
    if isinstance(figures, dict):
        return {name: _rounded(value) for name, value in figures.items()}
    return round(figures, 5) if isinstance(figures, float) else figures


if __name__ == "__main__":
    main()
