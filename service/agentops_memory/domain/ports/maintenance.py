"""What jobs, probes and gauges ask of storage: that it keeps itself in order, and how it is."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ..model.access import Caller
from ..model.maintenance import Condition, Repaired, Scrubbed, Sizes, Tidied
from ..model.totals import Rows

Progress = Callable[[str], None]
"""Told of each step before it is taken."""


def noop(*_: object) -> None:
    """A callback for those who need not be told."""


class Maintenance(Protocol):
    """What an engine does for the storage of a tenant; others read and write meanwhile.

    Refuses as a read or a write does.
    """

    async def check(self, caller: Caller, *, thorough: bool = False) -> Condition:
        """Look at every value; when thorough at all of the storage, however long that takes.

        What is found is known from then on.
        """

    async def repair(self, caller: Caller) -> Repaired:
        """Make again what is damaged and can be made of the rows. Rows are never touched."""

    async def tidy(self, caller: Caller) -> Tidied:
        """Bring the full-text index in line with the memories, and into balance."""

    async def scrub(self, caller: Caller, progress: Progress = noop) -> Scrubbed:
        """Let the bytes of what was erased so far leave the storage; a single try.

        Receipts are settled once nothing is left. While a read or another process holds it back
        they stay pending, and nothing is promised.
        """

    async def sizes(self, caller: Caller) -> Sizes:
        """How much room the storage takes."""

    async def count(self, caller: Caller) -> Rows:
        """How many rows there are. NotFound where the storage is not open: this opens none."""

    def copies(self, caller: Caller) -> Sequence[str]:
        """The names of copies beside the storage, which no erasure reaches."""
