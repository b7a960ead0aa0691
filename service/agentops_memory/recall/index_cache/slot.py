"""A group in memory, with what was written into it and no reader has asked for yet."""

import time
from collections import deque
from collections.abc import Callable

from ..text.columns import Columns
from .area import Entry
from .group import UNKNOWN, Change, Group
from .writes import Written

EntryOf = Callable[[Columns], Entry]
"""The entry of a memory that is indexed with these columns."""


class Slot:
    """A group, and what was written since it was last read."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.used_at = time.monotonic()
        self.waiting: deque[Written] = deque()
        self._put = self._taken = 0  # characters: the writer counts the one, a reader the other

    def put(self, written: Written) -> int:
        """Let it wait; how many characters wait now."""
        self.waiting.append(written)
        self._put += written.size
        return self._put - self._taken

    def take(self) -> Written:
        """What was written first of what waits."""
        written = self.waiting.popleft()
        self._taken += written.size
        return written

    @property
    def size(self) -> int:
        """The bytes in use, about."""
        return self.group.size + self._put - self._taken

    @property
    def newest(self) -> int:
        """The version that it has once it has caught up."""
        waiting = list(self.waiting)
        return waiting[-1].after if waiting else self.group.version


def caught_up(slot: Slot, version: int, entry_of: EntryOf) -> bool:
    """Whether the group is, now, as of the version."""
    group, waiting = slot.group, slot.waiting
    while group.version != version and waiting:
        written = slot.take()
        if written.before != group.version:
            group.version = UNKNOWN
            return False
        changes = [Change(row, entry_of(said), sign) for row, said, sign in written.entries]
        group.change(written.after, changes)
    return group.version == version
