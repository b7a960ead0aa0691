"""Archives of a ref: their text, and how a compaction or a distillation puts them.

The rule `extract-1` chooses sentences of the sources within a number of bytes. It uses integers
only, and no order of a set: the same sources and cap give the same bytes everywhere.
"""

import asyncio
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import lru_cache, partial
from hashlib import sha256
from heapq import heapify, heappop, heappush
from itertools import chain, groupby
from operator import itemgetter
from typing import Annotated, NamedTuple

from pydantic import Field

from ..engine.engine import Transaction
from ..errors import Conflict, Refusal
from ..http.bodies import WRITTEN
from ..http.protocol import Operation
from ..http.query import instant
from ..light import dataclass
from ..memory.access import Caller
from ..memory.idempotency import is_due, once
from ..memory.redactor import require_room
from ..memory.rows import micros, whole_milliseconds
from ..memory.saves import Written
from ..memory.space import MemoryRef
from ..memory.table import Sql
from ..recall.query import STOPWORDS
from ..recall.text import sha256_of
from . import api, passes
from .api import BASE, Serving, op
from .commitments import due_condition, remove_entry
from .entries import ListedRef, Method, Origin, RefEntry, RefTable, add_entry, subjects
from .passes import Inputs, Link, PassObject
from .runs import RunEventType, RunId, RunKind, RunTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDraft:
    """An archive to put. Its id is a digest of its sources and text, so it is reproducible."""

    id: api.RefEntryId
    ref: MemoryRef
    method: Method
    content: str
    subjects: tuple[str, ...]  # tags
    sources: Sequence[RefEntry]
    expires_at: datetime | None
    budget: int | None = None  # tokens of a distillation
    supersedes: bool

    @property
    def size(self) -> int:
        return len(self.content.encode())


class CompactBody(api.CamelBody):
    """A ref whose oldest entries are replaced by an archive."""

    memory_ref: api.MemoryRefText
    content: api.ContentText | None = None
    keep_sources: bool = False


class DistillBody(api.CamelBody):
    """A ref whose entries are distilled into an archive, within a budget of tokens."""

    memory_ref: api.MemoryRefText
    token_budget: Annotated[int, Field(ge=1)] | None = None
    content: api.ContentText | None = None
    recursive: bool = False
    expires_at: api.Zoned | None = None


class DistilledObject(PassObject):
    """A distillation; `created` is false if the same archive existed."""

    archive_checksum: str
    created: bool


Build = Callable[[api.Screen], ArchiveDraft]
"""Builds an archive of the entries that were read, outside any transaction."""


def operations(serving: Serving) -> Sequence[Operation]:
    return (
        op(serving, "POST", f"{BASE}/compact", "compact",
           "Replace the oldest entries of a ref with an archive.", compact, body=CompactBody,
           answer=PassObject, headers=WRITTEN, refusals=(409,)),
        op(serving, "POST", f"{BASE}/distill", "distill",
           "Write an archive of a ref's entries within a budget; the entries stay.", distill,
           body=DistillBody, answer=DistilledObject, headers=WRITTEN, refusals=(409, 422)),
    )  # fmt: skip


async def compact(serving: Serving, caller: Caller, body: CompactBody) -> Written[PassObject]:
    """Replace the oldest entries by an archive; raises NothingToCompact.

    Its text is the host's `content`, or extracted from the entries (`extract-1`).
    """
    ref, text, replaces = body.memory_ref, body.content, not body.keep_sources

    def read(tx: Transaction) -> Build:
        oldest = passes.inputs(tx, ref, passes.REPLACEABLE)
        chosen, _ = api.first_fitting(oldest, MOST_COMPACTED, room=MOST_COMPACTED_BYTES)
        sources = tx[RefTable].some(chosen)
        return partial(archive_of, ref, sources, content=text, supersedes=replaces)

    done = await _build_and_put(serving, caller, "compaction", ref, read, passes.REPLACEABLE)
    made = PassObject(run_id=done.value.run_id, event=done.value.event)
    return Written(value=made, redacted=done.redacted)


async def distill(serving: Serving, caller: Caller, body: DistillBody) -> Written[DistilledObject]:
    """Put an archive of all entries, which stay; the budget covers entries and archive.

    The same sources and budget give the same archive. With `recursive`, archives are sources,
    too. Raises NothingToDistill or BudgetExceeded.
    """
    ref, which = body.memory_ref, passes.VISIBLE if body.recursive else passes.NO_ARCHIVES
    most = min(body.token_budget or MOST_TOKENS, MOST_TOKENS)

    def read(tx: Transaction) -> Build:
        listed, expires_at = list(passes.inputs(tx, ref, which)), None
        if listed:
            _distillation_cap(most, _tokens(listed))  # raises BudgetExceeded
        sources = tx[RefTable].some([each.memory for each in listed])
        if body.expires_at is not None:
            at, problem = instant(body.expires_at), "must be in the future"
            due = due_condition(at, tx.now, "expiresAt", problem)
            expires_at = due.due_at
        elif serving.keep_archives:
            expires_at = whole_milliseconds(tx.now + serving.keep_archives)
        text = body.content
        return partial(archive_of, ref, sources, content=text, budget=most, expires_at=expires_at)

    return await _build_and_put(serving, caller, "distillation", ref, read, which)


async def _build_and_put(
    serving: Serving, caller: Caller, kind: str, ref: MemoryRef,
    read: Callable[[Transaction], Build], which: Inputs,
) -> Written[DistilledObject]:  # fmt: skip
    """Build and put an archive; if its sources change meanwhile, build it again."""
    work = once(put_archive)
    async with passes.locked(serving, caller, ref, kind):
        for _ in range(passes.TRIES):
            screen, draft = serving.screen(caller), None
            with suppress(api.ScreenOutdated, api.MemoryChanged):
                if await serving.engine.read(caller, is_due):
                    build = await serving.engine.read(caller, read)
                    draft = await asyncio.to_thread(build, screen)
                done = await serving.write(caller, screen, work, draft, which)
                if draft is not None:
                    serving.pass_ended(kind, "done" if done.created else "unchanged")
                passes.annotate_pass(done)
                return Written(value=done, redacted=screen.redactor.count)
        raise api.MemoryChanged


_SENTENCE_END = re.compile(r"[.!?\u2026](?=\s)|[\u3002\uff01\uff1f]")

# Normalizing sorts a run of combining marks in quadratic time, so longer runs are divided by NUL.
_MARK_RUN = re.compile(r"[\W\uff9e\uff9f]{30}")


class Unit(NamedTuple):
    """A sentence or line with single spaces, and its normalized, case-folded words."""

    text: str
    words: tuple[str, ...]


def units(content: str) -> list[Unit]:
    """Return the units of a text that have a word, in order.

    The text is split at line ends, and after each mark that ends a sentence. A word is a run of
    letters, numbers and combining marks.
    """
    lines = _SENTENCE_END.sub(r"\g<0>\n", content).splitlines()
    texts = [text for line in lines if (text := " ".join(line.split()))]
    # Normalized in one call: a call for each text would cost more than the work.
    together = "\n".join(texts)
    if not together.isascii():
        divided = _MARK_RUN.sub("\\g<0>\0", together)
        together = unicodedata.normalize("NFKC", divided).replace("\0", "")
    together = together.casefold().translate(_WORD_CHARS)
    words = (tuple(text.split()) for text in together.split("\n"))
    return [unit for unit in map(Unit, texts, words) if unit.words]


class _WordChars:
    """A translation table: characters of words stay, all others become a space."""

    @staticmethod
    @lru_cache(maxsize=16_384)
    def __getitem__(point: int) -> str:
        char = chr(point)
        return char if char == "\n" or unicodedata.category(char)[0] in "LNM" else " "


_WORD_CHARS = _WordChars()

MOST_COMPACTED = 500  # most entries of one compaction
MOST_COMPACTED_BYTES = 4 * 1024 * 1024  # held in memory while sentences are chosen
SMALLEST_CAP = 1024  # bytes that an extract may always have
MOST_TOKENS = 100_000  # of one distillation: its sources and its archive together
SMALLEST_OUTPUT = 256  # tokens that a distilled archive may have if the budget has them left
SMALLEST_ROOM = 16  # tokens of a budget that the sources must leave
MOST_NAMED = 100  # most entries whose ids an event has
ARCHIVE_ID = "archive_"
ELLIPSIS = "..."

_PREFIX = len("- YYYY-MM-DD: ")
_DATED = re.compile(r"- ([0-9]{4}-[0-9]{2}-[0-9]{2}): ")


class NothingToCompact(Conflict):
    code = "nothing_to_compact"  # fewer than two entries, or entries without words


class NothingToDistill(Conflict):
    code = "nothing_to_distill"  # no entries, or entries without words


class BudgetExceeded(Refusal):
    code = "token_budget_exceeded"  # the sources and their archive exceed the budget

    def __init__(self, budget: int, required: int) -> None:
        super().__init__("The budget is too small for an archive of these entries.")
        self.budget, self.required = budget, required


class _Line(NamedTuple):
    unit: Unit
    source: int  # the index of its source
    day: date

    @property
    def text(self) -> str:
        return f"- {self.day.isoformat()}: {self.unit.text}"


def extract(sources: Sequence[RefEntry], cap: int) -> str:
    """Return the lines of the sources, oldest first, that say the most within `cap` bytes.

    Line ends count, also that of the last line. If no line fits, or all words are stop words, the
    best line is returned, cut to the cap. The result is empty if the sources have no words, or if
    no character of that line's unit fits.
    """
    weights = Counter[str]()  # the number of sources of each word
    distinct = dict[tuple[str, ...], _Line]()  # the last line of those with equal words
    for at, source in passes.paced(enumerate(sources)):
        lines = _lines(at, source)
        weights.update(set(chain.from_iterable(line.unit.words for line in lines)))
        for line in lines:
            distinct.pop(line.unit.words, None)
            distinct[line.unit.words] = line
    if not distinct:
        return ""
    lines = list(distinct.values())
    best, taken = _choose(lines, weights, cap)
    return "\n".join(lines[at].text for at in sorted(taken)) if taken else _cut(lines[best], cap)


def has_words(sources: Iterable[RefEntry]) -> bool:
    """Return whether any source has words."""
    return any(_lines(0, source) for source in sources)


def _lines(at: int, source: RefEntry) -> list[_Line]:
    """Return the lines of a source; each line of an archive has its own day."""
    written = source.created_at.date()
    if api.ARCHIVE not in source.tags:
        return [_Line(unit, at, written) for unit in units(source.content)]
    dated = (_split_date(line, written) for line in source.content.splitlines())
    return [
        _Line(unit, at, day)
        for day, lines in groupby(dated, key=itemgetter(1))
        for unit in units("\n".join(line for line, _ in lines))
    ]


def _split_date(line: str, day: date) -> tuple[str, date]:
    """Return a line of an archive without its date, and the date, by default the archive's day."""
    if prefix := _DATED.match(line):
        with suppress(ValueError):
            return line[prefix.end() :], date.fromisoformat(prefix[1])
    return line, day


def _choose(lines: Sequence[_Line], weights: Mapping[str, int], cap: int) -> tuple[int, list[int]]:
    """Return the best line regardless of the cap, and the lines taken greedily by gain per byte.

    Gains only ever decrease, so a heap of outdated gains has the best line on top once the gain of
    the topmost line is current.
    """
    sizes = [_PREFIX + len(line.unit.text.encode()) + len("\n") for line in lines]
    gains = list[int]()
    holders = defaultdict[str, list[int]](list)
    for at, line in passes.paced(enumerate(lines)):
        words = set(line.unit.words) - STOPWORDS
        gains.append(sum(map(weights.__getitem__, words)))
        for word in words:
            holders[word].append(at)
    # Two different gains per byte differ by at least 1 / scale, so their order is that of these
    # whole numbers, and equal ones stay equal.
    scale = max(sizes) ** 2

    def ranked(at: int) -> tuple[int, int, int]:
        """Return a sort key: higher gain per byte, then newer source, then earlier line."""
        return -(gains[at] * scale // sizes[at]), -lines[at].source, at

    heap = list(map(ranked, range(len(lines))))
    heapify(heap)
    best, taken, smallest = heap[0][-1], list[int](), min(sizes)
    for known in passes.paced(iter(lambda: heappop(heap) if heap else None, None)):
        if cap < smallest:
            break
        at = known[-1]
        if not gains[at] or sizes[at] > cap:
            continue
        if (now := ranked(at)) != known:
            heappush(heap, now)
            continue
        taken.append(at)
        cap -= sizes[at]
        for word in lines[at].unit.words:
            for holder in holders.pop(word, ()):
                gains[holder] -= weights[word]
    return best, taken


def _cut(line: _Line, cap: int) -> str:
    """Return the line cut to the cap at a code point; empty if no part of its unit fits."""
    text = line.text.encode()
    if len(text) <= cap:
        return line.text
    kept = text[: max(cap - len(ELLIPSIS), 0)].decode(errors="ignore")
    return kept + ELLIPSIS if len(kept) > _PREFIX else ""


def first_expiry(sources: Iterable[RefEntry]) -> datetime | None:
    """Return the earliest expiry: a text derived from the entries expires with the first."""
    return min((it.expires_at for it in sources if it.expires_at is not None), default=None)


def _tokens(texts: Iterable[ListedRef | RefEntry | ArchiveDraft]) -> int:
    """Return the tokens of texts: each has one token per four bytes, rounded up."""
    return sum(-(-it.size // 4) for it in texts)


def _distillation_cap(budget: int, taken: int) -> int:
    """Return the most bytes of an archive; raises BudgetExceeded if too few tokens are left."""
    required = taken + max(SMALLEST_ROOM, -(-taken // 10))
    if budget < required:
        raise BudgetExceeded(budget, required)
    return min(4 * min(budget - taken, max(SMALLEST_OUTPUT, -(-taken // 3))), api.MAX_CONTENT)


def archive_of(
    ref: MemoryRef, sources: Sequence[RefEntry], screen: api.Screen, content: str | None, *,
    budget: int | None = None, expires_at: datetime | None = None, supersedes: bool = False,
) -> ArchiveDraft:  # fmt: skip
    """Return the archive of a distillation if there is a budget, otherwise of a compaction.

    Raises NothingToCompact, NothingToDistill or BudgetExceeded.
    """
    if budget is not None:
        cap = _distillation_cap(budget, _tokens(sources))
        nothing: Refusal = NothingToDistill("There is no entry with words to distill.")
    else:
        cap = min(max(SMALLEST_CAP, -(-sum(it.size for it in sources) // 3)), api.MAX_CONTENT)
        nothing = NothingToCompact("A compaction needs at least two entries with words.")
    text = _text(sources, screen, content, cap) if budget or len(sources) > 1 else None
    if text is None:
        raise nothing
    method = Method.EXTRACT if content is None else Method.HOST
    digest = sha256()
    for part in (ref, method.value, str(budget or cap), *(it.id for it in sources), text):
        digest.update(b"%d:%b" % (len(part.encode()), part.encode()))
    about = dict.fromkeys(tag for it in sources for tag in subjects(it.tags))
    draft = ArchiveDraft(
        id=api.RefEntryId(ARCHIVE_ID + digest.hexdigest()[:32]), ref=ref, method=method,
        content=text, subjects=screen.tags(about), sources=sources, budget=budget,
        supersedes=supersedes,
        expires_at=min(filter(None, (expires_at, first_expiry(sources))), default=None),
    )  # fmt: skip
    if budget is not None and (used := _tokens([*sources, draft])) > budget:
        raise BudgetExceeded(budget, used)
    return draft


def _text(
    sources: Sequence[RefEntry], screen: api.Screen, content: str | None, cap: int
) -> str | None:
    """Return the host's text or an extract, or None if the sources have no words."""
    if content is not None:
        return screen.content(content) if has_words(sources) else None
    # The sources are screened first: an extract may have only pieces of a secret.
    clean = [it.model_copy(update={"content": screen.text(it.content)}) for it in sources]
    extracted = screen.text(extract(clean, cap))
    return extracted.encode()[:cap].decode(errors="ignore") or None


def put_archive(tx: Transaction, draft: ArchiveDraft | None, which: Inputs) -> DistilledObject:
    """Put an archive; raises MemoryChanged if its sources are no longer as they were read."""
    if draft is None:
        raise api.MemoryChanged  # the stored answer of the idempotency key has expired
    ref, sources = draft.ref, [it.memory for it in draft.sources]
    if not passes.are_all(tx, sources, which):
        raise api.MemoryChanged
    existing = tx[RefTable].get(ref, draft.id)
    made_of = "SELECT source_id FROM derivations WHERE memory_id = :memory"
    if existing and {*tx[Sql].column(made_of, memory=existing.memory)} != {*sources}:
        remove_entry(tx, existing.memory)  # its sources were other entries with the same ids
        existing = None
    require_room(tx)
    run = tx[RunTable].open(refs=(ref,), kind=RunKind.PASS)
    entry = existing or _add(tx, run.id, draft)
    if draft.supersedes:
        passes.link(tx, run, [Link(entry.memory, it) for it in sources], counts=False)
    written, replaced = () if existing else (entry.memory,), len(sources) if draft.supersedes else 0
    passes.put_pass(tx, run, ref, written, replaced)
    payload: dict[str, object] = {"memoryRef": ref, "outputId": draft.id}  # RFC 0012, RFC 0062
    if len(sources) <= MOST_NAMED:
        payload["sourceIds"] = [it.id for it in draft.sources]
    trigger, size = passes.Trigger.HOST_MANAGED.value, draft.size
    payload |= {"sourceCount": len(sources), "trigger": trigger, "byteSize": size}
    if draft.budget is not None:
        used = _tokens([*draft.sources, draft])
        spent = {"tokenBudget": draft.budget, "tokensUsed": used, "indexUpdated": False}
        payload["distillation"] = spent
    event = passes.finish(tx, run, RunEventType.COMPACTED, payload)
    checksum, is_new = sha256_of(entry.content), existing is None
    return DistilledObject(run_id=run.id, event=event, archive_checksum=checksum, created=is_new)


def _add(tx: Transaction, run: RunId, draft: ArchiveDraft) -> RefEntry:
    kind, sources = (api.DISTILLED,) if draft.budget else (), draft.sources
    tags = (api.ARCHIVE, api.COMPACTED + run, *kind, *draft.subjects)
    origin = Origin(run=run, method=draft.method)
    text, expiry = draft.content, draft.expires_at
    entry = add_entry(tx, draft.ref, text, tags, name=draft.id, origin=origin, expires_at=expiry)
    tx[Sql].run(
        """INSERT INTO archives (memory_id, space_id, sources, first_at, last_at)
           SELECT :memory, space_id, :sources, :first, :last FROM refs WHERE ref = :ref""",
        memory=entry.memory, ref=draft.ref, sources=len(sources),
        first=micros(sources[0].created_at), last=micros(sources[-1].created_at),
    )  # fmt: skip
    passes.derive(tx, [Link(entry.memory, it.memory) for it in sources])
    return entry
