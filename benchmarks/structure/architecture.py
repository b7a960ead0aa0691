"""The rooms as tests/docs/test_architecture.py has them: its table, and the imports against it."""

from collections.abc import Iterator

from tests.docs.test_architecture import ALLOWED, crossings, modules

from .imports import by_module


def rows() -> int:
    """The rows of the table, each some rooms and what they may import."""
    return len(ALLOWED)


def refused() -> Iterator[str]:
    """Each import against the table."""
    for importer, imported in crossings(by_module(list(modules().values()))):
        yield f"{importer} imports {imported}"
