"""Row numbers of the full-text index: areas are ranges of numbers."""

from ...memory.model.memory import MemoryId

AREA = 40  # bits of a row number below its area: room for the ids of memories
MOST_IDS = 1 << AREA
ID = MOST_IDS - 1  # the bits of a row number that are a memory's id

Row = int
"""Where a memory lies in the index: its area, which is its project's, and its id."""


def row_number(area: int, memory: int) -> Row:
    """Under which number a memory lies."""
    return area << AREA | memory


def span_of(area: int) -> tuple[Row, Row]:
    """The first and the last row number of an area."""
    return row_number(area, 0), row_number(area + 1, 0) - 1


def area_of(row: Row) -> int:
    """The area of a row number."""
    return row >> AREA


def memory_of(row: Row) -> MemoryId:
    return MemoryId(row & ID)
