"""`python -m benchmarks.calls`: the functions and files that a request passes on its way."""

import argparse
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from .requests import requests
from .tracing import Trace, traced

HEAD = ("request", "calls", "functions", "files", "ceiling", "target", "changes of file")
WIDTHS = (36, 7, 11, 7, 9, 8, 17)

# The most files of a request, which may only be lowered, and the target of the redesign.
BUDGET: Mapping[str, tuple[int, int]] = {
    "GET /context": (19, 20),
    "POST /observations": (24, 20),
    "PATCH OpenIntent entry, If-Match": (27, 25),
    "mem_save, MCP": (46, 30),
}


def main() -> None:
    """Start, ask, print a row for each request."""
    options = _options()
    print(_row(HEAD))
    with (
        tempfile.TemporaryDirectory() as folder,
        traced(Path(folder)) as tracer,
        requests(tracer.port) as asked,
    ):
        for name, ask in asked.items():
            _show(name, tracer.trace(ask), is_long=options.files)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument(
        "--files", action="store_true", help="below each request, the calls of each file it passed"
    )
    return parser.parse_args()


def _show(name: str, trace: Trace, *, is_long: bool) -> None:
    files = trace.files
    limits = BUDGET.get(name, ("", ""))
    figures = (len(trace.calls), trace.functions, len(files), *limits, trace.changes)
    print(_row((name, *figures)), flush=True)
    if is_long:
        print(*(f"{calls:>8}  {file}" for file, calls in files.items()), sep="\n")


def _row(cells: Iterable[object]) -> str:
    name, *numbers = cells
    wide = (f"{number:>{width}}" for number, width in zip(numbers, WIDTHS[1:], strict=True))
    return f"{name:<{WIDTHS[0]}}{''.join(wide)}"


if __name__ == "__main__":
    main()
