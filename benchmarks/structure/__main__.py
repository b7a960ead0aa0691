"""`python -m benchmarks.structure`: the budget of the sources, and the cycles of their imports."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .. import CLIENT, SERVICE
from . import architecture, budget
from .imports import by_folder, by_module, cycles, pairs
from .sources import Module, modules

LONG = 600  # lines of a file that is listed: it may hold a second noun
WIDTH = 32


def main() -> None:
    """Read, count, print."""
    sources = modules(SERVICE, CLIENT)
    print(*_budget(sources), "", *report(sources), *_architecture(), sep="\n")


def report(modules: Sequence[Module]) -> Iterator[str]:
    """The lines that tell of the sources."""
    yield from _sizes(modules)
    yield from _functions([length for module in modules for length in module.functions])
    long = [module for module in modules if module.lines > LONG]
    yield from _list(f"files over {LONG} lines", (f"{it.lines:>5}  {it.path}" for it in long))
    folders = by_folder(modules)
    yield from _list("import cycles of modules", map(", ".join, cycles(by_module(modules))))
    yield from _list("import cycles of folders", map(", ".join, cycles(folders)))
    yield from _list("folders that import each other", map(" and ".join, pairs(folders)))


def _budget(modules: Sequence[Module]) -> Iterator[str]:
    """The budget table: each figure beside its ceiling and the target."""
    yield f"{'budget':<{WIDTH}}{'now':>8}{'ceiling':>9}{'target':>8}"
    for row in budget.rows(modules):
        yield f"{row.name:<{WIDTH}}{row.figure:>8,}{row.ceiling:>9,}{row.target:>8,}"
    yield from _list("types of each noun", _counts(budget.types_of_nouns(modules)))
    places = budget.places_of_fields(modules)
    yield from _list("places of each field", (f"{n:>3}  {it}" for it, n in places.items()))


def _counts(types: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for noun, names in types.items():
        yield f"{len(names):>3}  {', '.join(names) or noun}"


def _sizes(modules: Sequence[Module]) -> Iterator[str]:
    loose = Counter(module.package for module in modules if module.is_loose)
    for package in sorted({module.package for module in modules}):
        yield _line("loose modules", loose[package], f"at the top of {package}")
    [(folder, files)] = Counter(module.folder for module in modules).most_common(1)
    yield _line("largest folder", files, f"files in {folder}")


def _functions(lengths: Sequence[int]) -> Iterator[str]:
    yield _line("functions", len(lengths))
    yield _line("  median", statistics.median_high(lengths), "lines")
    yield _line("  p90", sorted(lengths)[len(lengths) * 9 // 10], "lines")


def _architecture() -> Iterator[str]:
    yield _line("rows of the architecture table", architecture.rows())
    yield from _list("imports against the table", architecture.refused())


def _list(name: str, entries: Iterable[str]) -> Iterator[str]:
    """How many there are, and each on a line of its own."""
    kept = [f"  {entry}" for entry in entries]
    yield _line(name, len(kept))
    yield from kept


def _line(name: str, number: int, of: str = "") -> str:
    return f"{name:<{WIDTH}}{number:>6,} {of}".rstrip()


if __name__ == "__main__":
    main()
