"""`python -m benchmarks.recall`: what recall finds in sets of documents and judged queries."""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..process import running
from .asking import answers, load
from .company import ALONE, NOBODY, TOGETHER, Company, services
from .judged import Judged, judged
from .metrics import BUDGETS, Asked, Budget, figures_by_kind
from .tables import IN_BUDGETS, RANKINGS
from .typos import with_typos

OWN = Path(__file__).parents[2] / "tests" / "data" / "recall"
FIGURES = "figures.json"

Measured = dict[str, dict[str, float]]  # by kind of query and figure


def main() -> None:
    """Load, ask, compare, print."""
    options = _options()
    measured = {place: _measured(place, options) for place in options.folders}
    if options.json:
        _write(options.json, measured)


def _options() -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args()
    if options.write_figures and _is_special(options):
        parser.error("--write-figures goes with --kinds and --json alone")
    return options


def _parser() -> argparse.ArgumentParser:
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
    parser.add_argument("--kinds", action="store_true", help="a row for each kind of query, too")
    parser.add_argument("--typos", type=int, metavar="SEED", help="one typo in every query")
    parser.add_argument(
        "--budgets",
        action="store_const",
        const=(*BUDGETS, None),
        default=(),
        help="what a context still lists in 200, 500 and 1,000 tokens, too",
    )
    _add_company(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument(
        "--write-figures",
        action="store_true",
        help=f"write {FIGURES} into each FOLDER: what a test compares with",
    )
    return parser


def _add_company(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alone", action="store_true", help="each project in a service of its own")
    parser.add_argument(
        "--company",
        type=int,
        default=0,
        metavar="N",
        help="N further projects, saved before; 8 share a partition, so that 7 are the most"
        " company that a lone project can have, and 8 are none",
    )
    parser.add_argument(
        "--memories",
        type=int,
        default=NOBODY.memories,
        metavar="N",
        help="of each of these projects; %(default)s if it is not given",
    )


def _is_special(options: argparse.Namespace) -> bool:
    others = (options.budgets, options.alone, options.company)
    return any(others) or options.typos is not None


def _measured(place: str, options: argparse.Namespace) -> Measured:
    of = judged(place)
    if options.typos is not None:
        of = with_typos(of, options.typos)
    measured = _printed(of, options, is_alone=options.alone)
    if options.write_figures:
        figures = {TOGETHER: measured, ALONE: _printed(of, options, is_alone=True)}
        _write(Path(place.partition(":")[0]) / FIGURES, figures)
    return measured


def _printed(of: Judged, options: argparse.Namespace, *, is_alone: bool) -> Measured:
    """The figures, which are printed."""
    company = Company(strangers=options.company, memories=options.memories)
    sets = services(of, company, is_alone=is_alone)
    measured = figures_by_kind([it for one in sets for it in _asked(one, options.budgets)])
    print(f"\n{_title(of, company, is_alone=is_alone)}")
    for table in (RANKINGS, IN_BUDGETS) if options.budgets else (RANKINGS,):
        print(table.head(), table.row("all", measured["all"]), sep="\n")
        if options.kinds:
            print(*table.kinds(measured), sep="\n")
    return measured


def _asked(of: Judged, budgets: Sequence[Budget]) -> list[Asked]:
    """The answers of a new service over the set's documents alone."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder) / "memory.db") as service,
    ):
        load(service.port, of)
        return answers(service.port, of, budgets)


def _title(of: Judged, company: Company, *, is_alone: bool) -> str:
    parts = (
        f"{of.name}: {len(of.documents):,} documents, {len(of.queries):,} queries",
        "each project alone" * is_alone,
        f"strangers: {company.strangers:,} x {company.memories:,}" * bool(company.strangers),
    )
    return ", ".join(filter(None, parts))


def _write(path: Path, figures: object) -> None:
    path.write_text(json.dumps(_rounded(figures), indent=1) + "\n", "utf-8")


def _rounded(figures: object) -> object:
    if isinstance(figures, dict):
        return {name: _rounded(value) for name, value in figures.items()}
    return round(figures, 5) if isinstance(figures, float) else figures


if __name__ == "__main__":
    main()
