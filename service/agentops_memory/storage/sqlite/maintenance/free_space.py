"""Which bytes of a database page SQLite does not use: https://sqlite.org/fileformat2.html#b_tree_pages."""

import struct

LEAST_FREE = 4  # bytes of a free block: the place of the next one, and its own size

_HEADERS = {2: 12, 5: 12, 10: 8, 13: 8}  # bytes of a page's header, by the kind of b-tree page
_HEAD = struct.Struct(">BHHHB")  # kind, first free block, rows, beginning of the rows, fragments
_FREE = struct.Struct(">HH")

Span = tuple[int, int]


def dirty_spans(page: bytes) -> list[Span]:
    """The free parts of a page that are not all zero; none of one that is no b-tree's.

    Not for the first page of a file. What cannot be understood counts as used.
    """
    if page[0] not in _HEADERS:
        return []
    return [(start, end) for start, end in _free(page) if page[start:end].strip(b"\0")]


def _free(page: bytes) -> list[Span]:
    kind, free, rows, begin, _ = _HEAD.unpack_from(page)
    gap = _HEADERS[kind] + 2 * rows
    begin = begin or 1 << 16
    if not gap <= begin <= len(page):
        return []
    spans, least = [(gap, begin)], begin
    while free:
        if not least <= free <= len(page) - LEAST_FREE:
            return []
        following, size = _FREE.unpack_from(page, free)
        if size < LEAST_FREE or free + size > len(page):
            return []
        spans.append((free + LEAST_FREE, free + size))
        free, least = following, free + size
    return spans
