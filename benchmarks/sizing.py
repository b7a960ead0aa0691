"""`python -m benchmarks.sizing`: disk, memory and time that so many memories take."""

from collections.abc import Mapping

from . import footprint
from .footprint import Column
from .plan import parser, prepared
from .seeding import Size

SIZES = (10_000, 100_000, 1_000_000)
REDUCED = (1_000, 10_000)
IN_A_PROJECT = 1_000  # memories


def main() -> None:
    """Seed, start, drive, and print a table."""
    options = parser("benchmarks.sizing", __doc__)
    options.add_argument("--sizes", type=int, nargs="+", metavar="ROWS", help="instead of these")
    given = options.parse_args()
    columns = {}
    with prepared(given) as made:
        for rows in given.sizes or (SIZES if given.full else REDUCED):
            size = Size(rows=rows, projects=max(1, rows // IN_A_PROJECT))
            columns[rows] = footprint.measured(made, size)
            print(f"{rows:,} memories are measured.", flush=True)
    print(table(columns))


def table(columns: Mapping[int, Column]) -> str:
    """A row for each figure; at its end, how much of it the most memories take to the fewest."""
    fewest, most = min(columns), max(columns)
    head = ["memories", *(f"{rows:,}" for rows in columns), f"{most / fewest:,.3g} times as many"]
    rows = [head, ["---"] * len(head)]
    for what in columns[fewest]:
        values = [column.get(what) for column in columns.values()]
        grown = _ratio(columns[fewest].get(what), columns[most].get(what))
        rows.append([what, *map(_number, values), grown])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def _ratio(first: float | None, last: float | None) -> str:
    return f"{last / first:,.2f}" if first and last is not None else "-"


if __name__ == "__main__":
    main()
