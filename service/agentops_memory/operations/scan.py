"""Finds secrets in stored data, and redacts them."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from ..engine.engine import Engine, Transaction, noop
from ..http.query import ENTRY, STORE, public_id
from ..light import dataclass, field, replace
from ..memory.access import Caller, Role
from ..memory.erasure import Erasure, ErasureId, ReceiptTable
from ..memory.idempotency import IdempotencyTable
from ..memory.lifecycles import at_key
from ..memory.memories import MemoryTable
from ..memory.memory import UNSAVED, Memory, MemoryId, Session, SessionId, Text
from ..memory.redactor import MAX_SCOPE, Redactor
from ..memory.saves import RevisionTable
from ..memory.sessions import SessionTable, TranscriptTable
from ..memory.space import NO_PROJECT, UNKNOWN_PROJECT, ErasureKind, Project, Space, StoreId
from ..memory.table import Sql
from ..openintent.changes import redact_entry
from ..openintent.entries import entry_with
from ..openwop.api import Offset, Screen, screened
from ..openwop.commitments import screen_tags, tags_of
from ..openwop.entries import measure
from ..openwop.proposals import Proposal, proposal_sizes, proposals_of, redact_proposal, redacted
from ..openwop.runs import RunEvent, RunTable
from ..recall.summary import Transcript
from ..recall.text import content_hash, printable, sha256_of
from ..secrets.redaction import Rules
from ..secrets.redaction import redacted as without_secrets
from ..stores import store as stores
from ..stores.entry import Past, past
from ..stores.entry import measure as measure_version

PAGE = 200  # most memories, sessions or stores of one page
MAX_STORES = 100_000  # most stores that are counted
MAX_PAGE_SIZE = 2 * 1024 * 1024  # characters after which a page ends early: reads have a timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFinding:
    """The location of secrets, and the number of each kind.

    Secrets in names (scope, session, project, path) are reported but not redacted, because other
    rows refer to the names. `where` has the names and ids of the location, the outermost first.
    """

    where: Mapping[str, object]
    project: Project = NO_PROJECT
    memory: MemoryId | None = None
    kinds: Mapping[str, int] = field(default_factory=dict)
    in_names: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPage:
    """One page of a scan: the number of rows read, and the findings in them."""

    rows: int
    findings: tuple[SecretFinding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A unit of a scan: its texts, which can be redacted, and its names, which cannot."""

    finding: SecretFinding  # the location
    clean: Callable[[Redactor], Any]  # returns the texts without secrets
    write: Callable[[Any, Redactor], int | None]  # stores the texts; returns the changed revisions
    name: Callable[[Redactor], object] = noop
    parts: Callable[[Any], Mapping[str, object]] = lambda _: {}  # where they are inside
    size: int = 0  # characters of the texts that may be long
    rows: int = 1


Records = Callable[[Transaction, Any], Iterator[tuple[Any, Record]]]
"""Reads the next records of one kind, each with the position after which the next page begins."""


async def pages(
    engine: Engine, caller: Caller, rules: Rules, *, is_redacting: bool = False
) -> AsyncIterator[ScanPage]:
    """Scan memories, live and deleted, revisions, sessions, stores, proposals, and logs of runs.

    When redacting, all secrets are removed, with an erasure receipt for each page and project, and
    the stored answers of idempotency keys, whatever their content. Requires the role admin.
    """
    caller.require(Role.ADMIN)
    if is_redacting:
        await engine.write(caller, lambda tx: tx[IdempotencyTable].redact_answers())
    for records, first in KINDS:
        after = first
        while page := await engine.read(caller, scan_page, records, after, rules):
            last, scanned = page
            if is_redacting and any(finding.kinds for finding in scanned.findings):
                # Scanned again in a write: only pages with secrets make other writers wait.
                again = await engine.write(
                    caller, scan_page, records, after, rules, is_redacting=True
                )
                last, scanned = again or (last, ScanPage(rows=scanned.rows))
            after = last
            yield scanned


def size(tx: Transaction) -> int:
    count = len(stores.stores_of(tx, stores.Page(limit=MAX_STORES)).items)
    rows = tx[MemoryTable].total() + tx[SessionTable].count(None) + count
    return rows + tx[Sql].number("SELECT count(*) FROM proposals")


def scan_page(
    tx: Transaction, records: Records, after: Any, rules: Rules, *, is_redacting: bool = False
) -> tuple[Any, ScanPage] | None:
    """Return the position after which the next page begins, and this page; None at the end.

    When redacting, the secrets are removed, with a receipt for each project.
    """
    room, rows, findings, last = MAX_PAGE_SIZE, 0, [], None
    done: list[tuple[SecretFinding, int]] = []
    for key, it in records(tx, after):
        redactor, names = Redactor(rules), Redactor(rules)
        clean = it.clean(redactor)
        it.name(names)
        if redactor.count or names.count:
            where = {**it.finding.where, **it.parts(clean)}
            finding = replace(it.finding, where=where, kinds=redactor.kinds, in_names=names.kinds)
            findings.append(finding)
            if is_redacting and redactor.count:
                done.append((finding, it.write(clean, Redactor(rules)) or 0))
        last, rows, room = key, rows + it.rows, room - it.size
        if room < 0:
            break
    done.sort(key=lambda it: it[0].project)
    for project, group in groupby(done, key=lambda it: it[0].project):
        of_project, revisions = zip(*group, strict=True)
        memories = tuple(it.memory for it in of_project if it.memory is not None)
        tx[ReceiptTable].add(Erasure(
            id=ErasureId(tx.new_uid(tx.now)), kind=ErasureKind.REDACTION, project=project,
            memories=memories, observations=len(memories), revisions=sum(revisions),
            sessions=sum("session" in it.where for it in of_project), erased_at=tx.now,
        ))  # fmt: skip
    return None if last is None else (last, ScanPage(rows=rows, findings=tuple(findings)))


def _shown(name: object) -> str:
    return printable(without_secrets(str(name)).text)


def _of_memory(memory: MemoryId, project: Project = NO_PROJECT) -> SecretFinding:
    where = {"project": _shown(project), "observation": memory}
    return SecretFinding(where=where, project=project, memory=memory)


def _memories(tx: Transaction, after: MemoryId) -> Iterator[tuple[MemoryId, Record]]:
    for memory in tx[MemoryTable].every(after, PAGE):
        traits = memory.space.traits
        of = _entry if traits.has_entries else _ref_entry if traits.is_of_hosts else _memory
        yield memory.id, of(tx, memory)


def _memory(tx: Transaction, memory: Memory) -> Record:
    entry = entry_with(tx, memory.id) if memory.space.traits.is_json else None
    text = memory.text
    if entry and not text.content.startswith("{"):  # sealed
        text = replace(text, content=entry.value)
    revisions = [] if entry else tx[RevisionTable].newest(memory)[1:]
    earlier = [(it.number, it.text) for it in revisions if it.text is not None]
    # The session and the scope are names; a session's id is reported with the session itself.
    space = Space(project=UNKNOWN_PROJECT)
    nameless = replace(memory, text=text, session=SessionId(""), space=space)

    def clean(redactor: Redactor) -> tuple[Memory, list[tuple[int, Text]]]:
        redacted_memory = redactor.memory(nameless)
        clean = [(number, text, redactor.words(text)) for number, text in earlier]
        return redacted_memory, [(number, now) for number, before, now in clean if now != before]

    def write(clean: tuple[Memory, list[tuple[int, Text]]], again: Redactor) -> int:
        redacted_memory, changed = clean
        for number, text in changed:
            tx[RevisionTable].put_text(memory.id, number, text, is_own=True)
        if entry:
            redact_entry(tx, entry, again)
            tx[MemoryTable].must_scrub(memory.id)
        else:
            it = replace(redacted_memory, session=memory.session, space=memory.space)
            if it.key not in (None, memory.key) and not memory.lifecycle.is_expired(tx.now):
                # The key is dropped if another memory has it: keys may differ only in secrets.
                holder = at_key(tx, it.space, it.key or "")
                it = it if holder is None or holder.id == memory.id else replace(it, key=None)
            _replace(tx, memory, it)
        return len(changed)

    return Record(
        finding=_of_memory(memory.id, memory.space.project), clean=clean,
        write=write, name=lambda names: names.text(memory.space.scope, MAX_SCOPE),
        size=sum(len(it.content) for it in (text, *(text for _, text in earlier))),
    )  # fmt: skip


def _replace(tx: Transaction, memory: Memory, clean: Memory) -> None:
    hashed = replace(clean, content_hash=content_hash(clean.text.content))
    tx[MemoryTable].replace(memory, hashed)
    tx[MemoryTable].must_scrub(clean.id)


def _ref_entry(tx: Transaction, memory: Memory) -> Record:
    """Return the record of a ref's entry, with the tags that its commitments wait for."""
    tags = tags_of(tx, memory.id)

    def clean(redactor: Redactor) -> Memory:
        Screen(redactor).tags(tags)
        return replace(memory, text=screened(redactor, memory.text))

    def write(clean: Memory, again: Redactor) -> None:
        _replace(tx, memory, clean)
        measure(tx, clean)
        screen_tags(tx, memory.id, Screen(again))

    return Record(
        finding=_of_memory(memory.id), clean=clean, write=write,
        size=len(memory.text.content),
    )  # fmt: skip


def _entry(tx: Transaction, memory: Memory) -> Record:
    store = StoreId(memory.space.scope)

    def clean(redactor: Redactor) -> Memory:
        text = _redacted_content(redactor, memory.text)
        return replace(memory, text=text, extras=stores.clean_pairs(redactor, memory.extras))

    def write(clean: Memory, _: Redactor) -> None:
        if clean.text != memory.text:
            _measure(tx, memory.id, memory.revision, clean.text)
            more = stores.size_of(clean.text.content) - stores.size_of(memory.text.content)
            stores.grow(tx, store, 0, more)
        _replace(tx, memory, clean)

    return Record(
        finding=_of_store(store, memory.id, stores.EntryId(memory.uid)),
        clean=clean, write=write, name=lambda names: names.whole(memory.text.title),
        size=len(memory.text.content),
    )  # fmt: skip


def _of_store(
    store: StoreId, memory: MemoryId | None = None, entry: stores.EntryId | None = None
) -> SecretFinding:
    where = {"store": public_id(STORE, store)}
    if entry is not None:
        where["memory"] = public_id(ENTRY, entry)
    return SecretFinding(where=where, memory=memory)


def _versions(
    tx: Transaction, after: tuple[MemoryId, int]
) -> Iterator[tuple[tuple[MemoryId, int], Record]]:
    for memory, group in groupby(past(tx, after, PAGE), key=lambda it: it.memory):
        versions = list(group)
        yield (memory, versions[-1].number), _earlier_versions(tx, versions)


def _earlier_versions(tx: Transaction, versions: Sequence[Past]) -> Record:
    first = versions[0]

    def clean(redactor: Redactor) -> list[tuple[int, Text]]:
        clean = [(it, _redacted_content(redactor, it.text)) for it in versions]
        return [(it.number, text) for it, text in clean if text != it.text]

    def write(clean: list[tuple[int, Text]], _: Redactor) -> int:
        for number, text in clean:
            tx[RevisionTable].put_text(first.memory, number, text, is_own=True)
            _measure(tx, first.memory, number, text)
        tx[MemoryTable].must_scrub(first.memory)
        return len(clean)

    return Record(
        finding=_of_store(first.store, first.memory, first.entry),
        clean=clean, write=write, rows=0,
        parts=lambda clean: {"versions": ", ".join(str(number) for number, _ in clean)},
    )  # fmt: skip


def _redacted_content(redactor: Redactor, text: Text) -> Text:
    return replace(text, content=redactor.text_of_bytes(text.content, stores.MAX_CONTENT))


def _measure(tx: Transaction, memory: MemoryId, number: int, text: Text) -> None:
    measure_version(tx, memory, number, stores.size_of(text.content), sha256_of(text.content))


def _sessions(tx: Transaction, after: int) -> Iterator[tuple[int, Record]]:
    for number, session in tx[SessionTable].page(None, after, PAGE):
        yield number, _session(tx, session)


def _session(tx: Transaction, session: Session) -> Record:
    transcript = tx[TranscriptTable].get(session.id) or Transcript()

    def write(clean: tuple[Session, Transcript], _: Redactor) -> None:
        ended, rewritten = clean
        tx[SessionTable].close(ended)
        tx[TranscriptTable].rewrite(session.id, rewritten)  # no effect without a transcript

    where = {"project": _shown(session.project), "session": _shown(session.id)}
    return Record(
        finding=SecretFinding(where=where, project=session.project),
        clean=lambda redactor: (redactor.summary(session), redactor.transcript(transcript)),
        write=write,
        name=lambda names: (names.session_id(session.id), names.whole(session.project)),
    )


def _stores(tx: Transaction, after: StoreId | None) -> Iterator[tuple[StoreId, Record]]:
    def write(clean: stores.Store, _: Redactor) -> None:
        stores.replace_store(tx, clean)

    for store in stores.stores_of(tx, stores.Page(limit=PAGE, after=after)).items:
        # An id that is not UTF-8 is read as a different id, after which its row may come again.
        if after is None or store.id < after:
            clean = partial(_redacted_store, store)
            yield store.id, Record(finding=_of_store(store.id), clean=clean, write=write)


def _redacted_store(store: stores.Store, redactor: Redactor) -> stores.Store:
    parts = {name: getattr(store, name) for name in ("name", "description", "metadata")}
    return store.model_copy(update=stores.clean(redactor, parts))


def _proposals(tx: Transaction, after: int) -> Iterator[tuple[int, Record]]:
    sizes = dict(proposal_sizes(tx, after, PAGE))
    for number, size in sizes.items():
        for proposal in proposals_of(tx, [number]):
            yield number, _proposal(tx, proposal, size)


def _proposal(tx: Transaction, proposal: Proposal, size: int) -> Record:
    source = proposal.provenance
    names = (*source.source_run_ids, source.synthesizer_model or "")
    return Record(
        finding=SecretFinding(where={"proposal": proposal.id}),
        clean=lambda redactor: redacted(Screen(redactor), proposal),
        write=lambda _, again: redact_proposal(tx, proposal.id, Screen(again)),
        name=lambda redactor: [Screen(redactor).text(name) for name in names],
        size=size,
    )


def _events(tx: Transaction, after: Offset) -> Iterator[tuple[Offset, Record]]:
    """Yield the events of runs that contain the tags of an entry."""
    which = f"v.id > :after AND {tx[Sql].dialect.contains('v.payload', ':named')} ORDER BY v.id"
    for event in tx[RunTable].some(which, PAGE, after=after, named='"tags"'):
        yield event.offset, _event(tx, event)


def _event(tx: Transaction, event: RunEvent) -> Record:
    """Return the record of a run's event; all texts of the event other than tags are names."""

    def write(tags: Sequence[str], _: Redactor) -> None:
        tx[RunTable].rewrite(event.offset, event.payload | {"tags": tags})

    return Record(
        finding=SecretFinding(where={"run": _shown(event.run)}), write=write, rows=0,
        clean=lambda redactor: Screen(redactor).tags(filter(None, event.payload["tags"])),
    )  # fmt: skip


KINDS: Sequence[tuple[Records, Any]] = (
    (_memories, UNSAVED),
    (_sessions, 0),
    (_stores, None),
    (_versions, (UNSAVED, 0)),
    (_proposals, 0),
    (_events, 0),
)
"""The reader of each kind of records, and the position before its first record."""
