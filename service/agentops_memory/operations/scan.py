"""Finds secrets in stored data, and redacts them."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from ..engine.engine import Engine, Transaction
from ..http.query import ENTRY, STORE, public_id
from ..light import dataclass, field, replace
from ..memory.access import Caller, Role
from ..memory.erasure import ReceiptTable
from ..memory.idempotency import IdempotencyTable
from ..memory.lifecycles import at_key
from ..memory.memories import MemoryTable
from ..memory.memory import UNSAVED, Memory, MemoryId, Session, SessionId, Text
from ..memory.redactor import MAX_SCOPE, Redactor, as_json
from ..memory.saves import RevisionTable
from ..memory.sessions import SessionTable, TranscriptTable
from ..memory.space import NO_PROJECT, UNKNOWN_PROJECT, ErasureKind, Project, Space, StoreId
from ..memory.table import Sql
from ..openintent.changes import redact_entry
from ..openintent.entries import entry_with
from ..openwop.api import Offset, Screen, screened
from ..openwop.commitments import screen_tags, tags_of
from ..openwop.entries import measure
from ..openwop.proposals import Proposal, proposals_after, redact_proposal, redacted
from ..openwop.runs import RunEvent, RunTable
from ..recall.summary import Transcript
from ..recall.text import content_hash, printable, sha256_of
from ..secrets.redaction import Rules, redacted as without_secrets
from ..stores import store as stores
from ..stores.entry import Past, measure as measure_version, past

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


class Scanned(NamedTuple):
    """The location of a record, and how much of it was read."""

    finding: SecretFinding
    size: int = 0  # characters of the texts that may be long
    revisions: int = 0  # earlier revisions with secrets
    rows: int = 1


Scan = Callable[[Redactor, Redactor], Iterator[Scanned]]
"""Cleans the texts of a record with the first redactor, and reads its names with the second.

It stores the clean texts only if it is resumed. Names cannot be changed.
"""

Records = Callable[[Transaction, Any], Iterator[tuple[Any, Scan]]]
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
    for key, scan in records(tx, after):
        redactor, names = Redactor(rules), Redactor(rules)
        steps = scan(redactor, names)
        it = next(steps)
        if redactor.count or names.count:
            finding = replace(it.finding, kinds=redactor.kinds.copy(), in_names=names.kinds)
            findings.append(finding)
            if is_redacting and redactor.count:
                next(steps, None)
                done.append((finding, it.revisions))
        last, rows, room = key, rows + it.rows, room - it.size
        if room < 0:
            break
    done.sort(key=lambda it: it[0].project)
    for project, group in groupby(done, key=lambda it: it[0].project):
        of_project, revisions = zip(*group, strict=True)
        memories = tuple(it.memory for it in of_project if it.memory is not None)
        tx[ReceiptTable].add(
            ErasureKind.REDACTION, project, memories=memories, observations=len(memories),
            revisions=sum(revisions), sessions=sum("session" in it.where for it in of_project),
        )  # fmt: skip
    return None if last is None else (last, ScanPage(rows=rows, findings=tuple(findings)))


def _shown(name: object) -> str:
    return printable(without_secrets(str(name)).text)


def _of_memory(memory: MemoryId, project: Project = NO_PROJECT) -> SecretFinding:
    where = {"project": _shown(project), "observation": memory}
    return SecretFinding(where=where, project=project, memory=memory)


def _of_store(
    store: StoreId, memory: MemoryId | None = None, entry: stores.EntryId | None = None,
    **where: object,
) -> SecretFinding:  # fmt: skip
    inner = {} if entry is None else {"memory": public_id(ENTRY, entry)}
    where = {"store": public_id(STORE, store), **inner, **where}
    return SecretFinding(where=where, memory=memory)


def _memories(tx: Transaction, after: MemoryId) -> Iterator[tuple[MemoryId, Scan]]:
    for memory in tx[MemoryTable].every(after, PAGE):
        traits = memory.space.kind.traits
        of = _entry if traits.has_entries else _ref_entry if traits.is_of_hosts else _memory
        yield memory.id, partial(of, tx, memory)


def _memory(
    tx: Transaction, memory: Memory, redactor: Redactor, names: Redactor
) -> Iterator[Scanned]:
    entry = entry_with(tx, memory.id) if memory.space.kind.traits.is_json else None
    text = memory.text
    if entry and not text.content.startswith("{"):  # sealed
        text = replace(text, content=entry.value)
    revisions = [] if entry else tx[RevisionTable].newest(memory)[1:]
    earlier = [(it.number, it.text) for it in revisions if it.text is not None]
    # The session and the scope are names; a session's id is reported with the session itself.
    space = Space(project=UNKNOWN_PROJECT)
    clean = redactor.memory(replace(memory, text=text, session=SessionId(""), space=space))
    names.text(memory.space.scope, MAX_SCOPE)
    redacted_texts = [(number, before, redactor.words(before)) for number, before in earlier]
    changed = [(number, now) for number, before, now in redacted_texts if now != before]
    size = sum(len(it.content) for it in (text, *(text for _, text in earlier)))
    yield Scanned(_of_memory(memory.id, memory.space.project), size, len(changed))
    for number, text in changed:
        tx[RevisionTable].put_text(memory.id, number, text, is_own=True)
    if entry:
        redact_entry(tx, entry, redactor)
        tx[MemoryTable].must_scrub(memory.id)
        return
    it = replace(clean, session=memory.session, space=memory.space)
    if it.key not in (None, memory.key) and not memory.lifecycle.is_expired(tx.now):
        # The key is dropped if another memory has it: keys may differ only in secrets.
        holder = at_key(tx, it.space, it.key or "")
        it = it if holder is None or holder.id == memory.id else replace(it, key=None)
    _replace(tx, memory, it)


def _replace(tx: Transaction, memory: Memory, clean: Memory) -> None:
    hashed = replace(clean, content_hash=content_hash(clean.text.content))
    tx[MemoryTable].replace(memory, hashed)
    tx[MemoryTable].must_scrub(clean.id)


def _ref_entry(
    tx: Transaction, memory: Memory, redactor: Redactor, _: Redactor
) -> Iterator[Scanned]:
    """Scan a ref's entry, with the tags that its commitments wait for."""
    Screen(redactor).tags(tags_of(tx, memory.id))
    clean = replace(memory, text=screened(redactor, memory.text))
    yield Scanned(_of_memory(memory.id), len(memory.text.content))
    _replace(tx, memory, clean)
    measure(tx, clean)
    screen_tags(tx, memory.id, Screen(redactor))


def _entry(
    tx: Transaction, memory: Memory, redactor: Redactor, names: Redactor
) -> Iterator[Scanned]:
    store = StoreId(memory.space.scope)
    text = _redacted_content(redactor, memory.text)
    extras = stores.clean_pairs(redactor, memory.extras)
    names.whole(memory.text.title)
    finding = _of_store(store, memory.id, stores.EntryId(memory.uid))
    yield Scanned(finding, len(memory.text.content))
    if text != memory.text:
        _measure(tx, memory.id, memory.revision, text)
        more = stores.size_of(text.content) - stores.size_of(memory.text.content)
        stores.grow(tx, store, 0, more)
    _replace(tx, memory, replace(memory, text=text, extras=extras))


def _versions(
    tx: Transaction, after: tuple[MemoryId, int]
) -> Iterator[tuple[tuple[MemoryId, int], Scan]]:
    for memory, group in groupby(past(tx, after, PAGE), key=lambda it: it.memory):
        versions = list(group)
        yield (memory, versions[-1].number), partial(_earlier_versions, tx, versions)


def _earlier_versions(
    tx: Transaction, versions: Sequence[Past], redactor: Redactor, _: Redactor
) -> Iterator[Scanned]:
    memory, store, entry, *_rest = versions[0]
    clean = [(it, _redacted_content(redactor, it.text)) for it in versions]
    changed = {it.number: text for it, text in clean if text != it.text}
    finding = _of_store(store, memory, entry, versions=", ".join(map(str, changed)))
    yield Scanned(finding, revisions=len(changed), rows=0)
    for number, text in changed.items():
        tx[RevisionTable].put_text(memory, number, text, is_own=True)
        _measure(tx, memory, number, text)
    tx[MemoryTable].must_scrub(memory)


def _redacted_content(redactor: Redactor, text: Text) -> Text:
    return replace(text, content=redactor.text_of_bytes(text.content, stores.MAX_CONTENT))


def _measure(tx: Transaction, memory: MemoryId, number: int, text: Text) -> None:
    measure_version(tx, memory, number, stores.size_of(text.content), sha256_of(text.content))


def _sessions(tx: Transaction, after: int) -> Iterator[tuple[int, Scan]]:
    for number, session in tx[SessionTable].page(None, after, PAGE):
        yield number, partial(_session, tx, session)


def _session(
    tx: Transaction, session: Session, redactor: Redactor, names: Redactor
) -> Iterator[Scanned]:
    summary = redactor.summary(session)
    transcript = redactor.transcript(tx[TranscriptTable].get(session.id) or Transcript())
    names.session_id(session.id)
    names.whole(session.project)
    where = {"project": _shown(session.project), "session": _shown(session.id)}
    yield Scanned(SecretFinding(where=where, project=session.project))
    tx[SessionTable].close(summary)
    tx[TranscriptTable].rewrite(session.id, transcript)  # no effect without a transcript


def _stores(tx: Transaction, after: StoreId | None) -> Iterator[tuple[StoreId, Scan]]:
    for store in stores.stores_of(tx, stores.Page(limit=PAGE, after=after)).items:
        # An id that is not UTF-8 is read as a different id, after which its row may come again.
        if after is None or store.id < after:
            yield store.id, partial(_store, tx, store)


def _store(
    tx: Transaction, store: stores.Store, redactor: Redactor, _: Redactor
) -> Iterator[Scanned]:
    parts = {name: getattr(store, name) for name in ("name", "description", "metadata")}
    clean = store.model_copy(update=stores.clean(redactor, parts))
    yield Scanned(_of_store(store.id))
    stores.replace_store(tx, clean)


def _proposals(tx: Transaction, after: int) -> Iterator[tuple[int, Scan]]:
    for proposal in proposals_after(tx, after, PAGE)[0]:
        yield proposal.number, partial(_proposal, tx, proposal)


def _proposal(
    tx: Transaction, proposal: Proposal, redactor: Redactor, names: Redactor
) -> Iterator[Scanned]:
    redacted(Screen(redactor), proposal)
    source = proposal.provenance
    for name in (*source.source_run_ids, source.synthesizer_model or ""):
        Screen(names).text(name)
    yield Scanned(SecretFinding(where={"proposal": proposal.id}), proposal.size)
    redact_proposal(tx, proposal.id, Screen(redactor))


def _events(tx: Transaction, after: Offset) -> Iterator[tuple[Offset, Scan]]:
    """Yield the events of runs that contain the tags of an entry."""
    which = f"v.id > :after AND {tx[Sql].dialect.contains('v.payload', ':named')} ORDER BY v.id"
    for event in tx[RunTable].some(which, PAGE, after=after, named='"tags"'):
        yield event.offset, partial(_event, tx, event)


def _event(tx: Transaction, event: RunEvent, redactor: Redactor, _: Redactor) -> Iterator[Scanned]:
    """Scan the tags of a run's event; all other texts of the event are names."""
    tags = Screen(redactor).tags(filter(None, event.payload["tags"]))
    yield Scanned(SecretFinding(where={"run": _shown(event.run)}), rows=0)
    payload = as_json(event.payload | {"tags": tags})
    tx[Sql].update("run_events", "id", {"id": event.offset, "payload": payload})


KINDS: Sequence[tuple[Records, Any]] = (
    (_memories, UNSAVED),
    (_sessions, 0),
    (_stores, None),
    (_versions, (UNSAVED, 0)),
    (_proposals, 0),
    (_events, 0),
)
"""The reader of each kind of records, and the position before its first record."""
