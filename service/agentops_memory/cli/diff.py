"""What a revision changed, shown against the one before."""

import difflib
from collections.abc import Iterator, Sequence
from itertools import pairwise

from agentops_memory_client.contract.models import Revision

from .output import lines, one_line

MOST_LINES = 400  # of a content that is compared line by line: a longer one would take long


def changes(revisions: Sequence[Revision]) -> Iterator[tuple[Revision, list[str]]]:
    """Each revision, newest first, with what it changed."""
    for revision, earlier in pairwise([*revisions, None]):
        assert revision is not None  # that is the last alone
        yield revision, list(_changed(earlier, revision))


def _changed(earlier: Revision | None, revision: Revision) -> Iterator[str]:
    if revision.content is None:
        return  # a deletion
    if earlier is None or earlier.content is None:
        yield from _whole(revision)
        return
    for name in ("type", "title"):
        before, after = (one_line(getattr(it, name) or "") for it in (earlier, revision))
        if before != after:
            yield f"{name}: {before} -> {after}"
    if earlier.tags != revision.tags:
        yield f"tags: {_tags(earlier)} -> {_tags(revision)}"
    if earlier.content != revision.content:
        yield from _compared(list(lines(earlier.content)), list(lines(revision.content)))


def _whole(revision: Revision) -> Iterator[str]:
    yield f"title: {one_line(revision.title or '')}"
    if revision.tags:
        yield f"tags: {_tags(revision)}"
    yield from (f"+ {line}" for line in lines(revision.content or ""))


def _compared(before: list[str], after: list[str]) -> Iterator[str]:
    if max(len(before), len(after)) > MOST_LINES:
        yield f"content: {len(before)} lines -> {len(after)} lines"
        return
    compared = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    changed = [line for line in compared if not line.startswith("@@")]
    yield from (f"{line[0]} {line[1:]}" for line in changed)
    if not changed:
        yield "content: in characters that are not shown"


def _tags(revision: Revision) -> str:
    return one_line(", ".join(revision.tags)) or "none"
