"""`python -m benchmarks.structure`: the size of the sources, and the cycles of their imports."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from .. import CLIENT, SERVICE
from . import architecture
from .imports import by_folder, by_module, cycles, pairs
from .sources import Module, modules

LONG = 300  # lines of a file that is listed
WIDTH = 32


def main() -> None:
    """Read, count, print."""
    print(*report(modules(SERVICE, CLIENT)), *_architecture(), sep="\n")


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


def _sizes(modules: Sequence[Module]) -> Iterator[str]:
    yield _line("lines", sum(module.lines for module in modules))
    yield _line("files", len(modules))
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
    yield from _list("upward imports", architecture.refused())


def _list(name: str, entries: Iterable[str]) -> Iterator[str]:
    """How many there are, and each on a line of its own."""
    kept = [f"  {entry}" for entry in entries]
    yield _line(name, len(kept))
    yield from kept


def _line(name: str, number: int, of: str = "") -> str:
    return f"{name:<{WIDTH}}{number:>6,} {of}".rstrip()


if __name__ == "__main__":
    main()
