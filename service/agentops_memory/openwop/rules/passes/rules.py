"""What holds for passes: their bounds, and the archives that they make. Pure but for refusals."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256

from ....errors import Conflict, Refusal
from ....memory.model.space import MemoryRef
from ...entries import Method, RefEntry
from ...model.passes import ArchiveDraft, PassKind
from ...model.subjects import subjects
from ...refs import ARCHIVE, MAX_CONTENT, RefEntryId, Screen
from .extraction import Source, extract, has_words
from .rest import Rest

MOST_COMPACTED = 500  # entries of a compaction
MOST_COMPACTED_BYTES = 4 * 1024 * 1024
SMALLEST_CAP = 1024  # bytes of an extract
MOST_TOKENS = 100_000  # of a distillation: of its sources and its archive together
SMALLEST_OUTPUT = 256  # tokens of an archive that a distillation may always have, if they are left
SMALLEST_ROOM = 16  # tokens that must be left of a budget
MOST_CONSOLIDATED = 10_000  # entries of a consolidation
MOST_CONSOLIDATED_BYTES = 16 * 1024 * 1024
MOST_MERGED = range(2, 101)  # entries that a host makes one
MOST_NAMED = 100  # entries that an event names
ARCHIVE_ID = "archive_"


class NothingToCompact(Conflict):
    """Fewer than two entries, or no word in them."""

    code = "nothing_to_compact"

    def __init__(self) -> None:
        super().__init__("There are not two entries with words that a compaction may replace.")


class NothingToDistill(Conflict):
    """No entry, or no word in it."""

    code = "nothing_to_distill"

    def __init__(self) -> None:
        super().__init__("There is no entry with words to distill.")


class PassNotUndoable(Conflict):
    """Undone already, or something that the pass wrote or replaced is gone."""

    code = "pass_not_undoable"

    def __init__(self) -> None:
        super().__init__("The pass is undone, or what it wrote or replaced is gone.")


class BudgetExceeded(Refusal):
    """The sources and their archive do not fit into the budget."""

    code = "token_budget_exceeded"

    def __init__(self, budget: int, required: int) -> None:
        super().__init__("The budget is too small for what is to be distilled.")
        self.budget = budget
        self.required = required


class MemoryTooLarge(Refusal):
    """The ref holds more than one pass can look at, and a part would not do."""

    code = "memory_too_large"

    def __init__(self) -> None:
        super().__init__("The ref holds more than a consolidation can look at.")


def tokens(size: int) -> int:
    """How many tokens a text of so many bytes has."""
    return (size + 3) // 4


def compaction_cap(size: int) -> int:
    """The most bytes of an archive of so many."""
    return min(max(SMALLEST_CAP, -(-size // 3)), MAX_CONTENT)


def distillation_cap(budget: int, taken: int) -> int:
    """The most bytes of an archive within a budget; BudgetExceeded if that leaves too little."""
    required = taken + max(SMALLEST_ROOM, -(-taken // 10))
    if budget < required:
        raise BudgetExceeded(budget, required)
    return min(4 * min(budget - taken, max(SMALLEST_OUTPUT, -(-taken // 3))), MAX_CONTENT)


def compacted(
    ref: MemoryRef,
    sources: Sequence[RefEntry],
    screen: Screen,
    content: str | None,
    *,
    keep_sources: bool,
) -> ArchiveDraft:
    """The archive that takes the place of entries; NothingToCompact."""
    cap = compaction_cap(sum(len(it.content.encode()) for it in sources))
    said = _said(sources, cap, screen, content) if len(sources) > 1 else None
    if said is None:
        raise NothingToCompact
    method = Method.EXTRACT if content is None else Method.HOST
    return ArchiveDraft(
        id=_archive_id(ref, method, cap, sources, said),
        ref=ref,
        kind=PassKind.COMPACTION,
        method=method,
        content=said,
        subjects=screen.tags(_subjects(sources)),
        sources=sources,
        ends=first_end(sources),
        supersedes=not keep_sources,
    )


def distilled(
    ref: MemoryRef,
    sources: Sequence[RefEntry],
    screen: Screen,
    content: str | None,
    budget: int,
    ends: datetime | None,
) -> ArchiveDraft:
    """The archive of entries within a budget; NothingToDistill, BudgetExceeded."""
    taken = sum(tokens(len(it.content.encode())) for it in sources)
    cap = distillation_cap(budget, taken)
    said = _said(sources, cap, screen, content) if sources else None
    if said is None:
        raise NothingToDistill
    used = taken + tokens(len(said.encode()))
    if used > budget:
        raise BudgetExceeded(budget, used)
    method = Method.EXTRACT if content is None else Method.HOST
    return ArchiveDraft(
        id=_archive_id(ref, method, budget, sources, said),
        ref=ref,
        kind=PassKind.DISTILLATION,
        method=method,
        content=said,
        subjects=screen.tags(_subjects(sources)),
        sources=sources,
        ends=min(filter(None, (ends, first_end(sources))), default=None),
        budget=budget,
        supersedes=False,
    )


def first_end(sources: Iterable[RefEntry]) -> datetime | None:
    """When the first of the entries ends: what was made of them says no longer what they say."""
    return min((it.expires_at for it in sources if it.expires_at is not None), default=None)


def _said(sources: Sequence[RefEntry], cap: int, screen: Screen, content: str | None) -> str | None:
    """What the archive says: what a host has written, or an extract; None without a word."""
    if content is not None:
        return screen.content(content) if has_words(map(_source, sources)) else None
    # A value is compared with texts as they were put: an extract may say it in pieces.
    clean = [it.model_copy(update={"content": screen.text(it.content)}) for it in sources]
    extracted = extract([_source(it) for it in clean], cap, Rest())
    return screen.text(extracted).encode()[:cap].decode(errors="ignore") or None


def _source(entry: RefEntry) -> Source:
    day, is_archive = entry.created_at.date(), ARCHIVE in entry.tags
    return Source(content=entry.content, day=day, is_archive=is_archive)


def _subjects(sources: Iterable[RefEntry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag for it in sources for tag in subjects(it.tags)))


def _archive_id(
    ref: MemoryRef, method: Method, bound: int, sources: Sequence[RefEntry], content: str
) -> RefEntryId:
    digest = sha256()
    for part in (ref, method.value, str(bound), *(it.id for it in sources), content):
        said = part.encode()
        digest.update(b"%d:%b" % (len(said), said))
    return RefEntryId(ARCHIVE_ID + digest.hexdigest()[:32])
