"""Compare and write: a change that expects a memory to be in a certain state."""

from ..errors import Conflict
from .model.memory import Expected, Memory


class Stale(Conflict):
    """A precondition was not met by the memory as it is now."""

    code = "stale"

    def __init__(self, current: Memory) -> None:
        super().__init__("The memory has changed: it is not in the expected state.")
        self.current = current


def require_state(memory: Memory, expected: Expected) -> None:
    """Raise Stale unless the memory, read in the transaction of the write, is as expected."""
    if not expected.met_by(memory):
        raise Stale(memory)
