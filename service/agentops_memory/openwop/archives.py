"""Archives of a ref: what they say, and how a compaction or a distillation puts them.

The rule `extract-1` chooses what a few sources say within a number of bytes. Integers alone decide,
and nothing depends on the order of a set: the same sources and cap give the same bytes everywhere.
"""

import asyncio
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import partial
from hashlib import sha256
from heapq import heapify, heappop, heappush
from itertools import chain, groupby
from operator import itemgetter
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from ..engine.engine import Transaction, noop
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
from .adapter import removed
from .api import BASE, Serving, op
from .commitments import time_to_come
from .entries import ListedRef, Method, Origin, RefEntry, RefTable, added, subjects
from .passes import Inputs, Link, PassObject, Pausing
from .runs import RunEventType, RunId, RunKind, RunTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDraft:
    """An archive to be put. Its id is made of what it is made of, so it is the same again."""

    id: api.RefEntryId
    ref: MemoryRef
    method: Method
    content: str
    subjects: tuple[str, ...]  # tags
    sources: Sequence[RefEntry]
    ends: datetime | None
    budget: int | None = None  # of a distillation, in tokens
    supersedes: bool

    @property
    def size(self) -> int:
        return len(self.content.encode())


class CompactBody(BaseModel):
    """A ref whose oldest entries an archive takes the place of."""

    model_config = api.CAMEL
    memory_ref: api.MemoryRefText
    content: api.ContentText | None = None
    keep_sources: bool = False


class DistillBody(BaseModel):
    """A ref whose entries an archive tells of, within a budget of tokens."""

    model_config = api.CAMEL
    memory_ref: api.MemoryRefText
    token_budget: Annotated[int, Field(ge=1)] | None = None
    content: api.ContentText | None = None
    recursive: bool = False
    expires_at: api.Zoned | None = None


class DistilledObject(PassObject):
    """The same of a distillation; `created` is false where the archive was there."""

    archive_checksum: str
    created: bool


Build = Callable[[api.Screen], ArchiveDraft]
"""Makes an archive of what was read; outside of any transaction."""


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
    """Put an archive in the place of the oldest entries; NothingToCompact.

    Its text is the host's `content`, or chosen from what they say (`extract-1`).
    """
    ref, text, replaces = body.memory_ref, body.content, not body.keep_sources

    def read(tx: Transaction) -> Build:
        oldest = passes.inputs(tx, ref, passes.REPLACEABLE)
        chosen, _ = api.first_fitting(oldest, MOST_COMPACTED, room=MOST_COMPACTED_BYTES)
        sources = tx[RefTable].some(chosen)
        return partial(archive_of, ref, sources, content=text, supersedes=replaces)

    done = await _archived(serving, caller, "compaction", ref, read, passes.REPLACEABLE)
    made = PassObject(run_id=done.value.run_id, event=done.value.event)
    return Written(value=made, redacted=done.redacted)


async def distill(serving: Serving, caller: Caller, body: DistillBody) -> Written[DistilledObject]:
    """Put an archive of all entries, within a budget of tokens for both; these stay.

    The same sources and budget are the same archive. With `recursive` archives are read,
    too. NothingToDistill, BudgetExceeded.
    """
    ref, which = body.memory_ref, passes.VISIBLE if body.recursive else passes.NO_ARCHIVES
    most = min(body.token_budget or MOST_TOKENS, MOST_TOKENS)

    def read(tx: Transaction) -> Build:
        listed, ends = list(passes.inputs(tx, ref, which)), None
        if listed:
            _distillation_cap(most, _tokens(listed))  # or BudgetExceeded
        sources = tx[RefTable].some([each.memory for each in listed])
        if body.expires_at is not None:
            at, problem = instant(body.expires_at), "must be in the future"
            ends = time_to_come(at, tx.now, "expiresAt", problem).due_at
        elif serving.keep_archives:
            ends = whole_milliseconds(tx.now + serving.keep_archives)
        text = body.content
        return partial(archive_of, ref, sources, content=text, budget=most, ends=ends)

    return await _archived(serving, caller, "distillation", ref, read, which)


async def _archived(
    serving: Serving, caller: Caller, kind: str, ref: MemoryRef,
    read: Callable[[Transaction], Build], which: Inputs,
) -> Written[DistilledObject]:  # fmt: skip
    """Put an archive, rebuilt while what it is made of changes."""
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
                passes.measure(done)
                return Written(value=done, redacted=screen.redactor.count)
        raise api.MemoryChanged


_END = re.compile(r"[.!?\u2026](?=\s)|[\u3002\uff01\uff1f]")

# Normalising sorts piled-up marks in quadratic time; a pile that is in order costs nothing.
_PILE = re.compile(r"[\W\uff9e\uff9f]{31,}")
_CACHED_SIGNS = 16_384  # characters


class Unit(NamedTuple):
    """A sentence or a line, with single spaces, and its words: normalized, case folded."""

    text: str
    words: tuple[str, ...]


def units(content: str) -> list[Unit]:
    """The units of a text that have a word, in its order.

    It is split at line ends, and behind each mark that ends a sentence. A word is a run of
    letters, numbers and marks.
    """
    lines = _END.sub(r"\g<0>\n", content).splitlines()
    texts = [text for line in lines if (text := " ".join(line.split()))]
    # All at once, as a call for each would cost more than the work.
    together = "\n".join(texts)
    if not together.isascii():
        together = unicodedata.normalize("NFKC", _PILE.sub(_in_order, together))
    together = together.casefold().translate(_SIGNS)
    words = (tuple(text.split()) for text in together.split("\n"))
    return [unit for unit in map(Unit, texts, words) if unit.words]


def _in_order(pile: re.Match[str]) -> str:
    """The decomposed pile, with each run of combining characters in canonical order."""
    apart = (sign for character in pile[0] for sign in unicodedata.normalize("NFKD", character))
    runs = groupby(apart, key=lambda sign: unicodedata.combining(sign) > 0)
    return "".join(
        "".join(sorted(run, key=unicodedata.combining) if combines else run)
        for combines, run in runs
    )


class _Signs(dict[int, str]):
    """A cached translation table: what belongs to words is itself, what ends them a space."""

    def __missing__(self, point: int) -> str:
        sign = chr(point)
        kept = sign if sign == "\n" or unicodedata.category(sign)[0] in "LNM" else " "
        if len(self) < _CACHED_SIGNS:
            self[point] = kept
        return kept


_SIGNS = _Signs()

MOST_COMPACTED = 500  # entries of a compaction
MOST_COMPACTED_BYTES = 4 * 1024 * 1024  # held in memory while sentences are chosen
SMALLEST_CAP = 1024  # bytes of an extract
MOST_TOKENS = 100_000  # of a distillation: of its sources and its archive together
SMALLEST_OUTPUT = 256  # tokens of an archive that a distillation may always have, if they are left
SMALLEST_ROOM = 16  # tokens that must be left of a budget
MOST_NAMED = 100  # entries that an event names
ARCHIVE_ID = "archive_"
ELLIPSIS = "..."

_PREFIX = len("- YYYY-MM-DD: ")
_DATED = re.compile(r"- ([0-9]{4}-[0-9]{2}-[0-9]{2}): ")


class NothingToCompact(Conflict):
    code = "nothing_to_compact"  # fewer than two entries, or no word in them


class NothingToDistill(Conflict):
    code = "nothing_to_distill"  # no entry, or no word in it


class BudgetExceeded(Refusal):
    code = "token_budget_exceeded"  # the sources and their archive do not fit into it

    def __init__(self, budget: int, required: int) -> None:
        super().__init__("The budget is too small for an archive of these entries.")
        self.budget, self.required = budget, required


class Source(NamedTuple):
    """A text and the day it was written; an archive has a day of its own on each line."""

    content: str
    day: date
    is_archive: bool = False


class _Line(NamedTuple):
    unit: Unit
    source: int  # its place among the others
    day: date

    @property
    def text(self) -> str:
        return f"- {self.day.isoformat()}: {self.unit.text}"


def extract(sources: Sequence[Source], cap: int, pause: Pausing = noop) -> str:
    """The lines of the sources, oldest first, that say the most within `cap` bytes.

    Every line's end counts, the last one's too. Where no line fits, or all words are stop words,
    it is the best line, cut if it is longer than the cap. Empty if the sources have no word, or
    the cap has no place for the first character of that line's unit.
    """
    weights = Counter[str]()  # in how many sources each word stands
    distinct = dict[tuple[str, ...], _Line]()  # of those with equal words the last one
    for at, source in enumerate(sources):
        lines = _lines(at, source)
        weights.update(set(chain.from_iterable(line.unit.words for line in lines)))
        for line in lines:
            distinct.pop(line.unit.words, None)
            distinct[line.unit.words] = line
        pause()
    if not distinct:
        return ""
    lines = list(distinct.values())
    best, taken = _chosen(lines, weights, cap, pause)
    return "\n".join(lines[at].text for at in sorted(taken)) if taken else _cut(lines[best], cap)


def has_words(sources: Iterable[Source]) -> bool:
    """Whether there is anything to extract."""
    return any(_lines(0, source) for source in sources)


def _lines(at: int, source: Source) -> list[_Line]:
    if not source.is_archive:
        return [_Line(unit, at, source.day) for unit in units(source.content)]
    dated = (_undated(line, source.day) for line in source.content.splitlines())
    return [
        _Line(unit, at, day)
        for day, lines in groupby(dated, key=itemgetter(1))
        for unit in units("\n".join(line for line, _ in lines))
    ]


def _undated(line: str, day: date) -> tuple[str, date]:
    """An archive's line without its own date, and that date; else the day of the archive."""
    if prefix := _DATED.match(line):
        with suppress(ValueError):
            return line[prefix.end() :], date.fromisoformat(prefix[1])
    return line, day


def _chosen(
    lines: Sequence[_Line], weights: Mapping[str, int], cap: int, pause: Pausing
) -> tuple[int, list[int]]:
    """The line that is best without a cap, and those that are taken: by what each adds a byte.

    What a line adds only ever falls, so a heap of what each once added has the best on top as
    soon as the topmost one's figure is still true.
    """
    sizes = [_PREFIX + len(line.unit.text.encode()) + len("\n") for line in lines]
    gains = list[int]()
    holders = defaultdict[str, list[int]](list)
    for at, line in enumerate(lines):
        pause()
        words = set(line.unit.words) - STOPWORDS
        gains.append(sum(map(weights.__getitem__, words)))
        for word in words:
            holders[word].append(at)
    # Two different fractions of such denominators lie at least 1 / scale apart, so their
    # order is that of these whole numbers, and equal ones are equal.
    scale = max(sizes) ** 2

    def ranked(at: int) -> tuple[int, int, int]:
        """Smaller is better: what it adds for its bytes, the newer source, the earlier place."""
        return -(gains[at] * scale // sizes[at]), -lines[at].source, at

    heap = list(map(ranked, range(len(lines))))
    heapify(heap)
    best, taken, smallest = heap[0][-1], list[int](), min(sizes)
    while heap and cap >= smallest:
        pause()
        known = heappop(heap)
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
    """The line within the cap, cut at a code point; empty if nothing of its unit has place."""
    text = line.text.encode()
    if len(text) <= cap:
        return line.text
    kept = text[: max(cap - len(ELLIPSIS), 0)].decode(errors="ignore")
    return kept + ELLIPSIS if len(kept) > _PREFIX else ""


def first_end(sources: Iterable[RefEntry]) -> datetime | None:
    """When the first of the entries ends: what was made of them says no longer what they say."""
    return min((it.expires_at for it in sources if it.expires_at is not None), default=None)


def _tokens(texts: Iterable[ListedRef | RefEntry | ArchiveDraft]) -> int:
    """How many tokens texts have together, each as many as it begins four bytes."""
    return sum(-(-it.size // 4) for it in texts)


def _distillation_cap(budget: int, taken: int) -> int:
    """The most bytes of an archive within a budget; BudgetExceeded if that leaves too little."""
    required = taken + max(SMALLEST_ROOM, -(-taken // 10))
    if budget < required:
        raise BudgetExceeded(budget, required)
    return min(4 * min(budget - taken, max(SMALLEST_OUTPUT, -(-taken // 3))), api.MAX_CONTENT)


def archive_of(
    ref: MemoryRef, sources: Sequence[RefEntry], screen: api.Screen, content: str | None, *,
    budget: int | None = None, ends: datetime | None = None, supersedes: bool = False,
) -> ArchiveDraft:  # fmt: skip
    """The archive of entries: with a budget that of a distillation, else that of a compaction.

    NothingToCompact, NothingToDistill, BudgetExceeded.
    """
    if budget is not None:
        cap = _distillation_cap(budget, _tokens(sources))
        nothing: Refusal = NothingToDistill("There is no entry with words to distill.")
    else:
        cap = min(max(SMALLEST_CAP, -(-sum(it.size for it in sources) // 3)), api.MAX_CONTENT)
        nothing = NothingToCompact(
            "There are not two entries with words that a compaction may replace."
        )
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
        ends=min(filter(None, (ends, first_end(sources))), default=None),
    )  # fmt: skip
    if budget is not None and (used := _tokens([*sources, draft])) > budget:
        raise BudgetExceeded(budget, used)
    return draft


def _text(
    sources: Sequence[RefEntry], screen: api.Screen, content: str | None, cap: int
) -> str | None:
    """What an archive says: a host's text, or an extract; None if the sources have no word."""
    if content is not None:
        return screen.content(content) if has_words(map(_source, sources)) else None
    # A value is compared with texts as they were put: an extract may say it in pieces.
    clean = [it.model_copy(update={"content": screen.text(it.content)}) for it in sources]
    extracted = screen.text(extract(list(map(_source, clean)), cap, passes.Throttle()))
    return extracted.encode()[:cap].decode(errors="ignore") or None


def _source(entry: RefEntry) -> Source:
    return Source(entry.content, entry.created_at.date(), api.ARCHIVE in entry.tags)


def put_archive(tx: Transaction, draft: ArchiveDraft | None, which: Inputs) -> DistilledObject:
    """Put an archive, if its sources are still what the pass has read; MemoryChanged."""
    if draft is None:
        raise api.MemoryChanged  # the answer under the idempotency key is over its time
    ref, sources = draft.ref, [it.memory for it in draft.sources]
    if not passes.are_all(tx, sources, which):
        raise api.MemoryChanged
    existing = tx[RefTable].get(ref, draft.id)
    made_of = "SELECT source_id FROM derivations WHERE memory_id = :memory"
    if existing and {*tx[Sql].column(made_of, memory=existing.memory)} != {*sources}:
        removed(tx, existing.memory)  # of others that had the ids of these: it may say too much
        existing = None
    require_room(tx)
    run = tx[RunTable].open(refs=(ref,), kind=RunKind.PASS)
    entry = existing or _added(tx, run.id, draft)
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
    event = passes.finished(tx, run, RunEventType.COMPACTED, payload)
    checksum, is_new = sha256_of(entry.content), existing is None
    return DistilledObject(run_id=run.id, event=event, archive_checksum=checksum, created=is_new)


def _added(tx: Transaction, run: RunId, draft: ArchiveDraft) -> RefEntry:
    kind, sources = (api.DISTILLED,) if draft.budget else (), draft.sources
    tags = (api.ARCHIVE, api.COMPACTED + run, *kind, *draft.subjects)
    origin = Origin(run=run, method=draft.method)
    text, ends = draft.content, draft.ends
    entry = added(tx, draft.ref, text, tags, name=draft.id, origin=origin, ends=ends)
    tx[Sql].run(
        """INSERT INTO archives (memory_id, space_id, sources, first_at, last_at)
           SELECT :memory, space_id, :sources, :first, :last FROM refs WHERE ref = :ref""",
        memory=entry.memory, ref=draft.ref, sources=len(sources),
        first=micros(sources[0].created_at), last=micros(sources[-1].created_at),
    )  # fmt: skip
    passes.derive(tx, [Link(entry.memory, it.memory) for it in sources])
    return entry
