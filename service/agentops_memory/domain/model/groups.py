"""Groups of projects, or of stores, whose words are weighed together: a few share statistics.

The more memories, the better is known what a word is worth, and the more a search costs.
"""

from .kinds import IndexGroup

MOST_PROJECTS = 8  # in a group, before a new one is begun
MOST_MEMORIES = 4000  # live ones in a group, after which a new project begins the next
OVERSIZED = 16_000  # live memories of several projects in one, after which the smallest moves
MOVABLE = 20_000  # live memories of a project that moves; it takes about 0.1 ms for each
FIRST = 0  # the partition that there always is
# Of each group; each partition is a table, and opening a file reads the names of all.
NUMBERS = {
    IndexGroup.PROJECTS: range(FIRST, 256),
    IndexGroup.STORES: range(1024, 1088),
    IndexGroup.AGENTS: range(2048, 2112),
}


def group_of(number: int) -> IndexGroup:
    """The group of a partition."""
    later_first = reversed(NUMBERS.items())
    return next((it for it, own in later_first if number >= own.start), IndexGroup.PROJECTS)
