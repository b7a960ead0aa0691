"""Who imports whom, among modules and among folders, wherever the import stands."""

import ast
from collections.abc import Iterator, Mapping, Sequence

from .sources import Module

Graph = Mapping[str, set[str]]


def by_module(modules: Sequence[Module]) -> Graph:
    """The modules that each module imports."""
    known = {module.name for module in modules}
    return {module.name: set(_imported(module, known)) for module in modules}


def by_folder(modules: Sequence[Module]) -> Graph:
    """The folders that each folder imports from, but for itself."""
    folders = {module.name: module.part for module in modules}
    graph: dict[str, set[str]] = {folder: set() for folder in folders.values()}
    for importer, imported in by_module(modules).items():
        here = folders[importer]
        graph[here] |= {folders[name] for name in imported} - {here}
    return graph


def cycles(graph: Graph) -> list[list[str]]:
    """The largest groups of which each member is reached from each other one."""
    reached = {node: _reached(graph, node) for node in graph}
    groups = {
        frozenset(other for other in others if node in reached[other])
        for node, others in reached.items()
    }
    return sorted(sorted(group) for group in groups if group)


def pairs(graph: Graph) -> list[tuple[str, str]]:
    """Two and two that import each other: the shortest cycles."""
    both = ((one, other) for one, others in graph.items() for other in others if one < other)
    return sorted((one, other) for one, other in both if one in graph[other])


def _reached(graph: Graph, start: str) -> set[str]:
    """All that imports lead to; the start itself only in a cycle."""
    found: set[str] = set()
    open_ends = [start]
    while open_ends:
        new = graph[open_ends.pop()] - found
        found |= new
        open_ends += new
    return found


def _imported(module: Module, known: set[str]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(_origin(module, node), node, known)


def _from(origin: str, node: ast.ImportFrom, known: set[str]) -> Iterator[str]:
    """What is taken from a package may be a module of it; all else is the package's own."""
    for alias in node.names:
        name = f"{origin}.{alias.name}"
        yield from (name,) if name in known else (origin,) if origin in known else ()


def _origin(module: Module, node: ast.ImportFrom) -> str:
    """The dotted name behind `from`, of which the dots count upwards from the module."""
    if not node.level:
        return node.module or ""
    above = module.path.parts[: -node.level]
    return ".".join([*above, *([node.module] if node.module else [])])
