"""The architecture as tests/test_architecture.py has it: its table, and what that refuses."""

from collections.abc import Iterator

from tests.test_architecture import ALLOWED, allowed, imported, is_allowed


def rows() -> int:
    """The rows of the table, each a part and what it may import."""
    return len(ALLOWED)


def refused() -> Iterator[str]:
    """Each import that goes up, against the table."""
    for name, target, is_ours in imported():
        if is_ours and not is_allowed(target, allowed(name)):
            yield f"{name} imports {target}"
