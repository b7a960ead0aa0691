"""The modules below a folder: where they lie, how long they are, what functions they define."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath

FRONTS = ("__init__", "__main__")  # modules that a package has to have at its top


@dataclass(frozen=True)
class Module:
    """A source file, and its place below the folder of all packages."""

    path: PurePath
    text: str

    @property
    def name(self) -> str:
        """The dotted name; that of a package stands for its `__init__`."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if self.is_package else parts)

    @property
    def is_package(self) -> bool:
        """Whether it is the `__init__` of one."""
        return self.path.stem == "__init__"

    @property
    def is_loose(self) -> bool:
        """Whether it lies at the top of a package, in no folder."""
        return len(self.path.parts) == 2 and self.path.stem not in FRONTS

    @property
    def package(self) -> str:
        """The package at the top that it belongs to."""
        return self.path.parts[0]

    @property
    def folder(self) -> str:
        """Where it lies."""
        return str(self.path.parent)

    @property
    def part(self) -> str:
        """Its folder; at the top of a package, where each stands for itself, its own path."""
        return str(self.path) if len(self.path.parts) == 2 else self.folder

    @property
    def lines(self) -> int:
        """How long it is, with blank lines and comments."""
        return self.text.count("\n")

    @cached_property
    def tree(self) -> ast.Module:
        """What it says."""
        return ast.parse(self.text)

    @property
    def functions(self) -> Iterator[int]:
        """The lines of each function's body, without its docstring."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                yield (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


def modules(*folders: Path) -> list[Module]:
    """Every module of the packages that lie in the folders, in the order of the paths."""
    return [
        Module(path.relative_to(folder), path.read_text("utf-8"))
        for folder in folders
        for package in sorted(folder.glob("*/__init__.py"))
        for path in sorted(package.parent.rglob("*.py"))
    ]
